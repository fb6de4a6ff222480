"""Each trace with the events of its own process: which log is whose, and its spans in the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.model.tables import HostCategory, HostTable, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpudiag.trace.event_log import Process
    from gpudiag.trace.identify import Member

_STEP = "ProfilerStep#"


def process_of(member: Member, processes: Iterable[Process]) -> Process | None:
    """Return what the process of a trace told: by pid, else by rank and time; None if nothing."""
    fits = [(fit, one.first_ns or 0, one) for one in processes if (fit := _fit(one, member))]
    return max(fits, key=lambda row: row[:2])[2] if fits else None


def _fit(process: Process, member: Member) -> int:
    """Return 2 for the trace's process, 1 for one that can be no other, 0 for another's."""
    pids, ranks = (process.pid, member.pid), (process.rank, member.rank)
    if _differ(*ranks):
        return 0
    same_rank = None not in ranks
    if None not in pids and not _differ(*pids):
        return 2 if same_rank or not _differ(_short(process.host), _short(member.host)) else 0
    if not same_rank:
        return 0
    if None in pids:
        return 1
    # Of another pid: told in another namespace, or by an earlier or later start of this rank.
    first, last = process.first_ns, process.last_ns
    if first is None or last is None:
        return 0
    return int(first <= member.end_ns and last >= member.start_ns)


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _short(host: str | None) -> str | None:
    return None if host is None else host.split(".", maxsplit=1)[0]


def starts_after(process: Process, member: Member) -> bool:
    """Tell a process that, by its log's clock, started when its own trace had ended."""
    return process.first_ns is not None and process.first_ns > member.end_ns


def with_events(member: Member, process: Process) -> Member:
    """Return a trace with what its process told: spans as annotations of the thread of the steps.

    Spans that don't meet the trace's time are left out: what the other threads and the device did
    then was not recorded.
    """
    told = replace(member, tokens=tuple(process.tokens), samples=tuple(process.samples))
    trace = member.trace
    spans = [
        one
        for one in process.spans
        if one.start_ns < member.end_ns and one.end_ns > member.start_ns
    ]
    thread = _step_thread(trace, process.pid or member.pid)
    if not spans or thread is None:
        return told
    strings = list(trace.strings)
    codes = {name: len(strings) + i for i, name in enumerate(dict.fromkeys(s.name for s in spans))}
    host, count = trace.host, len(spans)
    none = np.full(count, -1, dtype=np.int64)
    added = {
        "ts_ns": np.array([s.start_ns for s in spans]),
        "dur_ns": np.array([s.end_ns - s.start_ns for s in spans]),
        "name": np.array([codes[s.name] for s in spans]),
        "category": np.full(count, HostCategory.ANNOTATION),
        "thread": np.full(count, thread),
        **dict.fromkeys(("correlation", "external_id", "stack"), none),
    }
    columns = {
        name: np.concatenate((column := getattr(host, name), more.astype(column.dtype)))
        for name, more in added.items()
    }
    return replace(
        told, trace=replace(trace, strings=[*strings, *codes], host=HostTable(**columns))
    )


def _step_thread(trace: Trace, pid: str | None) -> int | None:
    """Return the thread that runs the steps, else the process's main thread."""
    steps = [code for code, text in enumerate(trace.strings) if text.startswith(_STEP)]
    rows = np.flatnonzero(np.isin(trace.host.name, steps))
    if len(rows):
        return int(np.bincount(trace.host.thread[rows]).argmax())
    return next((i for i, one in enumerate(trace.threads) if one.tid == pid), None)
