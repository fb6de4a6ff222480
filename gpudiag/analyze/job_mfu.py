"""MFU of a job: one peak, the FLOPs of every device, and what stands in the way of a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.analyze.evidence import NAMED
from gpudiag.analyze.mfu import Efficiency, efficiency
from gpudiag.analyze.peak import NoPeak, Peak, choose_peak
from gpudiag.analyze.rank import DeviceAnalysis, Options, RankAnalysis
from gpudiag.model import format as fmt
from gpudiag.model.tables import Quality
from gpudiag.model.thresholds import LOW_COVERAGE_FRAC


@dataclass(frozen=True, slots=True)
class JobMfu:
    """MFU and HFU of a job; None where they can't be known."""

    peak: Peak | NoPeak
    dtype: str | None
    of_device: dict[tuple[int, int], Efficiency]  # by rank and device index
    mfu: float | None
    hfu: float | None
    quality: list[Quality]


def job_mfu(ranks: Sequence[RankAnalysis], options: Options) -> JobMfu:
    """Count a job's FLOPs against its peak."""
    of_rank = [(rank.rank, device) for rank in ranks for device in rank.devices]
    devices = [device for _, device in of_rank]
    dtype = options.dtype or _dominant_dtype(devices)
    peak = choose_peak(ranks, dtype, options.peak_tflops)
    counted = any(device.flops.full.hw_flops for device in devices)
    of_device: dict[tuple[int, int], Efficiency] = {}
    if isinstance(peak, Peak) and counted:
        of_device = {
            (rank, device.device.index): efficiency(device, peak, options.sm_clock_mhz)
            for rank, device in of_rank
        }
    window = sum(device.window.length for device in devices)
    weighed = [
        (device.window.length, of_device[rank, device.device.index])
        for rank, device in of_rank
        if of_device
    ]
    return JobMfu(
        peak=peak,
        dtype=peak.dtype if isinstance(peak, Peak) else dtype,
        of_device=of_device,
        mfu=sum(ns * one.mfu for ns, one in weighed) / window if weighed else None,
        hfu=sum(ns * one.hfu for ns, one in weighed) / window if weighed else None,
        quality=_quality(devices, peak, counted=counted),
    )


def _dominant_dtype(devices: Sequence[DeviceAnalysis]) -> str | None:
    """Return the operand type that did most FLOPs in all windows."""
    flops: Counter[str] = Counter()
    for device in devices:
        for one in device.flops.by_dtype:
            flops[one.dtype] += one.full.hw_flops
    return max(sorted(flops), key=flops.__getitem__, default=None) if any(flops.values()) else None


def _coverage(devices: Sequence[DeviceAnalysis]) -> float | None:
    tensor = sum(device.flops.tensor_ns for device in devices)
    return sum(device.flops.known_ns for device in devices) / tensor if tensor else None


def _quality(
    devices: Sequence[DeviceAnalysis], peak: Peak | NoPeak, *, counted: bool
) -> list[Quality]:
    if not devices:
        return []
    if not counted:
        reason = _main_reason(devices) or "no matmul, convolution or attention ran in the window"
        return [Quality("mfu_unknown", "info", 1, f"no MFU: {reason}")]
    entries = []
    if isinstance(peak, NoPeak):
        may_be = f"; it may be one of: {', '.join(peak.candidates)}" if peak.candidates else ""
        message = f"no MFU: {peak.reason}{may_be}; give its dense peak with --peak-tflops"
        entries.append(Quality("mfu_unknown", "warning", 1, message))
    coverage = _coverage(devices)
    if coverage is not None and coverage < LOW_COVERAGE_FRAC:
        message = (
            f"FLOPs are known for {fmt.share(coverage)} of tensor kernel time, so MFU is at least "
            f"what is printed; without: {_uncounted(devices)}"
        )
        entries.append(Quality("flops_coverage", "warning", 1, message))
    return entries


def _uncounted(devices: Sequence[DeviceAnalysis]) -> str:
    """Name the kernels that lack FLOPs most, with the reason."""
    time: Counter[tuple[str, str]] = Counter()
    for device in devices:
        for one in device.flops.uncounted:
            time[one.operator or one.name, one.reason] += one.time_ns
    return "; ".join(
        f"{name} ({fmt.duration(ns)}: {reason})" for (name, reason), ns in time.most_common(NAMED)
    )


def _main_reason(devices: Sequence[DeviceAnalysis]) -> str | None:
    time: Counter[str] = Counter()
    for device in devices:
        for one in device.flops.uncounted:
            time[one.reason] += one.time_ns
    return time.most_common(1)[0][0] if time else None
