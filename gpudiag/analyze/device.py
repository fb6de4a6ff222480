"""Device activity of one trace, cleaned, classed, linked to the host and put on one clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.early import offset_of
from gpudiag.analyze.host import Host
from gpudiag.analyze.links import launch_rows
from gpudiag.analyze.names import (
    DeviceClass,
    by_code,
    copy_class,
    distinct,
    is_comm_kernel,
    is_tensor_kernel,
    operator_is_tensor,
)
from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.model.tables import (
    I8,
    I32,
    I64,
    INVALID_TIME,
    DeviceKind,
    DeviceTable,
    Mask,
    Quality,
    Trace,
)

# A kernel may run over the start of the next on its stream by this much before it is clipped.
_STREAM_OVERRUN_NS = 1_000
# Without any host record nothing bounds a duration; a day is longer than any trace.
_LONGEST_WITHOUT_HOST_NS = 86_400 * 10**9
_DIGITS = frozenset("0123456789")
_NO_STREAM = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Device:
    """One device's activity, sorted by (start, stream, correlation); shape (n,) each."""

    index: int
    starts: I64  # ns, the trace's own device clock
    ends: I64
    name: I32  # -> Trace.strings
    kind: I8  # DeviceClass
    stream: I64  # numeric where the label holds a number
    correlation: I64
    launch: I64  # row in Host of the launch call, -1 where none was recorded
    launch_return: I64  # return of the launch call on the device's clock; INVALID_TIME where none
    early: Mask  # starts long before its launch, alone: its start is wrong
    row: I64  # row in Trace.device
    offset_ns: int  # added to device times wherever they meet host times (accounting.md 1)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def is_compute(self) -> Mask:
        """Mask of compute records."""
        mask: Mask = self.kind <= DeviceClass.OTHER
        return mask

    @property
    def is_comm(self) -> Mask:
        """Mask of communication records."""
        mask: Mask = self.kind == DeviceClass.COMM
        return mask

    @property
    def is_copy(self) -> Mask:
        """Mask of copies and memsets."""
        mask: Mask = self.kind > DeviceClass.COMM
        return mask

    @property
    def lead(self) -> I64:
        """Start minus launch return, ns; 0 where the launch is not recorded."""
        linked = self.launch >= 0
        return np.where(linked, self.starts - np.where(linked, self.launch_return, 0), 0)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is left of a device once it is accounted for."""

    index: int
    offset_ns: int  # added to device times wherever they meet host times
    has_compute: bool

    @property
    def is_early(self) -> bool:
        """Whether its clock is off by more than a launch takes: gaps can't be split surely."""
        return self.offset_ns > thresholds.LAUNCH_LATENCY_NS


@dataclass(frozen=True, slots=True)
class _Early:
    """Records that start before their launch: by what clocks differ, and by what they can't."""

    jitter: int = 0
    wrong: int = 0
    farthest_ns: int = 0  # of the wrong ones

    def __add__(self, other: _Early) -> _Early:
        return _Early(
            self.jitter + other.jitter,
            self.wrong + other.wrong,
            max(self.farthest_ns, other.farthest_ns),
        )

    def said(self) -> list[Quality]:
        quality = []
        if self.jitter:
            message = (
                f"{self.jitter} device records start before their launch call; "
                "matched by correlation"
            )
            quality.append(Quality("kernel_before_launch", "info", self.jitter, message))
        if self.wrong:
            message = (
                f"{self.wrong} single device records start up to {fmt.duration(self.farthest_ns)} "
                "before their launch call; their start is wrong, and no clock was moved for it"
            )
            quality.append(Quality("early_records", "warning", self.wrong, message))
        return quality


def valid_rows(table: DeviceTable, host: Host) -> tuple[Mask, list[Quality]]:
    """Mask the records that can be true: timed, and not longer than the recording."""
    unreadable = (table.ts_ns == INVALID_TIME) | (table.dur_ns == INVALID_TIME)
    # 0/0 records carry the trace's base where times are relative: the profiler clamped them.
    zero = (table.dur_ns == 0) & (table.ts_ns == host.base_time_ns)
    negative = ~unreadable & (table.dur_ns < 0)
    longest = host.recorded_span_ns(table.ts_ns[~unreadable & ~zero]) or _LONGEST_WITHOUT_HOST_NS
    too_long = ~unreadable & (table.dur_ns > longest)
    reasons = {
        "no usable time": unreadable,
        "ts 0 and dur 0": zero,
        "a negative duration": negative,
        "a duration longer than the recording": too_long,
    }
    bad = unreadable | zero | negative | too_long
    if not bad.any():
        return ~bad, []
    counts = ", ".join(
        f"{int(mask.sum())} with {why}" for why, mask in reasons.items() if mask.any()
    )
    message = f"dropped {int(bad.sum())} of {len(table)} device records: {counts}"
    return ~bad, [Quality("invalid_device_records", "warning", int(bad.sum()), message)]


def build_devices(trace: Trace, host: Host) -> tuple[list[Device], list[Quality]]:
    """Return every device that has activity, in order of its index, and what was set right."""
    quality: list[Quality] = []
    keep, dropped = valid_rows(trace.device, host)
    quality += dropped
    rows = np.flatnonzero(keep)
    if not len(rows):
        return [], quality
    launch, repeated = launch_rows(host, trace.device.correlation[rows], trace.device.ts_ns[rows])
    quality += repeated
    kind = _classes(trace, host, rows, launch)
    stream = _stream_numbers(trace)[trace.device.stream[rows]]
    devices = []
    clipped = 0
    early = _Early()
    for index in np.unique(trace.device.device[rows]):
        mask = trace.device.device[rows] == index
        device, over, negative = _one_device(
            trace, host, int(index), rows[mask], launch[mask], kind[mask], stream[mask]
        )
        devices.append(device)
        clipped += over
        early += negative
    if clipped:
        message = f"{clipped} device records ran over the next one on their stream; clipped there"
        quality.append(Quality("stream_overrun", "warning", clipped, message))
    return devices, [*quality, *early.said()]


def _one_device(
    trace: Trace, host: Host, index: int, rows: I64, launch: I64, kind: I8, stream: I64
) -> tuple[Device, int, _Early]:
    table = trace.device
    starts = table.ts_ns[rows]
    order = np.lexsort((table.correlation[rows], stream, starts))
    rows, launch, stream, starts = (a[order] for a in (rows, launch, stream, starts))
    kind = kind[order]
    ends, clipped = _clip_overruns(starts, starts + table.dur_ns[rows], stream)
    linked = launch >= 0
    delay = starts[linked] - host.starts[launch[linked]]
    offset, wrong = offset_of(delay)
    early = np.zeros(len(rows), dtype=bool)
    early[linked] = wrong
    returned = np.full(len(rows), INVALID_TIME, dtype=np.int64)
    returned[linked] = host.ends[launch[linked]] - offset
    returned[early] = np.minimum(returned[early], starts[early])
    return (
        Device(
            index=index,
            starts=starts,
            ends=ends,
            name=table.name[rows],
            kind=kind,
            stream=stream,
            correlation=table.correlation[rows],
            launch=launch,
            launch_return=returned,
            early=early,
            row=rows,
            offset_ns=offset,
        ),
        clipped,
        _Early(
            jitter=int(((delay < 0) & ~wrong).sum()),
            wrong=int(wrong.sum()),
            farthest_ns=-int(delay[wrong].min(initial=0)),
        ),
    )


def _clip_overruns(starts: I64, ends: I64, stream: I64) -> tuple[I64, int]:
    """Cut each record at the next start on its stream where it runs over by more than 1 us."""
    order = np.lexsort((ends, starts, stream))
    same = stream[order][1:] == stream[order][:-1]
    over = ends[order][:-1] - starts[order][1:]
    later = starts[order][1:] > starts[order][:-1]
    cut = order[:-1][same & later & (over > _STREAM_OVERRUN_NS)]
    if not len(cut):
        return ends, 0
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    ends = ends.copy()
    ends[cut] = starts[order[position[cut] + 1]]
    return ends, len(cut)


def _stream_numbers(trace: Trace) -> I64:
    """Number every stream label: its own digits where it has any, else after all numbers."""
    numbers = np.full(len(trace.strings) + 1, _NO_STREAM, dtype=np.int64)
    for code in distinct(trace.device.stream[trace.device.stream >= 0]):
        label = trace.strings[code]
        digits = "".join(c for c in label if c in _DIGITS)[:18]
        # Labels without digits keep an order of their own that renaming can't mix with numbers.
        numbers[code] = int(digits) if digits else _NO_STREAM - 1 - int(code)
    return numbers


def _classes(trace: Trace, host: Host, rows: I64, launch: I64) -> I8:
    """Class each record: kernels by collective, operator, then name; copies by their kind."""
    table = trace.device
    kind = table.kind[rows]
    names = table.name[rows]
    kernels = kind == DeviceKind.KERNEL
    kernel_codes = names[kernels]
    comm = by_code(trace.strings, kernel_codes, is_comm_kernel).astype(bool)
    tensor = by_code(trace.strings, kernel_codes, is_tensor_kernel).astype(bool)
    copies = by_code(trace.strings, names[kind == DeviceKind.MEMCPY], copy_class)
    result = np.where(tensor[names], DeviceClass.TENSOR, DeviceClass.OTHER).astype(np.int8)
    by_operator = _operator_verdict(trace, host, launch)
    result[by_operator == 1] = DeviceClass.TENSOR
    result[by_operator == 0] = DeviceClass.OTHER
    result[kernels & comm[names]] = DeviceClass.COMM
    result[kind == DeviceKind.MEMCPY] = copies[names[kind == DeviceKind.MEMCPY]]
    result[kind == DeviceKind.MEMSET] = DeviceClass.MEMSET
    engine = (kind == DeviceKind.MEMCPY) & host.inside_collective(launch)
    result[engine] = DeviceClass.COMM
    return result


def _operator_verdict(trace: Trace, host: Host, launch: I64) -> I8:
    """Per device record: 1 its operator is a tensor one, 0 it isn't, -1 the operator can't tell."""
    verdicts = np.full(len(launch), -1, dtype=np.int8)
    operator = host.operator_of(launch)
    linked = operator >= 0
    codes = host.name[operator[linked]]
    meaning = by_code(trace.strings, codes, lambda name: _as_verdict(operator_is_tensor(name)))
    verdicts[linked] = meaning[codes]
    return verdicts


def _as_verdict(answer: bool | None) -> int:
    return -1 if answer is None else int(answer)
