"""Buckets to findings: each loss above its threshold, named once, with evidence and advice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpudiag.analyze.comm.evidence import compute_evidence, transfer_evidence
from gpudiag.analyze.evidence import (
    NAMED,
    STAYS,
    how_much,
    loads_itself,
    long_launch_frac,
    sync_operators,
    where,
)
from gpudiag.analyze.losses import BUBBLE, UNEVEN, Loss, Scope, is_above, losses_of
from gpudiag.analyze.pipeline.evidence import pipeline_evidence
from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.model.analysis import Finding, GapCause
from gpudiag.model.catalogue import CATALOGUE
from gpudiag.model.entry import Entry

if TYPE_CHECKING:
    from gpudiag.model.analysis import KernelRow


# Why part of a loss would stay.
_STAYS = {
    BUBBLE: "twice the micro-batches halve a bubble, no more",
    UNEVEN: "waits that equal stages would have too",
}


def find(
    scope: Scope, causes: list[GapCause], kernels: list[KernelRow], missing_ranks: list[int]
) -> list[Finding]:
    """Return all findings above their thresholds, in the order of the catalogue."""
    findings = [
        finding
        for entry in CATALOGUE.values()
        if entry.kind == "finding" and (finding := _find(entry, scope, causes, kernels))
    ]
    findings += _records_missing(scope)
    if missing_ranks:
        findings.append(_ranks_missing(scope, missing_ranks))
    return findings


def ranked(findings: list[Finding]) -> list[Finding]:
    """Return findings in the order in which to fix them: errors of our numbers, then by gain."""
    return sorted(
        findings,
        key=lambda f: (f.id != "flops_over_peak", -(f.recoverable_ns or 0), -(f.share or 0), f.id),
    )


def _find(
    entry: Entry, scope: Scope, causes: list[GapCause], kernels: list[KernelRow]
) -> Finding | None:
    if entry.min_share is None or not scope.window_ns:
        return None
    if entry.id == "memory_bound":
        return _memory_bound(entry, scope, kernels)
    if entry.buckets[0].startswith("compute."):
        return None  # what kernels make of the device: see efficiency.py
    losses = losses_of(entry, scope)
    if not is_above(entry, losses, scope):
        return None
    evidence = how_much(scope, losses, _STAYS.get(entry.id, STAYS))
    if entry.id == "gpu_shared":
        evidence.append("gaps of one length with work enqueued; a guess until the process is seen")
    else:
        evidence += where(entry, causes)
    evidence += transfer_evidence(entry.id, scope)
    if scope.found:
        evidence += pipeline_evidence(entry.id, scope.found.pipelines)
    evidence += compute_evidence(entry.id, _by_cost(losses), scope)
    if entry.id == "host_sync":
        evidence += sync_operators(scope)
    return _finding(entry, scope, losses, evidence, _advice(entry, scope, causes, evidence))


def _advice(
    entry: Entry, scope: Scope, causes: list[GapCause], evidence: list[str]
) -> tuple[str, ...]:
    """Return the catalogue's advice, led by what this trace shows; say in the evidence why."""
    if entry.id == "input_stall" and loads_itself(causes):
        evidence.append("num_workers is 0: the training thread loads every batch itself")
        return (
            "Set num_workers above 0, so that batches are loaded beside training.",
            *entry.advice,
        )
    long = long_launch_frac(scope) if entry.id == "launch_bound" else 0.0
    if long > thresholds.MOSTLY_FRAC:
        evidence.append(
            f"{fmt.share(long)} of it lies in gaps of 1 ms and more: slow operators or runtime "
            "calls (first use, module loading), not many short kernels"
        )
        first_use = (
            "Look at the calls named here first; if they are first-use costs, record after a "
            "warm-up (schedule(wait=1, warmup=1, ...))."
        )
        return (first_use, *entry.advice)
    return entry.advice


def _finding(
    entry: Entry, scope: Scope, losses: list[Loss], evidence: list[str], advice: tuple[str, ...]
) -> Finding:
    share = sum(loss.total for loss in losses) / scope.window_ns
    recoverable = sum(loss.recoverable for loss in losses)
    on_host = scope.on_host and entry.host_bucket is not None
    return Finding(
        id=entry.id,
        severity=severity_of(max(loss.frac for loss in losses)),
        share=share,
        recoverable_ns_per_step=scope.per_step(recoverable),
        confidence=confidence_of(entry, scope),
        # A schedule is nobody's fault.
        ranks=[] if entry.id == BUBBLE else _culprits(entry, losses),
        affected=sorted({rank for loss in losses for rank in (loss.rank, *loss.affected)}),
        title=entry.host_title or entry.title if on_host else entry.title,
        evidence=evidence,
        advice=list(advice),
        buckets=[str(entry.host_bucket)] if on_host else list(entry.buckets),
        recoverable_ns=recoverable,
    )


def of_all(finding: Finding) -> Finding:
    """Return a finding about late ranks where another is late in every step: it is nobody's.

    No rank is named, and nothing is promised: which limit they share, the waits don't tell.
    """
    return replace(
        finding,
        severity="info",
        confidence="low",
        ranks=[],
        title="the ranks wait for each other in turn: a limit that all share",
        evidence=["who is late changes from step to step", *finding.evidence],
        recoverable_ns=None,
        recoverable_ns_per_step=None,
    )


def severity_of(worst_frac: float) -> str:
    """Grade by the rank that loses most: in a synchronous job all others wait for it."""
    if worst_frac >= thresholds.ERROR_FRAC:
        return "error"
    return "warning" if worst_frac >= thresholds.WARNING_FRAC else "info"


def confidence_of(entry: Entry, scope: Scope) -> str:
    """Low where few periods were seen, clocks differ, or the cause is told by a pattern only."""
    if entry.id in thresholds.GUESSES:
        return "low"
    if any(device.device.is_early for _, device in scope.devices) and any(
        bucket.startswith("idle.") for bucket in entry.buckets
    ):
        return "low"
    fewest = min((window.periods for window in scope.windows), default=0)
    return "high" if fewest >= thresholds.FEW_PERIODS else "low"


def _by_cost(losses: list[Loss]) -> list[int]:
    """Return the ranks that lose, or make others lose, most first."""
    return [loss.rank for loss in sorted(losses, key=lambda loss: -loss.total)]


def _culprits(entry: Entry, losses: list[Loss]) -> list[int]:
    """Return the ranks above the threshold that lose a good part of what the worst one does.

    Where none is above it, those that lose half of the worst.
    """
    worst = max(loss.frac for loss in losses)
    threshold = entry.min_share or 0
    limit = max(threshold, thresholds.CULPRIT_FRAC * worst) if worst >= threshold else worst / 2
    return sorted({loss.rank for loss in losses if loss.frac >= limit})


def _memory_bound(entry: Entry, scope: Scope, kernels: list[KernelRow]) -> Finding | None:
    """Name memory-bound kernels where they fill compute time; what could be gained is not known."""
    losses = [
        Loss(rank.rank, d.partition.other.total, 0, len(d.partition.other), d.window.length)
        for rank, d in scope.devices
    ]
    tensor = sum(d.partition.tensor.total for _, d in scope.devices)
    other = sum(loss.lost for loss in losses)
    if not other or other < thresholds.MEMORY_BOUND_COMPUTE_FRAC * (tensor + other):
        return None
    if other < thresholds.MEMORY_BOUND_WINDOW_FRAC * scope.window_ns:
        return None
    part = fmt.share(other / (tensor + other))
    evidence = [f"{part} of compute time is in kernels without matmul, convolution or attention"]
    top = [row for row in kernels if row.category == "compute.other"][:NAMED]
    evidence += [
        f"{row.name}: {fmt.duration(row.total_ns)} in {fmt.counted(row.count, 'call')}"
        for row in top
    ]
    found = _finding(entry, scope, losses, evidence, entry.advice)
    return replace(found, severity="info", recoverable_ns=None, recoverable_ns_per_step=None)


def _records_missing(scope: Scope) -> list[Finding]:
    entry = CATALOGUE["records_missing"]
    hit = [(rank, device) for rank, device in scope.devices if len(device.missing)]
    silent = [rank for rank in scope.ranks if not rank.recorded and rank.launch_calls]
    if not hit and not silent:
        return []
    evidence = [
        f"rank {rank.rank}, device {d.device.index}: {d.launches_missing} of {d.launches} launch "
        f"calls have no whole device record, in {fmt.duration(d.missing.total)} of the window"
        for rank, d in hit
    ]
    evidence += [
        f"rank {rank.rank}: {rank.launch_calls} launch calls, no device record at all"
        for rank in silent
    ]
    ranks = sorted({rank.rank for rank, _ in hit} | {rank.rank for rank in silent})
    share = sum(d.missing.total for _, d in hit) / scope.window_ns if hit else None
    return [note(entry, ranks, evidence, share)]


def _ranks_missing(scope: Scope, missing: list[int]) -> Finding:
    total = len(missing) + len(scope.ranks)
    evidence = [f"{len(missing)} of {total} ranks have no trace: {fmt.ranks(missing)}"]
    return note(CATALOGUE["ranks_missing"], [], evidence, None)


def note(entry: Entry, ranks: list[int], evidence: list[str], share: float | None) -> Finding:
    """Return a finding that promises nothing: a warning about the ranks given."""
    return Finding(
        id=entry.id,
        severity="warning",
        share=share,
        recoverable_ns_per_step=None,
        confidence="high",
        ranks=ranks,
        affected=ranks,
        title=entry.title,
        evidence=evidence,
        advice=list(entry.advice),
    )
