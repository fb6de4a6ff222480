"""Repairs that turn damaged JSON text into JSON text, the same way for one event or for a block.

Text that is JSON already comes back unchanged. Nothing is ever evaluated; brackets are never
balanced, so a repair can't make an event out of half of one. The rules are written down in
docs/reference/recovery.md, for other readers to follow.
"""

from __future__ import annotations

import re

_GAP = rb"[ \t\r\n]*"
_DELIMITER = rb"(?=[ \t\r\n,:{}\[\]]|\Z)"
_ESCAPE = rb'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PLAIN = rb'[^"\\\x00-\x1f]*'
_STRING = rb'"' + _PLAIN + rb"(?:(?:" + _ESCAPE + rb"|" + _PAIR + rb")" + _PLAIN + rb')*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?" + _DELIMITER
_WORD = rb"(?:true|false|null)" + _DELIMITER
_COMMA = rb",(?!" + _GAP + rb"[,}\]])"
_GOOD = re.compile(
    rb"(?:[ \t\r\n:{}\[\]]++|"
    + _COMMA
    + rb"|"
    + _STRING
    + rb"|"
    + _NUMBER
    + rb"|"
    + _WORD
    + rb")*+"
)
_ANY_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*+"', re.DOTALL)
_BARE = re.compile(rb'[^ \t\r\n,:{}\[\]"\x00-\x1f]+')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BACKSLASH = re.compile(_PAIR + rb"|" + _ESCAPE + rb"|\\", re.DOTALL)
_SURROGATE = re.compile(_PAIR + rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LITERAL_BACKSLASH = re.compile(rb'\\(["\\/]?)')
# Sound text with NaNs in every event holds fewer bare words than this; out of step, far more.
_BARE_WORDS, _BYTES_PER_BARE_WORD = 32, 64
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

BAD_UTF8, CONTROL, ESCAPE, BARE, COMMA = "utf8", "control_chars", "escapes", "bare_words", "commas"


class Repairs(dict[str, tuple[int, int]]):
    """How many repairs of each kind, and where in the text the first was needed."""

    def note(self, kind: str, at: int, count: int = 1) -> None:
        """Count repairs of one kind."""
        known, first = self.get(kind, (0, at))
        self[kind] = (known + count, min(first, at))

    @property
    def bare_words(self) -> int:
        """How many values were no JSON."""
        return self[BARE][0] if BARE in self else 0


def repair(text: bytes, *, patient: bool = True) -> tuple[bytes, Repairs]:
    """Return the text with every known damage repaired, and what was repaired.

    Without patience, a text with so many bare words that it must be out of step with its quotes
    comes back as it is.
    """
    repairs = Repairs()
    out: list[bytes] = []
    position = 0
    while (end := _end_of_good(text, position)) < len(text):
        out.append(text[position:end])
        fixed, position = _fix(text, end, repairs)
        out.append(fixed)
        if not patient and repairs.bare_words > _BARE_WORDS + end // _BYTES_PER_BARE_WORD:
            return text, Repairs()
    out.append(text[position:])
    return _utf8(text, b"".join(out), repairs), repairs


def _end_of_good(text: bytes, start: int) -> int:
    match = _GOOD.match(text, start)
    return match.end() if match else start


def _utf8(original: bytes, text: bytes, repairs: Repairs) -> bytes:
    """Replace what is no UTF-8; counted in the text as it was."""
    try:
        original.decode()
    except UnicodeDecodeError as error:
        replaced = original.decode(errors="replace").count(_REPLACEMENT)
        repairs.note(BAD_UTF8, error.start, replaced - original.count(_REPLACEMENT.encode()))
        return text.decode(errors="replace").encode()
    return text


def _fix(text: bytes, at: int, repairs: Repairs) -> tuple[bytes, int]:
    """Repair the one damaged thing that starts at ``at``; return it and where it ends."""
    first = text[at : at + 1]
    if first == b'"':
        string = _ANY_STRING.match(text, at)
        if string is None:  # it never ends: nothing can be told of what follows
            return text[at:], len(text)
        return _fix_string(string[0], at, repairs), string.end()
    if first == b",":
        repairs.note(COMMA, at)
        return b"", at + 1
    bare = _BARE.match(text, at)
    if bare is None:
        repairs.note(CONTROL, at)
        return b" ", at + 1
    repairs.note(BARE, at)
    return b"null", bare.end()


def _fix_string(text: bytes, at: int, repairs: Repairs) -> bytes:
    lone = sum(len(m[0]) == len(rb"\ud800") for m in _SURROGATE.finditer(text))
    if lone:
        repairs.note(ESCAPE, at, lone)
        text = _SURROGATE.sub(lambda m: m[0] if len(m[0]) > len(rb"\ud800") else rb"\ufffd", text)
    wrong = sum(m[0] == b"\\" for m in _BACKSLASH.finditer(text))
    if wrong:
        # A writer that escapes nothing: \n in torch\nn\modules is no line end either.
        repairs.note(ESCAPE, at, wrong)
        text = _LITERAL_BACKSLASH.sub(lambda m: m[0] if m[1] else b"\\\\", text)
    controls = len(_CONTROL.findall(text))
    if controls:
        repairs.note(CONTROL, at, controls)
        text = _CONTROL.sub(lambda m: b"\\u%04x" % m[0][0], text)
    return text


_NAME = re.compile(rb'"name"' + _GAP + rb":" + _GAP + rb'"')
_NAME_END = re.compile(
    rb'(?<!\\)"'
    + _GAP
    + rb"(?:,"
    + _GAP
    + rb'"(?:ph|cat|pid|tid|ts|dur|args|id|bp|s)"'
    + _GAP
    + rb":|\}\Z)"
)
_QUOTE = re.compile(rb'(?<!\\)"')


def requote(event: bytes) -> bytes | None:
    """Escape the quotes inside an event's name; None where that changes nothing.

    The name ends at the first quote that a further key of the event, or its end, follows.
    """
    start = _NAME.search(event)
    end = _NAME_END.search(event, start.end()) if start else None
    if start is None or end is None:
        return None
    name = event[start.end() : end.start()]
    quoted = _QUOTE.sub(rb"\"", name)
    return event[: start.end()] + quoted + event[end.start() :] if quoted != name else None
