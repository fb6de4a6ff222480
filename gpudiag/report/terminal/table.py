"""Tables that fit: columns are cut, then left out, until the rest is no wider than the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from gpudiag.report.terminal.style import TONES

if TYPE_CHECKING:
    from gpudiag.report.terminal.style import Style
    from gpudiag.report.view import Column, Cut, Row, Table

_INDENT = 2
_GAP = 2
_BAR_WIDTH = 16


@dataclass(frozen=True, slots=True)
class _Laid:
    """One column that is shown: its index in the rows, and its width in cells."""

    index: int
    column: Column
    width: int


def table_lines(table: Table, style: Style) -> list[Text]:
    """Return the table's header and rows as lines no wider than the style's columns."""
    texts = [[_cell(table, row, i, style) for i in range(len(table.columns))] for row in table.rows]
    titles = [style.text(column.title) for column in table.columns]
    headed = ["", *titles[1:]] if table.title else [""] * len(titles)
    laid = _fit(table.columns, [headed, *texts], style.columns - _INDENT)
    lines = _heading(style.text(table.title), headed, laid, style) if table.title else []
    lines += [
        _line(cells, laid, style, TONES[row.tone], indent=_INDENT)
        for cells, row in zip(texts, table.rows, strict=True)
    ]
    return lines


def _heading(title: str, titles: list[str], laid: list[_Laid], style: Style) -> list[Text]:
    """Return the table's title in the place of the first column's, or above where it is longer."""
    if cell_len(title) <= laid[0].width + _INDENT:
        return [_line([title, *titles[1:]], laid, style, "bold", indent=0)]
    title = shorten(title, style.columns, "end", style.ellipsis)
    return [Text(title, style="bold"), _line(titles, laid, style, "bold", indent=0)]


def _cell(table: Table, row: Row, index: int, style: Style) -> str:
    if table.columns[index].bar and row.bar_frac is not None:
        return style.bar(row.bar_frac, _BAR_WIDTH)
    return style.text(row.cells[index])


def _fit(columns: tuple[Column, ...], rows: list[list[str]], room: int) -> list[_Laid]:
    """Return the columns that are shown: cut first, then dropped, the highest number first."""
    laid = [
        _Laid(i, column, max(cell_len(row[i]) for row in rows)) for i, column in enumerate(columns)
    ]
    # A column without any text but its title says nothing.
    laid = [one for one in laid if one.index == 0 or any(row[one.index] for row in rows[1:])]
    while True:
        last = max(laid, key=lambda one: one.column.drop)
        cut = _cut_down(laid, room)
        if cut is not None:
            return cut
        if not last.column.drop:
            return _squeeze(laid, room)
        laid.remove(last)


def _total(laid: list[_Laid]) -> int:
    return sum(one.width for one in laid) + _GAP * (len(laid) - 1)


def _cut_down(laid: list[_Laid], room: int) -> list[_Laid] | None:
    """Return the columns with those that may be cut made narrower; None if still too wide.

    Cuts the widest first, so that the columns that may be cut end up of similar widths.
    """
    widths = [one.width for one in laid]
    excess = _total(laid) - room
    while excess > 0:
        able = [i for i, one in enumerate(laid) if 0 < one.column.min_width < widths[i]]
        if not able:
            return None
        widths[max(able, key=lambda i: widths[i])] -= 1
        excess -= 1
    return [_Laid(one.index, one.column, w) for one, w in zip(laid, widths, strict=True)]


def _squeeze(laid: list[_Laid], room: int) -> list[_Laid]:
    """Return columns none of which may go, the first as narrow as it takes."""
    first, *others = laid
    taken = sum(one.width + _GAP for one in others)
    return [_Laid(first.index, first.column, max(1, room - taken)), *others]


def _line(cells: list[str], laid: list[_Laid], style: Style, tone: str, *, indent: int) -> Text:
    parts = []
    for position, one in enumerate(laid):
        # A title of the first column stands out by the indent that the rows under it have.
        width = one.width + (_INDENT - indent if position == 0 else 0)
        text = shorten(cells[one.index], width, one.column.cut, style.ellipsis)
        pad = " " * (width - cell_len(text))
        parts.append(pad + text if one.column.align == "right" and position else text + pad)
    return Text((" " * indent + (" " * _GAP).join(parts)).rstrip(), style=tone)


def shorten(text: str, width: int, cut: Cut, ellipsis: str) -> str:
    """Return text in at most ``width`` cells, with an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    room = width - len(ellipsis)
    if room < 1:
        return set_cell_size(text, width).rstrip()
    if cut == "start":
        return ellipsis + _tail(text, room)
    head = room if cut == "end" else (room + 1) // 2
    return _head(text, head) + ellipsis + _tail(text, room - head)


def _head(text: str, width: int) -> str:
    return chop_cells(text, width)[0] if width else ""


def _tail(text: str, width: int) -> str:
    return _head(text[::-1], width)[::-1]
