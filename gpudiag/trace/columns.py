"""Columns that grow block by block and are joined once, so that no column exists twice for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpudiag.model.tables import NOT_RECORDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_WORD = 2**64
_HALF = 2**63


def integers(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return int64 of recorded ids or sizes; -1 where there is no integer.

    An integer beyond int64 is folded to its low 64 bits (two's complement): equal ids stay equal.
    """
    try:
        # one C loop when all are small integers, as nearly always
        return np.fromiter(values, np.int64, len(values)) if _all_int(values) else _each(values)
    except OverflowError:
        return _each(values)


def _all_int(values: Sequence[Any]) -> bool:
    return set(map(type, values)) <= {int}


def _each(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.array([integer(v) for v in values], np.int64)


def integer(value: object) -> int:
    """Return one recorded integer, from a number or from text; NOT_RECORDED where it is neither."""
    if isinstance(value, str):
        value = _integer_from_text(value.strip())
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if not isinstance(value, int) or isinstance(value, bool):
        return NOT_RECORDED
    return (value + _HALF) % _WORD - _HALF


def _integer_from_text(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # int() refuses thousands of digits; no id has more than 40
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 40 else None  # noqa: PLR2004


class Column:
    """One growing column of a fixed dtype."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._parts: list[npt.NDArray[Any]] = []

    def add(self, part: npt.ArrayLike) -> None:
        """Append values; integers outside the dtype become NOT_RECORDED."""
        array = np.asarray(part)
        if array.dtype.itemsize > self._dtype.itemsize and array.size:
            info = np.iinfo(self._dtype)
            outside = (array < info.min) | (array > info.max)
            if outside.any():
                array = np.where(outside, NOT_RECORDED, array)
        self._parts.append(array.astype(self._dtype, copy=False))

    def join(self) -> npt.NDArray[Any]:
        """Return the whole column and let go of its parts."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts) if parts else np.empty(0, self._dtype)
