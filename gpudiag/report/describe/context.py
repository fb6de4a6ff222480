"""What the numbers rest on: ranks, machines, window, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.report.totals import (
    device_totals,
    host_totals,
    window_refused,
    with_window,
    without_device,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpudiag.model.analysis import Analysis

_MOST_NAMES = 3
_BASES = {
    "steps": "whole steps",
    "steps_skewed": "two steps only, the first with the profiler's start in it",
    "device_span": "no step marks used: first to last device activity",
    "all": "first step mark to the last, as asked",
}


def context(analysis: Analysis) -> str:
    """Return one paragraph: whose time was measured, over what, and how clocks relate."""
    parts = [_ranks(analysis), _window(analysis), _clock(analysis)]
    return "; ".join(part for part in parts if part)


def _ranks(analysis: Analysis) -> str:
    job = analysis.job
    found = len(job.ranks)
    whole = job.world_size
    said = fmt.counted(found, "rank")
    if whole and whole > 1:
        said = f"{found} of {fmt.counted(whole, 'rank')}"
    if job.missing_ranks:
        said += f" (without {fmt.ranks(job.missing_ranks)})"
    return ", ".join(part for part in (said, _hosts(analysis), _devices(analysis)) if part)


def _hosts(analysis: Analysis) -> str:
    hosts = sorted({fmt.clean(i.host) for i in analysis.inputs if i.host and i.rank is not None})
    return f"node{'s' if len(hosts) > 1 else ''} {_some(hosts)}" if hosts else ""


def _devices(analysis: Analysis) -> str:
    if not with_window(analysis):
        # Where no rank has any device activity, the report says so by itself.
        return "no device window" if window_refused(analysis) else ""
    name = fmt.clean(analysis.job.gpu_name) if analysis.job.gpu_name else "GPU model not recorded"
    job = analysis.job
    if job.peak_tflops is not None:
        name += f" {job.dtype} {job.peak_tflops:,.0f} TFLOP/s dense"
    absent = without_device(analysis)
    if absent:
        name += f" (device activity not recorded on {fmt.rank_list(absent)})"
    return name


def _some(names: list[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return fmt.listed(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def _window(analysis: Analysis) -> str:
    results = with_window(analysis)
    if not results:
        return _host_window(analysis)
    totals = device_totals(analysis)
    bases = sorted({r.window_basis or "not known" for r in results})
    basis = " and ".join(_BASES.get(base, base) for base in bases)
    if totals is None or not totals.per_step:
        longest = max(r.window_ns or 0 for r in results)
        return f"window of {fmt.duration(longest)} ({basis})"
    periods = _range(r.periods for r in results)
    fewest = min(r.periods for r in results)
    few = ", few: low confidence" if fewest < thresholds.FEW_PERIODS else ""
    length = fmt.duration(round(totals.window_ns / totals.steps))
    noun = "period" if periods == "1" else "periods"
    return f"{periods} {noun} of {length}{few} ({basis})"


def _host_window(analysis: Analysis) -> str:
    totals = host_totals(analysis)
    if totals is None:
        return ""
    length = fmt.duration(round(totals.window_ns / totals.steps))
    if not totals.per_step:
        return f"host window of {length}"
    if totals.members == 1:
        return f"{fmt.counted(totals.steps, 'host step')} of {length}"
    steps = fmt.times(totals.steps_each, totals.steps, "host step", totals.members, "rank")
    return f"{steps}, {length} each"


def _range(values: Iterable[int]) -> str:
    known = sorted(set(values))
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"


def _clock(analysis: Analysis) -> str:
    clock = analysis.clock
    parts = []
    if clock.aligned and clock.half_width_ns is not None:
        parts.append(f"clocks of the ranks ±{fmt.duration(clock.half_width_ns)}")
    elif len(with_window(analysis)) > 1:
        parts.append("clocks of the ranks not aligned")
    offsets = [r.host_device_offset_ns for r in analysis.ranks if r.host_device_offset_ns]
    if offsets:
        largest = max(offsets)
        note = ", launch latency not resolvable" if largest > thresholds.LAUNCH_LATENCY_NS else ""
        parts.append(f"device clock moved by {fmt.duration(largest)} to the host's{note}")
    return ", ".join(parts)
