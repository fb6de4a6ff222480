"""The walk over the event array: blocks of whole events while the text is sound, else one by one.

Both ways read the same events (docs/reference/recovery.md says why), so that the result doesn't
depend on where blocks happen to end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpudiag.trace.frame import ARRAY_END, NEXT, RESYNC, TOKEN, find_events, last_boundary
from gpudiag.trace.repair import repair, requote
from gpudiag.trace.schema import EVENTS
from gpudiag.trace.source import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpudiag.trace.faults import Faults
    from gpudiag.trace.frame import Cut
    from gpudiag.trace.repair import Repairs
    from gpudiag.trace.source import ByteSource

MAX_EVENT_BYTES = 8 << 20  # an "event" longer than this is damage
MAX_NESTED_BYTES = 1 << 20  # how far the brackets of an event with nested objects are followed
MAX_METADATA_BYTES = 16 << 20  # before, and after, the events
_ARRAY_END_TRIES = 4
_BATCH = 4096
_PIECE_BYTES = 16 << 10  # around damage: what is sound beside it needn't go one by one
_SEPARATORS = re.compile(rb"[, \t\r\n]*")
_WHITE = re.compile(rb"[ \t\r\n]*")
_CLOSING_BRACKET, _OPENING_BRACE = b"]"[0], b"{"[0]
_GENERIC = msgspec.json.Decoder()
_UNREADABLE = (msgspec.DecodeError, RecursionError)


class EventWalk:
    """Reads one byte source: the text before the events, the events, the text after them."""

    def __init__(
        self,
        source: ByteSource,
        add: Callable[[Sequence[object]], None],
        faults: Faults,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.faults = faults
        self.head = b""
        self.tail = b""
        self.tail_at = 0  # where it stands in the stream
        self.found = False  # the event array
        self.closed = False  # the event array ended with its bracket
        self._add = add
        self._blocks = source.blocks(block_bytes)
        self._block_bytes = block_bytes
        self._text = b""
        self._start = 0  # in the text: what is before it has been read
        self._base = 0  # position of the text in the stream
        self._eof = False

    @property
    def _at(self) -> int:
        """Position in the stream up to which everything has been read."""
        return self._base + self._start

    @property
    def _held(self) -> int:
        """Bytes of text that wait to be read."""
        return len(self._text) - self._start

    def run(self) -> None:
        """Read everything."""
        if not self._open():
            return
        while not self.closed and self._step():
            pass
        if self.closed:
            self._read_tail()

    def _more(self) -> bool:
        block = b"" if self._eof else next(self._blocks, b"")
        self._eof = not block
        if block:
            self._text = self._text[self._start :] + block
            self._base += self._start
            self._start = 0
        return not self._eof

    def _open(self) -> bool:
        """Read up to the first event; False where there is no event array."""
        while (start := find_events(self._text, last=self._eof)) is None:
            if self._eof or len(self._text) > MAX_METADATA_BYTES:
                self.head = self._text
                return False
            self._more()
        self.head = self._text[:start]
        self._start = start
        self.found = True
        return True

    def _step(self) -> bool:
        """Read one block; False at the end of the text."""
        while self._held < self._block_bytes and self._more():
            pass
        cut = last_boundary(self._text, self._start, len(self._text))
        if cut is None and not self._eof and self._held < MAX_EVENT_BYTES:
            return self._more() or True
        if cut and self._take(cut.end):
            self._start = cut.following
            return True
        if self._take_to_array_end() or (cut and self._take_repaired(cut)):
            return True
        return self._salvage(self._base + cut.following if cut else 0)

    def _salvage(self, until: int) -> bool:
        """Read up to ``until`` in small pieces, those that are damaged event by event."""
        going = True
        while going and not self.closed:
            cut = last_boundary(self._text, self._start, self._start + _PIECE_BYTES)
            sound = cut is not None and self._take(cut.end)
            if cut and sound:
                self._start = cut.following
            elif not (cut and self._take_repaired(cut)):
                going = self._walk(self._base + cut.following if cut else 0)
            if self._at >= until:
                break
        return going

    def _take(self, end: int) -> bool:
        """Add the events of the text up to ``end``; False where it isn't sound."""
        events = _decode(self._text[self._start : end])
        if events is None:
            return False
        self._add(events)
        return True

    def _take_to_array_end(self) -> bool:
        """Add the events up to the end of the array, if the text holds it and is sound."""
        start = self._start
        for _ in range(_ARRAY_END_TRIES):
            end = ARRAY_END.search(self._text, start)
            if end is None or (end.end() == len(self._text) and not self._eof):
                return False
            if self._take(end.start() + 1):
                self._start = self._text.index(b"]", end.start()) + 1
                self.closed = True
                return True
            start = end.start() + 1
        return False

    def _take_repaired(self, cut: Cut) -> bool:
        text, repairs = repair(self._text[self._start : cut.end], patient=False)
        events = _decode(text) if repairs else None
        if events is None:
            return False
        self._add(events)
        self._count(repairs)
        self._start = cut.following
        return True

    def _walk(self, until: int) -> bool:
        """Read event by event up to position ``until``, one at least; False at the text's end."""
        batch: list[object] = []
        going = True
        while going and not self.closed:
            going = self._one(batch)
            if len(batch) >= _BATCH:
                self._add(batch)
                batch = []
            if self._at >= until:
                break
        if batch:
            self._add(batch)
        return going

    def _one(self, batch: list[object]) -> bool:
        """Read one event; False at the end of the text."""
        while True:
            match = _SEPARATORS.match(self._text, self._start)
            self._start = match.end() if match else self._start
            if self._held:
                break
            if not self._more():
                self.faults.add("truncated", self._at)
                return False
        first = self._text[self._start]
        if first == _CLOSING_BRACKET and self._ends_array():
            self._start += 1
            self.closed = True
            return True
        if first != _OPENING_BRACE:
            return self._skip()
        length = self._length(NEXT, 1)
        if length is None:
            return self._last(batch)
        read = self._event(length, batch)
        if read is None:
            self.faults.add("events_lost", self._at)
        self._start += read or length
        return True

    def _ends_array(self) -> bool:
        """Tell by what follows whether the bracket here ends the array: damage leaves strays."""
        while True:
            after = _WHITE.match(self._text, self._start + 1)
            end = after.end() if after else len(self._text)
            if end < len(self._text):
                return self._text[end] in b",}"
            if not self._more():
                return True

    def _skip(self) -> bool:
        """Leave out what is no event; False at the end of the text."""
        self.faults.add("events_lost", self._at)
        length = self._length(RESYNC, 0)
        if length is None:
            self.faults.add("truncated", self._at)
            return False
        self._start += max(length, 1)
        return True

    def _length(self, pattern: re.Pattern[bytes], extra: int) -> int | None:
        """Return the length up to a pattern, and ``extra`` bytes of it; None if it never comes.

        The length is at most ``MAX_EVENT_BYTES``.
        """
        while True:
            match = pattern.search(self._text, self._start)
            if match and (self._eof or match.end() < len(self._text)):
                return min(match.start() + extra - self._start, MAX_EVENT_BYTES)
            if self._held > MAX_EVENT_BYTES:
                return MAX_EVENT_BYTES
            if not self._more() and match is None:
                return None

    def _last(self, batch: list[object]) -> bool:
        """Read the event that the end of the file follows, if it is whole."""
        text = self._text[self._start :].rstrip(b", \t\r\n")
        if text.startswith(b"{") and self._accept(text, batch):
            self._start = len(self._text)
        self.faults.add("truncated", self._at)
        return False

    def _event(self, length: int, batch: list[object]) -> int | None:
        """Read the event that starts here; return its length, None if it can't be read."""
        text = self._text[self._start : self._start + length]
        if self._accept(text, batch):
            return length
        closed, in_string = _brackets(text)
        if not closed and not in_string:
            whole = self._matching_length()
            if whole and self._accept(self._text[self._start : self._start + whole], batch):
                return whole
        requoted = requote(text)
        if requoted is not None and self._accept(requoted, batch):
            self.faults.add("quotes", self._at)
            return length
        if closed and closed < length and self._accept(text[:closed], batch):
            return closed
        return None

    def _accept(self, text: bytes, batch: list[object]) -> bool:
        """Add one event's text to the batch, as it is or repaired; False if it can't be read."""
        events = _decode_any(text)
        if events is None:
            repaired, repairs = repair(text)
            events = _decode_any(repaired) if repairs else None
            if events is None:
                return False
            self._count(repairs)
        batch.extend(events)
        return True

    def _count(self, repairs: Repairs) -> None:
        for kind, (count, first) in repairs.items():
            self.faults.add(kind, self._at + first, count)

    def _matching_length(self) -> int | None:
        """Return the length up to where the brackets that open here close."""
        while self._held < MAX_NESTED_BYTES and self._more():
            pass
        return _brackets(self._text[self._start : self._start + MAX_NESTED_BYTES])[0]

    def _read_tail(self) -> None:
        while self._held < MAX_METADATA_BYTES and self._more():
            pass
        self.tail, self.tail_at = self._text[self._start :], self._at
        self._text, self._start = b"", 0
        for _ in self._blocks:  # so that the gzip checksum is checked
            pass


def _decode(text: bytes) -> Sequence[object] | None:
    """Decode sound text of whole events; None where it isn't that."""
    try:
        if not text.isascii():
            text.decode()  # strings that nobody reads aren't checked by the decoder
        return EVENTS.decode(b"[" + text + b"]")
    except (*_UNREADABLE, UnicodeDecodeError):
        return None


def _decode_any(text: bytes) -> Sequence[object] | None:
    """Decode one event; an object that is no span or name of ours (``{}``) gives no event."""
    events = _decode(text)
    if events is not None:
        return events
    try:
        text.decode()
        value = _GENERIC.decode(text)
    except (*_UNREADABLE, UnicodeDecodeError):
        return None
    return [] if isinstance(value, dict) and value.get("ph") not in ("X", "M") else None


def _brackets(text: bytes) -> tuple[int | None, bool]:
    """Return where the first bracket's match ends, and whether the text ends inside a string."""
    depth = 0
    for token in TOKEN.finditer(text):
        if token[0] == b'"':
            return None, True
        depth += (token[0] in b"{[") - (token[0] in b"}]")
        if depth == 0:
            return token.end(), False
    return None, False
