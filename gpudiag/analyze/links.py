"""Which launch call each device record comes from, by correlation id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.host import is_call
from gpudiag.model import format as fmt
from gpudiag.model.tables import I64, Quality

if TYPE_CHECKING:
    from gpudiag.analyze.host import Host


def launch_rows(host: Host, correlation: I64, starts: I64) -> tuple[I64, list[Quality]]:
    """Return the host row of each device record's launch call, -1 where that isn't known.

    An id that several calls share (two runs in one file, a counter that began again, a damaged
    writer) links a record to the call before its start, if all earlier calls of that id have work
    of their own that has started by then; else the record may be theirs, and is linked to none.
    A call inside another of the same id, such as a driver's inside a runtime's, is the same launch.

    Args:
        host: the host of the trace.
        correlation: id of each device record.
        starts: start of each device record, ns.
    """
    calls = np.flatnonzero(is_call(host.category) & (host.correlation > 0))
    if not len(calls):
        return np.full(len(correlation), -1, dtype=np.int64), []
    calls = calls[np.argsort(host.correlation[calls], kind="stable")]
    ids = host.correlation[calls]
    position = np.minimum(np.searchsorted(ids, correlation, side="left"), len(ids) - 1)
    known = ids[position] == correlation
    found: I64 = np.where(known, calls[position], -1)
    own = _own_calls(host, calls, ids)
    repeated = ids[own][1:][ids[own][1:] == ids[own][:-1]]
    if not len(repeated):
        return found, []
    shared = np.flatnonzero(known & np.isin(correlation, repeated))
    among = own[np.isin(ids[own], repeated)]
    found[shared] = _by_time(host, calls[among], correlation[shared], starts[shared])
    return found, _said(len(repeated), shared, found)


def _own_calls(host: Host, calls: I64, ids: I64) -> I64:
    """Return the positions of the calls that lie inside no earlier one of their id and thread."""
    kept = np.ones(len(calls), dtype=bool)
    outer = 0
    for at in (np.flatnonzero(ids[1:] == ids[:-1]) + 1).tolist():
        if kept[at - 1]:
            outer = at - 1
        inside = host.ends[calls[at]] <= host.ends[calls[outer]]
        kept[at] = not (inside and host.thread[calls[at]] == host.thread[calls[outer]])
    return np.flatnonzero(kept)


def _by_time(host: Host, calls: I64, correlation: I64, starts: I64) -> I64:
    """Return for each record the call of its id before its start, -1 where it may be another's."""
    ids = np.concatenate((host.correlation[calls], correlation))
    at = np.concatenate((host.starts[calls], starts))
    is_record = np.arange(len(ids)) >= len(calls)
    order = np.lexsort((is_record, at, ids))
    record = is_record[order]
    first = np.flatnonzero(np.diff(ids[order], prepend=ids[order][0] - 1))
    group = np.searchsorted(first, np.arange(len(order)), side="right") - 1
    # Calls and records of the same id up to each place, itself included.
    called, started = (_counted(one.astype(np.int64), first, group) for one in (~record, record))
    # The place of the latest call up to each place, of whatever id: with called > 0, of this one.
    latest = np.maximum.accumulate(np.where(record, -1, np.arange(len(order))))
    sure = record & (called > 0) & (started[latest] >= called - 1)
    found = np.full(len(starts), -1, dtype=np.int64)
    found[order[sure] - len(calls)] = calls[order[latest[sure]]]
    return found


def _counted(ones: I64, first: I64, group: I64) -> I64:
    """Return running sums that begin anew where a group begins."""
    total = np.cumsum(ones)
    return total - (total - ones)[first][group]


def _said(repeated: int, shared: I64, found: I64) -> list[Quality]:
    if not len(shared):
        return []
    lost = int((found[shared] < 0).sum())
    message = (
        f"{fmt.counted(repeated, 'launch call')} share a correlation id with an earlier one; of "
        f"{fmt.counted(len(shared), 'device record')} with such an id {lost:,} can't be linked"
    )
    return [Quality("correlations_repeated", "warning" if lost else "info", repeated, message)]
