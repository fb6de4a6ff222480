"""What makes the result less certain: files not read whole, and what the analysis noted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.report.totals import with_window
from gpudiag.report.view import Line, Lines

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, Input
    from gpudiag.model.tables import Quality

_MOST_SHOWN = 2
# Kinds of file that are no trace that can be read, but may well have been meant as one. Others
# (notes, logs, answers in JSON) lie in folders of traces all the time: -v lists them.
_MEANT_AS_TRACES = frozenset(
    "empty git_lfs symlink utf16 chrome_trace jax xplane nsys tar zstd bzip2 xz".split()  # noqa: SIM905
)
# Said by the report itself, in its own line, where no rank has any device activity.
_NO_DEVICE = "device_activity_not_recorded"


@dataclass(slots=True)
class _Said:
    """One text, and the ranks and devices of which it is said."""

    text: str
    ranks: set[int] = field(default_factory=set)
    devices: set[tuple[int, int]] = field(default_factory=set)

    def line(self) -> str:
        """Return the text after those of whom it is said: "ranks 0-7: 2 full steps"."""
        who = fmt.rank_list(self.ranks) if self.ranks else ""
        if len(self.devices) == 1:
            who = ", ".join(part for part in (who, f"device {next(iter(self.devices))[1]}") if part)
        elif len(self.devices) > len(self.ranks):
            devices = fmt.counted(len(self.devices), "device")
            who = ", ".join(part for part in (who, devices) if part)
        return f"{who}: {fmt.clean(self.text)}" if who else fmt.clean(self.text)


def quality(analysis: Analysis, *, everything: bool = False) -> Lines | None:
    """Return what makes the result less certain; None where nothing does."""
    entries = analysis.quality
    if not with_window(analysis) and not everything:
        entries = [one for one in entries if one.id != _NO_DEVICE or "launch calls" in one.message]
    if len({one.rank for one in analysis.ranks}) == 1:
        entries = [replace(one, rank=None) for one in entries]  # there is no other to tell it from
    lines = [*_files(analysis), *_notes(entries, everything=everything)]
    return Lines(title="data quality", lines=tuple(lines)) if lines else None


def _files(analysis: Analysis) -> list[Line]:
    """Return the files that broke off, and those that were probably meant to be analysed."""
    lines = [
        Line(label=one.status, text=fmt.clean(f"{one.path}: {one.message or ''}"), indent=2)
        for one in analysis.inputs
        if one.status == "partial"
    ]
    skipped = [one for one in analysis.inputs if _is_missed(one)]
    lines += [
        Line(label="skipped", text=fmt.clean(f"{one.path}: {one.message or ''}"), indent=2)
        for one in skipped[:_MOST_SHOWN]
    ]
    more = len(skipped) - _MOST_SHOWN
    if more > 0:
        text = f"{fmt.counted(more, 'file')} more not analysed (-v says which and why)"
        lines.append(Line(label="skipped", text=text, indent=2))
    return lines


def _is_missed(one: Input) -> bool:
    return one.status == "skipped" and one.format in _MEANT_AS_TRACES


def _notes(entries: list[Quality], *, everything: bool) -> list[Line]:
    """Return the entries by kind: what is said of several ranks once, with the ranks named."""
    by_kind: dict[tuple[str, str], list[Quality]] = {}
    for one in entries:
        by_kind.setdefault((one.severity, one.id), []).append(one)
    return [
        line
        for (severity, name), kind in by_kind.items()
        for line in _kind(severity, name, kind, everything=everything)
    ]


def _kind(severity: str, name: str, entries: list[Quality], *, everything: bool) -> list[Line]:
    said = _merged(entries)
    if everything or len(said) == 1:
        texts = [one.line() for one in said]
    elif all(one.ranks for one in said):
        ranks = set().union(*(one.ranks for one in said))
        texts = [f"on {fmt.rank_list(ranks)}, such as {said[0].line()} (-v says each)"]
    else:
        texts = [one.line() for one in said[:_MOST_SHOWN]]
        more = len(said) - len(texts)
        texts += [f"{more} more, with -v"] if more else []
    return [Line(label=severity, text=f"{name}: {text}", indent=2) for text in texts]


def _merged(entries: list[Quality]) -> list[_Said]:
    """Return the different texts of one kind, each with all of whom it is said."""
    said: dict[str, _Said] = {}
    for one in entries:
        merged = said.setdefault(one.message, _Said(one.message))
        if one.rank is not None:
            merged.ranks.add(one.rank)
        if one.device is not None:
            merged.devices.add((one.rank or 0, one.device))
    return list(said.values())
