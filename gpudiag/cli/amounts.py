"""Amounts as people type them: 7B, 2.9M, 412ms."""

from __future__ import annotations

import re

from gpudiag.errors import UsageError

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_SECONDS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
# Beyond these a figure is no amount of anything here, and products of several overflow.
_LEAST, _MOST = 1e-12, 1e30
_AMOUNT = re.compile(r"(\d+\.?\d*(?:e[+-]?\d+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)


def number(text: str | None, flag: str) -> float | None:
    """Return a number above 0: "7e9", "7B", "1,234,567"; None for None."""
    return None if text is None else _amount(text, flag, _SCALES, "7e9, 7B, 350k")


def whole(text: str | None, flag: str) -> int | None:
    """Return a whole number above 0: "4096", "128k" is 128,000; None for None."""
    value = number(text, flag)
    if value is None:
        return None
    if value != int(value):
        raise UsageError(f"{flag} can't be {text!r}", "", "Expected a whole number above 0.")
    return int(value)


def seconds(text: str | None, flag: str) -> float | None:
    """Return a time above 0 in seconds: "412ms", "1.2s", "1.2"; None for None."""
    return None if text is None else _amount(text, flag, _SECONDS, "412ms, 1.2s")


def _amount(text: str, flag: str, units: dict[str, float], examples: str) -> float:
    match = _AMOUNT.fullmatch(text.strip().replace(",", "").replace("_", ""))
    unit = units.get(match[2].lower()) if match else None
    value = float(match[1]) * unit if match and unit else 0.0
    if not _LEAST <= value <= _MOST:
        raise UsageError(f"{flag} can't be {text!r}", "", f"Expected above 0, such as {examples}.")
    return value
