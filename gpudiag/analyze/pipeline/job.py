"""The pipelines of a job: stage times, the simulated step, what each rank's pool went to.

Per rank and step: pipeline.schedule = min(pool, idle of the schedule with equal stages), and
pipeline.imbalance = min(rest, idle with the measured stages - that). See pool.py, schedules.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpudiag.analyze.comm.kinds import POINT_TO_POINT
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.records import Record
from gpudiag.analyze.comm.split import RankSplit
from gpudiag.analyze.intervals import EMPTY, Intervals, difference
from gpudiag.analyze.pipeline.chain import (
    Chain,
    find_chains,
    is_message,
    may_be_stages,
    of_stages,
)
from gpudiag.analyze.pipeline.chunks import RankChunks, StageChunks, stage_chunks
from gpudiag.analyze.pipeline.pool import dealt, flushes, idle_without, pool_of
from gpudiag.analyze.pipeline.schedules import Simulated, StageTimes, equalised, simulate
from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis
from gpudiag.analyze.window import Window
from gpudiag.model import thresholds
from gpudiag.model.tables import Quality


@dataclass(frozen=True, slots=True)
class Dealt:
    """One rank's pool, and the parts of it that are the schedule's and the imbalance's."""

    pool: Intervals
    schedule: Intervals
    imbalance: Intervals
    owners: frozenset[int]  # matched collectives whose waits are the pipeline's


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline with its simulated steps; stages in order."""

    chain: Chain
    stages: tuple[StageChunks, ...]
    level: Simulated  # all stages equal
    measured: Simulated
    dealt: Mapping[int, Dealt]  # by rank

    @property
    def slow_stage(self) -> int | None:
        """The stage that works longest, where it is longer than the mean by more than chance."""
        totals = [one.times.total_ns for one in self.stages]
        stage = totals.index(max(totals))
        mean = sum(totals) / len(totals)
        sure = thresholds.SURE_ERRORS * max(one.uncertainty_ns for one in self.stages)
        more = totals[stage] - mean
        return stage if more > max(thresholds.UNEVEN_FRAC * mean, sure) else None

    @property
    def slow_rank(self) -> int | None:
        """The slow stage's rank."""
        return None if self.slow_stage is None else self.chain.ranks[self.slow_stage]

    @property
    def gain_ns(self) -> int:
        """What a step would be shorter with equal stages, ns."""
        return max(self.measured.length_ns - self.level.length_ns, 0)

    @property
    def lighten_ns(self) -> int:
        """What the slow stage's micro-batch takes more than the mean stage's, ns."""
        stage = self.slow_stage
        if stage is None:
            return 0
        totals = [one.times.total_ns for one in self.stages]
        return (totals[stage] - round(sum(totals) / len(totals))) * self.chain.chunks


@dataclass(frozen=True, slots=True)
class Pipelines:
    """The pipelines found, the ranks that send and receive without one, and why."""

    found: tuple[Pipeline, ...]
    piped: frozenset[int]  # every rank with messages
    quality: list[Quality]

    @property
    def dealt(self) -> dict[int, Dealt]:
        """What each rank's pool went to."""
        return {rank: one for pipeline in self.found for rank, one in pipeline.dealt.items()}


def pipelines(
    ranks: Mapping[int, RankAnalysis],
    records: Mapping[int, Sequence[Record]],
    matched: Sequence[Matched],
    splits: Mapping[int, RankSplit],
    given: tuple[str, int | None] | None,
) -> Pipelines:
    """Find the pipelines of a job and deal out what their ranks wait for their messages."""
    staged = {number: of_stages(mine) for number, mine in records.items()}
    piped = frozenset(number for number, mine in staged.items() if mine)
    unnamed = sorted(
        number
        for number, mine in records.items()
        if any(one.kind in POINT_TO_POINT and may_be_stages(one) for one in mine)
        and number not in piped
    )
    chunks = {
        number: cut
        for number in sorted(piped)
        if window_of(ranks[number]) is not None
        and (cut := ranks[number].messages.chunks) is not None
        and cut.messages
    }
    chains = find_chains({number: one.messages for number, one in chunks.items()}, given)
    of_rank: dict[int, dict[int, Matched]] = defaultdict(dict)
    for index, collective in enumerate(matched):
        for number in collective.records:
            of_rank[number][index] = collective
    found: list[Pipeline] = []
    refused = list(chains.refused)
    for chain in chains.whole:
        one = _simulated(chain, chunks)
        if one is None:
            refused.append(
                f"no step of {chain.schedule} fits the times of ranks {list(chain.ranks)}"
            )
        else:
            found.append(_dealt(one, ranks, staged, of_rank, splits))
    if piped and not chunks:
        refused.append("the messages lie in no recorded step")
    if unnamed:
        refused.append(f"sends and receives of ranks {unnamed} name no peer")
    return Pipelines(tuple(found), piped | set(unnamed), _quality(refused, len(piped)))


def window_of(rank: RankAnalysis) -> Window | None:
    """Return the window of a rank's device, else of its training thread."""
    return rank.devices[0].window if rank.devices else rank.host_window


def _simulated(chain: Chain, chunks: Mapping[int, RankChunks]) -> Pipeline | None:
    stages = [stage_chunks(chain, stage, chunks[rank]) for stage, rank in enumerate(chain.ranks)]
    known = [one for one in stages if one is not None]
    if len(known) < len(stages):
        return None
    times: list[StageTimes] = [one.times for one in known]
    m, v = chain.microbatches, chain.chunks
    level = simulate(chain.schedule, equalised(times), m, v)
    measured = simulate(chain.schedule, times, m, v)
    if level is None or measured is None:
        return None
    return Pipeline(chain, tuple(known), level, measured, {})


def _dealt(
    pipeline: Pipeline,
    ranks: Mapping[int, RankAnalysis],
    records: Mapping[int, Sequence[Record]],
    matched: Mapping[int, Mapping[int, Matched]],
    splits: Mapping[int, RankSplit],
) -> Pipeline:
    """Deal out the pool of every rank of a pipeline."""
    chain, parts = pipeline.chain, {}
    for stage, number in enumerate(chain.ranks):
        rank, window = ranks[number], window_of(ranks[number])
        if window is None:
            continue
        mine = matched[number]
        messages = {index for index, one in mine.items() if is_message(one.records[number])}
        owners = messages | flushes(number, chain.ranks, records[number], mine)
        idle = rank.devices[0].partition.idle if rank.devices else EMPTY
        pool = pool_of(splits[number], idle, records[number], owners)
        if not rank.devices:
            pool = difference(pool, rank.messages.operators)
        by_schedule = pipeline.level.idle_ns[stage]
        more = max(pipeline.measured.idle_ns[stage] - by_schedule, 0)
        schedule, imbalance = dealt(pool, window, by_schedule, more)
        parts[number] = Dealt(pool, schedule, imbalance, frozenset(owners))
    return replace(pipeline, dealt=parts)


def _quality(refused: Sequence[str], piped: int) -> list[Quality]:
    if not refused:
        return []
    message = (
        f"no pipeline is told from the schedule's side: {'; '.join(dict.fromkeys(refused))}; "
        "waits for its messages are charged to nobody"
    )
    return [Quality("pipeline_unclear", "warning", max(piped, 1), message)]


def with_pipelines(ranks: Sequence[RankAnalysis], found: Pipelines | None) -> list[RankAnalysis]:
    """Return the ranks with the gaps that are a pipeline's own charged to it."""
    parts = found.dealt if found else {}
    return [
        replace(rank, devices=[_with_idle(rank, parts[rank.rank])])
        if rank.rank in parts and rank.devices
        else rank
        for rank in ranks
    ]


def _with_idle(rank: RankAnalysis, part: Dealt) -> DeviceAnalysis:
    (device,) = rank.devices
    return replace(device, idle=idle_without(device.idle, part.schedule, part.imbalance))
