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

_OF_RANK = re.compile(r"rank (\d+): (.*)", re.DOTALL)


def quality(analysis: Analysis) -> Lines | None:
    """Return what makes the result less certain; None where nothing does."""
    files = [
        Line(label=one.status, text=fmt.clean(f"{one.path}: {one.message or ''}"), indent=2)
        for one in analysis.inputs
        if one.status != "ok"
    ]
    notes = _lines(analysis.quality)
    return Lines(title="data quality", lines=(*files, *notes)) if files or notes else None


def _lines(entries: list[Quality]) -> list[Line]:
    """Return one line per entry, and one for all the ranks of which the same is said."""
    ranks: dict[tuple[str, str, str], set[int]] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in entries:
        match = _OF_RANK.match(one.message)
        key = (one.severity, one.id, match[2] if match else one.message)
        ranks.setdefault(key, set()).update([int(match[1])] if match else [])
        counts[key] += one.count
    return [
        Line(label=key[0], text=_text(key[1], key[2], counts[key], numbers), indent=2)
        for key, numbers in ranks.items()
    ]


def _text(name: str, message: str, count: int, ranks: set[int]) -> str:
    who = f"{fmt.rank_list(ranks)}: " if ranks else ""
    return f"{name} ({fmt.count(count)}): {who}{fmt.clean(message)}"
