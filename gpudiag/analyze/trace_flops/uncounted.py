"""Tensor kernels whose FLOPs are not known: which, how long, and why."""

from __future__ import annotations

import numpy as np

from gpudiag.analyze.grouping import group_by, shares
from gpudiag.analyze.host import Host
from gpudiag.analyze.names import is_graph_launch
from gpudiag.analyze.trace_flops.formulas import Unknown
from gpudiag.analyze.trace_flops.operators import Operators
from gpudiag.analyze.trace_flops.results import Uncounted
from gpudiag.analyze.trace_flops.work import Work
from gpudiag.model.tables import I64

NOT_RECORDED = "its launch is not recorded (before the recording began)"
GRAPH = "graph replay: no operators are recorded"
NO_OPERATOR = "launched outside any recorded operator"
NO_FORMULA = "no formula for this operator"
_REASONS = (NOT_RECORDED, GRAPH, NO_OPERATOR, NO_FORMULA)


def uncounted(host: Host, operators: Operators, work: Work, rows: I64) -> tuple[Uncounted, ...]:
    """Group ``rows`` of ``work`` by kernel, operator and reason, the longest first."""
    launch = work.launch[rows]
    lost = host.enclosing(operators.unknown, launch)
    inner = np.where(lost >= 0, lost, work.inner[rows])
    operator = np.where(inner >= 0, host.name[inner] if len(host) else -1, -1)
    groups = group_by([work.name[rows], operator, _reasons(host, operators, launch, lost, inner)])
    bounds = _bounds(operators, lost, work.duration[rows])
    bounded = groups.sums((bounds >= 0).astype(np.int64))
    found = [
        Uncounted(
            name=host.strings[name],
            operator=host.strings[code] if code >= 0 else None,
            reason=_reason_text(operators, why),
            count=count,
            time_ns=ns,
            bound_flops=bound if with_bound else None,
        )
        for (name, code, why), count, ns, bound, with_bound in zip(
            groups.keys,
            groups.count(),
            groups.sums(work.duration[rows]),
            groups.sums(np.maximum(bounds, 0)),
            bounded,
            strict=True,
        )
    ]
    return tuple(sorted(found, key=lambda one: (-one.time_ns, one.name, one.reason)))


def _reasons(host: Host, operators: Operators, launch: I64, lost: I64, inner: I64) -> I64:
    """Return an index into _REASONS, or past them the index of an unknown operator's call."""
    found = np.full(len(launch), _REASONS.index(NO_FORMULA), dtype=np.int64)
    found[inner < 0] = _REASONS.index(NO_OPERATOR)
    linked = np.flatnonzero(launch >= 0)
    found[linked[host.named(is_graph_launch)[launch[linked]]]] = _REASONS.index(GRAPH)
    found[launch < 0] = _REASONS.index(NOT_RECORDED)
    known = lost >= 0
    found[known] = len(_REASONS) + _signature(operators, lost[known])
    return found


def _reason_text(operators: Operators, why: int) -> str:
    if why < len(_REASONS):
        return _REASONS[why]
    cost = operators.costs[why - len(_REASONS)]
    return cost.reason if isinstance(cost, Unknown) else NO_FORMULA


def _bounds(operators: Operators, lost: I64, duration: I64) -> I64:
    """Return the most FLOPs of each kernel, -1 where nothing bounds them; by share of duration."""
    result = np.full(len(lost), -1, dtype=np.int64)
    rows = np.flatnonzero(lost >= 0)
    if not len(rows):
        return result
    bounds = [cost.bound if isinstance(cost, Unknown) else None for cost in operators.costs]
    bound = np.array([-1 if one is None else one for one in bounds], dtype=np.int64)
    mine = bound[_signature(operators, lost[rows])]
    _, group = np.unique(lost[rows], return_inverse=True)
    result[rows] = np.where(mine >= 0, np.rint(mine * shares(group, duration[rows])), -1)
    return result


def _signature(operators: Operators, lost: I64) -> I64:
    return operators.unknown_signature[np.searchsorted(operators.unknown, lost)]
