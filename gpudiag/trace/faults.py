"""What was wrong with a file, counted by kind, with the place where each kind was first met."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpudiag.model.tables import Quality

if TYPE_CHECKING:
    from collections.abc import Iterable

# Lines are counted by reading again, which is cheap only so far into a file.
LINE_LIMIT_BYTES = 64 << 20


@dataclass(slots=True)
class Fault:
    """One kind of fault."""

    count: int
    at: int  # byte of the text (after decompression) where it was first met


@dataclass(slots=True)
class Faults:
    """All faults of one file, by kind."""

    by_kind: dict[str, Fault] = field(default_factory=dict)

    def add(self, kind: str, at: int, count: int = 1) -> None:
        """Count a fault."""
        known = self.by_kind.get(kind)
        if known is None:
            self.by_kind[kind] = Fault(count, at)
        else:
            known.count += count
            known.at = min(known.at, at)


# kind -> (severity, message); {count}, {s} (plural) and {place} are filled in
MESSAGES = {
    "events_lost": (
        "warning",
        "{count} damaged event{s} could not be read and were left out, the first at {place}",
    ),
    "truncated": (
        "warning",
        "the file is cut off at {place}; the {events:,} events before it were read",
    ),
    "escapes": (
        "info",
        "{count} invalid escape{s} in strings read as written, the first at {place}",
    ),
    "control_chars": ("info", "{count} raw control character{s} accepted, the first at {place}"),
    "utf8": (
        "warning",
        "{count} byte{s} that are no UTF-8 replaced by U+FFFD, the first at {place}",
    ),
    "bare_words": (
        "warning",
        "{count} value{s} that are no JSON (N/A, NaN...) read as missing, the first at {place}",
    ),
    "commas": ("info", "{count} superfluous comma{s} ignored, the first at {place}"),
    "quotes": (
        "info",
        "{count} event name{s} with unescaped quotes read as written, the first at {place}",
    ),
    "metadata_lost": (
        "warning",
        "the text around the events is damaged or cut off: metadata may be missing",
    ),
}
LOSSES = ("events_lost", "truncated", "metadata_lost")


def line_numbers(blocks: Iterable[bytes], positions: Iterable[int]) -> dict[int, int]:
    """Return the line (from 1) of each position in a stream of text; far ones are left out."""
    lines: dict[int, int] = {}
    wanted = sorted({p for p in positions if p < LINE_LIMIT_BYTES})
    start, line = 0, 1
    for block in blocks:
        while wanted and wanted[0] < start + len(block):
            position = wanted.pop(0)
            lines[position] = line + block.count(b"\n", 0, position - start)
        if not wanted:
            break
        start += len(block)
        line += block.count(b"\n")
    return lines


def quality_of(faults: Faults, events: int, line_of: dict[int, int]) -> list[Quality]:
    """Describe the faults; ``line_of`` gives the lines of positions where they are known."""
    out = []
    for kind, (severity, message) in MESSAGES.items():
        fault = faults.by_kind.get(kind)
        if fault is None:
            continue
        place = f"byte {fault.at:,}"
        if fault.at in line_of:
            place += f" (line {line_of[fault.at]:,})"
        text = message.format(
            count=f"{fault.count:,}", s="" if fault.count == 1 else "s", place=place, events=events
        )
        name = kind if kind in LOSSES else f"repaired_{kind}"
        out.append(Quality(name, severity, fault.count, text))
    return out
