"""What became of every nanosecond, told by the simulation's own state.

The leaves come from what each simulated thread was doing (`HostSpan.kind`) and what each simulated
device ran (`DeviceOp.leaf`), never from names in the emitted trace. Readings of the law where it
leaves freedom, one a line:
- "Any span over 95 % of a step": operators, annotations and Python frames that match no table row;
  runtime calls and table rows (loader, checkpoint, ...) keep their meaning. Step: where it starts.
- Kernel under an operator: the innermost cpu_op that encloses the launch call decides.
- Window ends are device starts, so gaps are whole; only gaps inside the window are A-time.
- Lead of a kernel = its start - the return of its launch; a shadow ends at that kernel's start.
- Shadow cap: a shadow charges at most the call's duration, over all gaps and threads; what is
  inside the call is apart; instants that an earlier cause (input, gc, ...) takes use none of it up.
- Shadows are of the process: a sync on any launching or step thread drains the queue for all of
  them, so it explains gaps ended by any; "next sync" is the next start of one. The other reading
  (only gaps of the sync's own thread) is under `alternatives_ns` where it differs.
- Any synchronise call counts, whatever its device; allocator calls (cudaFree) are no syncs.
- Several copies at once: the order in which the law lists their leaves.
- Enqueueing a device collective (c10d::*, nccl:*) is `idle.launch`, in the host view
  `host.collective`; `idle.host_comm` is a host-side wait for other ranks. A main thread that waits
  for autograd's is not inside the collectives that autograd's enqueues.
- "Torch-Compiled Region" itself is execution (an operator); compile is what compiles in it.
- A runtime call outside any operator is `idle.launch`, in the host view `host.op`.
- A thread "has nothing open" also while only whole-step spans are open.
- Device records that were lost are no device activity; a launch record that was lost is no host
  span and its gap is unknown.
- Send and receive: a rendezvous, each waits for the other; numbered per directed pair of ranks.
- Pipeline buckets are not split off: bubbles keep their comm and idle leaves.
- FLOPs are of the recorded kernels that start in the window, the full square of causal attention;
  a forward that is run again is recomputation, not the model's; what a fused backward computes
  again for itself (2.5 instead of 2 forwards) is extra. An evaluation's forward is the model's.
  Where any tensor kernel's duration was chosen and not made from shapes, there is no truth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.device import DeviceOp, Flops, Meeting
    from simulator.host import HostSpan, Process
    from simulator.job import Clock

LATENCY_LIMIT_NS = 10_000  # enqueued, not started: latency up to here
LEAD_NS = 50_000  # a queue this far ahead has recovered from a sync
WHOLE_STEP_FRAC = 0.95

CAUSES = {
    "checkpoint": "idle.checkpoint",
    "eval": "idle.eval",
    "compile": "idle.compile",
    "allocator": "idle.allocator",
    "gc": "idle.gc",
    "input": "idle.input",
    "blocking_copy": "idle.blocking_copy",
    "host_comm": "idle.host_comm",
    "sync": "idle.host_sync",
    "op": "idle.launch",
    "runtime": "idle.launch",
    "collective": "idle.launch",
    "annotation": "idle.host_other",
    "frame": "idle.host_other",
}
HOST_VIEW = {
    "checkpoint": "host.checkpoint",
    "eval": "host.eval",
    "compile": "host.compile",
    "gc": "host.gc",
    "input": "host.input",
    "host_comm": "host.collective",
    "collective": "host.collective",
    "sync": "host.sync",
    "op": "host.op",
    "runtime": "host.op",
    "allocator": "host.op",
    "blocking_copy": "host.op",
}
COPY_ORDER = ("h2d_pageable", "h2d_pinned", "h2d", "d2h", "d2d", "p2p", "memset", "other")
IDLE_ORDER = tuple(dict.fromkeys(CAUSES.values()))
HOST_ORDER = tuple(dict.fromkeys(HOST_VIEW.values()))
SHADOWABLE = ("idle.launch", "idle.host_other", None)

Piece = tuple[int, int, str | None]


class Timeline:
    """What one thread does at each instant: the first cause in `order` that is open."""

    def __init__(
        self, spans: list[HostSpan], causes: dict[str, str], order: tuple[str, ...]
    ) -> None:
        changes: dict[int, Counter[str]] = defaultdict(Counter)
        for span in spans:
            if span.kind in causes and span.end > span.start:
                changes[span.start][causes[span.kind]] += 1
                changes[span.end][causes[span.kind]] -= 1
        self.starts: list[int] = []
        self.causes: list[str | None] = []
        is_open: Counter[str] = Counter()
        for at in sorted(changes):
            for cause, change in changes[at].items():
                is_open[cause] += change
            self.starts.append(at)
            self.causes.append(next((cause for cause in order if is_open[cause]), None))

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Cut [start, end) where the thread turns to something else."""
        at = bisect_right(self.starts, start) - 1
        while start < end:
            until = self.starts[at + 1] if at + 1 < len(self.starts) else end
            yield start, min(until, end), self.causes[at] if at >= 0 else None
            start, at = min(until, end), at + 1


@dataclass
class Gap:
    """A stretch without device activity, and what ended it."""

    start: int
    end: int
    ender: DeviceOp


class RankTruth:
    """The truth of one rank, for each of its devices and for its host thread."""

    def __init__(self, proc: Process, clock: Clock, world_size: int) -> None:
        self.proc, self.clock, self.world_size = proc, clock, world_size
        self.spans = [s for s in proc.spans if s.recorded and not self._says_nothing(s)]
        by_tid: dict[int, list[HostSpan]] = defaultdict(list)
        for span in self.spans:
            by_tid[span.tid].append(span)
        self.lines = {t: Timeline(s, CAUSES, IDLE_ORDER) for t, s in by_tid.items()}
        self.launching = sorted(
            {
                op.launch.tid
                for device in proc.devices.values()
                for op in device.log
                if op.launch and op.launch.recorded
            }
        )
        self.step_tid = proc.pid

    def step_of(self, span: HostSpan) -> HostSpan | None:
        """Return the step a span starts in."""
        return next((s for s in self.proc.steps if s.start <= span.start < s.end), None)

    def _says_nothing(self, span: HostSpan) -> bool:
        if span.kind == "step":
            return True
        if span.kind not in ("annotation", "frame", "op", "collective"):
            return False
        step = self.step_of(span) or self.proc.steps[0]
        return span.end - span.start > WHOLE_STEP_FRAC * (step.end - step.start)

    def host(self) -> tuple[int, dict[str, int]]:
        """Return the host view: its window, and the step thread's time by bucket."""
        spans = [s for s in self.spans if s.tid == self.step_tid]
        line = Timeline(spans, HOST_VIEW, HOST_ORDER)
        start, end = self.proc.steps[1].start, self.proc.steps[-1].start
        buckets: Counter[str] = Counter()
        for a, b, cause in line.pieces(start, end):
            buckets[cause or "host.other"] += b - a
        return end - start, dict(buckets)

    def device(
        self, index: int, *, shift: int | None = None, own_shadow: bool = False
    ) -> DeviceTruth:
        """Return the truth of one device, its times moved by `shift` to meet the host's."""
        return DeviceTruth(self, index, shift, own_shadow=own_shadow)


class DeviceTruth:
    """The partition of one device's window."""

    def __init__(self, rank: RankTruth, index: int, shift: int | None, *, own_shadow: bool) -> None:
        self.rank, self.index, self.own_shadow = rank, index, own_shadow
        self.ops = [op for op in rank.proc.devices[index].log if op.recorded and op.end > op.start]
        linked = [op for op in self.ops if self.launch_of(op)]
        early = min(op.start - self.launch_of(op).start for op in linked)
        self.offset = max(0, -early)
        self.shift = self.offset if shift is None else shift
        steps = rank.proc.steps
        first: dict[int, int] = {}
        for op in linked:
            if op.step is not None:
                first[op.step] = min(op.start, first.get(op.step, op.start))
        self.step_starts = [first[n] for n in sorted(first)][1:]
        assert len(first) == len(steps), "every step has device work"
        self.start, self.end = self.step_starts[0], self.step_starts[-1]
        self.buckets: Counter[str] = Counter()
        self.waits: Counter[int] = Counter()  # by last rank
        self.waited: Counter[Meeting] = Counter()
        self.gaps: list[tuple[Gap, dict[str, int]]] = []
        self._budget: dict[int, int] = {}
        self._shadows = self._cast_shadows()
        for gap in self._busy_and_gaps():
            if self.start <= gap.start < self.end:
                self._charge_gap(gap)

    def launch_of(self, op: DeviceOp) -> HostSpan | None:
        """Return the launch record of a device op, if there is one."""
        return op.launch if op.launch and op.launch.recorded else None

    def flops(self) -> dict[str, int] | None:
        """Return the window's FLOPs; hw is model, recomputation and extra together."""
        if any(op.leaf == "compute.tensor" and op.flops is None for op in self.ops):
            return None
        credited = [
            (op.flops, op.again)
            for op in self.ops
            if op.flops is not None and self.start <= op.start < self.end
        ]

        def total(part: Callable[[Flops, bool], int]) -> int:
            return sum(part(flops, again) for flops, again in credited)

        return {
            "model_flops": total(lambda flops, again: 0 if again else flops.model),
            "recompute_flops": total(lambda flops, again: flops.model if again else 0),
            "extra_flops": total(lambda flops, _: flops.executed - flops.model),
            "hw_flops": total(lambda flops, _: flops.executed),
        }

    def _busy_and_gaps(self) -> Iterator[Gap]:
        """Charge the busy time; yield the gaps."""
        edges: dict[int, tuple[list[DeviceOp], list[DeviceOp]]] = defaultdict(lambda: ([], []))
        for op in self.ops:
            edges[op.start][0].append(op)
            edges[op.end][1].append(op)
        for op in self.ops:
            if op.meeting and op.start < self._last_arrival(op) < op.end:
                edges[self._last_arrival(op)]  # the leaf changes here
        for at in (self.start, self.end):
            edges[at]
        running: set[DeviceOp] = set()
        times = sorted(edges)
        gap_start = None
        for at, until in zip(times, [*times[1:], times[-1]], strict=True):
            starting, ending = edges[at]
            running.update(starting)
            running.difference_update(ending)
            if gap_start is not None and starting:
                yield Gap(gap_start, at, min(starting, key=lambda op: (op.stream, op.correlation)))
            if running:
                gap_start = None
                self._charge_busy(running, at, until)
            elif gap_start is None:
                gap_start = at

    def _charge_busy(self, running: set[DeviceOp], start: int, end: int) -> None:
        if not self.start <= start < self.end:
            return
        leaves = {op.leaf for op in running}
        comm = [op for op in running if op.leaf == "comm"]
        if "compute.tensor" in leaves:
            leaf = "compute.tensor"
        elif "compute.other" in leaves:
            leaf = "compute.other"
        elif comm:
            leaf = self._comm_leaf(comm, start, end)
        else:
            leaf = next(f"copy.{kind}" for kind in COPY_ORDER if f"copy.{kind}" in leaves)
        self.buckets[leaf] += end - start

    def _comm_leaf(self, comm: list[DeviceOp], start: int, end: int) -> str:
        matched = [op for op in comm if op.meeting and self.rank.world_size > 1]
        if not matched:
            return "comm.unsplit"
        if any(start >= self._last_arrival(op) for op in matched):
            return "comm.transfer"
        waiting = min(matched, key=lambda op: (op.start, op.stream))
        self.waits[waiting.meeting.last_rank] += end - start
        self.waited[waiting.meeting] += end - start
        return "comm.wait"

    def _last_arrival(self, op: DeviceOp) -> int:
        return self.rank.clock.device(op.meeting.last_arrival)

    def _cast_shadows(self) -> list[tuple[int, int, int, int]]:
        """Return (start, end, budget, thread) of each sync's shadow, in host time."""
        tids = {*self.rank.launching, self.rank.step_tid}
        syncs = [s for s in self.rank.spans if s.kind == "sync" and s.tid in tids]
        syncs.sort(key=lambda s: s.start)
        ahead = sorted(
            op.start + self.shift
            for op in self.ops
            if op.leaf.startswith("compute")
            and self.launch_of(op)
            and op.start + self.shift - self.launch_of(op).end >= LEAD_NS
        )
        shadows = []
        for sync in syncs:
            stops = [at for at in ahead if at >= sync.end][:1]
            rivals = [s for s in syncs if not self.own_shadow or s.tid == sync.tid]
            stops += [s.start for s in rivals if s.start >= sync.end][:1]
            stops.append(self.end + self.shift)
            shadows.append((sync.end, min(stops), sync.end - sync.start, sync.tid))
        return [s for s in shadows if s[0] < s[1]]

    def _charge_gap(self, gap: Gap) -> None:
        start, end = gap.start + self.shift, gap.end + self.shift
        launch = self.launch_of(gap.ender)
        parts: Counter[str] = Counter()
        if launch is None:
            parts["idle.unknown"] += end - start
        else:
            cut = min(max(launch.end, start), end)
            blocked = end - cut > LATENCY_LIMIT_NS
            parts["idle.device_blocked" if blocked else "idle.launch_latency"] += end - cut
            for a, b, cause in self._doing(start, cut, launch.tid):
                parts[cause] += b - a
        self.buckets.update(parts)
        self.gaps.append((gap, {k: v for k, v in parts.items() if v}))

    def _doing(self, start: int, end: int, tid: int) -> Iterator[tuple[int, int, str]]:
        step, launching = self.rank.step_tid, self.rank.launching
        tids = list(dict.fromkeys([tid, step, *launching]))
        if self.own_shadow:
            for a, b, cause in self._first_shadowed(start, end, tids):
                yield a, b, cause or "idle.unknown"
            return
        for a, b, cause in self._first_busy(start, end, tids):
            for c, d, shadowed in self._in_shadow(a, b, cause):
                yield c, d, shadowed or "idle.unknown"

    def _pieces(self, tid: int, start: int, end: int) -> Iterator[Piece]:
        line = self.rank.lines.get(tid)
        yield from line.pieces(start, end) if line else [(start, end, None)]

    def _first_busy(self, start: int, end: int, tids: list[int]) -> Iterator[Piece]:
        """What the first of the threads that has something open is doing."""
        for a, b, cause in self._pieces(tids[0], start, end):
            if cause is None and len(tids) > 1:
                yield from self._first_busy(a, b, tids[1:])
            else:
                yield a, b, cause

    def _first_shadowed(self, start: int, end: int, tids: list[int]) -> Iterator[Piece]:
        """Return the same where a thread's shadows are its own, and count as something open."""
        for a, b, cause in self._pieces(tids[0], start, end):
            for c, d, shadowed in self._in_shadow(a, b, cause, tids[0]):
                if shadowed is None and len(tids) > 1:
                    yield from self._first_shadowed(c, d, tids[1:])
                else:
                    yield c, d, shadowed

    def _in_shadow(
        self, start: int, end: int, cause: str | None, tid: int | None = None
    ) -> Iterator[Piece]:
        """Charge the shadows' part of [start, end) to the sync as long as its budget lasts."""
        shadows = self._shadows if cause in SHADOWABLE else []
        for number, (a, b, budget, owner) in enumerate(shadows):
            if b <= start or a >= end or tid not in (None, owner):
                continue
            if start < a:
                yield start, a, cause
            left = self._budget.setdefault(number, budget)
            lo = max(start, a)
            hi = min(end, b, lo + left)
            self._budget[number] = left - (hi - lo)
            yield lo, hi, "idle.host_sync"
            yield hi, min(end, b), cause
            start = min(end, b)
        yield start, end, cause
