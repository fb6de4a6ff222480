"""Host threads of one trace: what each was doing at any instant, and who launched what."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpudiag.analyze.intervals import Intervals, contains, innermost, union
from gpudiag.analyze.names import (
    HostClass,
    HostNames,
    by_code,
    capture_edge,
    distinct,
    is_annotation,
    is_collective_span,
    is_launch,
    step_number,
)
from gpudiag.analyze.steps import Step, find_steps
from gpudiag.model.tables import (
    I8,
    I32,
    I64,
    INVALID_TIME,
    HostCategory,
    HostTable,
    Mask,
    Thread,
    Trace,
)

# A span that covers more than this much of its step is a wrapper: it says nothing of the instant.
_WRAPPER_FRAC = 0.95
_THREAD_NUMBER = re.compile(r"-?[0-9]{1,18}")
# A host record longer than a day is broken and bounds nothing.
_PLAUSIBLE_NS = 86_400 * 10**9
# What a recording is taken to last at least, where the profiler's own span is not recorded.
_SHORTEST_RECORDING_NS = 10**9
# In place of a HostClass: the name says nothing, the row's category decides.
_BY_CATEGORY = -1


@dataclass(slots=True)
class Host:
    """Host spans sorted by (start, longest first, thread, name); shape (n,) each, host clock."""

    starts: I64
    ends: I64
    name: I32
    category: I8
    thread: I32
    row: I32  # row in Trace.host
    kind: I8  # HostClass; NOTHING for spans that tell nothing
    steps: list[Step]
    strings: Sequence[str]
    threads: Sequence[Thread]
    base_time_ns: int
    span_ns: int | None  # the profiler's own recording span, where recorded
    recorded: HostTable
    dropped: int = 0  # rows without a usable time
    repeated_steps: int = 0  # steps whose number came before, counted on
    _unions: dict[tuple[int, HostClass], Intervals] = field(default_factory=dict)
    _by_thread: dict[int, I64] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def correlation(self) -> I64:
        """Correlation ids as recorded; looked up at each call, for they are seldom needed."""
        return self.recorded.correlation[self.row]

    @property
    def step_thread(self) -> int:
        """The thread that runs the steps, else the one with most rows, -1 if there is none."""
        if self.steps:
            counts = Counter(step.thread for step in self.steps)
            most = max(counts.values())
            return min((t for t, n in counts.items() if n == most), key=self.thread_order)
        if not len(self):
            return -1
        rows = np.bincount(self.thread)
        busiest = np.flatnonzero(rows == rows.max()).tolist()
        return min(busiest, key=self.thread_order)

    def thread_order(self, thread: int) -> tuple[int, str]:
        """Sort key of a thread: its tid as a number where it is one."""
        tid = self.threads[thread].tid
        return (int(tid) if _THREAD_NUMBER.fullmatch(tid) else sys.maxsize, tid)

    def recorded_span_ns(self, device_starts: I64) -> int | None:
        """Return the length of the recording, ns: host records, device starts, the profiler's span.

        A trace that doesn't hold the profiler's own span may have been cut down to a few records,
        so it counts as a second long at least. None without any host record: a duration has
        nothing to be compared with then.
        """
        plausible = (self.ends - self.starts) < _PLAUSIBLE_NS
        if not plausible.any():
            return self.span_ns
        starts = np.concatenate((self.starts, device_starts))
        last = max(int(self.ends[plausible].max()), int(starts.max()))
        return max(last - int(starts.min()), self.span_ns or _SHORTEST_RECORDING_NS)

    def named(self, meaning: Callable[[str], bool]) -> Mask:
        """Mask the rows whose name has a meaning."""
        mask: Mask = by_code(self.strings, self.name, meaning).astype(bool)[self.name]
        return mask

    def rows_of(self, thread: int) -> I64:
        """Rows of one thread, in order of start."""
        if thread not in self._by_thread:
            self._by_thread[thread] = np.flatnonzero(self.thread == thread)
        return self._by_thread[thread]

    def spans(self, thread: int, kind: HostClass) -> Intervals:
        """Return when ``thread`` was in a span of ``kind``, as a set on the host's clock."""
        key = (thread, kind)
        if key not in self._unions:
            rows = self.rows_of(thread)
            rows = rows[self.kind[rows] == kind]
            starts, ends = self.starts[rows], self.ends[rows]
            if kind == HostClass.COMPILE:
                captures = self.captures(thread)
                starts = np.concatenate((starts, captures.starts))
                ends = np.concatenate((ends, captures.ends))
            self._unions[key] = union(starts, ends)
        return self._unions[key]

    def captures(self, thread: int) -> Intervals:
        """Return from each begin of graph capture to its end on a thread."""
        rows = self.rows_of(thread)
        rows = rows[is_call(self.category[rows])]
        edges = by_code(self.strings, self.name[rows], capture_edge)[self.name[rows]]
        begins, finishes = rows[edges == 1], rows[edges == -1]
        position = np.searchsorted(self.starts[finishes], self.starts[begins], side="left")
        closed = position < len(finishes)
        matching = finishes[position[closed]]
        return union(self.starts[begins[closed]], self.ends[matching])

    def launch_calls(self) -> I64:
        """Rows of all calls that put work on a device, those inside graph capture aside."""
        rows = np.flatnonzero(is_call(self.category) & (self.correlation > 0))
        launches = by_code(self.strings, self.name[rows], is_launch).astype(bool)
        rows = rows[launches[self.name[rows]]]
        captured = np.zeros(len(rows), dtype=bool)
        for thread in distinct(self.thread[rows]):
            during = self.captures(int(thread))
            mine = self.thread[rows] == thread
            captured[mine] = contains(during, self.starts[rows[mine]])
        launched: I64 = rows[~captured]
        return launched

    def operator_of(self, calls: I64) -> I64:
        """Return for each call row the innermost operator that holds it; -1 where none does."""
        operators = np.flatnonzero(
            (self.category == HostCategory.OPERATOR) & ~self.named(is_annotation)
        )
        return self.enclosing(operators, calls)

    def inside_collective(self, calls: I64) -> Mask:
        """Mask the call rows that lie inside a collective's span; -1 rows are outside."""
        return self.enclosing(np.flatnonzero(self.named(is_collective_span)), calls) >= 0

    def enclosing(self, spans: I64, calls: I64) -> I64:
        """Return for each call row the innermost of ``spans`` that its start lies in, -1 for none.

        Spans and calls are rows of this table; a span lies in itself. Row -1 lies in none.
        """
        found = np.full(len(calls), -1, dtype=np.int64)
        known = np.flatnonzero(calls >= 0)
        for thread in distinct(self.thread[spans]):
            mine = spans[self.thread[spans] == thread]
            asked = known[self.thread[calls[known]] == thread]
            inner = innermost(self.starts[mine], self.ends[mine], self.starts[calls[asked]])
            found[asked] = np.where(inner >= 0, mine[np.maximum(inner, 0)], -1)
        return found


def is_call(category: I8) -> Mask:
    """Mask calls of the runtime and the driver."""
    calls: Mask = (category == HostCategory.RUNTIME) | (category == HostCategory.DRIVER)
    return calls


def build_host(trace: Trace, extra_spans: Mapping[str, Sequence[str]] | None = None) -> Host:
    """Sort, class and clean the host rows of a trace."""
    table = trace.host
    usable = (table.ts_ns != INVALID_TIME) & (table.dur_ns != INVALID_TIME) & (table.dur_ns >= 0)
    rows = np.flatnonzero(usable)
    starts = table.ts_ns[rows]
    ends = starts + np.minimum(table.dur_ns[rows], _PLAUSIBLE_NS)
    # Ties are broken by text, not by the codes that the order of the file gave.
    name_rank = _text_rank(trace.strings)[table.name[rows]]
    thread_rank = _text_rank([f"{one.pid}/{one.tid}" for one in trace.threads])[table.thread[rows]]
    order = np.lexsort((name_rank, thread_rank, -ends, starts))
    rows = rows[order]
    starts, ends = starts[order], ends[order]
    name, category, thread = table.name[rows], table.category[rows], table.thread[rows]
    steps, repeated = find_steps(trace.strings, starts, ends, name, thread)
    kind = _classes(trace.strings, HostNames(extra_spans), name, category)
    # Spans of the documented table, and runtime calls, are causes however long: no wrappers.
    wrappers = _wrappers(starts, ends, steps) & (kind >= HostClass.LAUNCH) & ~is_call(category)
    kind[wrappers] = HostClass.NOTHING
    info = trace.info
    span = None
    if info.span_start_ns is not None and info.span_end_ns is not None:
        span = info.span_end_ns - info.span_start_ns
    return Host(
        starts=starts,
        ends=ends,
        name=name,
        category=category,
        thread=thread,
        row=rows.astype(np.int32),
        recorded=table,
        kind=kind,
        steps=steps,
        strings=trace.strings,
        threads=trace.threads,
        base_time_ns=info.base_time_ns,
        span_ns=span,
        dropped=int((~usable).sum()),
        repeated_steps=repeated,
    )


def _text_rank(texts: Sequence[str]) -> I64:
    """Return the place of each text in alphabetical order; shape (len(texts),)."""
    rank = np.empty(len(texts), dtype=np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return rank


def _classes(strings: Sequence[str], names: HostNames, name: I32, category: I8) -> I8:
    """Class every row by its name and category."""
    kind = np.full(len(name), HostClass.NOTHING, dtype=np.int8)
    calls = is_call(category)
    call_kind = by_code(strings, name[calls], names.call_class)
    kind[calls] = call_kind[name[calls]]
    spans = (category == HostCategory.OPERATOR) | (category == HostCategory.ANNOTATION)
    spans |= category == HostCategory.PYTHON

    def meaning(text: str) -> int:
        if step_number(text) is not None:
            return HostClass.NOTHING
        known = names.span_class(text)
        if known is not None:
            return known
        return HostClass.OTHER if is_annotation(text) else _BY_CATEGORY

    found = by_code(strings, name[spans], meaning)[name[spans]]
    default = np.where(category[spans] == HostCategory.OPERATOR, HostClass.LAUNCH, HostClass.OTHER)
    kind[spans] = np.where(found == _BY_CATEGORY, default, found)
    return kind


def _wrappers(starts: I64, ends: I64, steps: list[Step]) -> Mask:
    """Mask spans that cover over 95 % of the step they start in."""
    if not steps:
        whole = int(ends.max() - starts.min()) if len(starts) else 0
        limit = np.full(len(starts), whole * _WRAPPER_FRAC)
    else:
        step_starts = np.array([step.start for step in steps], dtype=np.int64)
        lengths = np.array([step.end - step.start for step in steps], dtype=np.int64)
        order = np.argsort(step_starts, kind="stable")
        position = np.searchsorted(step_starts[order], starts, side="right") - 1
        limit = lengths[order][np.maximum(position, 0)] * _WRAPPER_FRAC
    mask: Mask = ends - starts > limit
    return mask
