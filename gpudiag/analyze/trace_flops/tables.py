"""Rows of a window summed by operand type, by kernel and by operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.grouping import group_by
from gpudiag.analyze.host import Host
from gpudiag.analyze.trace_flops.operators import AMBIGUOUS, VISIBLE, Operators
from gpudiag.analyze.trace_flops.results import (
    FP32_OR_TF32,
    UNKNOWN_DTYPE,
    DtypeFlops,
    FlopTotals,
    KernelFlops,
    OperatorFlops,
    Phase,
)
from gpudiag.analyze.trace_flops.work import FP32, TF32, Work
from gpudiag.model.tables import I64

_FLOAT = "fp32"
# A 4-byte float product: plain fp32 units, or TF32 tensor cores; else the kernel doesn't tell.
_FLOAT_LABELS = {FP32: "fp32", TF32: "tf32"}


@dataclass(frozen=True, slots=True)
class Labels:
    """Operand types of all rows of ``work``: names, and the index of each row's; -1 for none."""

    names: list[str]
    of_row: I64


def operand_types(operators: Operators, work: Work) -> Labels:
    """Return the operand type of each kernel's operator."""
    types = [getattr(cost, "dtype", None) or UNKNOWN_DTYPE for cost in operators.costs]
    names = sorted({*types, _FLOAT, FP32_OR_TF32, *_FLOAT_LABELS.values()})
    codes = np.array([names.index(one) for one in types], dtype=np.int64)
    found = np.full(len(work.owner), -1, dtype=np.int64)
    owned = work.owner >= 0
    found[owned] = codes[operators.signature[work.owner[owned]]]
    unit = np.full(max(FP32, TF32) + 1, names.index(FP32_OR_TF32))
    for code, name in _FLOAT_LABELS.items():
        unit[code] = names.index(name)
    return Labels(names, np.where(found == names.index(_FLOAT), unit[work.float_unit], found))


def totals(parts: I64) -> tuple[FlopTotals, FlopTotals]:
    """Return the totals of one row of parts under both conventions."""
    values = [int(one) for one in parts]
    return FlopTotals(*values[:VISIBLE]), FlopTotals(*values[VISIBLE:AMBIGUOUS])


def by_dtype(work: Work, rows: I64, labels: Labels) -> tuple[DtypeFlops, ...]:
    """Sum by operand type, most FLOPs first; kernels without a counted operator are left out."""
    rows = rows[labels.of_row[rows] >= 0]
    groups = group_by([labels.of_row[rows]])
    parts, time = groups.table(work.parts[rows]), groups.sums(work.duration[rows])
    found = [
        DtypeFlops(labels.names[key[0]], *totals(parts[i]), time[i])
        for i, key in enumerate(groups.keys)
    ]
    return tuple(sorted(found, key=lambda one: (-one.full.hw_flops, one.dtype)))


def by_kernel(
    host: Host, work: Work, rows: I64, labels: Labels, moved: I64
) -> tuple[KernelFlops, ...]:
    """Sum by kernel name and operand type, the longest first; ``moved``: bytes of each row."""
    groups = group_by([work.name[rows], labels.of_row[rows], work.is_tensor[rows]])
    duration, size = work.duration[rows], moved[rows]
    known, sized = work.owner[rows] >= 0, size >= 0
    executed = work.parts[rows, VISIBLE:AMBIGUOUS].sum(axis=1)
    count, time, flops = groups.count(), groups.sums(duration), groups.sums(executed)
    known_count, flops_ns = groups.sums(known), groups.sums(np.where(known, duration, 0))
    sized_count, bytes_ns = groups.sums(sized), groups.sums(np.where(sized, duration, 0))
    total = groups.sums(np.maximum(size, 0))
    found = [
        KernelFlops(
            name=host.strings[name],
            dtype=labels.names[label] if label >= 0 else None,
            is_tensor=bool(tensor),
            count=count[i],
            time_ns=time[i],
            flops=flops[i] if known_count[i] else None,
            flops_ns=flops_ns[i],
            bytes=total[i] if sized_count[i] else None,
            bytes_ns=bytes_ns[i],
        )
        for i, (name, label, tensor) in enumerate(groups.keys)
    ]
    return tuple(sorted(found, key=lambda one: (-one.time_ns, one.name, one.dtype or "")))


def by_operator(
    operators: Operators, work: Work, rows: I64, labels: Labels
) -> tuple[OperatorFlops, ...]:
    """Sum by operator, arguments, type and phase, the longest first."""
    rows = rows[work.owner[rows] >= 0]
    owner = work.owner[rows]
    groups = group_by([operators.signature[owner], operators.phase[owner], labels.of_row[rows]])
    count, time = groups.distinct(owner), groups.sums(work.duration[rows])
    parts = groups.table(work.parts[rows])
    found = [
        OperatorFlops(
            name=operators.calls[signature].name,
            dims=operators.dims[signature],
            dtype=labels.names[label],
            phase=Phase(phase),
            count=count[i],
            time_ns=time[i],
            full_flops=int(parts[i, :VISIBLE].sum()),
            visible_flops=int(parts[i, VISIBLE:AMBIGUOUS].sum()),
        )
        for i, (signature, phase, label) in enumerate(groups.keys)
    ]
    return tuple(sorted(found, key=lambda one: (-one.time_ns, one.name, one.dims, one.phase)))
