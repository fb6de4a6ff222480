"""What a table's numbers are divided by: the windows and steps of a whole job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, RankResult

_STEP_BASES = frozenset({"steps", "steps_skewed", "all"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over devices (or host processes) that shares and times per step refer to.

    time per step = bucket / steps, with steps = Σ periods over devices; where a window holds no
    step marks, ``steps`` is the number of devices and times are per device.
    """

    members: int
    window_ns: int
    steps: int
    per_step: bool
    steps_each: int | None  # of every member; None where they differ

    def each_ns(self, total_ns: int) -> float:
        """Return a job's time per step and device, or per device where there are no steps."""
        return total_ns / self.steps

    def share(self, part_ns: int) -> float:
        """Return a part of the windows' sum."""
        return part_ns / self.window_ns


def device_totals(analysis: Analysis) -> Totals | None:
    """Return the totals over the devices that have a window; None where none has."""
    results = with_window(analysis)
    windows = [(r.window_ns or 0, r.window_basis, r.periods) for r in results]
    return _totals(windows)


def host_totals(analysis: Analysis) -> Totals | None:
    """Return the totals over the processes that have a host window, one per rank."""
    windows = [
        (r.host_window_ns or 0, r.host_window_basis, len(r.host_steps_ns))
        for r in host_results(analysis)
    ]
    return _totals(windows)


def _totals(windows: list[tuple[int, str | None, int]]) -> Totals | None:
    if not windows:
        return None
    per_step = all(basis in _STEP_BASES and periods > 0 for _, basis, periods in windows)
    periods = [count if per_step else 1 for _, _, count in windows]
    return Totals(
        members=len(windows),
        window_ns=sum(ns for ns, _, _ in windows),
        steps=sum(periods),
        per_step=per_step,
        steps_each=periods[0] if len(set(periods)) == 1 else None,
    )


def with_window(analysis: Analysis) -> list[RankResult]:
    """Return the results that have a device window."""
    return [result for result in analysis.ranks if result.window_ns]


def host_results(analysis: Analysis) -> list[RankResult]:
    """Return the result of each rank that its host's figures stand on, if it has a host window."""
    return list({r.rank: r for r in analysis.ranks if r.host_window_ns}.values())


def window_refused(analysis: Analysis) -> bool:
    """Return whether device activity is there, but not the window that was asked for."""
    return any(entry.id == "no_window" for entry in analysis.quality)


def without_device(analysis: Analysis) -> list[int]:
    """Return the ranks for which no device activity was recorded."""
    return sorted({r.rank for r in analysis.ranks} - {r.rank for r in with_window(analysis)})
