"""What ranks did before each collective, so that a late one can be compared with one that waits.

The segment of a rank reaches from the end of its previous collective of the group to its arrival.
That compares like with like where collectives hold ranks up. Beside a collective that waits for q,
rank r may go on computing; after it r has little left to do, and q, the late one, would seem to be
late for computing as much as everyone::

    r   ..]--c1--[~~~ wait 1 ~~~|==][~~~~~~~ wait 2 ~~~~~~|==]
                  -c2-                                             done beside wait 1
    q   ..]--- loader ----c1----[==]---------c2-----------[==]

So of a resolvable wait, where r has started fewer compute kernels in its segment than q, both
segments start earlier: at the end of the nearest collective, of the same step or the one before,
since which r has started as many. Where that makes more, r counts up to the first kernel that q
has yet to start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.records import Record
from gpudiag.analyze.comm.split import Arrivals, RankSplit
from gpudiag.analyze.comm.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Segment:
    """What a rank did in a stretch of its own clock, ns by leaf."""

    start: int
    end: int
    took: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments before all collectives."""

    own: Mapping[tuple[int, int], Segment]  # by (collective, rank)
    # By (collective, waiting rank): that of the last rank and of itself, where it was ahead.
    ahead: Mapping[tuple[int, int], tuple[Segment, Segment]]

    def compared(
        self, index: int, late: int, early: int, last: int
    ) -> tuple[Segment, Segment] | None:
        """Return the segments of a late rank and of one that waits; None for a first collective."""
        if late == last and (index, early) in self.ahead:
            return self.ahead[index, early]
        if (index, late) in self.own and (index, early) in self.own:
            return self.own[index, late], self.own[index, early]
        return None


def segments(
    matched: Sequence[Matched],
    arrived: Mapping[int, Arrivals],
    timelines: Mapping[int, Timeline],
    splits: Mapping[int, RankSplit],
) -> Segments:
    """Return what every rank spent before each of its collectives; none before a group's first."""
    places = _Places(timelines)
    previous: dict[tuple[object, int], int] = {}
    keys = {}
    for index, rank, record in _records(matched):
        group = matched[index].group
        before = previous.get((group, rank))
        if before is not None:
            keys[index, rank] = places.add(rank, *_stretch(before, record.start))
        previous[group, rank] = max(before or record.end, record.end)
    pairs = {}
    progress = _Progress(matched, timelines)
    for rank, split in splits.items():
        for part in split.parts:
            one = arrived[part.collective]
            if not part.wait_ns or not one.resolvable or one.last_rank == rank:
                continue
            found = progress.since(part.collective, one.last_rank, rank)
            if found:
                late, early = found
                pairs[part.collective, rank] = (
                    places.add(one.last_rank, *late),
                    places.add(rank, *early),
                )
    spent = places.spent()
    return Segments(
        {key: spent[at] for key, at in keys.items()},
        {key: (spent[late], spent[early]) for key, (late, early) in pairs.items()},
    )


class _Places:
    """Stretches of all ranks, measured together: one pass over a rank's timeline."""

    def __init__(self, timelines: Mapping[int, Timeline]) -> None:
        self._timelines = timelines
        self._of_rank: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def add(self, rank: int, start: int, end: int) -> tuple[int, int]:
        """Return the key of a stretch in what spent() returns."""
        self._of_rank[rank].append((start, end))
        return rank, len(self._of_rank[rank]) - 1

    def spent(self) -> dict[tuple[int, int], Segment]:
        """Return what each stretch was spent on."""
        found = {}
        for rank, mine in self._of_rank.items():
            edges = np.array(mine, dtype=np.int64)
            took = self._timelines[rank].between(edges[:, 0], edges[:, 1])
            for at, (start, end) in enumerate(mine):
                spent = {leaf: int(ns[at]) for leaf, ns in took.items() if ns[at]}
                found[rank, at] = Segment(start, end, spent)
        return found


class _Progress:
    """How many compute kernels each rank has started at each of its collectives."""

    def __init__(self, matched: Sequence[Matched], timelines: Mapping[int, Timeline]) -> None:
        self._matched = matched
        self._timelines = timelines
        self._members: dict[object, list[int]] = defaultdict(list)
        self._place: list[int] = []
        for index, one in enumerate(matched):
            self._place.append(len(self._members[one.group]))
            self._members[one.group].append(index)
        self._arrived = self._started([(i, r, x.start) for i, r, x in _records(matched)])
        self._ended = self._started([(i, r, x.end) for i, r, x in _records(matched)])

    def _started(self, times: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
        """Return how many kernels each (collective, rank) had started by a time."""
        of_rank: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, rank, at in times:
            of_rank[rank].append((index, at))
        counts: dict[tuple[int, int], int] = {}
        for rank, mine in of_rank.items():
            at_ns = np.array([at for _, at in mine], dtype=np.int64)
            found = np.searchsorted(self._timelines[rank].kernels, at_ns).tolist()
            counts |= {(index, rank): n for (index, _), n in zip(mine, found, strict=True)}
        return counts

    def since(
        self, index: int, late: int, early: int
    ) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Return the stretches to compare where the early rank was ahead; None where it wasn't."""
        one = self._matched[index]
        members = self._members[one.group]
        for place in range(self._place[index] - 1, -1, -1):
            before = self._matched[members[place]]
            if not {late, early} <= before.records.keys() or _steps_apart(before, one) > 1:
                return None
            first = self._ended[members[place], early]
            behind = self._arrived[index, late] - self._ended[members[place], late]
            more = self._arrived[index, early] - first - behind
            if more == 0 and place == self._place[index] - 1:
                return None
            if more >= 0:
                until = one.records[early].start
                if more:
                    until = min(until, int(self._timelines[early].kernels[first + behind]))
                return (
                    _stretch(before.records[late].end, one.records[late].start),
                    _stretch(before.records[early].end, until),
                )
        return None


def _records(matched: Sequence[Matched]) -> Iterator[tuple[int, int, Record]]:
    for index, one in enumerate(matched):
        for rank, record in one.records.items():
            yield index, rank, record


def _stretch(start: int, end: int) -> tuple[int, int]:
    return min(start, end), end


def _steps_apart(before: Matched, after: Matched) -> int:
    """Return how many steps later one was launched than the other; 0 where no step is known."""
    first, second = (next(iter(one.records.values())).step for one in (before, after))
    return 0 if first is None or second is None else second - first
