"""The map: one rank's trace to what its devices and its training thread spent their time on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpudiag.analyze.comm.messages import RankMessages, rank_messages
from gpudiag.analyze.device import Device, DeviceFacts, build_devices
from gpudiag.analyze.gap_context import explained
from gpudiag.analyze.host import Host, build_host
from gpudiag.analyze.hostview import host_leaves_ns
from gpudiag.analyze.idle import IdleSplit, host_late, split_idle
from gpudiag.analyze.intervals import Intervals, union
from gpudiag.analyze.kernels import KernelSums, kernel_sums
from gpudiag.analyze.names import COPY_BUCKETS, distinct, is_graph_launch
from gpudiag.analyze.partition import UNSPLIT, PartitionSums, partition
from gpudiag.analyze.remarks import device_quality, host_quality
from gpudiag.analyze.syncs import sync_calls
from gpudiag.analyze.tokens import tokens_of
from gpudiag.analyze.trace_flops.count import count_flops
from gpudiag.analyze.trace_flops.results import WindowFlops
from gpudiag.analyze.window import (
    Window,
    device_window,
    host_window,
    step_of,
)
from gpudiag.model import thresholds
from gpudiag.model.analysis import RankTokens
from gpudiag.model.job import RankTrace
from gpudiag.model.tables import I64, Mask, Quality, Trace, TraceInfo


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may choose about an analysis."""

    window: str | None = None  # steps, device_span, all; None chooses
    peak_tflops: float | None = None  # dense, TFLOP/s; None looks the GPU up
    dtype: str | None = None  # bf16, fp16, ...; None takes the one that did most FLOPs
    sm_clock_mhz: float | None = None  # mean SM clock of the run, where it was sampled
    # A pipeline's schedule, and its chunks a stage where told; None infers them.
    pipeline_schedule: tuple[str, int | None] | None = None
    extra_spans: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceAnalysis:
    """One device of one rank, accounted for."""

    device: DeviceFacts
    window: Window
    partition: PartitionSums
    idle: IdleSplit
    host_late: Intervals  # of exposed comm: the host was late anyway
    host_late_ns: dict[str, int]  # per bucket of exposed comm and copy
    missing: Intervals  # stretches in which device records are missing
    launches: int
    launches_missing: int
    flops: WindowFlops
    kernels: KernelSums
    syncs: dict[str, tuple[int, int]]  # operator -> its synchronise calls, ns inside them

    def leaves_ns(self) -> dict[str, int]:
        """Return ns of every leaf; they sum to the window."""
        return self.partition.leaves_ns() | self.idle.leaves_ns()


@dataclass(frozen=True, slots=True)
class RankAnalysis:
    """One rank: its devices, its host, and what makes the numbers uncertain.

    All that the ranks together are analysed from, and a small part of the trace.
    """

    rank: int
    host_name: str | None
    info: TraceInfo
    messages: RankMessages
    launch_calls: int
    devices: list[DeviceAnalysis]
    recorded: bool  # any device activity, also outside the window
    host_window: Window | None
    host_buckets_ns: dict[str, int] | None
    tokens: RankTokens | None
    quality: list[Quality]


@dataclass(frozen=True, slots=True)
class PreparedRank:
    """A rank's rows sorted and linked, before the ranks agree on their steps."""

    source: RankTrace
    host: Host
    devices: list[Device]
    quality: list[Quality]


def prepare(source: RankTrace, options: Options) -> PreparedRank:
    """Sort, class and link the rows of one trace."""
    host = build_host(source.trace, options.extra_spans)
    devices, quality = build_devices(source.trace, host)
    return PreparedRank(source, host, devices, [*quality, *host_quality(host)])


def step_numbers(prepared: PreparedRank) -> set[int]:
    """Return the numbers of the steps that a rank recorded."""
    return {step.number for step in prepared.host.steps}


def analyze_rank(
    prepared: PreparedRank, numbers: set[int] | None, options: Options
) -> RankAnalysis:
    """Account for the windows of every device and of the training thread of one rank."""
    host, source = prepared.host, prepared.source
    quality = list(source.trace.quality) + list(prepared.quality)
    windows = []
    for device in prepared.devices:
        window = device_window(device, host, numbers, options.window)
        if window is None:
            quality.append(_no_window(device, options))
        else:
            windows.append((device, window))
    devices = []
    for (device, window), flops in zip(
        windows, count_flops(source.trace, host, windows), strict=True
    ):
        devices.append(_account(source.trace, host, device, window, flops))
        quality += device_quality(devices[-1], device, host)
    if not prepared.devices:
        quality.append(_not_recorded(source.trace, host))
    view = host_window(host, numbers, options.window) if len(host) else None
    return RankAnalysis(
        rank=source.rank,
        host_name=source.host,
        info=source.trace.info,
        messages=rank_messages(source.trace, host, prepared.devices, windows, view),
        launch_calls=len(host.launch_calls()),
        devices=devices,
        recorded=bool(prepared.devices),
        host_window=view,
        host_buckets_ns=host_leaves_ns(host, view) if view else None,
        tokens=tokens_of(source, host),
        quality=[replace(one, rank=source.rank) for one in quality],
    )


def _account(
    trace: Trace, host: Host, device: Device, window: Window, flops: WindowFlops
) -> DeviceAnalysis:
    parts = partition(device, window)
    late = host_late(device, host, parts.comm)
    late_ns = {UNSPLIT: late.total}
    late_ns |= {
        COPY_BUCKETS[kind]: host_late(device, host, part).total
        for kind, part in parts.copies.items()
    }
    idle = split_idle(device, host, parts.idle, window)
    missing, launches, lost = _missing_records(trace, host, window)
    return DeviceAnalysis(
        device=DeviceFacts(device.index, device.offset_ns, bool(device.is_compute.any())),
        window=window,
        partition=parts.summed(),
        idle=explained(trace, host, device, idle),
        host_late=late,
        host_late_ns={bucket: ns for bucket, ns in late_ns.items() if ns},
        missing=missing,
        launches=launches,
        launches_missing=lost,
        flops=flops,
        kernels=kernel_sums(trace, device, window),
        syncs=sync_calls(host, device, window),
    )


def _missing_records(trace: Trace, host: Host, window: Window) -> tuple[Intervals, int, int]:
    """Return the stretches where launch calls lack device records, the calls, and those without.

    The host runs ahead of the device, so a call belongs to the step whose span on the host holds
    it; without steps all calls belong to the window.
    """
    calls = host.launch_calls()
    period = _period_of(host, window, calls)
    calls, period = calls[period >= 0], period[period >= 0]
    cut = _cut_replays(trace, host, calls)
    lost = ~np.isin(host.correlation[calls], trace.device.correlation) | cut
    edges = np.array(window.edges or (window.start, window.end), dtype=np.int64)
    launched = np.bincount(period, minlength=len(edges) - 1)
    missing = np.bincount(period[lost], minlength=len(edges) - 1)
    bad = missing > thresholds.MISSING_RECORDS_FRAC * launched
    bad[period[cut]] = True
    return union(edges[:-1][bad], edges[1:][bad]), len(calls), int(lost.sum())


def _period_of(host: Host, window: Window, calls: I64) -> I64:
    """Return for each call the window's period it belongs to, -1 for none."""
    if not window.numbers:
        return np.zeros(len(calls), dtype=np.int64)
    steps = host.steps
    of_step = {number: index for index, number in enumerate(window.numbers)}
    periods = np.array([of_step.get(step.number, -1) for step in steps] + [-1], dtype=np.int64)
    found: I64 = periods[step_of(steps, host.starts[calls])]
    return found


def _cut_replays(trace: Trace, host: Host, calls: I64) -> Mask:
    """Mask graph launches that replayed fewer nodes than another launch of the same graph."""
    cut = np.zeros(len(calls), dtype=bool)
    table = trace.device
    nodes = np.flatnonzero((table.graph_id > 0) & (table.correlation > 0))
    codes = [code for code in distinct(host.name[calls]) if is_graph_launch(host.strings[code])]
    graph_calls = np.flatnonzero(np.isin(host.name[calls], codes))
    if not len(nodes) or not len(graph_calls):
        return cut
    pairs, count = np.unique(
        np.stack((table.correlation[nodes], table.graph_id[nodes])), axis=1, return_counts=True
    )
    most: dict[int, int] = {}
    for graph, n in zip(pairs[1].tolist(), count.tolist(), strict=True):
        most[graph] = max(most.get(graph, 0), n)
    short = pairs[0][[n < most[g] for g, n in zip(pairs[1].tolist(), count.tolist(), strict=True)]]
    cut[graph_calls] = np.isin(host.correlation[calls[graph_calls]], short)
    return cut


def _no_window(device: Device, options: Options) -> Quality:
    message = (
        f"no window on the basis {options.window or 'steps'}: "
        "fewer than two recorded steps launched work on it"
    )
    return Quality("no_window", "error", 1, message, device=device.index)


def _not_recorded(trace: Trace, host: Host) -> Quality:
    launches = len(host.launch_calls())
    known = len(trace.info.devices)
    why = f"{launches} launch calls but no device record" if launches else "no device record"
    listed = f"; {known} devices are listed" if known else ""
    message = f"device activity not recorded ({why}{listed}): no GPU window, no busy share"
    return Quality("device_activity_not_recorded", "warning", 1, message)
