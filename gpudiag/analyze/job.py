"""The reduce: all ranks of a job to one analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median_low
from typing import TYPE_CHECKING

from gpudiag import __version__
from gpudiag.analyze.comm.causes import STRAGGLER
from gpudiag.analyze.comm.job import communication, lone_messages
from gpudiag.analyze.comm.results import blame_rows, clock_of, ring_and_tree, wait_matrix_of
from gpudiag.analyze.comm.roles import parallelism
from gpudiag.analyze.comm.shared import culprit_changes
from gpudiag.analyze.comm.table import collective_table
from gpudiag.analyze.efficiency import efficiency_findings
from gpudiag.analyze.findings import find, of_all, ranked
from gpudiag.analyze.gaps import (
    LONGEST_GAPS,
    gap_causes,
    longest_gaps,
    merge_causes,
)
from gpudiag.analyze.headline import headline
from gpudiag.analyze.job_mfu import JobMfu, job_mfu
from gpudiag.analyze.kernels import kernel_table
from gpudiag.analyze.losses import Scope, scope_of
from gpudiag.analyze.mfu import CONVENTION, mean_waterfall
from gpudiag.analyze.peak import Peak, used
from gpudiag.analyze.pipeline.job import with_pipelines
from gpudiag.analyze.pipeline.results import pipeline_result
from gpudiag.analyze.rank import (
    Options,
    RankAnalysis,
    analyze_rank,
    prepare,
    step_numbers,
)
from gpudiag.analyze.results import results_of
from gpudiag.analyze.roofline import with_roofline
from gpudiag.model.analysis import Analysis, Gap, GapCause, Job, RankResult
from gpudiag.model.tables import Quality

if TYPE_CHECKING:
    from gpudiag.model.job import JobTraces


def analyze_job(job: JobTraces, options: Options | None = None) -> Analysis:
    """Account for every GPU-second of a job's windows (docs/concepts/accounting.md)."""
    options = options or Options()
    prepared = [prepare(rank, options) for rank in job.ranks]
    numbers, quality = common_steps([step_numbers(one) for one in prepared])
    ranks = [analyze_rank(one, numbers, options) for one in prepared]
    return compare_ranks(job, ranks, quality, options)


def compare_ranks(
    job: JobTraces, ranks: list[RankAnalysis], quality: list[Quality], options: Options
) -> Analysis:
    """Analyse a job from what is left of its ranks; their traces are not looked at any more.

    Args:
        job: its traces, with or without their rows.
        ranks: each rank, accounted for within the steps that all have.
        quality: what was found when those steps were told.
        options: as the ranks were analysed with.
    """
    found = communication(ranks, options.pipeline_schedule)
    ranks = with_pipelines(ranks, found.pipelines if found else None)
    scope = scope_of(ranks, found)
    gaps, causes = _gaps(ranks)
    mfu = job_mfu(ranks, options)
    kernels = with_roofline(kernel_table(ranks), ranks, mfu.peak)
    results = [result for rank in ranks for result in results_of(rank, mfu, found)]
    buckets = _sum(result.buckets_ns for result in results)
    host_buckets = _sum(rank.host_buckets_ns for rank in ranks)
    matrix = wait_matrix_of(found, ranks)
    shared = culprit_changes(matrix)
    findings = find(scope, causes, kernels, job.missing_ranks)
    findings = [of_all(one) if shared and one.id == STRAGGLER else one for one in findings]
    findings = ranked([*findings, *efficiency_findings(scope, mfu)])
    quality = [
        *job.quality,
        *quality,
        *(one for rank in ranks for one in rank.quality),
        *mfu.quality,
    ]
    quality += found.quality if found else lone_messages(ranks)
    return Analysis(
        gpudiag_version=__version__,
        inputs=job.inputs,
        job=replace(
            _job(job, scope, results, mfu), parallelism=parallelism(found.roles if found else {})
        ),
        clock=clock_of(found),
        ranks=results,
        job_buckets_ns=buckets,
        job_host_buckets_ns=host_buckets,
        waterfall=mean_waterfall(
            [(r.window_ns, r.waterfall) for r in results if r.window_ns and r.waterfall]
        ),
        collectives=collective_table(found, ranks) if found else [],
        wait_matrix_ns=matrix,
        waits_shared=shared if found else None,
        blame=blame_rows(found, ranks, causes),
        unattributed_wait_ns=found.blame.unattributed_ns if found else None,
        pipeline=pipeline_result(found.pipelines if found else None),
        ring_tree=ring_and_tree(found, ranks, job.world_size),
        kernels=kernels,
        gaps=gaps,
        gap_causes=causes,
        findings=findings,
        quality=quality,
        headline=headline(scope, findings, buckets, host_buckets, mfu.mfu),
    )


def common_steps(numbers: Sequence[set[int]]) -> tuple[set[int] | None, list[Quality]]:
    """Return the step numbers that all ranks with steps recorded; None for a single rank."""
    recorded = [one for one in numbers if one]
    if len(recorded) < 2:  # noqa: PLR2004 - one rank has nobody to agree with
        return None, []
    common = set.intersection(*recorded)
    if common:
        return common, []
    message = "no step number is recorded on all ranks; each rank has a window of its own"
    return None, [Quality("no_common_steps", "warning", len(recorded), message)]


def _gaps(ranks: list[RankAnalysis]) -> tuple[list[Gap], list[GapCause]]:
    gaps: list[Gap] = []
    causes: list[GapCause] = []
    for rank in ranks:
        for analysis in rank.devices:
            gaps += longest_gaps(rank, analysis)
            causes += gap_causes(rank, analysis)
    gaps.sort(key=lambda gap: (-gap.dur_ns, gap.rank, gap.device, gap.start_ns))
    return gaps[:LONGEST_GAPS], merge_causes(causes)


def _sum(parts: Iterable[dict[str, int] | None]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part or {})
    return dict(total)


def _job(job: JobTraces, scope: Scope, results: list[RankResult], mfu: JobMfu) -> Job:
    peak = mfu.peak if isinstance(mfu.peak, Peak) else None
    steps = [ns for result in results for ns in (result.steps_ns or result.host_steps_ns)]
    return Job(
        world_size=job.world_size,
        ranks=sorted({result.rank for result in results}),
        missing_ranks=job.missing_ranks,
        gpu_name=_gpu_name(scope),
        dtype=mfu.dtype,
        peak_tflops=peak.flops_per_s / 1e12 if peak else None,
        peak_source=peak.source if peak else None,
        mfu=mfu.mfu,
        hfu=mfu.hfu,
        flops_convention=CONVENTION if mfu.mfu is not None else None,
        step_ns_p50=median_low(steps) if steps else None,
    )


def _gpu_name(scope: Scope) -> str | None:
    """Return the name of the devices that ran work; several names are joined."""
    names = {info.name for rank in scope.ranks for info in used(rank)}
    return ", ".join(sorted(name for name in names if name)) or None
