"""How a terminal may be written to: its width, colours and characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudiag.model import format as fmt

if TYPE_CHECKING:
    from gpudiag.report.view import Tone

NARROWEST = 40
# Sentences are hard to read beyond this; tables may be wider.
WIDEST_TEXT = 110
_EIGHTHS = " ▏▎▍▌▋▊▉"

# Every tone also has a word or a sign in the text: colour only repeats it.
TONES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "dim": "dim",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What the place that text goes to can show."""

    width: int = 80
    color: bool = False
    ascii: bool = False

    @property
    def columns(self) -> int:
        """Return the width in use: narrower terminals wrap by themselves."""
        return max(NARROWEST, self.width)

    @property
    def text_columns(self) -> int:
        """Return the width at which paragraphs are wrapped."""
        return min(self.columns, WIDEST_TEXT)

    @property
    def ellipsis(self) -> str:
        """Return the sign for "cut here"."""
        return "..." if self.ascii else "…"

    def text(self, text: str) -> str:
        """Return text in the characters that can be shown."""
        return fmt.to_ascii(text) if self.ascii else text

    def bar(self, part: float, width: int) -> str:
        """Return a bar for a fraction: eighths of a cell, or "#" in ASCII."""
        part = min(max(part, 0.0), 1.0)
        if self.ascii:
            return "#" * round(part * width)
        eighths = round(part * width * 8)
        whole, rest = divmod(eighths, 8)
        return "█" * whole + (_EIGHTHS[rest] if rest else "")
