"""A GPU: streams are first-in-first-out queues; copies, kernels and collectives occupy them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.engine import Engine, Signal, Steps

if TYPE_CHECKING:
    from simulator.host import HostSpan

START_LATENCY_NS = 2_000  # from the end of the launch call to the earliest start
KERNEL_GAP_NS = 800  # between two kernels of one stream that were both enqueued in time


@dataclass(frozen=True, kw_only=True)
class Flops:
    """What a kernel computes, the full square counted for attention whatever its mask.

    `executed` exceeds `model` where a fused backward computes a forward product again for itself.
    """

    model: int
    executed: int


@dataclass(eq=False, kw_only=True)
class DeviceOp:
    """One kernel, copy or memset: what to do, and when it was done.

    `leaf` is the bucket of the time it runs: compute.tensor, compute.other, comm or copy.*.
    `flops` is None where a kernel's duration was chosen and not computed from shapes.
    """

    name: str
    cat: str
    leaf: str
    dur: int
    args: dict[str, Any] = field(default_factory=dict)
    gap: int = KERNEL_GAP_NS
    meeting: Meeting | None = None
    recorded: bool = True
    flops: Flops | None = None
    # Filled in by the run.
    device: int = 0
    stream: int = 0
    rank: int = 0
    correlation: int = 0
    launch: HostSpan | None = None
    step: int | None = None
    again: bool = False  # belongs to a forward that is run again in the backward
    start: int = -1
    end: int = -1
    done: Signal = field(default_factory=Signal)


class Meeting:
    """A collective: members start when they get to it, and all end `transfer_ns` after the last."""

    def __init__(
        self, *, group: str, seq: int, op: str, ranks: list[int], transfer_ns: int
    ) -> None:
        self.group, self.seq, self.op, self.ranks = group, seq, op, ranks
        self.transfer_ns = transfer_ns
        self.nbytes = 0
        self.arrivals: dict[int, int] = {}
        self.over = Signal()

    @property
    def last_arrival(self) -> int:
        """Time the last member started: before it all wait, after it all transfer."""
        return max(self.arrivals.values())

    @property
    def last_rank(self) -> int:
        """Whom the others waited for."""
        return max(self.arrivals, key=lambda rank: (self.arrivals[rank], -rank))

    def join(self, engine: Engine, rank: int) -> Steps:
        """Wait for everybody, then for the transfer."""
        self.arrivals[rank] = engine.now
        if len(self.arrivals) == len(self.ranks):
            yield self.transfer_ns
            engine.fire(self.over)
        else:
            yield self.over


@dataclass
class Mark:
    """An event: fires when everything before it on its stream is done."""

    signal: Signal


@dataclass
class Await:
    """Nothing behind it on the stream starts before the event has fired."""

    signal: Signal


@dataclass
class Hold:
    """The stream is held by something no tracer records: a host callback, another process."""

    ns: int


class Stream:
    """One queue of the device."""

    def __init__(self, device: Device, number: int) -> None:
        self.device, self.number = device, number
        self.engine = device.engine
        self.queue: deque[tuple[int, DeviceOp | Mark | Await | Hold]] = deque()
        self.free_at: int | None = None
        self.wake: Signal | None = None
        self.engine.spawn(self._run())

    def put(self, item: DeviceOp | Mark | Await | Hold) -> None:
        """Enqueue now."""
        self.queue.append((self.engine.now, item))
        if self.wake is not None and self.wake.at is None:
            self.engine.fire(self.wake)

    def _run(self) -> Steps:
        while True:
            if not self.queue:
                self.wake = Signal()
                yield self.wake
                continue
            enqueued, item = self.queue.popleft()
            if isinstance(item, Mark):
                self.engine.fire(item.signal)
            elif isinstance(item, Await):
                yield item.signal
            elif isinstance(item, Hold):
                yield item.ns
            else:
                yield from self._execute(item, enqueued)

    def _execute(self, op: DeviceOp, enqueued: int) -> Steps:
        earliest = enqueued + self.device.start_latency_ns
        if self.free_at is not None:
            earliest = max(earliest, self.free_at + op.gap)
        yield max(0, earliest - self.engine.now)
        yield from self.device.wait_for_slice()
        op.start = self.engine.now
        if op.meeting is not None:
            yield from op.meeting.join(self.engine, op.rank)
        else:
            yield op.dur
        op.end = self.free_at = self.engine.now
        self.engine.fire(op.done)


class Device:
    """One GPU of one process, with the log of all it did."""

    def __init__(self, engine: Engine, index: int, rank: int) -> None:
        self.engine, self.index, self.rank = engine, index, rank
        self.streams: dict[int, Stream] = {}
        self.log: list[DeviceOp] = []
        self.start_latency_ns = START_LATENCY_NS
        self.slowdown_pct = 0  # compute kernels take this much longer
        self.slice_ns = 0  # another process owns the GPU for slice_ns ...
        self.slice_every_ns = 0  # ... whenever ours has had it for slice_every_ns
        self._slice_over = 0

    def stream(self, number: int) -> Stream:
        """Stream by number, made on first use."""
        if number not in self.streams:
            self.streams[number] = Stream(self, number)
        return self.streams[number]

    def enqueue(self, op: DeviceOp, stream: int) -> None:
        """Put `op` on a stream."""
        op.device, op.stream, op.rank = self.index, stream, self.rank
        if op.leaf.startswith("compute"):
            op.dur += op.dur * self.slowdown_pct // 100
        self.log.append(op)
        self.stream(stream).put(op)

    def wait_for_slice(self) -> Steps:
        """Give way to the other process where its turn has come."""
        if self.slice_ns and self.engine.now - self._slice_over >= self.slice_every_ns:
            yield self.slice_ns
            self._slice_over = self.engine.now
