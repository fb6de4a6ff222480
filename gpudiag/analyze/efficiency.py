"""Findings about what the kernels themselves make of the device, once MFU is known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpudiag.analyze.findings import confidence_of, note, severity_of
from gpudiag.analyze.peak import NoPeak, Peak
from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.model.catalogue import CATALOGUE

if TYPE_CHECKING:
    from gpudiag.analyze.job_mfu import JobMfu
    from gpudiag.analyze.losses import Scope
    from gpudiag.model.analysis import Finding
    from gpudiag.model.entry import Entry


def efficiency_findings(scope: Scope, mfu: JobMfu) -> list[Finding]:
    """Name a peak that can't be right, recomputation, and tensor kernels far below their peak."""
    if isinstance(mfu.peak, NoPeak):
        counted = any(device.flops.full.hw_flops for _, device in scope.devices)
        return [_unknown_gpu(scope, mfu.peak)] if mfu.peak.unknown_gpu and counted else []
    if not mfu.of_device:
        return []
    if (mfu.mfu or 0) > 1 or any(one.mfu > 1 for one in mfu.of_device.values()):
        return [_over_peak(mfu, mfu.peak)]
    found = (_recompute(scope), _low_efficiency(scope, mfu.peak))
    return [finding for finding in found if finding]


def _unknown_gpu(scope: Scope, peak: NoPeak) -> Finding:
    evidence = [peak.reason]
    if peak.candidates:
        evidence.append(f"it may be one of: {', '.join(peak.candidates)}")
    return note(CATALOGUE["unknown_gpu"], [rank.rank for rank in scope.ranks], evidence, None)


def _over_peak(mfu: JobMfu, peak: Peak) -> Finding:
    ranks = sorted({rank for (rank, _), one in mfu.of_device.items() if one.mfu > 1})
    evidence = [
        f"MFU {fmt.share(mfu.mfu or 0)} of {fmt.tflops(peak.flops_per_s)} ({peak.source})",
        "no device does more than its dense peak: the count or the peak is wrong",
    ]
    return replace(note(CATALOGUE["flops_over_peak"], ranks, evidence, None), severity="error")


def _recompute(scope: Scope) -> Finding | None:
    """Return what activation recomputation costs: its share of FLOPs, of tensor kernel time."""
    entry = CATALOGUE["recompute_overhead"]
    cost = 0
    for _, device in scope.devices:
        totals = device.flops.full
        part = totals.recompute_flops / totals.hw_flops if totals.hw_flops else 0
        cost += int(part * device.partition.tensor.total)
    share = cost / scope.window_ns
    if share < (entry.min_share or 0):
        return None
    how_much = (
        f"{fmt.share(_recompute_frac(scope))} of executed FLOPs redo the forward: about "
        f"{fmt.duration(cost)}, {fmt.share(share)} of the window, at the rate of all tensor kernels"
    )
    evidence = [how_much, "it buys memory: what it would cost to do without is not known here"]
    return _costing(entry, scope, cost, evidence)


def _low_efficiency(scope: Scope, peak: Peak) -> Finding | None:
    """Return what tensor kernels below 80 % of their peak would give back, recomputation aside."""
    entry = CATALOGUE["low_tensor_efficiency"]
    known = sum(device.flops.known_ns for _, device in scope.devices)
    ideal = sum(
        one.visible.hw_flops / peak.of_dtype(one.dtype) * 1e9
        for _, device in scope.devices
        for one in device.flops.by_dtype
    )
    if not known or ideal / known >= thresholds.LOW_TENSOR_EFFICIENCY_FRAC:
        return None
    total = sum(device.partition.tensor.total for _, device in scope.devices)
    share = total / scope.window_ns
    if share < (entry.min_share or 0):
        return None
    kept = total * (1 - _recompute_frac(scope))
    gain = int(min(known, kept) * (1 - ideal / known / thresholds.REACHABLE_FRAC))
    evidence = [
        f"tensor kernels with known FLOPs reach {fmt.share(ideal / known)} of their peak",
        f"they run {fmt.share(share)} of the window",
        f"{fmt.share(thresholds.REACHABLE_FRAC)} of peak is reachable",
    ]
    return _costing(entry, scope, gain, evidence)


def _recompute_frac(scope: Scope) -> float:
    """Return the share of executed FLOPs that redo the forward, over all windows."""
    done = sum(device.flops.full.hw_flops for _, device in scope.devices)
    again = sum(device.flops.full.recompute_flops for _, device in scope.devices)
    return again / done if done else 0.0


def _costing(entry: Entry, scope: Scope, cost_ns: int, evidence: list[str]) -> Finding:
    """Return a finding of all ranks together that costs, and would give back, so much time."""
    share = cost_ns / scope.window_ns
    return replace(
        note(entry, [rank.rank for rank in scope.ranks], evidence, share),
        severity=severity_of(share),
        confidence=confidence_of(entry, scope),
        buckets=list(entry.buckets),
        recoverable_ns=cost_ns,
        recoverable_ns_per_step=scope.per_step(cost_ns),
    )
