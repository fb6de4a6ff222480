"""The reduce: all ranks of a job to one analysis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median_low
from typing import TYPE_CHECKING

from gpudiag import __version__
from gpudiag.analyze.findings import find
from gpudiag.analyze.gaps import (
    LONGEST_GAPS,
    GapContexts,
    gap_causes,
    longest_gaps,
    merge_causes,
)
from gpudiag.analyze.headline import headline
from gpudiag.analyze.kernels import kernel_table
from gpudiag.analyze.losses import Scope, scope_of
from gpudiag.analyze.rank import (
    DeviceAnalysis,
    Options,
    PreparedRank,
    RankAnalysis,
    analyze_rank,
    prepare,
    step_numbers,
)
from gpudiag.model.analysis import Analysis, Clock, Gap, GapCause, Job, RankResult
from gpudiag.model.tables import Quality

if TYPE_CHECKING:
    from gpudiag.model.job import JobTraces


def analyze_job(job: JobTraces, options: Options | None = None) -> Analysis:
    """Account for every GPU-second of a job's windows (docs/concepts/accounting.md)."""
    options = options or Options()
    prepared = [prepare(rank, options) for rank in job.ranks]
    numbers, quality = common_steps(prepared)
    ranks = [analyze_rank(one, numbers, options) for one in prepared]
    scope = scope_of(ranks)
    gaps, causes = _gaps(ranks)
    kernels = kernel_table(ranks)
    results = [result for rank in ranks for result in _results(rank)]
    buckets = _sum(result.buckets_ns for result in results)
    host_buckets = _sum(rank.host_buckets_ns for rank in ranks)
    findings = find(scope, causes, kernels, job.missing_ranks)
    quality = [*job.quality, *quality, *_rank_quality(ranks)]
    return Analysis(
        gpudiag_version=__version__,
        inputs=job.inputs,
        job=_job(job, scope, results),
        clock=Clock(),
        ranks=results,
        job_buckets_ns=buckets,
        job_host_buckets_ns=host_buckets,
        kernels=kernels,
        gaps=gaps,
        gap_causes=causes,
        findings=findings,
        quality=quality,
        headline=headline(scope, findings, buckets, host_buckets),
    )


def common_steps(prepared: list[PreparedRank]) -> tuple[set[int] | None, list[Quality]]:
    """Return the step numbers that all ranks with steps recorded; None for a single rank."""
    recorded = [numbers for one in prepared if (numbers := step_numbers(one))]
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
            contexts = GapContexts(rank, analysis)
            gaps += longest_gaps(rank, analysis, contexts)
            causes += gap_causes(rank, analysis, contexts)
    gaps.sort(key=lambda gap: (-gap.dur_ns, gap.rank, gap.device, gap.start_ns))
    return gaps[:LONGEST_GAPS], merge_causes(causes)


def _results(rank: RankAnalysis) -> list[RankResult]:
    """Return a result per device; one without device where none was accounted for.

    The host view belongs to the rank: it stands on the first of its results.
    """
    if not rank.devices:
        return [_result(rank, None, with_host=True)]
    return [
        _result(rank, analysis, with_host=index == 0) for index, analysis in enumerate(rank.devices)
    ]


def _result(rank: RankAnalysis, analysis: DeviceAnalysis | None, *, with_host: bool) -> RankResult:
    window = analysis.window if analysis else None
    view = rank.host_window if with_host else None
    steps = window.steps_ns if window else []
    host_steps = view.steps_ns if view else []
    late = analysis.host_late_ns if analysis else {}
    profiler = {"idle.launch": analysis.idle.profiler_ns} if analysis else {}
    return RankResult(
        rank=rank.rank,
        device=analysis.device.index if analysis else None,
        window_ns=window.length if window else None,
        window_basis=window.basis if window else None,
        periods=window.periods if window else 0,
        step_ns_p50=median_low(steps) if steps else None,
        host_device_offset_ns=analysis.device.offset_ns if analysis else None,
        level1_ns=analysis.partition.level1_ns() if analysis else None,
        buckets_ns=analysis.leaves_ns() if analysis else None,
        host_window_ns=view.length if view else None,
        host_window_basis=view.basis if view else None,
        host_buckets_ns=rank.host_buckets_ns if with_host else None,
        unrecoverable_ns={bucket: ns for bucket, ns in {**late, **profiler}.items() if ns},
        host_late_ns=sum(late.values()) if analysis else None,
        steps_ns=steps,
        host_steps_ns=host_steps,
        launches=analysis.launches if analysis else 0,
        launches_without_device_record=analysis.launches_missing if analysis else 0,
        busy_any_ns=analysis.partition.busy.total if analysis else None,
    )


def _sum(parts: Iterable[dict[str, int] | None]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part or {})
    return dict(total)


def _job(job: JobTraces, scope: Scope, results: list[RankResult]) -> Job:
    steps = [ns for result in results for ns in (result.steps_ns or result.host_steps_ns)]
    return Job(
        world_size=job.world_size,
        ranks=sorted({result.rank for result in results}),
        missing_ranks=job.missing_ranks,
        gpu_name=_gpu_name(scope),
        step_ns_p50=median_low(steps) if steps else None,
    )


def _gpu_name(scope: Scope) -> str | None:
    """Return the name of the devices that ran work; several names are joined."""
    names = set()
    for rank, analysis in scope.devices:
        known = {device.index: device.name for device in rank.trace.info.devices}
        names.add(known.get(analysis.device.index) or _only(set(known.values())))
    return ", ".join(sorted(name for name in names if name)) or None


def _only(names: set[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None


def _rank_quality(ranks: list[RankAnalysis]) -> list[Quality]:
    """Name the rank in each rank's quality entries where there are several."""
    if len(ranks) == 1:
        return ranks[0].quality
    return [
        Quality(one.id, one.severity, one.count, f"rank {rank.rank}: {one.message}")
        for rank in ranks
        for one in rank.quality
    ]
