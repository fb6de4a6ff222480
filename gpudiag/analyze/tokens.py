"""Tokens that a rank reads in a step: the shapes of its embedding, or its run's events."""

from __future__ import annotations

from dataclasses import dataclass
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
from gpudiag.model.job import RankTrace
from gpudiag.model.tables import I64, Mask, Trace

_EMBEDDING = "aten::embedding"
_MATRIX = 2  # dimensions of a table; of indices that tell a sequence's length: [batch, length]


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one rank reads in a step."""

    per_step: int  # median over the recorded steps
    sequence: int | None  # length of a sequence, where all lookups agree


def tokens_of(source: RankTrace, host: Host) -> Tokens | None:
    """Return a rank's tokens of a step, from shapes, else from its run's events."""
    found = _looked_up(source.trace, host)
    told = source.tokens_per_step
    return found or (None if told is None else Tokens(told, None))


def _looked_up(trace: Trace, host: Host) -> Tokens | None:
    """Return the tokens that a rank looks up in a step; None where the shapes don't tell.

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
    rows, step = (
        column[forward & (step >= 0) & ~_evaluated(host, rows)] for column in (rows, step)
    )
    signatures = recorded.signatures(rows)
    vocabularies = [_vocabulary(call) for call in signatures.calls]
    largest = max((size for size in vocabularies if size), default=None)
    if largest is None:
        return None
    main = [index for index, size in enumerate(vocabularies) if size == largest]
    looked_up = np.zeros(len(vocabularies), dtype=np.int64)
    looked_up[main] = [prod(signatures.calls[index].shape(1)) for index in main]
    per_step = np.zeros(len(host.steps), dtype=np.int64)
    np.add.at(per_step, step, looked_up[signatures.of_row])
    counted = per_step[per_step > 0].tolist()
    return Tokens(median_low(counted), _length([signatures.calls[i] for i in main]))


def _evaluated(host: Host, rows: I64) -> Mask:
    inside = np.zeros(len(rows), dtype=bool)
    for thread in distinct(host.thread[rows]):
        mine = host.thread[rows] == thread
        inside[mine] = contains(host.spans(int(thread), HostClass.EVAL), host.starts[rows[mine]])
    return inside


def _vocabulary(call: Call) -> int | None:
    """Return the rows of a call's table; None where the call's shapes aren't those of a lookup."""
    table, indices = call.optional_shape(0), call.optional_shape(1)
    usable = table and len(table) == _MATRIX and indices and prod(indices) > 0
    return table[0] if table and usable else None


def _length(calls: list[Call]) -> int | None:
    shapes = [call.shape(1) for call in calls]
    lengths = {shape[-1] if len(shape) == _MATRIX else None for shape in shapes}
    return lengths.pop() if len(lengths) == 1 else None
