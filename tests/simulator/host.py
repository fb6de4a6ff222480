"""Host threads: what they do, one open span inside another, and the calls that reach the GPU.

A span's `kind` is what the thread truly does; `name` and `cat` are only what the trace shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from simulator.device import Await, Device, DeviceOp, Mark, Meeting
from simulator.engine import Engine, Signal, Steps

SYNC_RETURN_NS = 6_000  # from the device's last end to the return of the synchronise call

CBID = {
    "cudaLaunchKernel": 211,
    "cuLaunchKernel": 307,
    "cudaGraphLaunch": 311,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaMalloc": 20,
    "cudaFree": 22,
    "cuModuleLoadData": 308,
}


@dataclass(eq=False, kw_only=True)
class HostSpan:
    """One thing a thread did; `end` is -1 while it does it."""

    kind: str
    name: str
    cat: str
    tid: int
    start: int
    end: int = -1
    parent: HostSpan | None = None
    args: dict[str, Any] = field(default_factory=dict)
    correlation: int = 0
    external_id: int = 0
    recorded: bool = True
    sync_stream: int | None = None


@dataclass
class Group:
    """A process group of the collectives library, shared by its members."""

    name: str
    desc: str
    ranks: list[int]
    alpha_ns: int = 14_000
    bytes_per_us: int = 300_000
    with_seq: bool = True
    speed_of: int = 0  # transfers take as long as among this many ranks; 0: as many as there are
    meetings: dict[tuple[str, int], Meeting] = field(default_factory=dict)
    calls: dict[tuple[int, str], int] = field(default_factory=dict)

    def meet(
        self, rank: int, op: str, nbytes: int, channel: str = "", seats: tuple = ()
    ) -> Meeting:
        """Return the meeting that `rank`'s next call of this channel belongs to."""
        seq = self.calls[rank, channel] = self.calls.get((rank, channel), 0) + 1
        ranks = list(seats) or self.ranks
        key = (channel, seq)
        if key not in self.meetings:
            n = self.speed_of or len(ranks)
            factor_pct = 200 * (n - 1) // n if op == "allreduce" else 100
            transfer = self.alpha_ns + nbytes * factor_pct * 10 // self.bytes_per_us
            self.meetings[key] = Meeting(
                group=self.name + channel, seq=seq, op=op, ranks=ranks, transfer_ns=transfer
            )
            self.meetings[key].nbytes = nbytes
        return self.meetings[key]


class Process:
    """One rank: its threads, its devices and the log of its spans."""

    def __init__(self, engine: Engine, rank: int, devices: list[int], seed: int) -> None:
        self.engine, self.rank = engine, rank
        self.pid = 4242 + rank
        self.random = random.Random(seed * 1009 + rank)
        self.devices = {i: Device(engine, i, rank) for i in devices}
        self.spans: list[HostSpan] = []
        self.steps: list[HostSpan] = []
        self.current_step: int | None = None
        self._threads: dict[int, Thread] = {}
        self._correlation = 1000
        self._sequence = 0
        self._external = 0

    def thread(self, tid: int | None = None) -> Thread:
        """Thread by number; the main thread has the process's number."""
        tid = self.pid if tid is None else tid
        if tid not in self._threads:
            self._threads[tid] = Thread(self, tid)
        return self._threads[tid]

    def start(self, program: Steps) -> Signal:
        """Run `program` (of another thread) from now on; the signal says when it is over."""
        over = Signal()

        def body() -> Steps:
            yield from program
            self.engine.fire(over)

        self.engine.spawn(body())
        return over

    def next_correlation(self) -> int:
        """Return a fresh correlation id."""
        self._correlation += 1
        return self._correlation

    def next_sequence(self) -> int:
        """Return a fresh sequence number of autograd."""
        self._sequence += 1
        return self._sequence

    def next_external(self) -> int:
        """Return a fresh external id."""
        self._external += 1
        return self._external


class Thread:
    """One host thread; the generators are what it can do."""

    def __init__(self, proc: Process, tid: int) -> None:
        self.proc, self.tid = proc, tid
        self.engine = proc.engine
        self.device = min(proc.devices, default=0)
        self.top: HostSpan | None = None
        self.grad = False  # grad mode: operators that run with it get a sequence number
        self.recomputes = False  # runs a forward again

    def about(self, ns: int) -> int:
        """Return `ns` with 5 % jitter: hosts are never exact."""
        return ns + self.proc.random.randint(-ns // 20, ns // 20)

    @contextmanager
    def differentiated(self, *, again: bool = False) -> Iterator[None]:
        """Run a forward with grad mode on; `again`: one that ran before."""
        before = self.grad, self.recomputes
        self.grad, self.recomputes = True, again
        try:
            yield
        finally:
            self.grad, self.recomputes = before

    @contextmanager
    def span(self, kind: str, name: str, cat: str, **args: Any) -> Iterator[HostSpan]:
        """Be inside something; the trace shows it as `name` of category `cat`."""
        span = HostSpan(
            kind=kind,
            name=name,
            cat=cat,
            tid=self.tid,
            start=self.engine.now,
            parent=self.top,
            args=args,
        )
        if cat in ("cpu_op", "user_annotation"):
            span.external_id = self.proc.next_external()
        self.proc.spans.append(span)
        self.top = span
        try:
            yield span
        finally:  # also where the work inside stops early
            span.end = self.engine.now
            self.top = span.parent

    def op(self, name: str, kind: str = "op", **args: Any):
        """Be inside a framework operator."""
        if self.grad and name.startswith("aten::"):
            args = args | {"Fwd thread id": 0, "Sequence number": self.proc.next_sequence()}
        return self.span(kind, name, "cpu_op", **args)

    def note(self, name: str, kind: str = "annotation"):
        """Be inside a user annotation."""
        return self.span(kind, name, "user_annotation")

    def frame(self, where: str, kind: str = "frame"):
        """Be inside a Python function, e.g. ``train.py(42): train_step``."""
        return self.span(kind, where, "python_function")

    @contextmanager
    def step(self, number: int) -> Iterator[HostSpan]:
        """Be inside a training step."""
        with self.span("step", f"ProfilerStep#{number}", "user_annotation") as span:
            self.proc.current_step = number
            self.proc.steps.append(span)
            yield span
            self.proc.current_step = None

    @contextmanager
    def call(
        self, api: str, kind: str = "runtime", cat: str = "cuda_runtime"
    ) -> Iterator[HostSpan]:
        """Be inside a CUDA runtime or driver call."""
        with self.span(kind, api, cat) as span:
            span.correlation = self.proc.next_correlation()
            yield span

    def launch(
        self,
        *ops: DeviceOp,
        stream: int = 7,
        api: str = "cudaLaunchKernel",
        call_ns: int = 4_500,
        tail_ns: int = 0,
        device: int | None = None,
    ) -> Steps:
        """Enqueue device work by one call (several ops: a graph) that goes on for `tail_ns`."""
        cat = (
            "cuda_driver" if api.startswith("cu") and not api.startswith("cuda") else "cuda_runtime"
        )
        with self.call(api, cat=cat) as span:
            step = self.proc.current_step
            yield self.about(call_ns)
            for op in ops:
                op.launch, op.correlation, op.step = span, span.correlation, step
                op.again = self.recomputes
                self._gpu(device).enqueue(op, stream)
            yield tail_ns

    def memcpy(self, op: DeviceOp, *, stream: int = 7, blocking: bool = False) -> Steps:
        """Copy; a blocking call returns after the copy's end on the device."""
        kind = "blocking_copy" if blocking else "runtime"
        with self.call("cudaMemcpyAsync", kind=kind) as span:
            op.launch, op.correlation, op.step = span, span.correlation, self.proc.current_step
            yield self.about(6_000)
            self._gpu(None).enqueue(op, stream)
            if blocking:
                yield op.done
                yield 2_500

    def synchronize(self, stream: int | None = None, device: int | None = None) -> Steps:
        """Block until a stream, or the whole device, has done what is enqueued."""
        api = "cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize"
        with self.call(api, kind="sync") as span:
            span.sync_stream = stream if stream is not None else -1
            yield from self._drain(stream, device)
            yield SYNC_RETURN_NS

    def free(self, ns: int = 20_000) -> Steps:
        """Give memory back to the driver: waits for the device, then unmaps."""
        with self.call("cudaFree", kind="allocator"):
            yield from self._drain(None, None)
            yield ns

    def malloc(self, ns: int) -> Steps:
        """Get memory from the driver."""
        with self.call("cudaMalloc", kind="allocator"):
            yield ns

    def record_event(self, stream: int = 7) -> Generator[int, None, Signal]:
        """Record an event on a stream; returns its signal."""
        signal = Signal()
        with self.call("cudaEventRecord"):
            yield 900
            self._gpu(None).stream(stream).put(Mark(signal))
        return signal

    def wait_event(self, signal: Signal, stream: int = 7) -> Steps:
        """Make a stream wait for an event."""
        with self.call("cudaStreamWaitEvent"):
            yield 700
            self._gpu(None).stream(stream).put(Await(signal))

    def until(self, ready: Callable[[], bool], poll_ns: int) -> Steps:
        """Poll a condition: a thread that waits for something the trace doesn't show."""
        while not ready():
            yield poll_ns

    def _drain(self, stream: int | None, device: int | None) -> Steps:
        gpu = self._gpu(device)
        marks = []
        for number in [stream] if stream is not None else sorted(gpu.streams):
            marks.append(Signal())
            gpu.stream(number).put(Mark(marks[-1]))
        yield from marks

    def _gpu(self, device: int | None) -> Device:
        return self.proc.devices[self.device if device is None else device]
