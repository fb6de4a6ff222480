"""``gpudiag doctor``: what is on this machine, and what its absence means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.report.view import Line, Lines, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudiag.model.doctor import Check


def doctor_report(checks: Sequence[Check]) -> Report:
    """Return what is here, what isn't, and what each is for."""
    here = [one for one in checks if one.ok]
    missing = [one for one in checks if not one.ok]
    said = f"{len(missing)} of {len(checks)} things are not here" if missing else "all is here"
    sections = [Lines(title="here", lines=tuple(_line(one) for one in here))]
    if missing:
        sections.append(Lines(title="not here", lines=tuple(_line(one) for one in missing)))
    return Report(
        headline=f"What gpudiag can use on this machine: {said}.",
        context="the peaks that MFU divides by: gpudiag doctor --gpus",
        sections=tuple(sections),
    )


def _line(one: Check) -> Line:
    return Line(label=one.id, text=f"{one.found} ({one.use})", indent=2)
