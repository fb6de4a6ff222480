"""What makes the numbers of one rank and of its devices less certain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.analyze.window import ALL, DEVICE_SPAN, STEPS_SKEWED, device_starts
from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.model.tables import Quality

if TYPE_CHECKING:
    from gpudiag.analyze.device import Device
    from gpudiag.analyze.host import Host
    from gpudiag.analyze.rank import DeviceAnalysis
    from gpudiag.analyze.window import Window


def host_quality(host: Host) -> list[Quality]:
    """Say what was left out of the host's rows, and what was set right."""
    quality = []
    if host.dropped:
        message = f"dropped {host.dropped} host records without a usable time"
        quality.append(Quality("invalid_host_records", "warning", host.dropped, message))
    if host.repeated_steps:
        message = (
            f"{fmt.counted(host.repeated_steps, 'step')} repeat the number of one before, as where "
            "a file holds two runs; all are kept, and the time between the runs is in the window"
        )
        quality.append(Quality("steps_repeated", "warning", host.repeated_steps, message))
    return quality


def device_quality(analysis: DeviceAnalysis, device: Device, host: Host) -> list[Quality]:
    """Say what makes a device's numbers less certain."""
    found: list[tuple[str, str, int, str]] = []
    unlinked = int(analysis.idle.unlinked.sum())
    if unlinked:
        message = (
            f"{unlinked} gaps end with activity whose launch is not recorded; they are idle.unknown"
        )
        found.append(("launch_not_recorded", "info", unlinked, message))
    if device.offset_ns > thresholds.LAUNCH_LATENCY_NS:
        message = (
            f"its clock is {fmt.duration(device.offset_ns)} early; idle.launch_latency is not "
            "resolvable, idle.device_blocked no finding, and causes of idle are of low confidence"
        )
        found.append(("host_device_offset", "warning", 1, message))
    few = few_periods(analysis.window)
    if few:
        found.append(("few_periods", "warning", analysis.window.periods, few))
    replays = int(analysis.idle.in_replay.sum())
    if replays:
        message = (
            f"{replays} gaps end with a node of a graph replay; what the device did there is "
            "uncertain, enqueued time in them is no finding"
        )
        found.append(("graph_replay_gaps", "info", replays, message))
    if not (device.is_compute | device.is_comm).any():
        found.append(("no_kernels", "warning", 1, "copies are recorded, but no kernel"))
    skipped = len(host.steps) - len(device_starts(device, host, host.steps))
    if skipped:
        message = f"{skipped} recorded steps launched nothing on it"
        found.append(("steps_without_device_activity", "warning", skipped, message))
    return [Quality(*one, device=device.index) for one in found]


def few_periods(window: Window) -> str | None:
    """Say that a window holds few whole steps, and which; None where it holds enough."""
    if window.basis == ALL or window.periods >= thresholds.FEW_PERIODS:
        return None
    if window.basis == DEVICE_SPAN:
        return "no full step in it, all device activity is the window: low confidence"
    text = f"{fmt.counted(window.periods, 'full step')} in the window"
    if window.basis == STEPS_SKEWED:
        text += ", the first recorded, which holds the profiler's own start"
    return f"{text}: low confidence"
