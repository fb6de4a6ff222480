"""The window of a device: an integer number of full steps, or what comes nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpudiag.analyze.device import Device
    from gpudiag.analyze.host import Host
    from gpudiag.analyze.steps import Step
    from gpudiag.model.tables import I64

STEPS, STEPS_SKEWED, DEVICE_SPAN, ALL = "steps", "steps_skewed", "device_span", "all"


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open stretch of time, ns, how it was chosen, and the steps' edges inside it."""

    start: int
    end: int
    basis: str
    edges: tuple[int, ...] = ()  # start of every period, then the end of the last
    numbers: tuple[int, ...] = ()  # step number of each period

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


def step_of(steps: list[Step], at: I64) -> I64:
    """Return for each instant the index of the step span that holds it, -1 where none does."""
    order = np.argsort([step.start for step in steps], kind="stable")
    starts = np.array([step.start for step in steps], dtype=np.int64)[order]
    ends = np.array([step.end for step in steps], dtype=np.int64)[order]
    position = np.searchsorted(starts, at, side="right") - 1
    inside = (position >= 0) & (at < ends[np.maximum(position, 0)])
    found: I64 = np.where(inside, order[np.maximum(position, 0)], -1)
    return found


def device_starts(device: Device, host: Host, steps: list[Step]) -> list[tuple[int, int]]:
    """Return (device start, step number) of each step that launched work, in order of time.

    A step's device start is the earliest start of device activity launched inside its span;
    a record whose start is wrong has none.
    """
    rows = np.flatnonzero((device.launch >= 0) & ~device.early)
    if not steps or not len(rows):
        return []
    step = step_of(steps, host.starts[device.launch[rows]])
    earliest = _earliest(step[step >= 0], device.starts[rows[step >= 0]], len(steps))
    return sorted(
        (at, one.number) for one, at in zip(steps, earliest, strict=True) if at is not None
    )


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
        window = _step_window(device_starts(device, host, steps))
        if window is not None or forced == STEPS:
            return window
    first, last = int(device.starts.min()), int(device.ends.max())
    return Window(first, last, DEVICE_SPAN) if last > first else None


def _step_window(starts: list[tuple[int, int]]) -> Window | None:
    """Drop the first recorded step, and end where the last begins; ``starts``: (time, number)."""
    if len(starts) < 2:  # noqa: PLR2004 - one step has no period
        return None
    basis = STEPS if len(starts) > 2 else STEPS_SKEWED  # noqa: PLR2004 - the law's own numbers
    used = starts[1:] if basis == STEPS else starts
    edges = tuple(at for at, _ in used)
    numbers = tuple(number for _, number in used[:-1])
    return Window(edges[0], edges[-1], basis, edges, numbers) if edges[-1] > edges[0] else None


def _all_window(device: Device, host: Host, steps: list[Step]) -> Window:
    """From the start of the first step span to the end of the last, on the device's clock."""
    if steps:
        return _span_of_steps(steps, device.offset_ns)
    first = int(device.starts.min())
    last = int(device.ends.max())
    if len(host):
        first = min(first, int(host.starts.min()) - device.offset_ns)
        last = max(last, int(host.ends.max()) - device.offset_ns)
    return Window(first, last, ALL)


def _span_of_steps(steps: list[Step], offset_ns: int) -> Window:
    """From the start of the first step span to the end of the last, shifted to another clock."""
    ordered = sorted(steps, key=lambda step: step.start)
    last = max(step.end for step in steps) - offset_ns
    edges = (*(step.start - offset_ns for step in ordered), last)
    return Window(edges[0], last, ALL, edges, tuple(step.number for step in ordered))


def host_window(
    host: Host, numbers: set[int] | None = None, forced: str | None = None
) -> Window | None:
    """Choose the window of the host view: the same rule on the CPU step spans (accounting.md 9)."""
    steps = [step for step in host.steps if numbers is None or step.number in numbers]
    if forced == ALL and steps:
        return _span_of_steps(steps, 0)
    if forced not in (ALL, DEVICE_SPAN):
        window = _step_window(sorted((step.start, step.number) for step in steps))
        if window is not None or forced == STEPS:
            return window
    if not len(host):
        return None
    first, last = int(host.starts.min()), int(host.ends.max())
    return Window(first, last, ALL) if last > first else None
