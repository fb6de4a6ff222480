"""Which host rows lie inside which, thread by thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from gpudiag.analyze.host import Host
from gpudiag.analyze.intervals import innermost
from gpudiag.analyze.names import by_code
from gpudiag.model.tables import I64, HostCategory, Mask


def rows_named(host: Host, meaning: Callable[[str], bool], *, operators: bool = True) -> I64:
    """Return the rows whose name means it, in order; only operators unless told otherwise."""
    if not len(host):
        return np.zeros(0, dtype=np.int64)
    fits = by_code(host.strings, np.unique(host.name), meaning).astype(bool)[host.name]
    if operators:
        fits &= host.category == HostCategory.OPERATOR
    return np.flatnonzero(fits)


def enclosing(host: Host, spans: I64, rows: I64) -> I64:
    """Return for each row the innermost of ``spans`` that its start lies in, itself too; else -1.

    ``spans`` are rows in ascending order; row -1 lies in none.
    """
    found = np.full(len(rows), -1, dtype=np.int64)
    asked = np.flatnonzero(rows >= 0)
    for thread in _threads(host, spans):
        mine = spans[host.thread[spans] == thread]
        here = asked[host.thread[rows[asked]] == thread]
        inner = innermost(host.starts[mine], host.ends[mine], host.starts[rows[here]])
        found[here] = np.where(inner >= 0, mine[np.maximum(inner, 0)], -1)
    return found


def count_inside(host: Host, spans: I64, rows: I64, until: I64 | None = None) -> I64:
    """Return for each span how many of ``rows`` (ascending) start inside it, itself left out.

    ``until`` replaces the spans' own ends, ns.
    """
    count = np.zeros(len(spans), dtype=np.int64)
    ends = host.ends[spans] if until is None else until
    after = np.searchsorted(host.starts, ends, side="left")
    for thread in _threads(host, rows):
        mine = rows[host.thread[rows] == thread]
        here = np.flatnonzero(host.thread[spans] == thread)
        first = np.searchsorted(mine, spans[here], side="right")
        last = np.searchsorted(mine, after[here], side="left")
        count[here] = np.maximum(last - first, 0)
    return count


def holds_any(host: Host, spans: I64, rows: I64) -> Mask:
    """Mask the spans that hold any of ``rows`` besides themselves."""
    held: Mask = count_inside(host, spans, rows) > 0
    return held


def _threads(host: Host, rows: I64) -> Iterable[int]:
    return np.unique(host.thread[rows]).tolist() if len(rows) else []
