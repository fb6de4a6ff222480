"""Tables that fit: decoration goes first, then texts are cut, then columns move or are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from gpudiag.report.terminal.cut import shorten, shorten_all, shortest_path
from gpudiag.report.terminal.style import TONES
from gpudiag.report.terminal.wrap import wrap
from gpudiag.report.view import DECORATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpudiag.report.terminal.style import Style
    from gpudiag.report.view import Column, Row, Table

_INDENT = 2
_BELOW_INDENT = 4
_GAP = 2
_BAR_WIDTH = 16
# Names that are cut in the middle say enough in this many cells; longer ones push nothing out.
_LONG = 40


@dataclass(frozen=True, slots=True)
class _Laid:
    """One column that is shown: its index in the rows, its title, and its width in cells."""

    index: int
    column: Column
    title: str
    width: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns stand in the row, and which on lines under it."""

    laid: list[_Laid]
    below: list[int]


@dataclass(frozen=True, slots=True)
class _Step:
    """One way to lay a table out; the later ones show less."""

    kept: list[int]
    below: list[int]
    short: bool = False  # titles
    capped: bool = False  # long names
    cut: bool = False  # down to the columns' least widths


def table_lines(table: Table, style: Style, *, bars: bool = True) -> list[Text]:
    """Return the table's header and rows as lines no wider than the style's columns."""
    texts = _texts(table, style)
    layout = _layout(table, texts, style, bars=bars)
    lines = _heading(style.text(table.title), layout.laid, style) if table.title else []
    columns = {
        one.index: shorten_all(
            [row[one.index] for row in texts], one.width, one.column.cut, style.ellipsis
        )
        for one in layout.laid
    }
    for number, (row, whole) in enumerate(zip(table.rows, texts, strict=True)):
        cells = [columns[one.index][number] for one in layout.laid]
        lines.append(_line(cells, layout.laid, TONES[row.tone], indent=_INDENT))
        lines += _below(table, row, whole, layout.below, style)
    return lines


def bars_fit(table: Table, style: Style) -> bool:
    """Return whether the table has its bars where all tables show theirs."""
    bars = {i for i, column in enumerate(table.columns) if column.bar}
    layout = _layout(table, _texts(table, style), style, bars=True)
    shown = {one.index for one in layout.laid}
    return not any(row.bar_frac for row in table.rows) or bars <= shown


def _texts(table: Table, style: Style) -> list[list[str]]:
    return [[_cell(table, row, i, style) for i in range(len(table.columns))] for row in table.rows]


def _cell(table: Table, row: Row, index: int, style: Style) -> str:
    if table.columns[index].bar and row.bar_frac is not None:
        return style.bar(row.bar_frac, _BAR_WIDTH)
    return style.text(row.cells[index])


def _layout(table: Table, texts: list[list[str]], style: Style, *, bars: bool) -> _Layout:
    """Return the first way to lay the table out that is no wider than the terminal."""
    room = style.columns - _INDENT
    # A column without any text but its title says nothing.
    shown = [
        i
        for i, column in enumerate(table.columns)
        if (i == 0 or any(row[i] for row in texts)) and (bars or not column.bar)
    ]
    laid: list[_Laid] = []
    below: list[int] = []
    for step in _steps(table.columns, shown):
        laid, below = _natural(table, texts, step, style), step.below
        if _total(laid) <= room:
            return _Layout(laid, below)
        cut = _cut_down(laid, texts, room, style) if step.cut else None
        if cut is not None:
            return _Layout(cut, below)
    return _Layout(_squeeze(laid, room), below)


def _steps(columns: tuple[Column, ...], shown: list[int]) -> Iterator[_Step]:
    """Yield the ways to lay a table out: decoration goes, texts are cut, titles, then columns."""
    kept, below = list(shown), list[int]()
    order = sorted((i for i in shown if columns[i].drop), key=lambda i: -columns[i].drop)
    yield _Step(list(kept), [])
    yield _Step(list(kept), [], capped=True)
    for i in (i for i in order if columns[i].drop >= DECORATION):
        kept.remove(i)
        yield _Step(list(kept), [], capped=True)
    yield _Step(list(kept), [], cut=True)
    yield _Step(list(kept), [], short=True, cut=True)
    for i in (i for i in order if columns[i].drop < DECORATION):
        kept.remove(i)
        below = sorted([*below, i]) if columns[i].below is not None else below
        yield _Step(list(kept), below, cut=True)
        yield _Step(list(kept), below, short=True, cut=True)


def _natural(table: Table, texts: list[list[str]], step: _Step, style: Style) -> list[_Laid]:
    """Return the columns as wide as their longest text."""
    laid = []
    for i in step.kept:
        column = table.columns[i]
        title = style.text((step.short and column.short) or column.title)
        # The table's own title stands in the place of the first column's.
        title = title if table.title and i else ""
        width = max((cell_len(text) for text in (title, *(row[i] for row in texts))), default=0)
        if step.capped and column.cut == "middle" and column.min_width:
            width = min(width, _LONG)
        laid.append(_Laid(i, column, title, width))
    return laid


def _total(laid: list[_Laid]) -> int:
    return sum(one.width for one in laid) + _GAP * (len(laid) - 1)


def _cut_down(
    laid: list[_Laid], texts: list[list[str]], room: int, style: Style
) -> list[_Laid] | None:
    """Return the columns with those that may be cut made narrower; None if still too wide.

    Cuts the widest first, so that the columns that may be cut end up of similar widths.
    """
    widths = [one.width for one in laid]
    least = [_least_width(one, texts, style) for one in laid]
    excess = _total(laid) - room
    while excess > 0:
        able = [i for i in range(len(laid)) if least[i] < widths[i]]
        if not able:
            return None
        widths[max(able, key=lambda i: widths[i])] -= 1
        excess -= 1
    return [_Laid(o.index, o.column, o.title, w) for o, w in zip(laid, widths, strict=True)]


def _least_width(one: _Laid, texts: list[list[str]], style: Style) -> int:
    """Return how narrow a column may be made: never narrower than its title."""
    if not one.column.min_width:
        return one.width
    least = max(one.column.min_width, cell_len(one.title))
    if one.column.cut == "path" and one.column.below is not None:
        least = max(least, shortest_path((row[one.index] for row in texts), style.ellipsis))
    return min(least, one.width)


def _squeeze(laid: list[_Laid], room: int) -> list[_Laid]:
    """Return columns none of which may go, the first as narrow as it takes."""
    first, *others = laid
    taken = sum(one.width + _GAP for one in others)
    return [_Laid(first.index, first.column, first.title, max(1, room - taken)), *others]


def _heading(title: str, laid: list[_Laid], style: Style) -> list[Text]:
    """Return the table's title in the place of the first column's, or above where it is longer."""
    titles = [one.title for one in laid]
    if cell_len(title) <= laid[0].width + _INDENT:
        return [_line([title, *titles[1:]], laid, "bold", indent=0)]
    title = shorten(title, style.columns, "end", style.ellipsis)
    return [Text(title, style="bold"), _line(titles, laid, "bold", indent=0)]


def _line(cells: list[str], laid: list[_Laid], tone: str, *, indent: int) -> Text:
    parts = []
    for position, (text, one) in enumerate(zip(cells, laid, strict=True)):
        # A title of the first column stands out by the indent that the rows under it have.
        width = one.width + (_INDENT - indent if position == 0 else 0)
        pad = " " * (width - cell_len(text))
        parts.append(pad + text if one.column.align == "right" and position else text + pad)
    return Text((" " * indent + (" " * _GAP).join(parts)).rstrip(), style=tone)


def _below(table: Table, row: Row, whole: list[str], below: list[int], style: Style) -> list[Text]:
    """Return the texts that found no room in the row, as many on a line as fit."""
    room = style.columns - _BELOW_INDENT
    lines: list[str] = []
    for i in below:
        column = table.columns[i]
        if not whole[i]:
            continue
        word = f"{column.below} " if column.below else ""
        if column.cut == "whole":
            lines += wrap(word + whole[i], room)
            continue
        text = word + shorten(whole[i], room - cell_len(word), column.cut, style.ellipsis)
        joined = f"{lines[-1]}{' ' * _GAP}{text}" if lines else text
        lines[-1:] = [joined] if cell_len(joined) <= room else [*lines[-1:], text]
    return [Text(" " * _BELOW_INDENT + line, style=TONES[row.tone]) for line in lines]
