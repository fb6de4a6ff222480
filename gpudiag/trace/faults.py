"""What was wrong with a file, counted by kind, with the place where each kind was first met."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudiag.model.tables import Quality


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
        "{count} invalid escape{s} in strings read as written, the first after {place}",
    ),
    "control_chars": ("info", "{count} raw control character{s} accepted, the first after {place}"),
    "utf8": (
        "warning",
        "{count} byte{s} that are no UTF-8 replaced by U+FFFD, the first after {place}",
    ),
    "bare_words": (
        "warning",
        "{count} value{s} that are no JSON (N/A, NaN...) read as missing, the first after {place}",
    ),
    "commas": ("info", "{count} superfluous comma{s} ignored, the first after {place}"),
    "quotes": (
        "info",
        "{count} event name{s} with unescaped quotes read as written, the first at {place}",
    ),
    "metadata": ("warning", "{count} metadata value{s} could not be read"),
}
LOSSES = ("events_lost", "truncated")


def quality_of(faults: Faults, events: int, line_of: dict[int, int]) -> list[Quality]:
    """Describe the faults; ``line_of`` gives lines for positions where they are known."""
    out = []
    for kind, fault in faults.by_kind.items():
        severity, message = MESSAGES[kind]
        place = f"byte {fault.at:,}"
        if fault.at in line_of:
            place += f" (line {line_of[fault.at]:,})"
        text = message.format(
            count=f"{fault.count:,}", s="" if fault.count == 1 else "s", place=place, events=events
        )
        name = kind if kind in LOSSES else f"repaired_{kind}"
        out.append(Quality(name, severity, fault.count, text))
    return out
