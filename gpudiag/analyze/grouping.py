"""Rows grouped by several integer columns, and sums over the groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpudiag.model.tables import I64, Mask

# Values in a range up to this wide are ranked through a table of the range instead of by sorting.
_TABLE_PER_ROW = 4
_SMALL_TABLE = 65_536


@dataclass(frozen=True, slots=True)
class Groups:
    """Distinct tuples of the columns; ``of_row`` is each row's group."""

    keys: list[tuple[int, ...]]
    of_row: I64

    def __len__(self) -> int:
        return len(self.keys)

    def count(self) -> list[int]:
        """Return the number of rows of each group."""
        return _ints(np.bincount(self.of_row, minlength=len(self)))

    def sums(self, values: I64 | Mask) -> list[int]:
        """Sum ``values`` (one per row) by group."""
        total = np.zeros(len(self), dtype=np.int64)
        np.add.at(total, self.of_row, values)
        return _ints(total)

    def largest(self, values: I64) -> list[int]:
        """Return the largest of ``values`` (one per row, none below 0) of each group."""
        most = np.zeros(len(self), dtype=np.int64)
        np.maximum.at(most, self.of_row, values)
        return _ints(most)

    def table(self, values: I64) -> I64:
        """Sum the rows of ``values``, shape (rows, k), by group; shape (groups, k)."""
        total: npt.NDArray[np.int64] = np.zeros((len(self), values.shape[1]), dtype=np.int64)
        np.add.at(total, self.of_row, values)
        return total

    def distinct(self, values: I64) -> list[int]:
        """Return how many different ``values`` each group has."""
        if not len(values):
            return [0] * len(self)
        pairs = np.unique(np.stack((self.of_row, values)), axis=1)[0]
        return _ints(np.bincount(pairs, minlength=len(self)))


def group_by(columns: Sequence[npt.NDArray[np.integer] | Mask]) -> Groups:
    """Group rows by equal values in all of the columns."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    groups = min(len(key), 1)
    for column in columns:
        code, distinct = _numbered(column)
        key, groups = _numbered(key * distinct + code)
    first = np.zeros(groups, dtype=np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]
    picked = [column[first].tolist() for column in columns]
    return Groups([tuple(map(int, one)) for one in zip(*picked, strict=True)], key)


def shares(group: I64, duration: I64) -> npt.NDArray[np.float64]:
    """Return each row's share of its group, by duration, ns; what took no time counts as 1 ns."""
    weight = np.maximum(duration, 1).astype(np.float64)
    share: npt.NDArray[np.float64] = weight / np.bincount(group, weights=weight)[group]
    return share


def _numbered(values: npt.NDArray[np.integer] | Mask) -> tuple[I64, int]:
    """Return each value's rank among the distinct values, and how many are distinct."""
    if not len(values):
        return np.zeros(0, dtype=np.int64), 0
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > _TABLE_PER_ROW * len(values) + _SMALL_TABLE:
        found, code = np.unique(values, return_inverse=True)
        return code.astype(np.int64), len(found)
    offset = values.astype(np.int64) - low
    present = np.zeros(span, dtype=bool)
    present[offset] = True
    ranks = np.cumsum(present) - 1
    return ranks[offset], int(ranks[-1]) + 1


def _ints(values: npt.NDArray[np.int64]) -> list[int]:
    return [int(one) for one in values]
