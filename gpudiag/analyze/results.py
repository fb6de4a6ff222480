"""One rank's analysis as the result that reports and `--json` show."""

from __future__ import annotations

from statistics import median_low
from typing import TYPE_CHECKING

from gpudiag.analyze.mfu import CONVENTION
from gpudiag.model.analysis import RankResult

if TYPE_CHECKING:
    from gpudiag.analyze.job_mfu import JobMfu
    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis


def results_of(rank: RankAnalysis, mfu: JobMfu) -> list[RankResult]:
    """Return a result per device; one without device where none was accounted for.

    The host view belongs to the rank: it stands on the first of its results.
    """
    if not rank.devices:
        return [_result(rank, None, mfu, with_host=True)]
    return [
        _result(rank, analysis, mfu, with_host=index == 0)
        for index, analysis in enumerate(rank.devices)
    ]


def _result(
    rank: RankAnalysis, analysis: DeviceAnalysis | None, mfu: JobMfu, *, with_host: bool
) -> RankResult:
    window = analysis.window if analysis else None
    view = rank.host_window if with_host else None
    steps = window.steps_ns if window else []
    host_steps = view.steps_ns if view else []
    late = analysis.host_late_ns if analysis else {}
    one = mfu.of_device.get((rank.rank, analysis.device.index)) if analysis else None
    flops = analysis.flops if analysis and analysis.flops.full.hw_flops else None
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
        waterfall=list(one.terms) if one else None,
        model_flops=flops.full.model_flops if flops else None,
        hw_flops=flops.full.hw_flops if flops else None,
        mfu=one.mfu if one else None,
        hfu=one.hfu if one else None,
        flops_convention=CONVENTION if flops else None,
        flops_coverage=flops.flops_coverage_frac if flops else None,
    )
