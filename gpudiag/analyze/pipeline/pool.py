"""The time that a pipeline's schedule may explain on a rank, and how it is dealt out.

Pool of a step = exposed send and receive time, gaps right after a send or receive, and the wait at
the barrier that ends the flush. In time order, the first part of it is the schedule's, the second
the imbalance's, and what is left keeps its leaf::

    pool     [====]   [==]      [=======]    [====]
    dealt    [ssss]   [ss]      [sss|iii|    remainder
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpudiag.analyze.comm.kinds import SYNCHRONISING
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.records import Record
from gpudiag.analyze.comm.split import RankSplit
from gpudiag.analyze.idle import IMBALANCE, SCHEDULE, IdleSplit
from gpudiag.analyze.intervals import (
    EMPTY,
    Intervals,
    Pieces,
    as_pieces,
    difference,
    intersect,
    merge,
    overlap,
    subtract,
    sum_by_owner,
    union,
    union_all,
)
from gpudiag.analyze.pipeline.chain import is_message
from gpudiag.analyze.window import Window
from gpudiag.model.tables import I64


def flushes(
    rank: int, ranks: Sequence[int], records: Sequence[Record], mine: Mapping[int, Matched]
) -> set[int]:
    """Return the first collective after each step's last message that several stages take part in.

    Args:
        rank: whose messages.
        ranks: the pipeline's ranks.
        records: the rank's collectives.
        mine: the rank's matched collectives, by index.
    """
    launches: dict[int, int] = {}
    for record in records:
        if is_message(record) and record.step is not None:
            launches[record.step] = max(launches.get(record.step, 0), record.launched)
    found: dict[int, tuple[int, int]] = {}
    for index, one in mine.items():
        step, launched = one.records[rank].step, one.records[rank].launched
        if (
            one.kind not in SYNCHRONISING
            or step is None
            or launched < launches.get(step, launched + 1)
        ):
            continue
        if len(set(ranks) & set(one.records)) > 1:
            found[step] = min(found.get(step, (launched, index)), (launched, index))
    return {index for _, index in found.values()}


def pool_of(
    split: RankSplit, idle: Intervals, records: Sequence[Record], waited_for: set[int]
) -> Intervals:
    """Return a rank's pool: ``waited_for`` are its matched messages and flush barriers."""
    starts = np.array([r.start for r in records if is_message(r)], dtype=np.int64)
    ends = np.array([r.end for r in records if is_message(r)], dtype=np.int64)
    owners = np.array(sorted(waited_for), dtype=np.int64)
    waits = _owned_by(split.waits, owners)
    messages = overlap(union_all((split.transfer, split.unsplit)), union(starts, ends))
    others = difference(_set(split.transfer), _set(_owned_by(split.transfer, owners)))
    after = np.isin(idle.starts, ends)
    gaps = Intervals(idle.starts[after], idle.ends[after])
    return merge(union_all((waits, difference(messages, others))), gaps)


def _owned_by(pieces: Pieces, owners: I64) -> Pieces:
    keep = np.isin(pieces.owner, owners)
    return Pieces(pieces.starts[keep], pieces.ends[keep], pieces.owner[keep])


def _set(pieces: Pieces) -> Intervals:
    return union(pieces.starts, pieces.ends)


def dealt(
    pool: Intervals, window: Window, schedule_ns: int, imbalance_ns: int
) -> tuple[Intervals, Intervals]:
    """Return the schedule's and the imbalance's part of a pool, so much in each step at most."""
    edges = np.array(window.edges, dtype=np.int64)
    if len(edges) < 2:  # noqa: PLR2004 - no step
        return EMPTY, EMPTY
    steps = as_pieces(Intervals(edges[:-1], edges[1:]))
    pieces = intersect(steps, pool)
    spent = np.cumsum(pieces.lengths) - pieces.lengths
    first = np.searchsorted(pieces.owner, pieces.owner, side="left")
    before = spent - spent[first] if len(pieces) else spent
    cut = np.clip(schedule_ns - before, 0, pieces.lengths)
    until = np.clip(schedule_ns + imbalance_ns - before, 0, pieces.lengths)
    return (
        union(pieces.starts, pieces.starts + cut),
        union(pieces.starts + cut, pieces.starts + until),
    )


def without(split: RankSplit, schedule: Intervals, imbalance: Intervals) -> RankSplit:
    """Return a split less what went to the pipeline, which it holds beside."""
    taken = merge(schedule, imbalance)
    waits, transfer = subtract(split.waits, taken), subtract(split.transfer, taken)
    whole = union_all((split.waits, split.transfer, split.unsplit))
    return split.with_pieces(
        waits=waits,
        transfer=transfer,
        unsplit=difference(split.unsplit, taken),
        schedule=overlap(whole, schedule),
        imbalance=overlap(whole, imbalance),
    )


def idle_without(idle: IdleSplit, schedule: Intervals, imbalance: Intervals) -> IdleSplit:
    """Move what went to the pipeline out of the causes of gaps, instant by instant."""
    charged = idle.charged.copy()
    gaps = as_pieces(Intervals(idle.starts, idle.ends))
    pieces = list(idle.pieces)
    for cause, taken in ((SCHEDULE, schedule), (IMBALANCE, imbalance)):
        moved = sum_by_owner(intersect(gaps, taken), len(gaps))
        rest = moved.copy()
        kept = []
        for one in pieces:
            gone = sum_by_owner(intersect(one.pieces, taken), len(gaps))
            charged[:, one.cause] -= gone
            rest -= gone
            left = one.without(taken)
            if len(left.pieces):
                kept.append(left)
        pieces = kept
        _take_from_device(idle, charged, rest)
        charged[:, cause] += moved
    return idle.recharged(charged, tuple(pieces))


def _take_from_device(idle: IdleSplit, charged: I64, rest: I64) -> None:
    """Take what lies in no host thread's piece from the cause that holds a gap's end."""
    for gap in np.flatnonzero(rest).tolist():
        cause = next(c for c in idle.device_causes if charged[gap, c] >= rest[gap])
        charged[gap, cause] -= rest[gap]
