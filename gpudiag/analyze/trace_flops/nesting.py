"""Operators by name, and how many host rows lie inside others, thread by thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpudiag.analyze.host import Host
from gpudiag.analyze.names import distinct
from gpudiag.model.tables import I64, HostCategory, Mask


def operators_named(host: Host, meaning: Callable[[str], bool]) -> I64:
    """Return the rows of operators whose name means it, in order."""
    return np.flatnonzero(host.named(meaning) & (host.category == HostCategory.OPERATOR))


def count_inside(host: Host, spans: I64, rows: I64, until: I64 | None = None) -> I64:
    """Return for each span how many of ``rows`` (ascending) start inside it, itself left out.

    ``until`` replaces the spans' own ends, ns.
    """
    count = np.zeros(len(spans), dtype=np.int64)
    ends = host.ends[spans] if until is None else until
    after = np.searchsorted(host.starts, ends, side="left")
    for thread in distinct(host.thread[rows]):
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
