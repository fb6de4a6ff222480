"""Why a device had nothing to run: every gap, split instant by instant (accounting.md 5, idle).

::

    device   [=====]                          [====]        E ends the gap
    gap            [--------------------------)
    host                 ...   launch of E [==]             l = its return
    A              [-----------------------)                not yet enqueued: what was its
    B                                      [--)             launching thread doing?
                                                            enqueued, not started
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from gpudiag.analyze.device import Device
from gpudiag.analyze.host import Host
from gpudiag.analyze.intervals import (
    Intervals,
    Pieces,
    as_pieces,
    intersect_with_index,
    merge,
    split,
    subtract,
    sum_by_owner,
    union,
    union_all,
)
from gpudiag.analyze.names import IDLE_BUCKETS, DeviceClass, HostClass, distinct, is_graph_launch
from gpudiag.analyze.window import Window
from gpudiag.model import thresholds
from gpudiag.model.tables import I64, HostCategory, Mask

# The queue has recovered from a sync when a kernel starts this long after its launch returned.
LEAD_RECOVERED_NS = 50_000

# What torch.profiler adds to the host per recorded event, ns. Operators and frames as measured by
# tests/bench/profiler_cost.py (340 without shapes, 660 with; frames 60); runtime calls can only be
# measured with a GPU and are taken as one operator's record without shapes.
RECORDING_COST_NS = {
    HostCategory.OPERATOR: 660,
    HostCategory.RUNTIME: 340,
    HostCategory.DRIVER: 340,
    HostCategory.PYTHON: 60,
}

LATENCY, BLOCKED = len(HostClass), len(HostClass) + 1
# What of a gap is a pipeline's own is told by all ranks together: see pipeline/pool.py.
SCHEDULE, IMBALANCE = len(HostClass) + 2, len(HostClass) + 3
_CAUSES = len(HostClass) + 4
CAUSE_BUCKETS: tuple[str, ...] = (
    *(IDLE_BUCKETS[kind] for kind in HostClass),
    "idle.launch_latency",
    "idle.device_blocked",
    "pipeline.schedule",
    "pipeline.imbalance",
)


@dataclass(frozen=True, slots=True)
class Context:
    """What was open on the explaining thread in each piece; indices into texts, -1 is nothing."""

    span: I64  # the innermost annotation
    frame: I64  # the innermost frame of the user's code, or a recorded call stack
    operator: I64  # the innermost operator or runtime call, where no annotation is open

    def of(self, pieces: I64) -> Context:
        """Return the context of some of the pieces."""
        return Context(self.span[pieces], self.frame[pieces], self.operator[pieces])


@dataclass(frozen=True, slots=True)
class Charged:
    """Pieces of gaps charged to one cause, and the thread whose doing explains them."""

    cause: int
    thread: int
    pieces: Pieces  # owned by gaps
    context: Context | None = None  # once it is looked up, see gap_context.py

    def without(self, taken: Intervals) -> Charged:
        """Return what is left of the pieces, in their context."""
        own = Pieces(self.pieces.starts, self.pieces.ends, np.arange(len(self.pieces)))
        left = subtract(own, taken)
        pieces = Pieces(left.starts, left.ends, self.pieces.owner[left.owner])
        context = self.context.of(left.owner) if self.context else None
        return replace(self, pieces=pieces, context=context)


@dataclass(frozen=True, slots=True)
class IdleSplit:
    """All gaps of a device's window; ``charged`` has shape (gaps, causes), ns, and sums to them."""

    starts: I64
    ends: I64
    ended_by: I64  # row in Device; -1 where nothing follows
    charged: I64
    pieces: tuple[Charged, ...]  # what the host's causes were charged, device clock
    in_replay: Mask  # ended by a node of a graph replay
    profiler_ns: int  # part of the launch time that recording the events there may have cost
    unlinked: Mask  # gaps ended by activity without a launch record
    # What contexts are looked up in, and the name of what ended each gap; see gap_context.py.
    texts: tuple[str, ...] = ()
    ended_by_name: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    # Causes that hold a gap's end, where no host thread explains it.
    device_causes: ClassVar[tuple[int, ...]] = (BLOCKED, LATENCY, int(HostClass.NOTHING))

    def recharged(self, charged: I64, pieces: tuple[Charged, ...]) -> IdleSplit:
        """Return the same gaps charged otherwise."""
        launching = int(charged[:, HostClass.LAUNCH].sum())
        profiler = min(self.profiler_ns, launching)
        return replace(self, charged=charged, pieces=pieces, profiler_ns=profiler)

    def leaves_ns(self) -> dict[str, int]:
        """Return ns per bucket, zeros left out."""
        totals = self.charged.sum(axis=0)
        return {name: int(ns) for name, ns in zip(CAUSE_BUCKETS, totals, strict=True) if ns}


def split_idle(device: Device, host: Host, idle: Intervals, window: Window) -> IdleSplit:
    """Charge every gap of the window to what its launching thread, or the device, was doing."""
    gaps = len(idle)
    ended_by = np.searchsorted(device.starts, idle.ends, side="left")
    # A gap that the window's end cuts, with nothing after it, is all "not yet enqueued".
    open_end = ended_by == len(device)
    ended_by[open_end] = -1
    launch = np.where(open_end, -1, device.launch[ended_by])
    linked = launch >= 0
    thread = np.where(open_end, host.step_thread, -1)
    thread[linked] = host.thread[launch[linked]]
    returned = np.where(open_end, idle.ends, idle.starts)
    returned[linked] = device.launch_return[ended_by[linked]]
    enqueued = np.clip(returned, idle.starts, idle.ends)
    charged = np.zeros((gaps, _CAUSES), dtype=np.int64)
    known = linked | (open_end & (thread >= 0))
    charged[~known, HostClass.NOTHING] = (idle.ends - idle.starts)[~known]
    waited = np.where(known, idle.ends - enqueued, 0)
    late = waited > thresholds.LAUNCH_LATENCY_NS
    charged[~late, LATENCY] = waited[~late]
    charged[late, BLOCKED] = waited[late]
    not_enqueued = known & (enqueued > idle.starts)
    owner = np.flatnonzero(not_enqueued)
    pieces = Pieces(idle.starts[owner], enqueued[owner], owner)
    charger = _Charger(device, host, window, charged)
    charger.charge(pieces, thread)
    return IdleSplit(
        starts=idle.starts,
        ends=idle.ends,
        ended_by=ended_by,
        charged=charged,
        pieces=tuple(charger.pieces),
        in_replay=_in_replay(device, host, ended_by),
        profiler_ns=charger.profiler_ns,
        unlinked=~known & ~open_end,
    )


def _in_replay(device: Device, host: Host, ended_by: I64) -> Mask:
    """Mask gaps ended by a node of a graph replay: its other nodes may not be recorded."""
    launch = np.where(ended_by >= 0, device.launch[ended_by], -1)
    graph = host.named(is_graph_launch)
    mask: Mask = launch >= 0
    mask[mask] = graph[launch[mask]]
    return mask


class _Charger:
    """Charges pieces of gaps to host threads; holds one device's view of the host's clock."""

    def __init__(self, device: Device, host: Host, window: Window, charged: I64) -> None:
        self._device = device
        self._host = host
        self._window = window
        self._charged = charged
        self.pieces: list[Charged] = []
        self.profiler_ns = 0
        launchers = distinct(host.thread[device.launch[device.launch >= 0]])
        self._launchers = sorted(launchers.tolist(), key=host.thread_order)
        # What a sync's shadow may still take: pieces, and for each its cause and thread.
        self._open: list[tuple[Pieces, int, int]] = []

    def charge(self, pieces: Pieces, thread: I64) -> None:
        """Charge each piece to its launching thread, then the step thread, then the others."""
        for launcher in np.unique(thread[pieces.owner]):
            mine = thread[pieces.owner] == launcher
            rest = Pieces(pieces.starts[mine], pieces.ends[mine], pieces.owner[mine])
            order = [int(launcher), self._host.step_thread, *self._launchers]
            for candidate in dict.fromkeys(order):
                rest = self._charge_thread(rest, candidate)
                if not len(rest):
                    break
            self._open.append((rest, HostClass.NOTHING, int(launcher)))
        self._charge_open()

    def _charge_thread(self, pieces: Pieces, thread: int) -> Pieces:
        """Charge what one thread explains, first match; return the rest."""
        for kind in HostClass:
            if kind == HostClass.NOTHING or not len(pieces):
                break
            inside, pieces = split(pieces, self._spans(thread, kind))
            if kind > HostClass.SYNC:
                self._open.append((inside, kind, thread))
            else:
                self._add(inside, kind, thread)
        return pieces

    def _charge_open(self) -> None:
        """Give the shadows of synchronise calls their part, and the rest to its own cause."""
        taken = self._shadowed([pieces for pieces, _, _ in self._open])
        for pieces, cause, thread in self._open:
            inside, rest = split(pieces, taken)
            self._add(inside, HostClass.SYNC, thread)
            self._add(rest, cause, thread)
            if cause == HostClass.LAUNCH:
                self.profiler_ns += self._recording_cost(rest, thread)

    def _shadowed(self, parts: list[Pieces]) -> Intervals:
        """Return the time after each sync until the queue has recovered, at most its own length.

        Only the time in ``parts`` counts and uses the length up, earliest first.
        """
        shadows, length = self._shadows()
        inside, index = intersect_with_index(as_pieces(union_all(parts)), shadows)
        before = np.cumsum(inside.lengths) - inside.lengths
        spent = before - before[np.searchsorted(index, index, side="left")]
        granted = np.clip(length[index] - spent, 0, inside.lengths)
        return union(inside.starts, inside.starts + granted)

    def _shadows(self) -> tuple[Intervals, I64]:
        """Return the shadow of each sync call of the process, and the call's length.

        A shadow lasts from the call's return to the next sync of any launching or step thread, a
        compute kernel whose lead has recovered, or the window's end; empty ones are left out.
        """
        host, device, end = self._host, self._device, self._window.end
        threads = [host.step_thread, *self._launchers]
        calls = np.flatnonzero((host.kind == HostClass.SYNC) & np.isin(host.thread, threads))
        starts, ends = host.starts[calls] - device.offset_ns, host.ends[calls] - device.offset_ns
        recovered = device.starts[device.is_compute & (device.lead >= LEAD_RECOVERED_NS)]
        until = np.append(recovered, end)[np.searchsorted(recovered, ends, side="left")]
        following = np.append(starts[1:], end)
        stop = np.minimum(np.minimum(until, following), end)
        keep = stop > ends
        return Intervals(ends[keep], stop[keep]), (ends - starts)[keep]

    def _recording_cost(self, pieces: Pieces, thread: int) -> int:
        """Return what recording the events that start inside pieces may have cost, at most all."""
        host, offset = self._host, self._device.offset_ns
        rows = host.rows_of(thread)
        total = 0
        for category, cost in RECORDING_COST_NS.items():
            starts = host.starts[rows[host.category[rows] == category]] - offset
            count = np.searchsorted(starts, pieces.ends) - np.searchsorted(starts, pieces.starts)
            total += int(count.sum()) * cost
        return min(total, int(pieces.lengths.sum()))

    def _spans(self, thread: int, kind: HostClass) -> Intervals:
        """Return a thread's spans of a kind on the device's clock."""
        if kind == HostClass.BLOCKING_COPY:
            spans = blocking_copies(self._device, self._host, thread)
        else:
            spans = self._host.spans(thread, kind)
        return spans.shifted(-self._device.offset_ns)

    def _add(self, pieces: Pieces, cause: int, thread: int) -> None:
        self._charged[:, cause] += sum_by_owner(pieces, len(self._charged))
        if len(pieces):
            self.pieces.append(Charged(cause, thread, pieces))


def blocking_copies(device: Device, host: Host, thread: int) -> Intervals:
    """Return a thread's memcpy calls that returned at or after their copy's end, host clock."""
    copies = device.is_copy & (device.kind != DeviceClass.MEMSET) & (device.launch >= 0)
    copies[copies] = host.thread[device.launch[copies]] == thread
    calls = device.launch[copies]
    blocked = host.ends[calls] >= device.ends[copies] + device.offset_ns
    return union(host.starts[calls[blocked]], host.ends[calls[blocked]])


def host_late(device: Device, host: Host, exposed: Intervals) -> Intervals:
    """Return the part of exposed comm or copy that passed while the host was late anyway.

    That is the part before the next compute kernel's launch returned, while its launching thread
    was not blocked on the device: faster communication can't give it back.
    """
    compute = np.flatnonzero(device.is_compute)
    position = np.searchsorted(device.starts[compute], exposed.starts, side="left")
    followed = position < len(compute)
    following = compute[position[followed]]
    starts, ends = exposed.starts[followed], exposed.ends[followed]
    linked = device.launch[following] >= 0
    following, starts, ends = following[linked], starts[linked], ends[linked]
    until = np.minimum(ends, device.launch_return[following])
    keep = until > starts
    late = Pieces(starts[keep], until[keep], following[keep])
    threads = host.thread[device.launch[late.owner]]
    parts = []
    for thread in distinct(threads):
        mine = threads == thread
        pieces = as_pieces(Intervals(late.starts[mine], late.ends[mine]))
        copies = blocking_copies(device, host, int(thread))
        blocked = merge(host.spans(int(thread), HostClass.SYNC), copies)
        parts.append(subtract(pieces, blocked.shifted(-device.offset_ns)))
    return union_all(parts)
