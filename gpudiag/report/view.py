"""What a report says, as text: made by ``describe``, laid out by ``terminal``.

Nothing here knows of colours, widths or characters; nothing here computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["plain", "strong", "good", "bad", "warn", "dim"]
# path: whole folders from the left; distinct: wherever the shown texts stay different; whole:
# never in the row, wrapped below it.
Cut: TypeAlias = Literal["start", "middle", "end", "path", "distinct", "whole"]

# Columns with this number or a higher one are left out before any text is cut.
DECORATION = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table, and what becomes of it where the terminal is narrow."""

    title: str
    short: str = ""  # the title where room is scarce
    align: Literal["left", "right"] = "left"
    drop: int = 0  # 0: always kept; else the highest number goes first
    below: str | None = (
        None  # it goes to a line under its row, after this word; None: it is left out
    )
    min_width: int = 0  # > 0: may be cut down to this many cells
    cut: Cut = "end"  # where a text that is too long is cut
    bar: bool = False  # drawn from Row.bar_frac; in all tables of a report or in none


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: a text per column, and the length of its bar."""

    cells: tuple[str, ...]
    tone: Tone = "plain"
    bar_frac: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled table with remarks under it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A paragraph with a short label before it."""

    text: str
    label: str = ""
    tone: Tone = "plain"
    indent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A titled list of paragraphs."""

    title: str
    lines: tuple[Line, ...]


Section: TypeAlias = Table | Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The sentence, what it rests on, and the evidence."""

    headline: str
    context: str
    sections: tuple[Section, ...]
