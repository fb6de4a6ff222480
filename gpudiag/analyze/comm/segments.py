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
since which r has started as many, or lacks the fewest. Where it has started more, r counts up to
the first kernel that q has yet to start. Kernels of a name count if all ranks of the group ran
equally many of them in their windows: what only one of them runs says nothing of how far it is.
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
from gpudiag.model.tables import I64


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
        self._members: dict[object, list[int]] = defaultdict(list)
        self._place: list[int] = []
        for index, one in enumerate(matched):
            self._place.append(len(self._members[one.group]))
            self._members[one.group].append(index)
        self._kernels: dict[tuple[object, int], I64] = {}
        self._started: dict[tuple[object, int], I64] = {}
        for group, members in self._members.items():
            ranks = sorted({rank for index in members for rank in matched[index].records})
            for rank, kernels in _common_kernels({r: timelines[r] for r in ranks}).items():
                self._kernels[group, rank] = kernels
                self._started[group, rank] = self._count(members, rank, kernels)
        self._nearest = {group: self._steps(members) for group, members in self._members.items()}

    def _count(self, members: Sequence[int], rank: int, kernels: I64) -> I64:
        """Return kernels started at arrival and at the end; shape (2, members), -1 if absent."""
        counts = np.full((2, len(members)), -1, dtype=np.int64)
        records = [self._matched[index].records.get(rank) for index in members]
        there = [place for place, one in enumerate(records) if one]
        times = [(one.start, one.end) for one in records if one]
        counts[:, there] = np.searchsorted(kernels, np.array(times, dtype=np.int64)).T
        return counts

    def _steps(self, members: Sequence[int]) -> list[int]:
        """Return for each member the first one that is at most a step earlier."""
        first, found = 0, []
        for index in members:
            while _steps_apart(self._matched[members[first]], self._matched[index]) > 1:
                first += 1
            found.append(first)
        return found

    def since(
        self, index: int, late: int, early: int
    ) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Return the stretches to compare where the early rank was ahead; None where it wasn't."""
        one, place = self._matched[index], self._place[index]
        first = self._nearest[one.group][place]
        his, mine = self._started[one.group, late], self._started[one.group, early]
        ended = np.stack((his[1, first:place], mine[1, first:place]))
        to_do = his[0, place] - ended[0] - (mine[0, place] - ended[1])
        able = np.flatnonzero((ended >= 0).all(axis=0))
        if not len(able) or (to_do[able[-1]] == 0 and able[-1] == len(to_do) - 1):
            return None
        at = able[to_do[able] <= max(int(to_do[able].min()), 0)][-1]
        until = one.records[early].start
        if to_do[at] < 0:
            next_one = int(ended[1, at] + his[0, place] - ended[0, at])
            until = min(until, int(self._kernels[one.group, early][next_one]))
        before = self._matched[self._members[one.group][first + int(at)]]
        return (
            _stretch(before.records[late].end, one.records[late].start),
            _stretch(before.records[early].end, until),
        )


def _common_kernels(timelines: Mapping[int, Timeline]) -> dict[int, I64]:
    """Return for each rank the starts of the kernels that all ranks run equally often."""
    counts = [{n: k.in_window for n, k in one.kernels.items()} for one in timelines.values()]
    names = {name for name, n in counts[0].items() if all(o.get(name) == n for o in counts)}
    none = np.zeros(0, dtype=np.int64)
    return {
        rank: np.sort(np.concatenate([none, *(one.kernels[name].starts for name in names)]))
        for rank, one in timelines.items()
    }


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
