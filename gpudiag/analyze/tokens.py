"""Tokens that a rank reads in a step: the shapes of its embedding, or its run's events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from statistics import median_low

import numpy as np

from gpudiag.analyze.host import Host
from gpudiag.analyze.intervals import contains
from gpudiag.analyze.names import HostClass, distinct
from gpudiag.analyze.trace_flops.call import Call
from gpudiag.analyze.trace_flops.nesting import operators_named
from gpudiag.analyze.trace_flops.phase import phases
from gpudiag.analyze.trace_flops.recorded import Recorded
from gpudiag.analyze.trace_flops.results import Phase
from gpudiag.analyze.window import step_of
from gpudiag.model.analysis import RankTokens
from gpudiag.model.job import RankTrace
from gpudiag.model.tables import I64, Mask, Trace

_EMBEDDING = "aten::embedding"
_MATRIX = 2  # dimensions of a table; of indices that tell a sequence's length: [batch, length]


_BACKWARD = "autograd::engine::evaluate_function"
_DATA_PARALLEL = re.compile(r"^(DistributedDataParallel|FullyShardedDataParallel)\.|^FSDP::")
_AMBIGUOUS = (
    "looks its tokens up more than once in a forward (several embeddings of one size, two towers, "
    "or evaluation), which shapes can't tell apart"
)


def tokens_of(source: RankTrace, host: Host) -> RankTokens | None:
    """Return a rank's tokens of a step, from shapes, else from its run's events."""
    found = _looked_up(source.trace, host)
    told, samples = source.tokens_per_step, source.samples_per_step
    if found is None or (found.per_step is None and told is not None):
        if told is None and samples is None:
            return found
        found = RankTokens(per_step=told, source="events")
    differs = found.source != "events" and told != found.per_step
    return replace(
        found,
        samples_per_step=samples,
        own_data=_own_data(source.trace, host),
        told_per_step=told if differs else None,
    )


def _own_data(trace: Trace, host: Host) -> bool:
    """Tell whether no two ranks read the same: DDP or FSDP, and no group but that of all ranks."""
    world, groups = trace.info.world_size, trace.info.groups
    undivided = bool(groups) and all(one.size in (1, world) for one in groups)
    wrapped = any(_DATA_PARALLEL.match(text) for text in trace.strings)
    return undivided and wrapped and len(host) > 0


def _looked_up(trace: Trace, host: Host) -> RankTokens | None:
    """Return the tokens that a rank looks up in a step; None where it looks up none.

    ``aten::embedding`` takes a table [vocabulary, hidden] and indices [batch, length]. The token
    embedding is the one with the largest vocabulary; lookups of positions and token types are
    smaller. A forward that is run again in the backward, and evaluation, are left out.
    """
    rows = operators_named(host, lambda name: name == _EMBEDDING)
    if not len(rows) or not host.steps:
        return None
    recorded = Recorded(trace, host)
    step = step_of(host.steps, host.starts[rows])
    forward = phases(host, recorded, rows).phase == Phase.FORWARD
    kept = forward & (step >= 0) & ~_evaluated(host, rows)
    rows, step = rows[kept], step[kept]
    signatures = recorded.signatures(rows)
    vocabularies = np.array([_vocabulary(call) for call in signatures.calls], dtype=np.int64)
    largest = int(vocabularies.max(initial=0))
    if not largest:
        return None
    main = vocabularies[signatures.of_row] == largest
    rows, step, of_row = rows[main], step[main], signatures.of_row[main]
    if _several_to_a_forward(host, rows, step):
        return RankTokens(per_step=None, source="embedding", vocabulary=largest, why_not=_AMBIGUOUS)
    indices = {code: signatures.calls[code].shape(1) for code in distinct(of_row)}
    per_step = np.zeros(len(host.steps), dtype=np.int64)
    np.add.at(per_step, step, np.array([prod(indices[code]) for code in of_row.tolist()]))
    return RankTokens(
        per_step=median_low(per_step[per_step > 0].tolist()),
        source="embedding",
        sequence=_length(indices.values()),
        vocabulary=largest,
    )


def _several_to_a_forward(host: Host, rows: I64, step: I64) -> bool:
    """Tell lookups of one step without a backward between them: not of micro-batches."""
    starts = host.starts[rows]
    order = np.argsort(starts, kind="stable")
    starts, step = starts[order], step[order]
    backward = np.sort(host.starts[host.named(lambda name: name.startswith(_BACKWARD))])
    before = np.searchsorted(backward, starts)
    return bool(np.any((np.diff(step) == 0) & (np.diff(before) == 0)))


def _evaluated(host: Host, rows: I64) -> Mask:
    inside = np.zeros(len(rows), dtype=bool)
    for thread in distinct(host.thread[rows]):
        mine = host.thread[rows] == thread
        inside[mine] = contains(host.spans(int(thread), HostClass.EVAL), host.starts[rows[mine]])
    return inside


def _vocabulary(call: Call) -> int:
    """Return the rows of a call's table; 0 where the call's shapes aren't those of a lookup."""
    table, indices = call.optional_shape(0), call.optional_shape(1)
    usable = table and len(table) == _MATRIX and indices and prod(indices) > 0
    return table[0] if table and usable else 0


def _length(indices: Iterable[tuple[int, ...]]) -> int | None:
    lengths = {shape[-1] if len(shape) == _MATRIX else None for shape in indices}
    return lengths.pop() if len(lengths) == 1 else None
