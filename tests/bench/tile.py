"""Makes a big Kineto trace out of a real one by repeating it in time.

::

    python tests/bench/tile.py rank0.json.gz big.json.gz --mb 500

Every event keeps the bytes that its writer gave it, but for the numbers that tell copies apart:
``ts``, correlation and flow ids, ``External id``, ``Record function id``, ``Sequence number``,
``Ev Idx``, ``Python id`` and ``Python parent id``, ``Seq`` of collectives, and the N of
``ProfilerStep#N``. Metadata events are written once; the profiler's own span and the end mark
grow with the file. Names and shapes don't grow in variety: a real file of that size has more.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

GZIP_MAGIC = b"\x1f\x8b"
GZIP_LEVEL = 6
_GAP_US = 10  # between the end of one copy and the start of the next

# Key -> the family of ids that it belongs to: one offset per family and copy.
_FAMILIES = {
    "correlation": "correlation",
    "id": "correlation",  # flow events: "ac2g" ids are correlations
    "wait_on_cuda_event_record_corr_id": "correlation",
    "External id": "external",
    "external id": "external",
    "Record function id": "record function",
    "Sequence number": "sequence",
    "Ev Idx": "event",
    "Python id": "python",
    "Python parent id": "python",
    "Seq": "collective",
}
_NUMBER = re.compile(
    r'"(?P<key>ts|' + "|".join(_FAMILIES) + r')"\s*:\s*"?(?P<value>\d+)|ProfilerStep#(?P<step>\d+)'
)
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[\s*')
_SEPARATOR = re.compile(r"\s*,\s*")


@dataclass(frozen=True)
class Event:
    """One event: its text as written, the separator before it, and what it decodes to."""

    separator: str
    text: str
    fields: dict

    @property
    def once(self) -> bool:
        """Tell whether the event describes the whole file rather than a moment of it."""
        return self.fields.get("ph") in {"M", "i", "I"} or self.fields.get("cat") == "Trace"


@dataclass(frozen=True)
class Source:
    """A trace cut into what stands before, in and after ``traceEvents``."""

    head: str
    events: list[Event]
    tail: str


@dataclass(frozen=True)
class Template:
    """The repeated text, split at its changing numbers: texts[i], numbers[i], texts[i + 1]..."""

    texts: list[str]
    values: list[int]
    families: list[str]
    offsets: dict[str, int]
    length: int

    def copy(self, number: int) -> str:
        """Return the text of one copy, counted from 0."""
        shift = {family: offset * number for family, offset in self.offsets.items()}
        pieces = [self.texts[0]]
        rest = zip(self.values, self.families, self.texts[1:], strict=True)
        for value, family, text in rest:
            # 0 is "none" for every kind of id.
            pieces.append(str(value + shift[family] if value else 0))
            pieces.append(text)
        return "".join(pieces)


def read_text(path: Path) -> str:
    """Return a trace's text, inflated if its content is gzip."""
    data = path.read_bytes()
    return (gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data).decode()


def split(text: str) -> Source:
    """Cut a trace at its events."""
    opening = _EVENTS.search(text)
    if not opening:
        raise SystemExit("no traceEvents: not a Kineto trace with an object at the top")
    decoder = json.JSONDecoder(strict=False)
    events: list[Event] = []
    separator, at = "", opening.end()
    while True:
        fields, end = decoder.raw_decode(text, at)
        events.append(Event(separator, text[at:end], fields))
        between = _SEPARATOR.match(text, end)
        if not between:
            return Source(text[: opening.end()], events, text[end:])
        separator, at = between.group(), between.end()


def period_us(events: list[Event]) -> int:
    """Return how far apart copies are, in whole µs: the digits after the point never change."""
    starts = [float(e.fields["ts"]) for e in events if "ts" in e.fields]
    ends = [float(e.fields["ts"]) + float(e.fields.get("dur", 0)) for e in events]
    return math.ceil(max(ends) - min(starts)) + _GAP_US


def make_template(events: list[Event]) -> Template:
    """Find the numbers that change from copy to copy, and by how much."""
    text = "".join((e.separator or ",\n  ") + e.text for e in events)
    texts, values, families = [], [], []
    end = 0
    for match in _NUMBER.finditer(text):
        group = "value" if match["key"] else "step"
        texts.append(text[end : match.start(group)])
        values.append(int(match[group]))
        families.append(_FAMILIES.get(match["key"], match["key"] or "step"))
        end = match.end(group)
    texts.append(text[end:])
    offsets: dict[str, int] = {}
    for family in set(families):
        members = {v for v, f in zip(values, families, strict=True) if f == family and v}
        # Steps go on counting without a hole; ids only must not meet.
        low = min(members) if family == "step" and members else 0
        offsets[family] = max(members, default=0) - low + 1
    offsets["ts"] = period_us(events)
    return Template(texts, values, families, offsets, len(text))


def stretch(event: Event, added_us: int) -> str:
    """Return the profiler's own span, or the end mark, of a file longer by ``added_us``."""
    key = None
    if event.fields.get("cat") == "Trace":
        key = "dur"
    elif event.fields.get("name") == "Record Window End":
        key = "ts"
    if not key:
        return event.text
    pattern = rf'("{key}"\s*:\s*"?)(\d+)'
    return re.sub(pattern, lambda m: m[1] + str(int(m[2]) + added_us), event.text, count=1)


def write_tiled(source: Source, out: IO[bytes], target_bytes: int) -> tuple[int, int]:
    """Write copies until the target size is reached; return copies and bytes written."""
    repeated = [e for e in source.events if not e.once]
    first = next(i for i, e in enumerate(source.events) if not e.once)
    leading, trailing = source.events[:first], [e for e in source.events[first:] if e.once]
    template = make_template(repeated)
    copies = max(1, math.ceil(target_bytes / template.length))
    written = 0

    def emit(text: str) -> None:
        nonlocal written
        written += out.write(text.encode())

    emit(source.head)
    lead = "".join(e.separator + e.text for e in leading)
    emit(lead)
    for number in range(copies):
        text = template.copy(number)
        # The very first event of the file has no separator before it.
        emit(text if lead or number else text.lstrip(", \t\r\n"))
    added_us = (copies - 1) * template.offsets["ts"]
    emit("".join((e.separator or ",\n  ") + stretch(e, added_us) for e in trailing))
    emit(source.tail)
    return copies, written


def tile(source: Path, target: Path, megabytes: float) -> tuple[int, int]:
    """Write ``target`` (gzip if its name says so); return copies and bytes of JSON."""
    parsed = split(read_text(source))
    partial = target.with_name(target.name + ".part")
    if target.suffix == ".gz":
        with gzip.open(partial, "wb", compresslevel=GZIP_LEVEL) as out:
            result = write_tiled(parsed, out, int(megabytes * 1e6))
    else:
        with partial.open("wb") as out:
            result = write_tiled(parsed, out, int(megabytes * 1e6))
    partial.rename(target)
    return result


def main(argv: list[str]) -> None:
    """Tile a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--mb", type=float, required=True, help="10^6 bytes of JSON, at least")
    args = parser.parse_args(argv)
    copies, size = tile(args.source, args.target, args.mb)
    print(f"{args.target}: {copies} copies, {size / 1e6:.1f} MB of JSON")


if __name__ == "__main__":
    main(sys.argv[1:])
