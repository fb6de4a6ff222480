"""Exact algebra on sets of half-open integer intervals, in numpy.

A *set* is two sorted int64 arrays (starts, ends) of disjoint, non-empty intervals::

    a       [---)    [-------)
    b          [---------)   [--)
    a & b            [---)
    a - b   [---)        [---)

*Pieces* are such a set plus an owner per piece, so that a cut-up interval still knows what it
was cut from. Nothing here loops over intervals in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpudiag.model.tables import I64, Mask

_EMPTY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Intervals:
    """A sorted set of disjoint, non-empty half-open intervals [start, end), ns."""

    starts: I64
    ends: I64

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def total(self) -> int:
        """Summed length, ns."""
        return int((self.ends - self.starts).sum())

    def shifted(self, ns: int) -> Intervals:
        """Return the set moved in time, such as onto another clock."""
        return Intervals(self.starts + ns, self.ends + ns)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Disjoint intervals sorted by time, each with the index of what owns it."""

    starts: I64
    ends: I64
    owner: I64

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> I64:
        """Length of each piece, ns."""
        return self.ends - self.starts

    def part(self, index: int) -> Pieces:
        """Return one piece."""
        one = slice(index, index + 1)
        return Pieces(self.starts[one], self.ends[one], self.owner[one])


EMPTY = Intervals(_EMPTY, _EMPTY)


def union(starts: I64, ends: I64) -> Intervals:
    """Merge any intervals, overlapping or touching, unsorted or empty, into a set."""
    keep = ends > starts
    if not keep.any():
        return EMPTY
    if not keep.all():
        starts, ends = starts[keep], ends[keep]
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.flatnonzero(starts[1:] > reach[:-1]) + 1
    last = np.append(first, len(starts)) - 1
    return Intervals(starts[np.insert(first, 0, 0)], reach[last])


def merge(a: Intervals, b: Intervals) -> Intervals:
    """Return a | b."""
    return union_all((a, b))


def union_all(parts: Sequence[Intervals | Pieces]) -> Intervals:
    """Return the union of any number of sets or pieces."""
    if not parts:
        return EMPTY
    return union(
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
    )


def contains(a: Intervals, at: I64) -> Mask:
    """Mask the instants that lie inside ``a``."""
    if not len(a):
        return np.zeros(len(at), dtype=bool)
    position = np.searchsorted(a.starts, at, side="right") - 1
    inside: Mask = (position >= 0) & (a.ends[np.maximum(position, 0)] > at)
    return inside


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """Return the part of ``a`` within [start, end)."""
    starts, ends = np.maximum(a.starts, start), np.minimum(a.ends, end)
    keep = ends > starts
    return Intervals(starts[keep], ends[keep])


def complement(a: Intervals, start: int, end: int) -> Intervals:
    """Return [start, end) - a."""
    inside = clip(a, start, end)
    starts = np.concatenate(([start], inside.ends)).astype(np.int64)
    ends = np.concatenate((inside.starts, [end])).astype(np.int64)
    keep = ends > starts
    return Intervals(starts[keep], ends[keep])


def as_pieces(a: Intervals) -> Pieces:
    """Return ``a`` with each interval owned by its own index."""
    return Pieces(a.starts, a.ends, np.arange(len(a), dtype=np.int64))


def intersect(a: Pieces, b: Intervals) -> Pieces:
    """Return a & b; owners come from ``a``."""
    return intersect_with_index(a, b)[0]


def intersect_with_index(a: Pieces, b: Intervals) -> tuple[Pieces, I64]:
    """Return a & b with owners from ``a``, and for each piece its index in ``b``."""
    if not len(a) or not len(b):
        return Pieces(_EMPTY, _EMPTY, _EMPTY), _EMPTY
    low = np.searchsorted(b.ends, a.starts, side="right")
    high = np.searchsorted(b.starts, a.ends, side="left")
    count = np.maximum(high - low, 0)
    index_a = np.repeat(np.arange(len(a)), count)
    offset = np.arange(len(index_a)) - np.repeat(np.cumsum(count) - count, count)
    index_b = low[index_a] + offset
    starts = np.maximum(a.starts[index_a], b.starts[index_b])
    ends = np.minimum(a.ends[index_a], b.ends[index_b])
    return Pieces(starts, ends, a.owner[index_a]), index_b


def subtract(a: Pieces, b: Intervals) -> Pieces:
    """Return a - b; owners come from ``a``."""
    if not len(a) or not len(b):
        return a
    first = min(int(a.starts[0]), int(b.starts[0]))
    last = max(int(a.ends[-1]), int(b.ends[-1]))
    return intersect(a, complement(b, first, last))


def split(a: Pieces, b: Intervals) -> tuple[Pieces, Pieces]:
    """Return (a & b, a - b)."""
    return intersect(a, b), subtract(a, b)


def difference(a: Intervals, b: Intervals) -> Intervals:
    """Return a - b as a set."""
    rest = subtract(as_pieces(a), b)
    return Intervals(rest.starts, rest.ends)


def overlap(a: Intervals, b: Intervals) -> Intervals:
    """Return a & b as a set."""
    both = intersect(as_pieces(a), b)
    return Intervals(both.starts, both.ends)


def sum_by_owner(pieces: Pieces, owners: int) -> I64:
    """Sum piece lengths per owner; shape (owners,)."""
    total = np.zeros(owners, dtype=np.int64)
    np.add.at(total, pieces.owner, pieces.lengths)
    return total


class Nest:
    """Spans [start, end) that nest to any depth, prepared to be asked who is innermost.

    Innermost is, of the spans that hold an instant, the one that started last; of those that
    started together, the shortest. So spans that cross (a child outliving its parent) are taken
    as nested by their starts. Asked in O(log n), whatever the depth.
    """

    def __init__(self, starts: I64, ends: I64) -> None:
        self._order = np.lexsort((-ends, starts))
        self._starts = starts[self._order]
        # Latest end of each span, of each whole pair, of each whole four, ...
        self._latest = [ends[self._order]]
        while len(below := self._latest[-1]) > 1:
            self._latest.append(np.maximum(below[:-1:2], below[1::2]))

    def innermost(self, at: I64) -> I64:
        """Return for each time the index of the innermost span holding it, or -1."""
        found = np.full(len(at), -1, dtype=np.int64)
        # How many spans, then pairs, fours, ... started by then: the last that ends later is it.
        count = np.searchsorted(self._starts, at, side="right")
        waiting = np.flatnonzero(count)
        for level, latest in enumerate(self._latest):
            odd = waiting[count[waiting] % 2 == 1]
            held = odd[latest[count[odd] - 1] > at[odd]]
            found[held] = self._order[self._last_within(level, count[held] - 1, at[held])]
            count[held] = 0
            count //= 2
            waiting = waiting[count[waiting] > 0]
            if not len(waiting):
                break
        return found

    def _last_within(self, level: int, node: I64, at: I64) -> I64:
        """Return the last span below each node of a level that ends after a time; one does."""
        for latest in self._latest[:level][::-1]:
            node = 2 * node + (latest[2 * node + 1] > at)
        return node


def innermost(starts: I64, ends: I64, at: I64) -> I64:
    """Return for each time the index of the innermost span holding it, or -1."""
    return Nest(starts, ends).innermost(at)
