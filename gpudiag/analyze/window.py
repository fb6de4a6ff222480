"""The window of a device: an integer number of full steps, or what comes nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpudiag.analyze.device import Device
    from gpudiag.analyze.host import Host, Step
    from gpudiag.model.tables import I64

STEPS, STEPS_SKEWED, DEVICE_SPAN, ALL = "steps", "steps_skewed", "device_span", "all"
CHOICES = (STEPS, DEVICE_SPAN, ALL)


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open stretch of time, ns, how it was chosen, and the steps' edges inside it."""

    start: int
    end: int
    basis: str
    edges: tuple[int, ...] = ()  # start of every period, then the end of the last

    @property
    def length(self) -> int:
        """Length, ns."""
        return self.end - self.start

    @property
    def periods(self) -> int:
        """Number of full steps."""
        return max(len(self.edges) - 1, 0)

    @property
    def steps_ns(self) -> list[int]:
        """Length of each period, ns."""
        return [b - a for a, b in zip(self.edges, self.edges[1:], strict=False)]


def device_starts(device: Device, host: Host, steps: list[Step]) -> dict[int, int]:
    """Return step number -> earliest start of device activity launched inside the step's span."""
    rows = np.flatnonzero(device.launch >= 0)
    if not steps or not len(rows):
        return {}
    launched = host.starts[device.launch[rows]]
    ordered = sorted(steps, key=lambda step: step.start)
    starts = np.array([step.start for step in ordered], dtype=np.int64)
    ends = np.array([step.end for step in ordered], dtype=np.int64)
    position = np.searchsorted(starts, launched, side="right") - 1
    inside = (position >= 0) & (launched < ends[np.maximum(position, 0)])
    earliest = _earliest(position[inside], device.starts[rows[inside]], len(ordered))
    return {step.number: at for step, at in zip(ordered, earliest, strict=True) if at is not None}


def _earliest(group: I64, values: I64, groups: int) -> list[int | None]:
    """Return the smallest value of each group, None for an empty one."""
    top = np.iinfo(np.int64).max
    low = np.full(groups, top, dtype=np.int64)
    np.minimum.at(low, group, values)
    return [None if value == top else int(value) for value in low]


def device_window(
    device: Device, host: Host, numbers: set[int] | None = None, forced: str | None = None
) -> Window | None:
    """Choose the window of a device (accounting.md 2); None where ``forced`` can't be had.

    Args:
        device: the device's activity.
        host: the host of the same trace.
        numbers: step numbers that all ranks recorded; None for one rank.
        forced: ``steps``, ``device_span`` or ``all``; None chooses.
    """
    steps = [step for step in host.steps if numbers is None or step.number in numbers]
    if forced == ALL:
        return _all_window(device, host, steps)
    if forced != DEVICE_SPAN:
        starts = sorted(device_starts(device, host, steps).items())
        window = _step_window([at for _, at in starts])
        if window is not None or forced == STEPS:
            return window
    first, last = int(device.starts.min()), int(device.ends.max())
    return Window(first, last, DEVICE_SPAN) if last > first else None


def _step_window(edges: list[int]) -> Window | None:
    """Drop the first recorded step, and end where the last begins."""
    if len(edges) < 2:  # noqa: PLR2004 - one step has no period
        return None
    edges = sorted(edges)
    basis = STEPS if len(edges) > 2 else STEPS_SKEWED  # noqa: PLR2004 - the law's own numbers
    used = edges[1:] if basis == STEPS else edges
    return Window(used[0], used[-1], basis, tuple(used)) if used[-1] > used[0] else None


def _all_window(device: Device, host: Host, steps: list[Step]) -> Window:
    """From the start of the first step span to the end of the last, on the device's clock."""
    if steps:
        first = min(step.start for step in steps) - device.offset_ns
        last = max(step.end for step in steps) - device.offset_ns
        edges = (*sorted(step.start - device.offset_ns for step in steps), last)
        return Window(first, last, ALL, edges)
    first = int(device.starts.min())
    last = int(device.ends.max())
    if len(host):
        first = min(first, int(host.starts.min()) - device.offset_ns)
        last = max(last, int(host.ends.max()) - device.offset_ns)
    return Window(first, last, ALL)


def host_window(
    host: Host, numbers: set[int] | None = None, forced: str | None = None
) -> Window | None:
    """Choose the window of the host view: the same rule on the CPU step spans (accounting.md 9)."""
    steps = [step for step in host.steps if numbers is None or step.number in numbers]
    if forced == ALL and steps:
        first, last = min(s.start for s in steps), max(s.end for s in steps)
        return Window(first, last, ALL, (*sorted(s.start for s in steps), last))
    if forced not in (ALL, DEVICE_SPAN):
        window = _step_window([step.start for step in steps])
        if window is not None or forced == STEPS:
            return window
    if not len(host):
        return None
    first, last = int(host.starts.min()), int(host.ends.max())
    return Window(first, last, ALL) if last > first else None
