"""The bytes that each kernel moves at least, where shapes tell: its share of its operator's."""

from __future__ import annotations

import numpy as np

from gpudiag.analyze.grouping import shares
from gpudiag.analyze.trace_flops.formulas import Flops
from gpudiag.analyze.trace_flops.operators import Operators
from gpudiag.analyze.trace_flops.traffic import traffic_bytes
from gpudiag.analyze.trace_flops.work import Work
from gpudiag.model.tables import I64


def moved_bytes(operators: Operators, work: Work) -> I64:
    """Return the bytes of each kernel, -1 where unknown."""
    result = np.full(len(work.launch), -1, dtype=np.int64)
    sizes = [cost.bytes if isinstance(cost, Flops) else None for cost in operators.costs]
    owned = np.flatnonzero(work.owner >= 0)
    size = _or_minus_one(sizes)[operators.signature[work.owner[owned]]]
    result[owned] = np.where(size >= 0, np.rint(size * work.share[owned]), -1)
    held = np.flatnonzero((work.owner < 0) & (work.inner >= 0))
    if len(held):
        result[held] = _traffic(operators, work.inner[held], work.duration[held])
    return result


def _traffic(operators: Operators, inner: I64, duration: I64) -> I64:
    """Return the bytes of kernels of memory-bound operators (rows in Host), by duration."""
    rows, group = np.unique(inner, return_inverse=True)
    signatures = operators.recorded.signatures(rows)
    size = _or_minus_one([traffic_bytes(call) for call in signatures.calls])
    mine = size[signatures.of_row][group]
    moved: I64 = np.where(mine >= 0, np.rint(mine * shares(group, duration)), -1).astype(np.int64)
    return moved


def _or_minus_one(sizes: list[int | None]) -> I64:
    return np.array([-1 if one is None else one for one in sizes], dtype=np.int64)
