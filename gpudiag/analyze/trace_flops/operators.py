"""Every operator with FLOPs that a trace recorded, each counted once, with what it ran for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpudiag.analyze.host import Host
from gpudiag.analyze.trace_flops.call import Call
from gpudiag.analyze.trace_flops.formulas import (
    Flops,
    Kind,
    Unknown,
    flops_of,
    kind_of,
    learned_output,
)
from gpudiag.analyze.trace_flops.nesting import count_inside, operators_named
from gpudiag.analyze.trace_flops.phase import Phases, phases
from gpudiag.analyze.trace_flops.recorded import Recorded, Signatures
from gpudiag.analyze.trace_flops.results import Phase
from gpudiag.model.tables import I8, I64, Mask, Trace

# Columns of Operators.parts: the parts of FlopTotals, full convention first, then visible; last
# what is ambiguous.
MODEL, RECOMPUTE, ATTENTION, OPTIMIZER = range(4)
VISIBLE = 4
AMBIGUOUS = 8
PARTS = 9


@dataclass(frozen=True, slots=True)
class Operators:
    """Operators that count: innermost, FLOPs known; and those with a formula but unknown FLOPs."""

    row: I64  # in Host, ascending
    signature: I64  # -> calls, costs
    phase: I8
    phantom: Mask
    parts: I64  # shape (n, PARTS)
    calls: list[Call]
    dims: list[str]
    costs: list[Flops | Unknown]
    wrappers: I64  # rows in Host of operators with a formula that hold one that counts
    unknown: I64  # rows in Host with a formula whose arguments don't suffice
    unknown_signature: I64
    recorded: Recorded = field(repr=False)

    def __len__(self) -> int:
        return len(self.row)


def find_operators(trace: Trace, host: Host) -> Operators:
    """Return the operators with FLOPs; each distinct call is computed once."""
    recorded = Recorded(trace, host)
    rows = _candidates(host, recorded)
    signatures = recorded.signatures(rows)
    costs = _costs(signatures)
    is_known = np.array([isinstance(cost, Flops) for cost in costs], dtype=bool)
    known = is_known[signatures.of_row] if len(costs) else np.zeros(0, dtype=bool)
    holds = count_inside(host, rows, rows[known]) > 0
    counts, lost = known & ~holds, ~known & ~holds
    told = phases(host, recorded, rows[counts])
    signature = signatures.of_row[counts]
    return Operators(
        row=rows[counts],
        signature=signature,
        phase=told.phase,
        phantom=told.phantom,
        parts=_parts(host, rows[counts], signature, costs, told),
        calls=signatures.calls,
        dims=signatures.dims,
        costs=costs,
        wrappers=rows[holds],
        unknown=rows[lost],
        unknown_signature=signatures.of_row[lost],
        recorded=recorded,
    )


def _candidates(host: Host, recorded: Recorded) -> I64:
    """Return the rows of operators with a formula, and of kernels' that counted themselves."""

    def has_formula(name: str) -> bool:
        return kind_of(name) not in {Kind.NONE, Kind.CONVOLUTION_HALF}

    return np.union1d(operators_named(host, has_formula), recorded.self_counted())


def _costs(signatures: Signatures) -> list[Flops | Unknown]:
    """Return the cost of every distinct call; convolutions without scalars learn their output.

    A forward convolution recorded without its stride and padding (torch before 1.12) takes the
    output sizes that the backward with the same input and weight has, if all such agree.
    """
    outputs: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
    unclear = set()
    for call in signatures.calls:
        learned = learned_output(call)
        if learned is not None and outputs.setdefault(*learned) != learned[1]:
            unclear.add(learned[0])
    told = {key: sizes for key, sizes in outputs.items() if key not in unclear}
    pairs = zip(signatures.calls, signatures.recorded_flops, strict=True)
    return [flops_of(call, own, told) for call, own in pairs]


def _parts(
    host: Host, rows: I64, signature: I64, costs: list[Flops | Unknown], told: Phases
) -> I64:
    """Return the FLOPs of each operator by part; shape (n, PARTS)."""
    cost = _cost_columns(costs)[signature]
    cost[:, :4] *= _halves(host, rows, cost[:, 4].astype(bool))[:, None]
    share = _compiled_recompute_share(cost[:, 0], costs, signature, told)
    parts = np.zeros((len(rows), PARTS), dtype=np.int64)
    for offset, model, executed in ((0, cost[:, 0], cost[:, 1]), (VISIBLE, cost[:, 2], cost[:, 3])):
        again = np.rint(model * share).astype(np.int64)
        again[told.phase == Phase.RECOMPUTE] = model[told.phase == Phase.RECOMPUTE]
        optimizer = told.phase == Phase.OPTIMIZER
        parts[:, offset + RECOMPUTE] = np.where(optimizer, 0, again)
        parts[:, offset + MODEL] = np.where(optimizer, 0, model - again)
        parts[:, offset + OPTIMIZER] = np.where(optimizer, executed, 0)
        parts[:, offset + ATTENTION] = np.where(optimizer, 0, executed - model)
    ambiguous = told.phase == Phase.AMBIGUOUS
    parts[ambiguous, AMBIGUOUS] = parts[ambiguous, MODEL]
    return parts


def _cost_columns(costs: list[Flops | Unknown]) -> I64:
    """Return model, executed, visible model, visible executed, per half; shape (calls, 5)."""
    zero = (0, 0, 0, 0, 0)
    table = [
        (c.model, c.executed, c.visible_model, c.visible_executed, int(c.per_half))
        if isinstance(c, Flops)
        else zero
        for c in costs
    ]
    return np.array(table, dtype=np.int64).reshape(-1, 5)


def _halves(host: Host, rows: I64, per_half: Mask) -> I64:
    """Return how many halves a backward convolution without a recorded mask ran; 1 for others.

    Where the halves are no operators of their own (torch 1.11 to 2.0) both are assumed: one too
    many for the layer that takes the data.
    """
    times = np.ones(len(rows), dtype=np.int64)
    if per_half.any():
        halves = operators_named(host, lambda name: kind_of(name) == Kind.CONVOLUTION_HALF)
        count = count_inside(host, rows[per_half], halves)
        times[per_half] = np.where(count > 0, np.minimum(count, 2), 2)
    return times


def _compiled_recompute_share(
    model: I64, costs: list[Flops | Unknown], signature: I64, told: Phases
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return which share of an operator of a compiled backward is recomputation.

    Attention forwards in a backward can be nothing else. Of matrix products and convolutions,
    with FLOPs F in the compiled forward and B in its backward, max(0, B - 2 F) is recomputed, in
    proportion. A backward that leaves gradients out (frozen weights, the first layer's input) has
    less than 2 F: this is a lower bound.
    """
    share = np.zeros(len(model))
    kinds = np.array([_kind(cost) for cost in costs], dtype=np.int8)[signature]
    products = (kinds != Kind.ATTENTION) & (kinds != Kind.ATTENTION_BACKWARD)
    share[(told.compiled_backward >= 0) & (kinds == Kind.ATTENTION)] = 1.0
    for number in np.unique(told.compiled_backward[told.compiled_backward >= 0]).tolist():
        backward = products & (told.compiled_backward == number)
        forward_flops = int(model[products & (told.compiled_forward == number)].sum())
        flops = int(model[backward].sum())
        if flops > 2 * forward_flops > 0:
            share[backward] = (flops - 2 * forward_flops) / flops
    return share


def _kind(cost: Flops | Unknown) -> Kind:
    return cost.kind if isinstance(cost, Flops) else Kind.NONE
