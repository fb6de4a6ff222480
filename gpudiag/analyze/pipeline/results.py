"""A job's pipelines as the result that reports and `--json` show."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gpudiag.analyze.pipeline.job import Pipeline, Pipelines
from gpudiag.model.analysis import PipelineResult, StageRow


def pipeline_result(piped: Pipelines | None) -> PipelineResult | None:
    """Return the pipelines as one: counts of the first, shares of all; None without any."""
    if piped is None or not piped.found:
        return None
    first = piped.found[0].chain
    slow = slowest(piped.found)
    measured = sum(one.measured.length_ns for one in piped.found)
    return PipelineResult(
        p=len(first.ranks),
        m=first.microbatches,
        schedule=first.schedule,
        schedule_basis=first.basis,
        chunks=first.chunks,
        pipelines=len(piped.found),
        structural_share=fmean(structural_share(one) for one in piped.found),
        structural_share_of_useful=fmean(_of_useful(one) for one in piped.found),
        imbalance_share=sum(one.gain_ns for one in piped.found) / measured if measured else 0.0,
        slow_stage=slow.slow_stage if slow else None,
        slow_rank=slow.slow_rank if slow else None,
        lighten_ns=slow.lighten_ns if slow else None,
        gain_ns_per_step=slow.gain_ns if slow else None,
        stages=[row for one in piped.found for row in _rows(one)],
    )


def structural_share(pipeline: Pipeline) -> float:
    """Return the part of a step's wall time that stages of equal times idle."""
    length = pipeline.level.length_ns
    return fmean(pipeline.level.idle_ns) / length if length else 0.0


def _of_useful(pipeline: Pipeline) -> float:
    share = structural_share(pipeline)
    return share / (1 - share) if share < 1 else 0.0


def slowest(found: Sequence[Pipeline]) -> Pipeline | None:
    """Return the pipeline that would gain most by lightening its slow stage; None without one."""
    uneven = [one for one in found if one.slow_stage is not None and one.gain_ns]
    return max(uneven, key=lambda one: one.gain_ns, default=None)


def _rows(pipeline: Pipeline) -> list[StageRow]:
    rows = []
    for stage, (rank, chunks) in enumerate(zip(pipeline.chain.ranks, pipeline.stages, strict=True)):
        part = pipeline.dealt.get(rank)
        rows.append(
            StageRow(
                stage=stage,
                rank=rank,
                forward_ns=chunks.times.forward_ns,
                backward_ns=chunks.times.backward_ns,
                samples=chunks.samples,
                pool_ns=part.pool.total if part else 0,
                schedule_ns=part.schedule.total if part else 0,
                imbalance_ns=part.imbalance.total if part else 0,
            )
        )
    return rows
