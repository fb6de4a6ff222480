"""Exposed communication of every rank: waiting for the last to arrive, and transfer.

For a matched collective with aligned arrivals a_r and L the last of them, a rank's exposed time
before L is wait, after it transfer::

    rank 0   [~~~~~~~~~|====]       ~ wait, = transfer
    rank 1        [~~~~|====]
    rank 2             [====]       arrives last: L
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpudiag.analyze.comm.clock import Clocks
from gpudiag.analyze.comm.kinds import POINT_TO_POINT, SYNCHRONISING
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.intervals import (
    EMPTY,
    Intervals,
    Pieces,
    as_pieces,
    difference,
    intersect,
    subtract,
    union,
)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Who arrived when at one matched collective, on the reference's clock, ns."""

    last_rank: int
    last: int
    second: int  # the latest of the others
    resolvable: bool  # the last is later than the second by more than their clocks can be wrong


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One matched collective on one rank: its exposed wait and transfer, ns."""

    collective: int  # index of the matched collective
    wait_ns: int
    transfer_ns: int
    pipeline_ns: int = 0  # what a pipeline's schedule or imbalance has of it

    @property
    def exposed_ns(self) -> int:
        """All of its exposed time."""
        return self.wait_ns + self.transfer_ns + self.pipeline_ns


@dataclass(frozen=True, slots=True)
class RankSplit:
    """The exposed communication of one rank; its leaves sum to it."""

    wait_ns: int
    transfer_ns: int
    unsplit_ns: int
    parts: tuple[SplitPart, ...]
    waits: Pieces  # owned by matched collectives, the rank's own clock
    transfer: Pieces  # the same
    unsplit: Intervals
    schedule: Intervals = EMPTY  # what is a pipeline's own; see pipeline/pool.py
    imbalance: Intervals = EMPTY

    def with_pieces(
        self,
        *,
        waits: Pieces,
        transfer: Pieces,
        unsplit: Intervals,
        schedule: Intervals,
        imbalance: Intervals,
    ) -> RankSplit:
        """Return the same communication less what went to a pipeline."""
        before = {part.collective: part for part in self.parts}
        parts = [
            replace(
                part,
                pipeline_ns=before[part.collective].exposed_ns - part.exposed_ns,
            )
            for part in _by_collective(list(before), waits, transfer)
        ]
        return RankSplit(
            wait_ns=int(waits.lengths.sum()),
            transfer_ns=int(transfer.lengths.sum()),
            unsplit_ns=unsplit.total,
            parts=tuple(parts),
            waits=waits,
            transfer=transfer,
            unsplit=unsplit,
            schedule=schedule,
            imbalance=imbalance,
        )

    @property
    def leaves_ns(self) -> dict[str, int]:
        """Return ns of the leaves that exposed communication went to."""
        return {
            "comm.wait": self.wait_ns,
            "comm.transfer": self.transfer_ns,
            "comm.unsplit": self.unsplit_ns,
            "pipeline.schedule": self.schedule.total,
            "pipeline.imbalance": self.imbalance.total,
        }


def arrivals(one: Matched, clocks: Clocks) -> Arrivals | None:
    """Return who came last; None where nobody in particular is waited for."""
    waits = one.kind in SYNCHRONISING or one.kind in POINT_TO_POINT
    if not waits or any(rank not in clocks.of_rank for rank in one.records):
        return None
    at = sorted((clocks.aligned(rank, r.start), rank) for rank, r in one.records.items())
    (second, before), (last, rank) = at[-2], at[-1]
    apart = clocks.half_width(rank) + clocks.half_width(before)
    return Arrivals(rank, last, second, last - second >= apart)


def split_rank(
    rank: int,
    exposed: Intervals,
    matched: Sequence[Matched],
    arrived: Mapping[int, Arrivals],
    clocks: Clocks,
) -> RankSplit:
    """Split a rank's exposed communication; several at once: transfer first, then the earliest."""
    mine = [i for i in arrived if rank in matched[i].records]
    records = [matched[i].records[rank] for i in mine]
    starts = np.array([r.start for r in records], dtype=np.int64)
    ends = np.array([r.end for r in records], dtype=np.int64)
    clock = clocks.of_rank.get(rank)
    last = np.array(
        [arrived[i].last + clock.ahead(r.start) for i, r in zip(mine, records, strict=True)]
        if clock
        else [],
        dtype=np.int64,
    )
    last = np.clip(last, starts, ends)
    index = np.array(mine, dtype=np.int64)
    whole = as_pieces(exposed)
    transfer = _owned(last, ends, index, exposed)
    moving = union(transfer.starts, transfer.ends)
    rest = subtract(whole, moving)
    waits = _owned(starts, last, index, Intervals(rest.starts, rest.ends))
    return RankSplit(
        wait_ns=int(waits.lengths.sum()),
        transfer_ns=int(transfer.lengths.sum()),
        unsplit_ns=exposed.total - int(waits.lengths.sum()) - int(transfer.lengths.sum()),
        parts=_by_collective(mine, waits, transfer),
        waits=waits,
        transfer=transfer,
        unsplit=difference(Intervals(rest.starts, rest.ends), union(waits.starts, waits.ends)),
    )


def _owned(starts: np.ndarray, ends: np.ndarray, owner: np.ndarray, exposed: Intervals) -> Pieces:
    """Return exposed time in spans, each instant owned by the span that started first."""
    order = np.lexsort((ends, starts))
    starts, ends, owner = starts[order], ends[order], owner[order]
    reach = np.maximum.accumulate(ends) if len(ends) else ends
    free = np.maximum(starts, np.append(starts[:1], reach[:-1]))
    keep = ends > free
    pieces = Pieces(free[keep], ends[keep], owner[keep])
    return intersect(pieces, exposed)


def _by_collective(mine: Sequence[int], waits: Pieces, transfer: Pieces) -> tuple[SplitPart, ...]:
    waited, moved = _sums(waits), _sums(transfer)
    return tuple(SplitPart(i, waited.get(i, 0), moved.get(i, 0)) for i in mine)


def _sums(pieces: Pieces) -> dict[int, int]:
    sums: dict[int, int] = {}
    for owner, ns in zip(pieces.owner.tolist(), pieces.lengths.tolist(), strict=True):
        sums[owner] = sums.get(owner, 0) + ns
    return sums
