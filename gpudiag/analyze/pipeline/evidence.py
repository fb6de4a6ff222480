"""Why a finding about a pipeline is believed: its stages, its schedule, what another would give."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

from gpudiag.analyze.losses import BUBBLE, UNEVEN
from gpudiag.analyze.pipeline.chain import ASSUMED, GIVEN
from gpudiag.analyze.pipeline.results import slowest, structural_share
from gpudiag.analyze.pipeline.schedules import GPIPE, INTERLEAVED, ONE_F_ONE_B, StageTimes, simulate
from gpudiag.model import format as fmt

if TYPE_CHECKING:
    from gpudiag.analyze.pipeline.job import Pipeline, Pipelines

_NAMES = {GPIPE: "GPipe", ONE_F_ONE_B: "1F1B", INTERLEAVED: "interleaved 1F1B"}
_BASIS = {
    GIVEN: "as given",
    ASSUMED: "assumed: the messages fit GPipe as well, or neither",
}
_CLOSED_FORMS = {
    GPIPE: ("(p - 1)/(m + p - 1)", "(p - 1)/m"),
    ONE_F_ONE_B: ("(p - 1)/(m + p - 1)", "(p - 1)/m"),
    INTERLEAVED: ("(p - 1)/(vm + p - 1)", "(p - 1)/(vm)"),
}


def pipeline_evidence(finding: str, piped: Pipelines) -> list[str]:
    """Return the sentences for a finding about the job's pipelines; none for any other."""
    if finding == BUBBLE:
        return _bubble(piped.found[0])
    one = slowest(piped.found) if finding == UNEVEN else None
    return _imbalance(one) if one else []


def _bubble(one: Pipeline) -> list[str]:
    chain = one.chain
    wall = structural_share(one)
    forms = _CLOSED_FORMS.get(chain.schedule, ("simulated", "simulated"))
    basis = _BASIS.get(chain.basis, "inferred from the order of sends and receives")
    chunked = f" × {chain.chunks} chunks" if chain.chunks > 1 else ""
    name = _NAMES.get(chain.schedule, chain.schedule.upper())
    return [
        f"{len(chain.ranks)} stages{chunked}, {chain.microbatches} micro-batches, {name} ({basis})",
        _shares(wall, *forms),
        *_more_microbatches(one),
    ]


def _shares(wall: float, of_wall: str, of_useful: str) -> str:
    useful = fmt.share(wall / (1 - wall)) if wall < 1 else "all"
    return (
        f"equal stages would idle {fmt.share(wall)} of the schedule's wall time, {of_wall}; "
        f"that is {useful} of their useful time, {of_useful}"
    )


def _more_microbatches(one: Pipeline) -> list[str]:
    """Say what twice the micro-batches, each half as large, would give."""
    times = [stage.times for stage in one.stages]
    mean = StageTimes(
        round(fmean(t.forward_ns for t in times) / 2),
        round(fmean(t.backward_ns for t in times) / 2),
    )
    chain, count = one.chain, 2 * one.chain.microbatches
    halved = simulate(chain.schedule, [mean] * len(times), count, chain.chunks)
    if halved is None:
        return []
    saved = fmt.duration(one.level.length_ns - halved.length_ns)
    share = fmt.share(fmean(halved.idle_ns) / halved.length_ns)
    text = f"{count} micro-batches of half the size: {share} of wall time, {saved} a step less, "
    return [text + "as long as kernels keep their speed at that size"]


def _imbalance(one: Pipeline) -> list[str]:
    stage = one.slow_stage
    assert stage is not None  # noqa: S101 - slowest() says so
    totals = [chunks.times.total_ns * one.chain.chunks for chunks in one.stages]
    others = round(median(totals[:stage] + totals[stage + 1 :]))
    more = fmt.duration(totals[stage] - others)
    length, level = fmt.duration(one.measured.length_ns), fmt.duration(one.level.length_ns)
    samples = min(chunks.samples for chunks in one.stages)
    slow = (
        f"stage {stage} (rank {one.chain.ranks[stage]}) takes {fmt.duration(totals[stage])} a "
        f"micro-batch, forward and backward, the other stages {fmt.duration(others)} (median): "
        f"{more} more; medians of at least {samples} chunks a stage"
    )
    lighter = (
        f"lighten stage {stage} by {fmt.duration(one.lighten_ns)} a micro-batch and give that to "
        f"the others: the simulated step shrinks from {length} to {level}"
    )
    return [slow, lighter]
