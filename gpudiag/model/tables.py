"""The columns of one trace file: what every reader produces and every analysis consumes.

All times are absolute integer nanoseconds (Unix epoch where the trace records it, else the
trace's own zero). ``NOT_RECORDED`` marks an integer that the file doesn't hold. Strings are
dictionary-encoded: a column ``name`` holds indices into ``Trace.strings``; -1 is "no string".
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

I64: TypeAlias = npt.NDArray[np.int64]
I32: TypeAlias = npt.NDArray[np.int32]
I8: TypeAlias = npt.NDArray[np.int8]
Mask: TypeAlias = npt.NDArray[np.bool_]

NOT_RECORDED = -1
# A time that could not be read (missing, NaN, Infinity, not a number).
INVALID_TIME = np.iinfo(np.int64).min


class HostCategory(IntEnum):
    """What kind of thing a span on a host thread is."""

    OPERATOR = 0  # cpu_op, record_param_comms, autograd, Triton wrappers
    ANNOTATION = 1  # user_annotation: record_function, ProfilerStep#, DataLoader, gloo:*
    RUNTIME = 2  # cuda/hip/xpu/mtia/privateuse1 runtime calls
    DRIVER = 3  # cuda/xpu driver calls
    PYTHON = 4  # python_function frames
    OVERHEAD = 5  # the profiler's own: buffer flushes, instrumentation
    OTHER = 6


class DeviceKind(IntEnum):
    """What kind of activity a device record is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


@dataclass(frozen=True, slots=True)
class HostTable:
    """Spans on host threads, one row each, in file order."""

    ts_ns: I64
    dur_ns: I64
    name: I32  # -> Trace.strings
    category: I8  # HostCategory
    thread: I32  # -> Trace.threads
    correlation: I64  # runtime/driver rows: links to DeviceTable.correlation
    external_id: I64
    stack: I32  # -> Trace.strings; the operator's recorded "Call stack" (old traces)

    def __len__(self) -> int:
        return len(self.ts_ns)


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """Kernels, copies and memsets, one row each, in file order."""

    ts_ns: I64
    dur_ns: I64
    name: I32  # -> Trace.strings
    kind: I8  # DeviceKind
    device: I32  # device index as recorded
    stream: I32  # -> Trace.strings: the stream's (or queue's) label as recorded
    correlation: I64
    external_id: I64
    bytes: I64  # copies and memsets
    graph_id: I64  # CUDA graph replay, where recorded

    def __len__(self) -> int:
        return len(self.ts_ns)


@dataclass(frozen=True, slots=True)
class CollectiveTable:
    """Collective metadata as recorded on kernels and on ``record_param_comms`` operators."""

    on_device: Mask  # True: row indexes DeviceTable; False: HostTable
    row: I32
    op: I32  # -> strings, "Collective name"
    group: I32  # -> strings, "Process Group Name"
    group_description: I32  # -> strings
    group_ranks: I32  # -> strings, the text as recorded (may be cut: "[0, 1, ..., ...]")
    group_size: I32
    seq: I64
    in_elements: I64
    out_elements: I64
    dtype: I32  # -> strings
    src_rank: I32
    dst_rank: I32

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class OperatorArgs:
    """Shapes of operators, sparse: only host rows that recorded any. Texts are raw JSON."""

    row: I32  # -> HostTable
    input_dims: I32  # -> strings, raw JSON text such as "[[4,8],[8,16]]"
    input_types: I32  # -> strings, raw JSON text
    concrete_inputs: I32  # -> strings, raw JSON text
    sequence_number: I64  # autograd sequence number
    forward_thread: I64  # "Fwd thread id", set on backward operators
    kernel_flops: I64  # Inductor's own count, where recorded

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class Thread:
    """A host thread as recorded; labels are text because old traces hold text."""

    pid: str
    tid: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One entry of ``deviceProperties``: a device visible to the process, not always used."""

    index: int
    name: str
    sm_count: int | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group from ``distributedInfo.pg_config``."""

    name: str
    description: str | None
    size: int | None
    ranks: tuple[int, ...] | None  # None when cut short or not recorded


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """What a trace says of itself; None is "not recorded"."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    pid: str | None = None
    base_time_ns: int = 0
    devices: tuple[DeviceInfo, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    trace_id: str | None = None
    vendor: str | None = None  # cuda, rocm, xpu, mtia: told from rows, None if CPU only
    record_shapes: bool | None = None
    with_stack: bool | None = None
    profile_memory: bool | None = None
    # The profiler's own span ("PyTorch Profiler (0)"), absolute ns, where recorded.
    span_start_ns: int | None = None
    span_end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Quality:
    """One thing that makes the result less certain: what, how often, of which rank and device."""

    id: str
    severity: str  # info, warning, error
    count: int
    message: str
    rank: int | None = None  # None: of the job, or of its files
    device: int | None = None  # None: of the rank


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that one file holds, as columns."""

    path: str
    format: str
    info: TraceInfo
    strings: list[str]
    threads: list[Thread]
    host: HostTable
    device: DeviceTable
    collectives: CollectiveTable
    operator_args: OperatorArgs
    events: int  # events of any phase that were read
    bytes: int  # bytes of JSON text, after decompression
    quality: tuple[Quality, ...] = field(default=())
    partial: bool = False  # part of the file could not be read


_Table = TypeVar("_Table", HostTable, DeviceTable, CollectiveTable, OperatorArgs)


def _emptied(table: _Table) -> _Table:
    return replace(table, **{one.name: getattr(table, one.name)[:0] for one in fields(table)})


def without_rows(trace: Trace) -> Trace:
    """Return a trace that has kept only what it says of itself: no row, no string, no thread."""
    return replace(
        trace,
        strings=[],
        threads=[],
        host=_emptied(trace.host),
        device=_emptied(trace.device),
        collectives=_emptied(trace.collectives),
        operator_args=_emptied(trace.operator_args),
    )
