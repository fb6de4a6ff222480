"""Rows grouped by several integer columns, and sums over the groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpudiag.model.tables import I64, Mask


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
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        _, key = np.unique(key * max(len(values), 1) + code, return_inverse=True)
    _, first = np.unique(key, return_index=True)
    picked = [column[first].tolist() for column in columns]
    return Groups([tuple(map(int, one)) for one in zip(*picked, strict=True)], key)


def _ints(values: npt.NDArray[np.int64]) -> list[int]:
    return [int(one) for one in values]
