"""Who each wait is charged to, and what that rank was doing (accounting.md 6).

For the wait of rank r in a collective whose last arriver is q, the segments of both since their
previous collective of the group are compared leaf by leaf::

    r   prev]----compute----[~~~~ wait ~~~~|====]
    q   prev]----compute------ loader -----[====]      q spent more on: loader

What q spent more than r is the cause, at most the wait; where that is itself a wait for someone
else, it is charged on to them. The rest, and a group's first collective, is unattributed.

What is left of a pipeline's waits, its schedule and imbalance aside, is charged to the stages that
were delayed in that step (pipeline/delays.py); where no pipeline could be told, to nobody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gpudiag.analyze.comm.clock import Clocks
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.segments import Segment, segments
from gpudiag.analyze.comm.split import Arrivals, RankSplit
from gpudiag.analyze.comm.timeline import Timeline
from gpudiag.analyze.pipeline.delays import NO_DELAYS, Delays

_Key = TypeVar("_Key", str, int, tuple[int, str])

WAIT = "comm.wait"
# A wait is followed from rank to rank at most this often.
_DEEPEST = 8


@dataclass(slots=True)
class Charge:
    """What one rank is charged for one cause, ns."""

    wait_ns: int = 0
    ambiguous_ns: int = 0  # part of it that the clocks can't tell from other ranks'
    affected: set[int] | None = None


@dataclass(frozen=True, slots=True)
class Blame:
    """All waits of the windows: charged to (rank, cause), or unattributed."""

    charges: Mapping[tuple[int, str], Charge]
    unattributed_ns: int
    gain_ns: Mapping[int, int]  # by rank: last minus second-last arrival, summed; guaranteed
    last_counts: Mapping[int, int]  # how often a rank was last, where that is resolvable
    staged: frozenset[int] = frozenset()  # stages of a pipeline: their work is not comparable


class Blamer:
    """Charges waits; holds what every rank spent in the segment before each of its collectives."""

    def __init__(
        self,
        matched: Sequence[Matched],
        arrived: Mapping[int, Arrivals],
        clocks: Clocks,
        timelines: Mapping[int, Timeline],
        splits: Mapping[int, RankSplit],
        delays: Delays = NO_DELAYS,
    ) -> None:
        self._delays = delays
        self._matched = matched
        self._arrived = arrived
        self._clocks = clocks
        self._splits = splits
        self._segments = segments(matched, arrived, timelines, splits)
        self._inside: dict[tuple[int, int, int, int], dict[int, int]] = {}
        self._waits = {rank: _waits_by_start(split) for rank, split in splits.items()}
        self._charges: dict[tuple[int, str], Charge] = defaultdict(Charge)
        self._unattributed = 0
        self._waited: dict[int, int] = defaultdict(int)  # by collective, the longest wait
        self._delayed: dict[tuple[int, int], int] = defaultdict(int)  # by (culprit, step)

    def blame(self) -> Blame:
        """Charge every wait of every rank."""
        for rank, split in sorted(self._splits.items()):
            if rank in self._delays.unclear:
                self._unattributed += split.wait_ns
            else:
                self._blame_rank(rank, split)
        gain: dict[int, int] = defaultdict(int)
        last: dict[int, int] = defaultdict(int)
        for index, longest in self._waited.items():
            one = self._arrived[index]
            if one.resolvable:
                last[one.last_rank] += 1
                gain[one.last_rank] += min(one.last - one.second, longest)
        for (culprit, _), ns in self._delayed.items():
            gain[culprit] += ns
        return Blame(
            dict(self._charges),
            self._unattributed,
            dict(gain),
            dict(last),
            frozenset(self._delays.chains),
        )

    def _blame_rank(self, rank: int, split: RankSplit) -> None:
        """Charge a rank's waits: those of its pipeline step by step, the others one by one."""
        by_step: dict[int, int] = defaultdict(int)
        for part in split.parts:
            if not part.wait_ns:
                continue
            index = part.collective
            if index in self._delays.owners.get(rank, ()):
                by_step[self._step(index, rank)] += part.wait_ns
            else:
                self._waited[index] = max(self._waited[index], part.wait_ns)
                if self._is_resolvable(index, rank):
                    self._charge(index, rank, rank, part.wait_ns, 0, ambiguous=False)
                else:
                    self._unattributed += part.wait_ns
        for step, ns in by_step.items():
            for culprit, share in self._charge_delay(rank, rank, step, ns).items():
                self._delayed[culprit, step] = max(self._delayed[culprit, step], share)

    def _is_resolvable(self, index: int, rank: int) -> bool:
        """Tell whether a rank waited for longer than its clock and the last one's can be wrong."""
        arrived, clocks = self._arrived[index], self._clocks
        waited = arrived.last - clocks.aligned(rank, self._matched[index].records[rank].start)
        return waited >= clocks.half_width(rank) + clocks.half_width(arrived.last_rank)

    def _step(self, index: int, rank: int) -> int:
        return self._delays.step(rank, self._matched[index].records[rank].start)

    def _charge_delay(self, victim: int, waiting: int, step: int, ns: int) -> dict[int, int]:
        """Charge what ``waiting`` waited in its pipeline to the stages delayed in that step."""
        shares = _scaled(self._delays.causes(waiting, step), ns)
        self._unattributed += ns - sum(shares.values())
        by_rank: dict[int, int] = defaultdict(int)
        for (culprit, leaf), share in shares.items():
            if culprit == victim:
                self._unattributed += share
            elif share:
                self._add(culprit, leaf, victim, share, ambiguous=False)
                by_rank[culprit] += share
        return by_rank

    def _charge(
        self, index: int, victim: int, waiting: int, ns: int, depth: int, *, ambiguous: bool
    ) -> None:
        """Charge ``ns`` that ``waiting`` waited in a collective, felt by ``victim``."""
        if index in self._delays.owners.get(waiting, ()):
            self._charge_delay(victim, waiting, self._step(index, waiting), ns)
            return
        candidates = self._candidates(index)
        unsure = ambiguous or len(candidates) > 1
        for share, culprit in zip(_even(ns, len(candidates)), candidates, strict=True):
            if culprit == waiting:
                self._unattributed += share
            else:
                self._charge_to(index, victim, waiting, culprit, share, depth, ambiguous=unsure)

    def _candidates(self, index: int) -> list[int]:
        """Return who may have been last: one rank where that is resolvable."""
        arrived = self._arrived[index]
        if arrived.resolvable:
            return [arrived.last_rank]
        clocks, own = self._clocks, self._clocks.half_width(arrived.last_rank)
        return [
            rank
            for rank, record in sorted(self._matched[index].records.items())
            if arrived.last - clocks.aligned(rank, record.start) < clocks.half_width(rank) + own
            or rank == arrived.last_rank
        ]

    def _charge_to(
        self,
        index: int,
        victim: int,
        waiting: int,
        culprit: int,
        ns: int,
        depth: int,
        *,
        ambiguous: bool,
    ) -> None:
        last = self._arrived[index].last_rank
        compared = self._segments.compared(index, culprit, waiting, last)
        if compared is None:
            self._unattributed += ns
            return
        late, early = compared
        excess = {leaf: max(took - early.took.get(leaf, 0), 0) for leaf, took in late.took.items()}
        waits = self._waits_in(culprit, late, index)
        own_waits = sum(self._waits_in(waiting, early, index).values())
        excess[WAIT] = max(sum(waits.values()) - own_waits, 0)
        shares = _scaled(excess, ns)
        self._unattributed += ns - sum(shares.values())
        for leaf, share in shares.items():
            if leaf == WAIT and depth < _DEEPEST:
                for other, part in _scaled(waits, share).items():
                    self._charge(other, victim, culprit, part, depth + 1, ambiguous=ambiguous)
            elif share:
                self._add(culprit, leaf, victim, share, ambiguous=ambiguous)

    def _waits_in(self, rank: int, segment: Segment, index: int) -> dict[int, int]:
        """Return a rank's waits in other collectives inside a segment, ns by collective."""
        key = (rank, index, segment.start, segment.end)
        if key in self._inside:
            return self._inside[key]
        starts, ends, owner = self._waits[rank]
        waits: dict[int, int] = defaultdict(int)
        for at in range(bisect_left(ends, segment.start), bisect_left(starts, segment.end)):
            if owner[at] != index:
                inside = min(ends[at], segment.end) - max(starts[at], segment.start)
                waits[owner[at]] += max(inside, 0)
        found = self._inside[key] = {other: ns for other, ns in waits.items() if ns}
        return found

    def _add(self, rank: int, cause: str, victim: int, ns: int, *, ambiguous: bool) -> None:
        charge = self._charges[rank, cause]
        charge.wait_ns += ns
        charge.ambiguous_ns += ns if ambiguous else 0
        charge.affected = (charge.affected or set()) | {victim}


def _waits_by_start(split: RankSplit) -> tuple[list[int], list[int], list[int]]:
    order = np.argsort(split.waits.starts, kind="stable")
    waits = split.waits
    return waits.starts[order].tolist(), waits.ends[order].tolist(), waits.owner[order].tolist()


def _scaled(parts: Mapping[_Key, int], total: int) -> dict[_Key, int]:
    """Return parts scaled down to ``total`` if they exceed it, by largest remainder."""
    whole = sum(parts.values())
    if whole <= total:
        return {key: ns for key, ns in parts.items() if ns}
    keys = [key for key, ns in parts.items() if ns]
    exact = [divmod(parts[key] * total, whole) for key in keys]
    shares = {key: quotient for key, (quotient, _) in zip(keys, exact, strict=True)}
    missing = total - sum(shares.values())
    by_remainder = sorted(range(len(keys)), key=lambda i: (-exact[i][1], str(keys[i])))
    for i in by_remainder[:missing]:
        shares[keys[i]] += 1
    return shares


def _even(ns: int, parts: int) -> list[int]:
    """Return ``ns`` in equal integer parts; the first ones get what is left over."""
    each, rest = divmod(ns, parts)
    return [each + (1 if i < rest else 0) for i in range(parts)]
