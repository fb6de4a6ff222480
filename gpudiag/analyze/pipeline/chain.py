"""Pipelines recognised by their sends and receives: stages, micro-batches, chunks, schedule.

In every step the first stage's first message is a send, every other stage's a receive. From there
each stage's first send goes to the next one::

    stage 0   send ------> 1
    stage 1   recv, send ------> 2
    stage 2         recv, send ------> 1     sends back: the last
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from gpudiag.analyze.comm.kinds import POINT_TO_POINT, Kind
from gpudiag.analyze.comm.records import Record
from gpudiag.analyze.comm.roles import described_role
from gpudiag.analyze.pipeline.schedules import GPIPE, INTERLEAVED, ONE_F_ONE_B

# How the schedule is known.
GIVEN, INFERRED, ASSUMED = "given", "inferred", "assumed"
_TWO = 2


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of a rank that no work lies between: sent and received as one."""

    at: int  # first launch, the rank's host clock
    until: int  # last launch
    sends: frozenset[int]  # peers
    receives: frozenset[int]


@dataclass(frozen=True, slots=True)
class Chain:
    """One pipeline: its ranks by stage, and what a step of it consists of."""

    ranks: tuple[int, ...]
    microbatches: int
    chunks: int
    schedule: str
    basis: str

    def next_of(self, stage: int) -> int | None:
        """Return the rank that a stage's forward goes to; around the ring where chunks do."""
        if stage + 1 < len(self.ranks):
            return self.ranks[stage + 1]
        return self.ranks[0] if self.chunks > 1 else None

    def previous_of(self, stage: int) -> int | None:
        """Return the rank that a stage's forward comes from."""
        return self.ranks[stage - 1] if stage or self.chunks > 1 else None


@dataclass(frozen=True, slots=True)
class Chains:
    """The pipelines of a job, and why there are no more of them."""

    whole: list[Chain]
    refused: list[str]


Steps = Mapping[int, Sequence[Messages]]  # by step number


def may_be_stages(record: Record) -> bool:
    """Tell whether a message may go from stage to stage, for all that its group says."""
    role = described_role(record.group) if record.group else None
    return role in (None, "pp")


def of_stages(records: Sequence[Record]) -> list[Record]:
    """Return collectives without messages of another use, such as context parallelism's ring."""
    mine = [one for one in records if one.kind not in POINT_TO_POINT or may_be_stages(one)]
    return mine if any(is_message(one) for one in mine) else []


def is_message(record: Record) -> bool:
    """Tell a send or receive whose peer is known."""
    return record.kind in (Kind.SEND, Kind.RECV) and record.peer is not None


def find_chains(messages: Mapping[int, Steps], given: tuple[str, int | None] | None) -> Chains:
    """Return the pipelines that have all of their ranks here; ``messages`` are by rank."""
    following = {rank: _first_peers(steps) for rank, steps in messages.items()}
    heads = sorted(rank for rank, (sends_first, _) in following.items() if sends_first)
    whole: list[Chain] = []
    refused: list[str] = []
    seen: set[int] = set()
    for head in heads:
        ranks = _walk(head, following)
        seen.update(ranks)
        absent = [rank for rank in ranks if rank not in messages]
        if absent:
            refused.append(f"rank {absent[0]} of the pipeline of rank {head} has no trace")
            continue
        chain = _described(ranks, messages, given) if len(ranks) >= _TWO else None
        if chain is None:
            refused.append(f"the messages of ranks {list(ranks)} fit no known schedule")
        else:
            whole.append(chain)
    shared = len(seen) != sum(len(chain.ranks) for chain in whole) and not refused
    if shared:
        return Chains([], ["the same rank is a stage of several pipelines"])
    lost = sorted(set(messages) - seen)
    if lost:
        refused.append(f"no first stage sends to ranks {lost}")
    return Chains(whole, refused)


def _first_peers(steps: Steps) -> tuple[bool, int | None]:
    """Return whether a rank begins its steps with a send, and whom it sends to first."""
    begins = [bool(mine[0].sends) and not mine[0].receives for mine in steps.values()]
    firsts = [min(one.sends) for mine in steps.values() for one in _first_send(mine)]
    return sum(begins) * 2 > len(begins), median_low(firsts) if firsts else None


def _first_send(mine: Sequence[Messages]) -> list[Messages]:
    return [one for one in mine if one.sends][:1]


def _walk(head: int, following: Mapping[int, tuple[bool, int | None]]) -> tuple[int, ...]:
    """Follow first sends until one goes back to a rank that is already in the chain."""
    ranks = [head]
    while ranks[-1] in following:
        onward = following[ranks[-1]][1]
        if onward is None or onward in ranks:
            break
        ranks.append(onward)
    return tuple(ranks)


def _described(
    ranks: tuple[int, ...],
    messages: Mapping[int, Steps],
    given: tuple[str, int | None] | None,
) -> Chain | None:
    """Count micro-batches and chunks, and name the schedule; None where the counts don't fit."""
    common = set.intersection(*(set(messages[rank]) for rank in ranks))
    if not common:
        return None
    first = [messages[ranks[0]][step] for step in sorted(common)]
    last = [messages[ranks[-1]][step] for step in sorted(common)]
    forwards = median_low([_count(mine, ranks[1]) for mine in first])
    around = median_low([_count(mine, ranks[0]) for mine in last]) if len(ranks) > _TWO else 0
    microbatches = forwards - around
    if given and given[0] == INTERLEAVED and len(ranks) == _TWO:
        # Between two ranks both directions look alike: m(2v - 1) messages.
        microbatches = forwards // (2 * (given[1] or _TWO) - 1)
        forwards = microbatches * (given[1] or _TWO)
    if microbatches <= 0 or forwards % microbatches:
        return None
    chunks = forwards // microbatches
    chain = Chain(ranks, microbatches, chunks, ONE_F_ONE_B, ASSUMED)
    if given:
        return replace(chain, schedule=given[0], basis=GIVEN)
    if chunks > 1:
        return replace(chain, schedule=INTERLEAVED, basis=INFERRED)
    seen = _pattern(len(ranks), microbatches, first, last)
    return replace(chain, schedule=seen, basis=INFERRED) if seen else chain


def _count(mine: Sequence[Messages], peer: int) -> int:
    return sum(peer in one.sends for one in mine)


def _pattern(
    stages: int,
    microbatches: int,
    first: Sequence[Sequence[Messages]],
    last: Sequence[Sequence[Messages]],
) -> str | None:
    """Tell GPipe from 1F1B by what the first stage sends, and the last receives, ahead.

    With no more micro-batches than stages the first stage sends all of them ahead either way.
    """
    ahead = median_low([_before(mine, receives=True) for mine in first])
    taken = median_low([_before(mine, receives=False) for mine in last])
    if microbatches > stages and ahead in (stages, microbatches):
        return GPIPE if ahead == microbatches else ONE_F_ONE_B
    if microbatches > 1 and taken in (1, microbatches):
        return GPIPE if taken == microbatches else ONE_F_ONE_B
    return None


def _before(mine: Sequence[Messages], *, receives: bool) -> int:
    """Return how many messages of one direction come before the first of the other.

    A send and a receive issued together count as sent first: the send is of what was computed.
    """
    count = 0
    for one in mine:
        own, other = (one.sends, one.receives) if receives else (one.receives, one.sends)
        if other and not (receives and own):
            break
        count += bool(own)
        if other:
            break
    return count


def grouped(
    records: Sequence[Record], work: Sequence[int], least: int
) -> tuple[list[Messages], list[int]]:
    """Join messages with less than ``least`` ns of work between them.

    Args:
        records: one step's messages in launch order, n of them.
        work: work before each and after the last, ns; n + 1 numbers.
        least: the least that counts as work, ns.

    Returns:
        the joined messages, and the work before each and after the last.
    """
    groups: list[list[Record]] = []
    kept: list[int] = []
    for record, before in zip(records, work, strict=False):
        if groups and before < least:
            groups[-1].append(record)
        else:
            groups.append([record])
            kept.append(before)
    return [_joined(group) for group in groups], [*kept, work[-1]]


def _joined(group: Sequence[Record]) -> Messages:
    peers: dict[Kind, set[int]] = defaultdict(set)
    for record in group:
        if record.peer is not None:
            peers[record.kind].add(record.peer)
    return Messages(
        group[0].launched,
        group[-1].launched,
        frozenset(peers[Kind.SEND]),
        frozenset(peers[Kind.RECV]),
    )
