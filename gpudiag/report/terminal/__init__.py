"""A report as terminal text: widths, colours and characters, and nothing that computes."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gpudiag.report.terminal.style import TONES, Style
from gpudiag.report.terminal.table import bars_fit, table_lines
from gpudiag.report.terminal.wrap import wrap
from gpudiag.report.view import Table

if TYPE_CHECKING:
    from gpudiag.report.view import Line, Lines, Report, Section

__all__ = ["Style", "render", "render_section"]

_NOTE_INDENT = 2


def render(report: Report, style: Style) -> str:
    """Return the report as text that ends in a newline; no line is wider than the style's."""
    lines = _paragraph(report.headline, style, tone="bold")
    if report.context:
        lines += [Text(), *_paragraph(report.context, style)]
    # Bars of one table beside another without any would look like a difference in the data.
    bars = all(bars_fit(one, style) for one in report.sections if isinstance(one, Table))
    for section in report.sections:
        lines += [Text(), *_section(section, style, bars=bars)]
    return _plain_or_colored(lines, style)


def render_section(section: Section, style: Style) -> str:
    """Return one section alone."""
    return _plain_or_colored(_section(section, style), style)


def _plain_or_colored(lines: list[Text], style: Style) -> str:
    if not style.color:
        return "".join(f"{line.plain.rstrip()}\n" for line in lines)
    # The lines are already as wide as they may be: the console only adds colour.
    console = Console(
        file=StringIO(),
        force_terminal=True,
        color_system="standard",
        width=10_000,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    return captured.get()


def _section(section: Section, style: Style, *, bars: bool = True) -> list[Text]:
    if isinstance(section, Table):
        lines: list[Text] = table_lines(section, style, bars=bars)
        for note in section.notes:
            lines += _paragraph(note, style, indent=_NOTE_INDENT, tone="dim")
        return lines
    return _lines(section, style)


def _lines(section: Lines, style: Style) -> list[Text]:
    title: list[Text] = [Text(style.text(section.title), style="bold")]
    # Labels at one indent share one width, so that the texts behind them line up.
    widths = {
        line.indent: max(
            cell_len(style.text(one.label)) for one in section.lines if one.indent == line.indent
        )
        for line in section.lines
    }
    body = [text for line in section.lines for text in _labelled(line, widths[line.indent], style)]
    return (title if section.title else []) + body


def _labelled(line: Line, label_width: int, style: Style) -> list[Text]:
    """Return a paragraph that hangs behind its label."""
    hang = line.indent + (label_width + 2 if label_width else 0)
    wrapped = _paragraph(line.text, style, indent=hang, tone=TONES[line.tone])
    label = style.text(line.label)
    if label and wrapped:
        head = Text(" " * line.indent + label.ljust(hang - line.indent), style=TONES[line.tone])
        first = wrapped[0]
        head.append(first.plain[hang:])
        wrapped[0] = head
    return wrapped


def _paragraph(text: str, style: Style, *, indent: int = 0, tone: str = "") -> list[Text]:
    """Return text wrapped at spaces, broken inside words only where a word is too long."""
    lines = wrap(style.text(text), style.text_columns - indent)
    return [Text(" " * indent + line, style=tone) for line in lines]
