"""Decimal microseconds to integer nanoseconds, exactly: digits below 1 ns are cut off.

A float can't hold an absolute time to the nanosecond (its step is 250 ns at 1.7e15 µs), so a time
goes from its decimal text to an integer without ever being a float.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.model.tables import INVALID_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec
    import numpy.typing as npt

    from gpudiag.model.tables import I64

# Times beyond 146 years from zero are damage; so start + duration never leaves int64.
TIME_LIMIT_NS = 2**62 - 1
_PLAIN = b"0123456789.\n"
_FRACTION_DIGITS = 3  # of a microsecond: nanoseconds
# 19 digits hold an absolute time to the ns; what of them leaves int64, numpy clips to its maximum.
_SAFE_DIGITS = 19
_MAX_EXPONENT = 40  # more is out of range whatever the digits
_NEWLINE, _DOT, _ZERO = 10, 46, np.uint8(48)
_UNIFORM_TAIL = 5  # the point, three decimals, the line end
_HALF_DIGITS = 9
_NUMBER = re.compile(rb"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,9}))?")
_POWERS = 10 ** np.arange(_SAFE_DIGITS, dtype=np.int64)


def ns_from_text(text: bytes) -> int:
    """Return the nanoseconds that one JSON number, or string holding one, says in microseconds."""
    match = _NUMBER.fullmatch(text.strip(b'" \t\r\n'))
    if match is None or not (match[2] or match[3]):
        return INVALID_TIME
    whole, fraction, exponent = match[2], match[3] or b"", int(match[4] or 0)
    if abs(exponent) > _MAX_EXPONENT:
        return INVALID_TIME
    digits = whole + fraction
    point = len(whole) + exponent + _FRACTION_DIGITS
    kept = digits[:point] if point <= len(digits) else digits + b"0" * (point - len(digits))
    kept = kept.lstrip(b"0") if point > 0 else b""
    if len(kept) > _SAFE_DIGITS or (value := int(kept or b"0")) > TIME_LIMIT_NS:
        return INVALID_TIME
    return -value if match[1] == b"-" else value


def ns_from_texts(texts: Sequence[msgspec.Raw]) -> I64:
    """Return nanoseconds, shape (n,), of n JSON numbers in microseconds."""
    if not texts:
        return np.empty(0, np.int64)
    joined = b"\n".join(texts) + b"\n"
    if b'"' in joined:  # Ascend writes times as strings
        joined = joined.replace(b'"', b"")
    uniform = _from_uniform(joined, len(texts))
    if uniform is not None:
        return uniform
    plain = _from_plain(joined, len(texts)) if not joined.translate(None, _PLAIN) else None
    if plain is not None:
        return plain
    return np.fromiter((ns_from_text(bytes(t)) for t in texts), np.int64, len(texts))


def _from_uniform(joined: bytes, count: int) -> I64 | None:
    """Convert numbers that are all written alike, digits and three decimals; None if they aren't.

    Start times of one trace nearly always are, and a table of digits is the fastest to convert.
    """
    width = joined.index(b"\n") + 1
    whole = width - _UNIFORM_TAIL
    if len(joined) != width * count or not 0 < whole <= _SAFE_DIGITS - _FRACTION_DIGITS:
        return None
    table = np.frombuffer(joined, np.uint8).reshape(count, width)
    if (table[:, whole] != _DOT).any() or (table[:, -1] != _NEWLINE).any():
        return None
    digits = np.delete(table[:, :-1], whole, axis=1) - _ZERO  # others than digits wrap past 9
    if digits.max() > 9:  # noqa: PLR2004 the largest digit
        return None
    # in two halves, as a double holds 15 digits
    high, low = digits[:, :-_HALF_DIGITS], digits[:, -_HALF_DIGITS:]
    values = _value(high) * _POWERS[low.shape[1]] + _value(low)
    return np.where((values > TIME_LIMIT_NS) | (values < 0), INVALID_TIME, values)


def _value(digits: npt.NDArray[np.uint8]) -> I64:
    """Return the integers that rows of at most 15 decimal digits write, shape (n,)."""
    powers = _POWERS[digits.shape[1] - 1 :: -1] if digits.shape[1] else _POWERS[:0]
    return (digits.astype(np.float64) @ powers.astype(np.float64)).astype(np.int64)


def _from_plain(joined: bytes, count: int) -> I64 | None:
    """Convert numbers made of digits and at most one point each; None where that isn't so."""
    chars = np.frombuffer(joined, np.uint8)
    ends = np.flatnonzero(chars == _NEWLINE)
    lengths = np.diff(ends, prepend=-1) - 1
    if len(ends) != count:
        return None
    dots = np.flatnonzero(chars == _DOT)
    fraction = np.zeros(count, np.int64)
    if len(dots):
        owner = np.searchsorted(ends, dots)
        if len(dots) > count or (np.diff(owner) == 0).any():
            return None
        fraction[owner] = ends[owner] - dots - 1
        joined = joined.translate(None, b".")
        lengths[owner] -= 1
    if lengths.min() == 0 or lengths.max() > _SAFE_DIGITS or fraction.max() >= _SAFE_DIGITS:
        return None
    values = np.fromstring(joined, np.int64, count, sep="\n")
    return _scale(values, fraction)


def _scale(values: I64, fraction: I64) -> I64:
    """Bring integers with ``fraction`` decimal digits of a microsecond to nanoseconds."""
    if (fraction == _FRACTION_DIGITS).all():
        out = values
    else:
        up = _POWERS[np.maximum(_FRACTION_DIGITS - fraction, 0)]
        down = _POWERS[np.maximum(fraction - _FRACTION_DIGITS, 0)]
        out = np.where(values > TIME_LIMIT_NS // up, INVALID_TIME, values * up // down)
    return np.where(out > TIME_LIMIT_NS, INVALID_TIME, out)
