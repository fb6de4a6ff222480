"""Small traces by hand: rows in microseconds to the tables that readers make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudiag.model.job import JobTraces, RankTrace
from gpudiag.model.tables import (
    CollectiveTable,
    DeviceInfo,
    DeviceKind,
    DeviceTable,
    HostCategory,
    HostTable,
    OperatorArgs,
    Thread,
    Trace,
    TraceInfo,
)

US = 1_000


@dataclass(frozen=True)
class Span:
    """A host span, us; ``launch`` is the correlation of the work it enqueues."""

    start: float
    end: float
    name: str
    category: HostCategory = HostCategory.OPERATOR
    thread: int = 1
    launch: int = -1


@dataclass(frozen=True)
class Work:
    """A device record, us."""

    start: float
    end: float
    name: str = "elementwise_kernel"
    kind: DeviceKind = DeviceKind.KERNEL
    stream: int = 7
    launch: int = -1
    device: int = 0


def call(start: float, end: float, launch: int, name: str = "cudaLaunchKernel", **rest) -> Span:
    """Return a runtime call."""
    return Span(start, end, name, HostCategory.RUNTIME, launch=launch, **rest)


def annotation(start: float, end: float, name: str, **rest) -> Span:
    """Return a user annotation."""
    return Span(start, end, name, HostCategory.ANNOTATION, **rest)


def trace(host: list[Span], device: list[Work], **info) -> Trace:
    """Return the tables of hand-made rows."""
    strings: dict[str, int] = {}
    threads: dict[int, int] = {}

    def code(text: str) -> int:
        return strings.setdefault(text, len(strings))

    def thread(tid: int) -> int:
        return threads.setdefault(tid, len(threads))

    def column(values, dtype):
        return np.array(list(values), dtype=dtype)

    host_table = HostTable(
        ts_ns=column((round(s.start * US) for s in host), np.int64),
        dur_ns=column((round((s.end - s.start) * US) for s in host), np.int64),
        name=column((code(s.name) for s in host), np.int32),
        category=column((s.category for s in host), np.int8),
        thread=column((thread(s.thread) for s in host), np.int32),
        correlation=column((s.launch for s in host), np.int64),
        external_id=np.full(len(host), -1, dtype=np.int64),
        stack=np.full(len(host), -1, dtype=np.int32),
    )
    device_table = DeviceTable(
        ts_ns=column((round(w.start * US) for w in device), np.int64),
        dur_ns=column((round((w.end - w.start) * US) for w in device), np.int64),
        name=column((code(w.name) for w in device), np.int32),
        kind=column((w.kind for w in device), np.int8),
        device=column((w.device for w in device), np.int32),
        stream=column((code(str(w.stream)) for w in device), np.int32),
        correlation=column((w.launch for w in device), np.int64),
        external_id=np.full(len(device), -1, dtype=np.int64),
        bytes=np.full(len(device), -1, dtype=np.int64),
        graph_id=np.full(len(device), -1, dtype=np.int64),
    )
    return Trace(
        path="hand.json",
        format="kineto",
        info=TraceInfo(devices=(DeviceInfo(0, "NVIDIA A100-SXM4-80GB"),), **info),
        strings=list(strings),
        threads=[Thread("1", str(tid)) for tid in threads],
        host=host_table,
        device=device_table,
        collectives=CollectiveTable(
            on_device=np.zeros(0, dtype=bool),
            **{
                name: np.zeros(0, dtype=np.int64)
                for name in CollectiveTable.__slots__
                if name != "on_device"
            },
        ),
        operator_args=OperatorArgs(
            **{name: np.zeros(0, dtype=np.int64) for name in OperatorArgs.__slots__}
        ),
        events=len(host) + len(device),
        bytes=0,
    )


def job(*traces: Trace) -> JobTraces:
    """Return a job of one trace per rank."""
    return JobTraces(
        ranks=[
            RankTrace(rank=rank, rank_source="order", host=None, trace=one)
            for rank, one in enumerate(traces)
        ],
        world_size=len(traces),
        missing_ranks=[],
        inputs=[],
    )
