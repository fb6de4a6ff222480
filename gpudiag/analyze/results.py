"""One rank's analysis as the result that reports and `--json` show."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median_low
from typing import TYPE_CHECKING

from gpudiag.analyze.comm.roles import comm_by_role_ns
from gpudiag.analyze.intervals import overlap, union
from gpudiag.analyze.mfu import CONVENTION
from gpudiag.analyze.partition import UNSPLIT
from gpudiag.model.analysis import RankResult, WaterfallTerm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudiag.analyze.comm.job import Communication
    from gpudiag.analyze.comm.split import RankSplit
    from gpudiag.analyze.job_mfu import JobMfu
    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis


def results_of(rank: RankAnalysis, mfu: JobMfu, found: Communication | None) -> list[RankResult]:
    """Return a result per device; one without device where none was accounted for.

    The host view belongs to the rank: it stands on the first of its results.
    """
    split = found.splits.get(rank.rank) if found else None
    roles = comm_by_role_ns(split, found.matched, found.roles) if found and split else {}
    if not rank.devices:
        return [replace(_result(rank, None, mfu, None, with_host=True), comm_by_role_ns=roles)]
    results = [
        _result(rank, analysis, mfu, split, with_host=index == 0)
        for index, analysis in enumerate(rank.devices)
    ]
    return [replace(results[0], comm_by_role_ns=roles), *results[1:]]


def _result(
    rank: RankAnalysis,
    analysis: DeviceAnalysis | None,
    mfu: JobMfu,
    split: RankSplit | None,
    *,
    with_host: bool,
) -> RankResult:
    window = analysis.window if analysis else None
    view = rank.host_window if with_host else None
    steps = window.steps_ns if window else []
    host_steps = view.steps_ns if view else []
    late = _host_late(analysis, split) if analysis else {}
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
        buckets_ns=leaves_of(analysis, split) if analysis else None,
        host_window_ns=view.length if view else None,
        host_window_basis=view.basis if view else None,
        host_buckets_ns=rank.host_buckets_ns if with_host else None,
        unrecoverable_ns={bucket: ns for bucket, ns in {**late, **profiler}.items() if ns},
        host_late_ns=sum(late.values()) if analysis else None,
        tokens=rank.tokens if with_host else None,
        steps_ns=steps,
        host_steps_ns=host_steps,
        launches=analysis.launches if analysis else 0,
        launches_without_device_record=analysis.launches_missing if analysis else 0,
        busy_any_ns=analysis.partition.busy.total if analysis else None,
        waterfall=with_split(one.terms, analysis, split) if one and analysis else None,
        model_flops=flops.full.model_flops if flops else None,
        hw_flops=flops.full.hw_flops if flops else None,
        mfu=one.mfu if one else None,
        hfu=one.hfu if one else None,
        flops_convention=CONVENTION if flops else None,
        flops_coverage=analysis.flops.flops_coverage_frac if analysis else None,
    )


def leaves_of(analysis: DeviceAnalysis, split: RankSplit | None) -> dict[str, int]:
    """Return the leaves of a device, its communication split where other ranks allow it."""
    leaves = Counter(analysis.leaves_ns())
    if split is not None:
        leaves.pop(UNSPLIT, None)
        leaves.update(split.leaves_ns)
    return {name: ns for name, ns in leaves.items() if ns}


def with_split(
    terms: Sequence[WaterfallTerm], analysis: DeviceAnalysis, split: RankSplit | None
) -> list[WaterfallTerm]:
    """Return a waterfall whose communication is split like the buckets."""
    if split is None:
        return list(terms)
    window = analysis.window.length
    shares = {term.id: term.share for term in terms if term.id != UNSPLIT}
    for name, ns in split.leaves_ns.items():
        if ns:
            shares[name] = shares.get(name, 0.0) + ns / window
    return [WaterfallTerm(id=name, share=share) for name, share in shares.items()]


def _host_late(analysis: DeviceAnalysis, split: RankSplit | None) -> dict[str, int]:
    """Return per bucket what passed while the host was late anyway; waits are charged elsewhere."""
    late = dict(analysis.host_late_ns)
    if split is None:
        return late
    late.pop(UNSPLIT, None)
    moving = union(split.transfer.starts, split.transfer.ends)
    late["comm.transfer"] = overlap(moving, analysis.host_late).total
    late[UNSPLIT] = overlap(split.unsplit, analysis.host_late).total
    return late
