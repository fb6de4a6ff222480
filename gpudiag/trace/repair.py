"""Repairs that turn damaged JSON text into JSON text, the same way for one event or for a block.

Text that is JSON already comes back unchanged. Nothing is ever evaluated; brackets are never
balanced, so a repair can't make an event out of half of one. The rules are written down in
docs/reference/recovery.md, for other readers to follow.
"""

from __future__ import annotations

import re
from collections import Counter

_GAP = rb"[ \t\r\n]*"
_DELIMITER = rb"(?=[ \t\r\n,:{}\[\]]|\Z)"
_ESCAPE = rb'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_PLAIN = rb'[^"\\\x00-\x1f]*'
_STRING = rb'"' + _PLAIN + rb"(?:(?:" + _ESCAPE + rb"|" + _PAIR + rb")" + _PLAIN + rb')*+"'
# More than two digits of exponent may leave the range of a double.
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?" + _DELIMITER
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
_VALID_ESCAPE = re.compile(_PAIR + rb"|" + _ESCAPE)
_BACKSLASH = re.compile(_PAIR + rb"|" + _ESCAPE + rb"|\\", re.DOTALL)
_SURROGATE = re.compile(_PAIR + rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LITERAL_BACKSLASH = re.compile(rb'\\(["\\/]?)')
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

BAD_UTF8, CONTROL, ESCAPE, BARE, COMMA = "utf8", "control_chars", "escapes", "bare_words", "commas"


def repair(text: bytes) -> tuple[bytes, Counter[str]]:
    """Return the text with every known damage repaired, and how many of each kind there were."""
    counts: Counter[str] = Counter()
    text = _utf8(text, counts)
    out: list[bytes] = []
    position = 0
    while True:
        end = _end_of_good(text, position)
        out.append(text[position:end])
        if end == len(text):
            break
        fixed, position = _fix(text, end, counts)
        out.append(fixed)
        if position < 0:  # a string that never ends: nothing can be told after it
            out.append(text[end:])
            break
    return b"".join(out), counts


def _end_of_good(text: bytes, start: int) -> int:
    match = _GOOD.match(text, start)
    return match.end() if match else start


def _utf8(text: bytes, counts: Counter[str]) -> bytes:
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        replaced = text.decode(errors="replace")
        counts[BAD_UTF8] += replaced.count(_REPLACEMENT) - text.count(_REPLACEMENT.encode())
        return replaced.encode()
    return text


def _fix(text: bytes, at: int, counts: Counter[str]) -> tuple[bytes, int]:
    """Repair the one damaged thing that starts at ``at``; return it and where it ends."""
    first = text[at : at + 1]
    if first == b'"':
        string = _ANY_STRING.match(text, at)
        return (_fix_string(string[0], counts), string.end()) if string else (b"", -1)
    if first == b",":
        counts[COMMA] += 1
        return b"", at + 1
    bare = _BARE.match(text, at)
    if bare is None:
        counts[CONTROL] += 1
        return b" ", at + 1
    counts[BARE] += 1
    return b"null", bare.end()


def _fix_string(text: bytes, counts: Counter[str]) -> bytes:
    text = _SURROGATE.sub(lambda m: _lone_surrogate(m[0], counts), text)
    wrong = sum(m[0] == b"\\" for m in _BACKSLASH.finditer(text))
    if wrong:
        # A writer that escapes nothing: \n in torch\nn\modules is no line end either.
        counts[ESCAPE] += wrong
        text = _LITERAL_BACKSLASH.sub(lambda m: m[0] if m[1] else b"\\\\", text)
    controls = len(_CONTROL.findall(text))
    if controls:
        counts[CONTROL] += controls
        text = _CONTROL.sub(lambda m: b"\\u%04x" % m[0][0], text)
    return text


def _lone_surrogate(text: bytes, counts: Counter[str]) -> bytes:
    if len(text) > len(rb"\ud800"):
        return text
    counts[ESCAPE] += 1
    return rb"\ufffd"


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
