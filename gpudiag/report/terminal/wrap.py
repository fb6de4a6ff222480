"""Paragraphs in a given width: broken at spaces, never between a number and its unit."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells

_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµum]?s\b|[kMGT]?B\b))")


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a paragraph, each at most ``width`` cells wide."""
    lines, line = [], ""
    for word in _BEFORE_UNIT.sub(_NO_BREAK, text).split(" "):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = chop_cells(word, width) if cell_len(word) > width else [word]
        lines += full
    return [one.replace(_NO_BREAK, " ") for one in (*lines, line)]
