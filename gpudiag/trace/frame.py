"""The text between the bytes and the events: where the event array is, and cuts of whole events.

Rules in docs/reference/recovery.md. A block is cut at the last boundary it holds, found by one
regular expression; that the cut is right is proven by the block decoding as JSON, because a cut
inside a string or a nested array leaves quotes or brackets open. What doesn't decode is walked
event by event (events.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Keys that an event can start with, in any writer seen.
_KEY = rb'"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"[ \t\r\n]*:'
_GAP = rb"[ \t\r\n]*"
BOUNDARY = re.compile(rb"\}" + _GAP + rb"," + _GAP + rb"(?=\{" + _GAP + _KEY + rb")")
_OPENING = rb"\{" + _GAP + rb"(?:" + _KEY + rb"|\})"
_CLOSING = rb"\]" + _GAP + rb"(?:," + _GAP + rb'"|\}|\Z)'
# The same for damaged text: commas may be missing or doubled, and the array may end.
NEXT = re.compile(rb"\}[, \t\r\n]*(?:" + _OPENING + rb"|" + _CLOSING + rb")")
# After what is no event at all: the next thing that looks like one, or the end of the array.
RESYNC = re.compile(_OPENING + rb"|" + _CLOSING)
ARRAY_END = re.compile(rb"\}" + _GAP + _CLOSING)
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_TAIL_WINDOW = 1 << 16
MAX_STRICT_BYTES = 4 << 20  # before the events; metadata is a few kB


def find_events(text: bytes, *, last: bool) -> int | None:
    """Return the position after the ``[`` that opens the event array; None where there is none yet.

    Only a key of the outermost object counts, or an outermost list. Where no such key is found in
    the first ``MAX_STRICT_BYTES``, or up to the ``last`` byte, broken quotes have derailed the
    walk: then the first such key anywhere counts.
    """
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] == b"[":
        return start + 1
    found = _outer_array(text)
    if found is None and (last or len(text) >= MAX_STRICT_BYTES):
        array = _ARRAY.search(text)
        return array.end() if array else None
    return found


def _outer_array(text: bytes) -> int | None:
    depth = 0
    for token in TOKEN.finditer(text, 0, MAX_STRICT_BYTES):
        first = token[0][0]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif depth == 1 and (array := _ARRAY.match(text, token.start())):
            return array.end()
    return None


class Cut(NamedTuple):
    """A place between two events."""

    end: int  # of the event before it
    following: int  # start of the event after it


def last_boundary(text: bytes, start: int, stop: int) -> Cut | None:
    """Return the last place between two events in ``text[start:stop]``."""
    stop = min(stop, len(text))
    for first in (max(start, stop - _TAIL_WINDOW), start):
        found = None
        for found in BOUNDARY.finditer(text, first, stop):  # noqa: B007 the last one is wanted
            pass
        if found is not None:
            return Cut(found.start() + 1, found.end())
    return None
