"""The findings with their evidence and advice, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.report.totals import with_window
from gpudiag.report.view import Line, Lines, Tone

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, Finding

_INDENT = 5
_TONES: dict[str, Tone] = {"error": "bad", "warning": "warn", "info": "strong"}


def findings(analysis: Analysis) -> Lines:
    """Return every finding in the analysis's order, or what its absence means."""
    if not analysis.findings:
        text = "none above its threshold (gpudiag explain lists them)"
        if not with_window(analysis):
            text = "none; most of them need device activity"
        return Lines(title="findings", lines=(Line(text=text, indent=2),))
    lines = [
        line
        for number, finding in enumerate(analysis.findings, 1)
        for line in _finding(number, finding)
    ]
    return Lines(title="findings", lines=tuple(lines))


def _finding(number: int, finding: Finding) -> list[Line]:
    heading = f"{finding.id} ({finding.severity}): {fmt.clean(finding.title)}"
    lines = [
        Line(label=str(number), text=heading, tone=_TONES.get(finding.severity, "strong"), indent=2)
    ]
    lines.append(Line(label="cost", text=_facts(finding), indent=_INDENT))
    lines += [
        Line(label="why" if first else "", text=fmt.clean(text), indent=_INDENT)
        for first, text in _with_first(finding.evidence)
    ]
    lines += [
        Line(label="do" if first else "", text=fmt.clean(text), indent=_INDENT)
        for first, text in _with_first(finding.advice)
    ]
    return lines


def _with_first(texts: list[str]) -> list[tuple[bool, str]]:
    return [(index == 0, text) for index, text in enumerate(texts)]


def _facts(finding: Finding) -> str:
    parts = []
    if finding.share is not None:
        parts.append(f"{fmt.share(finding.share)} of the window")
    if finding.recoverable_ns_per_step is not None:
        parts.append(f"at most {fmt.duration(finding.recoverable_ns_per_step)} a step to gain")
    elif finding.recoverable_ns is not None:
        parts.append(f"at most {fmt.duration(finding.recoverable_ns)} in all to gain")
    parts.append(f"confidence {finding.confidence}")
    if finding.ranks:
        parts.append(fmt.rank_list(finding.ranks))
    if finding.affected and set(finding.affected) != set(finding.ranks):
        parts.append(f"felt on {fmt.rank_list(finding.affected)}")
    return "; ".join(parts)


def next_steps(analysis: Analysis, *, verbose: bool) -> Lines:
    """Return the commands that lead on from here."""
    steps = []
    if analysis.findings:
        steps.append(f"gpudiag explain {analysis.findings[0].id}")
    if not verbose:
        steps.append("-v for every bucket, file and rank")
    steps.append("--json for all numbers")
    return Lines(title="next", lines=tuple(Line(text=step, indent=2) for step in steps))
