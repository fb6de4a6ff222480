"""Communication of a whole job: records, clocks, splits and blame of all ranks together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudiag.analyze.comm.blame import Blame, Blamer
from gpudiag.analyze.comm.clock import Clocks, align
from gpudiag.analyze.comm.kinds import POINT_TO_POINT
from gpudiag.analyze.comm.match import Matched, Matching, match
from gpudiag.analyze.comm.records import GroupKey
from gpudiag.analyze.comm.roles import Role, roles_of
from gpudiag.analyze.comm.split import Arrivals, RankSplit, arrivals, split_rank
from gpudiag.analyze.comm.timeline import Timeline
from gpudiag.analyze.comm.transfer import Transfer, transfers
from gpudiag.analyze.pipeline.delays import Delays, excess_by_step
from gpudiag.analyze.pipeline.job import Pipelines, pipelines, window_of
from gpudiag.analyze.pipeline.pool import without
from gpudiag.analyze.rank import RankAnalysis
from gpudiag.model.tables import Quality

_ANY_MACHINE = "localhost"  # says nothing of which one it is


@dataclass(frozen=True, slots=True)
class Communication:
    """What the ranks of a job show about each other."""

    matching: Matching
    clocks: Clocks
    arrived: Mapping[int, Arrivals]
    splits: Mapping[int, RankSplit]  # by rank
    blame: Blame
    quality: list[Quality]
    transfer: Transfer
    roles: Mapping[GroupKey, Role]
    pipelines: Pipelines

    @property
    def matched(self) -> list[Matched]:
        """The collectives that were found on several ranks."""
        return self.matching.matched


def communication(
    ranks: Sequence[RankAnalysis], schedule: tuple[str, int | None] | None = None
) -> Communication | None:
    """Match, align, split and blame; None where there is nobody to compare with.

    ``schedule`` is a pipeline's, and its chunks a stage, where the user gave them.

    A rank with several devices keeps its communication unsplit: its file doesn't tell which of
    them a collective of the others meets.
    """
    able = [rank for rank in ranks if len(rank.devices) == 1 or not rank.recorded]
    records = {rank.rank: mine for rank in able if (mine := rank.messages.records)}
    if len(records) < 2:  # noqa: PLR2004 - nobody to compare with
        return None
    matching = match(records)
    clocks = align(matching.matched, sorted(records), _machines(able))
    arrived = {
        index: found
        for index, one in enumerate(matching.matched)
        if (found := arrivals(one, clocks)) is not None
    }
    by_rank = {rank.rank: rank for rank in able if rank.rank in records}
    splits = {
        number: split_rank(number, rank.messages.exposed, matching.matched, arrived, clocks)
        for number, rank in by_rank.items()
    }
    timelines = {
        number: line for number, rank in by_rank.items() if (line := rank.messages.timeline)
    }
    piped = pipelines(by_rank, records, matching.matched, splits, schedule)
    for number, part in piped.dealt.items():
        splits[number] = without(splits[number], part.schedule, part.imbalance)
    delays = _delays(piped, by_rank, timelines)
    blame = Blamer(matching.matched, arrived, clocks, timelines, splits, delays).blame()
    quality = [*_quality(matching, clocks), *piped.quality]
    transfer = transfers(matching.matched, arrived, clocks, splits)
    roles = roles_of(matching.matched)
    return Communication(matching, clocks, arrived, splits, blame, quality, transfer, roles, piped)


def _machines(ranks: Sequence[RankAnalysis]) -> dict[int, str]:
    """Return the machine of each rank that only the host's records tell of."""
    return {
        rank.rank: rank.host_name
        for rank in ranks
        if not rank.recorded and rank.host_name and rank.host_name != _ANY_MACHINE
    }


def lone_messages(ranks: Sequence[RankAnalysis]) -> list[Quality]:
    """Say of ranks that nobody can be compared with that their pipeline isn't told."""
    lone = sorted(
        rank.rank
        for rank in ranks
        if any(one.kind in POINT_TO_POINT for one in rank.messages.records)
    )
    if not lone:
        return []
    message = (
        f"rank {lone[0]} sends and receives, and no other rank of its pipeline is here: its bubble "
        "isn't told from stragglers or transfer"
    )
    return [Quality("pipeline_unclear", "warning", len(lone), message)]


def _delays(
    piped: Pipelines, ranks: Mapping[int, RankAnalysis], timelines: Mapping[int, Timeline]
) -> Delays:
    """Return what the stages of the pipelines spent more in each step than they usually do."""
    chains = {rank: one.chain.ranks for one in piped.found for rank in one.chain.ranks}
    windows = {rank: window for rank in chains if (window := window_of(ranks[rank]))}
    return Delays(
        chains=chains,
        owners={rank: part.owners for rank, part in piped.dealt.items()},
        edges={rank: window.edges for rank, window in windows.items()},
        excess={rank: excess_by_step(timelines[rank], one) for rank, one in windows.items()},
        unclear=piped.piped - set(chains),
    )


def _quality(matching: Matching, clocks: Clocks) -> list[Quality]:
    quality = [
        Quality("collectives_unmatched", "warning", n, f"{n} collectives not matched: {why}")
        for why, n in sorted(matching.unmatched.items())
    ]
    if clocks.unreached:
        message = f"clocks of ranks {list(clocks.unreached)} can't be aligned: no common collective"
        quality.append(Quality("clock_unreached", "warning", len(clocks.unreached), message))
    if clocks.inconsistent:
        message = (
            f"no clock offset fits all collectives of the rank pairs {list(clocks.inconsistent)}"
        )
        quality.append(Quality("clock_inconsistent", "warning", len(clocks.inconsistent), message))
    missing = Counter(rank for one in matching.matched for rank in one.missing)
    if missing:
        message = (
            f"{len(missing)} members of the groups have no trace: a wait may be for one of them"
        )
        quality.append(Quality("members_missing", "warning", len(missing), message))
    return quality


def last_counts(found: Communication, indices: Sequence[int]) -> dict[str, int]:
    """Return how often each rank was resolvably last in some collectives."""
    counts: dict[str, int] = defaultdict(int)
    for index in indices:
        one = found.arrived.get(index)
        if one and one.resolvable:
            counts[str(one.last_rank)] += 1
    return dict(counts)
