"""What makes the result less certain: files not read whole, and what the analysis noted."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from gpudiag.report import format as fmt
from gpudiag.report.view import Line, Lines

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis
    from gpudiag.model.tables import Quality

_MOST_OF_A_KIND = 2
_OF_RANK = re.compile(r"rank (\d+): (.*)", re.DOTALL)


def quality(analysis: Analysis, *, everything: bool = False) -> Lines | None:
    """Return what makes the result less certain; None where nothing does."""
    lines = [*_files(analysis), *_notes(analysis.quality, everything=everything)]
    return Lines(title="data quality", lines=tuple(lines)) if lines else None


def _files(analysis: Analysis) -> list[Line]:
    """Return the files that broke off, and how many others are no traces (-v lists them)."""
    lines = [
        Line(label=one.status, text=fmt.clean(f"{one.path}: {one.message or ''}"), indent=2)
        for one in analysis.inputs
        if one.status == "partial"
    ]
    skipped = sum(one.status == "skipped" for one in analysis.inputs)
    if skipped:
        text = f"{fmt.counted(skipped, 'file')} not analysed (-v says which and why)"
        lines.append(Line(label="skipped", text=text, indent=2))
    return lines


def _notes(entries: list[Quality], *, everything: bool) -> list[Line]:
    """Return one line per entry, one for all ranks of which the same is said, few of one kind."""
    by_kind: dict[tuple[str, str], list[str]] = {}
    for severity, name, text in _merged(entries):
        by_kind.setdefault((severity, name), []).append(text)
    lines = []
    for (severity, name), texts in by_kind.items():
        shown = texts if everything or len(texts) <= _MOST_OF_A_KIND else texts[:1]
        lines += [Line(label=severity, text=f"{name} {text}", indent=2) for text in shown]
        more = len(texts) - len(shown)
        if more:
            lines.append(Line(text=f"{name}: {more} more, with -v", indent=2))
    return lines


def _merged(entries: list[Quality]) -> list[tuple[str, str, str]]:
    """Return (severity, id, text) with the ranks of which the same is said in one text."""
    ranks: dict[tuple[str, str, str], set[int]] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in entries:
        match = _OF_RANK.match(one.message)
        key = (one.severity, one.id, match[2] if match else one.message)
        ranks.setdefault(key, set()).update([int(match[1])] if match else [])
        counts[key] += one.count
    return [(*key[:2], _text(key[2], counts[key], ranks[key])) for key in ranks]


def _text(message: str, count: int, ranks: set[int]) -> str:
    who = f"{fmt.rank_list(ranks)}: " if ranks else ""
    return f"({fmt.count(count)}): {who}{fmt.clean(message)}"
