"""Texts that are too long for their column: where they are cut, and that they stay different."""

from __future__ import annotations

from os.path import commonprefix
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpudiag.report.view import Cut

# Texts that are cut alike are cut again around where they differ; more rounds change little.
_ROUNDS = 4
# Cells shown of what all of them share before the place where they differ.
_LEAD = 5


def shorten_all(texts: list[str], width: int, cut: Cut, ellipsis: str) -> list[str]:
    """Return the texts of one column, each in at most ``width`` cells."""
    if cut != "distinct":
        return [shorten(text, width, cut, ellipsis) for text in texts]
    shown = {text: shorten(text, width, "middle", ellipsis) for text in texts}
    for _ in range(_ROUNDS):
        alike = _alike(shown)
        for group in alike:
            start = len(commonprefix(group))  # noqa: RUF071 - characters are meant, not folders
            shown |= {text: _around(text, start, width, ellipsis) for text in group}
        if not alike:
            break
    return [shown[text] for text in texts]


def _alike(shown: dict[str, str]) -> list[list[str]]:
    """Return the groups of texts that are shown as the same."""
    groups: dict[str, list[str]] = {}
    for text, short in shown.items():
        groups.setdefault(short, []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def _around(text: str, at: int, width: int, ellipsis: str) -> str:
    """Return the text's head, and a stretch of it from just before ``at`` on."""
    if cell_len(text) <= width:
        return text
    start = max(0, at - _LEAD)
    room = width - len(ellipsis) - _LEAD - 1
    head = text[: min(start, max(0, room // 2))]
    if len(head) == start:
        return shorten(text, width, "end", ellipsis)
    opened = f"{head}{ellipsis}"
    return opened + shorten(text[start:], width - cell_len(opened), "end", ellipsis)


def shorten(text: str, width: int, cut: Cut, ellipsis: str) -> str:
    """Return text in at most ``width`` cells, with an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    room = width - len(ellipsis)
    if room < 1:
        return set_cell_size(text, width).rstrip()
    if cut == "path":
        return _path(text, width, ellipsis) or ellipsis + _tail(text, room)
    if cut == "start":
        return ellipsis + _tail(text, room)
    head = (room + 1) // 2 if cut in ("middle", "distinct") else room
    return _head(text, head) + ellipsis + _tail(text, room - head)


def shortest_path(paths: Iterable[str], ellipsis: str) -> int:
    """Return the cells that the longest of the paths needs with all its folders left out."""
    return max((cell_len(_candidates(path, ellipsis)[-1]) for path in paths), default=0)


def _path(path: str, width: int, ellipsis: str) -> str:
    """Return the path without as many folders on the left as it takes; "" if that's too few."""
    candidates = _candidates(path, ellipsis)
    return next((one for one in candidates if cell_len(one) <= width), "")


def _candidates(path: str, ellipsis: str) -> list[str]:
    parts = path.split("/")
    return [path, *(f"{ellipsis}/{'/'.join(parts[i:])}" for i in range(1, len(parts)))]


def _head(text: str, width: int) -> str:
    return chop_cells(text, width)[0] if width else ""


def _tail(text: str, width: int) -> str:
    return _head(text[::-1], width)[::-1]
