"""Buckets to findings: each loss above its threshold, named once, with evidence and advice.

Every finding owns buckets, or gaps, that no other finding owns, so that no time is promised twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.idle import BLOCKED, CAUSE_BUCKETS
from gpudiag.analyze.intervals import as_pieces, intersect, sum_by_owner
from gpudiag.analyze.names import HostClass
from gpudiag.model import catalogue
from gpudiag.model.analysis import Finding, GapCause
from gpudiag.model.catalogue import CATALOGUE, Entry

if TYPE_CHECKING:
    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis
    from gpudiag.analyze.window import Window
    from gpudiag.model.analysis import KernelRow
    from gpudiag.model.tables import I64, Mask

# Evidence names this many host spans, operators or kernels at most.
_NAMED = 3
_RUNS_OF_RANKS = 8


@dataclass(frozen=True, slots=True)
class Loss:
    """Time lost to one finding on one device, ns; ``recoverable`` is what can come back."""

    rank: int
    lost: int
    recoverable: int
    count: int  # gaps or pieces


@dataclass(frozen=True, slots=True)
class Scope:
    """What findings are measured against: devices, or training threads where there is no device."""

    ranks: list[RankAnalysis]
    windows: list[Window]

    @property
    def window_ns(self) -> int:
        """Windows summed over all devices of all ranks."""
        return sum(window.length for window in self.windows)

    @property
    def periods(self) -> int:
        """Full periods summed over all devices of all ranks."""
        return sum(window.periods for window in self.windows)

    @property
    def on_host(self) -> bool:
        """Whether no rank has device activity, so that the host's view is the whole answer."""
        return not self.devices

    @property
    def devices(self) -> list[tuple[RankAnalysis, DeviceAnalysis]]:
        """Every device with its rank."""
        return [(rank, device) for rank in self.ranks for device in rank.devices]


def scope_of(ranks: list[RankAnalysis]) -> Scope:
    """Return the windows of all devices, those of the training threads where there is none."""
    devices = [device.window for rank in ranks for device in rank.devices]
    return Scope(ranks, devices or [rank.host_window for rank in ranks if rank.host_window])


def find(
    scope: Scope, causes: list[GapCause], kernels: list[KernelRow], missing_ranks: list[int]
) -> list[Finding]:
    """Return all findings above their thresholds, the most recoverable first."""
    findings = [
        finding
        for entry in CATALOGUE.values()
        if entry.kind == "finding" and (finding := _find(entry, scope, causes, kernels))
    ]
    findings += _records_missing(scope)
    if missing_ranks:
        findings.append(_ranks_missing(scope, missing_ranks))
    return sorted(findings, key=lambda f: (-(f.recoverable_ns or 0), -(f.share or 0), f.id))


def _find(
    entry: Entry, scope: Scope, causes: list[GapCause], kernels: list[KernelRow]
) -> Finding | None:
    if entry.min_share is None or not scope.window_ns:
        return None
    if entry.id == "memory_bound" and not scope.on_host:
        return _memory_bound(entry, scope, kernels)
    losses = _losses(entry, scope)
    lost = sum(loss.lost for loss in losses)
    if lost < entry.min_share * scope.window_ns:
        return None
    recoverable = sum(loss.recoverable for loss in losses)
    evidence = [_how_much(scope, losses, lost, recoverable)]
    if entry.id == "gpu_shared":
        evidence.append("gaps of one length with work enqueued; a guess until the process is seen")
    else:
        evidence += _where(entry, causes)
    if entry.id == "host_sync":
        evidence += _sync_operators(scope)
    return _finding(entry, scope, losses, evidence)


def _finding(entry: Entry, scope: Scope, losses: list[Loss], evidence: list[str]) -> Finding:
    lost = sum(loss.lost for loss in losses)
    recoverable = sum(loss.recoverable for loss in losses)
    share = lost / scope.window_ns
    host_bucket = entry.host_bucket if scope.on_host else None
    return Finding(
        id=entry.id,
        severity=_severity(share),
        share=share,
        recoverable_ns_per_step=recoverable // scope.periods if scope.periods else None,
        confidence=_confidence(entry, scope),
        ranks=_culprits(losses, lost),
        affected=sorted({loss.rank for loss in losses}),
        title=entry.title.replace("the GPU", "the training thread") if host_bucket else entry.title,
        evidence=evidence,
        advice=list(entry.advice),
        buckets=[host_bucket] if host_bucket else list(entry.buckets),
        recoverable_ns=recoverable,
    )


def _severity(share: float) -> str:
    if share >= catalogue.ERROR_FRAC:
        return "error"
    return "warning" if share >= catalogue.WARNING_FRAC else "info"


def _confidence(entry: Entry, scope: Scope) -> str:
    """Low where few periods were seen or the cause is told by a pattern only."""
    if entry.id in ("gpu_shared", "memory_bound"):
        return "low"
    fewest = min((window.periods for window in scope.windows), default=0)
    return "high" if fewest >= 3 else "low"  # noqa: PLR2004 - accounting.md 2: under 3 is low


def _culprits(losses: list[Loss], lost: int) -> list[int]:
    """Ranks that carry more than half of an even share of the loss."""
    by_rank: dict[int, int] = {}
    for loss in losses:
        by_rank[loss.rank] = by_rank.get(loss.rank, 0) + loss.lost
    return sorted(rank for rank, ns in by_rank.items() if 2 * ns * len(by_rank) >= lost)


def _losses(entry: Entry, scope: Scope) -> list[Loss]:
    if not scope.on_host:
        return [loss for rank, device in scope.devices if (loss := _loss(entry, rank, device))]
    if entry.host_bucket is None:
        return []
    losses = []
    for rank in scope.ranks:
        ns = (rank.host_buckets_ns or {}).get(entry.host_bucket, 0)
        losses += [Loss(rank.rank, ns, ns, 0)] if ns else []
    return losses


def _loss(entry: Entry, rank: RankAnalysis, analysis: DeviceAnalysis) -> Loss | None:
    """Return what one device lost to a finding; stretches with missing records are left out."""
    if entry.buckets[0].startswith("copy."):
        return _copy_loss(entry, rank, analysis)
    cause = CAUSE_BUCKETS.index(entry.buckets[0])
    charged = analysis.idle.charged[:, cause] * _recorded(analysis)
    if cause == BLOCKED:
        charged = charged * _blocked_gaps(analysis, shared=entry.id == "gpu_shared")
    lost = int(charged.sum())
    if not lost:
        return None
    profiler = analysis.idle.profiler_ns if cause == HostClass.LAUNCH else 0
    return Loss(rank.rank, lost, max(lost - profiler, 0), int((charged > 0).sum()))


def _copy_loss(entry: Entry, rank: RankAnalysis, analysis: DeviceAnalysis) -> Loss | None:
    if not analysis.device.is_compute.any():
        return None  # no kernel is recorded, so nothing is known to have waited
    leaves = analysis.partition.leaves_ns()
    lost = sum(leaves.get(bucket, 0) for bucket in entry.buckets)
    late = sum(analysis.host_late_ns.get(bucket, 0) for bucket in entry.buckets)
    pieces = sum(len(part) for part in analysis.partition.copies.values())
    return Loss(rank.rank, lost, lost - late, pieces) if lost else None


def _recorded(analysis: DeviceAnalysis) -> Mask:
    """Mask gaps outside the stretches in which device records are missing."""
    gaps = as_pieces(analysis.partition.idle)
    lost = sum_by_owner(intersect(gaps, analysis.missing), len(gaps))
    mask: Mask = lost == 0
    return mask


def _blocked_gaps(analysis: DeviceAnalysis, *, shared: bool) -> Mask:
    """Mask enqueued gaps outside graph replays: those of one recurring length, or the others."""
    blocked = analysis.idle.charged[:, BLOCKED]
    recurring = recurring_gaps(blocked)
    return (recurring if shared else ~recurring) & ~analysis.idle.in_replay


def recurring_gaps(lengths: I64) -> Mask:
    """Mask lengths of 0.5 ms or more that have 4 others within 10 % of them."""
    long = np.flatnonzero(lengths >= catalogue.SHARED_GAP_NS)
    mask = np.zeros(len(lengths), dtype=bool)
    ordered = np.sort(lengths[long])
    tolerance = catalogue.SHARED_TOLERANCE_FRAC
    low = np.searchsorted(ordered, lengths[long] * (1 - tolerance), side="left")
    high = np.searchsorted(ordered, lengths[long] * (1 + tolerance), side="right")
    mask[long[high - low >= catalogue.SHARED_GAPS]] = True
    return mask


def _how_much(scope: Scope, losses: list[Loss], lost: int, recoverable: int) -> str:
    count = sum(loss.count for loss in losses)
    where = "of the training threads' time" if scope.on_host else f"in {count} gaps"
    text = f"{lost / 1e6:.3f} ms {where}, {lost / scope.window_ns * 100:.1f} % of the window"
    if scope.periods:
        text += f"; {lost / scope.periods / 1e6:.3f} ms a step over {scope.periods} steps"
    if recoverable < lost:
        kept = (lost - recoverable) / 1e6
        text += f"; {kept:.3f} ms of it would stay (host late, or the profiler's own)"
    return text


def _where(entry: Entry, causes: list[GapCause]) -> list[str]:
    """Name the host spans and lines that hold most of it."""
    mine = [cause for cause in causes if cause.cause in entry.buckets]
    named = [cause for cause in mine if cause.host_span or cause.file_line][:_NAMED]
    return [
        f"{cause.host_span or 'no annotation'}"
        + (f" at {cause.file_line}" if cause.file_line else "")
        + f": {cause.total_ns / 1e6:.3f} ms in {cause.count} gaps"
        + f", longest {cause.longest_ns / 1e6:.3f} ms"
        for cause in named
    ]


def _sync_operators(scope: Scope) -> list[str]:
    """Name the operators that made the synchronise calls of the windows."""
    totals: dict[str, list[int]] = {}
    for rank, analysis in scope.devices:
        host, window, offset = rank.host, analysis.window, analysis.device.offset_ns
        calls = np.flatnonzero(host.kind == HostClass.SYNC)
        at = host.starts[calls] - offset
        calls = calls[(at >= window.start) & (at < window.end)]
        for call, operator in zip(calls.tolist(), host.operator_of(calls).tolist(), strict=True):
            name = host.strings[host.name[operator if operator >= 0 else call]]
            row = totals.setdefault(name, [0, 0])
            row[0] += 1
            row[1] += int(host.ends[call] - host.starts[call])
    ranked = sorted(totals.items(), key=lambda item: -item[1][1])[:_NAMED]
    return [
        f"{name}: {count} synchronise calls, {ns / 1e6:.3f} ms inside them (mostly the GPU working)"
        for name, (count, ns) in ranked
    ]


def _memory_bound(entry: Entry, scope: Scope, kernels: list[KernelRow]) -> Finding | None:
    tensor = sum(d.partition.tensor.total for _, d in scope.devices)
    losses = [
        Loss(rank.rank, d.partition.other.total, 0, len(d.partition.other))
        for rank, d in scope.devices
    ]
    other = sum(loss.lost for loss in losses)
    enough = other >= catalogue.MEMORY_BOUND_COMPUTE_FRAC * (tensor + other)
    if not enough or other < catalogue.MEMORY_BOUND_WINDOW_FRAC * scope.window_ns:
        return None
    part = other / (tensor + other) * 100
    evidence = [f"{part:.1f} % of compute time is in kernels without matmul or convolution"]
    top = [row for row in kernels if row.category == "compute.other"][:_NAMED]
    evidence += [f"{row.name}: {row.total_ns / 1e6:.3f} ms in {row.count} calls" for row in top]
    return _finding(entry, scope, losses, evidence)


def _records_missing(scope: Scope) -> list[Finding]:
    entry = CATALOGUE["records_missing"]
    hit = [(rank, device) for rank, device in scope.devices if len(device.missing)]
    silent = [rank for rank in scope.ranks if not rank.recorded and len(rank.host.launch_calls())]
    if not hit and not silent:
        return []
    evidence = [
        f"rank {rank.rank}, device {d.device.index}: {d.launches_missing} of {d.launches} launch "
        f"calls have no whole device record, in {d.missing.total / 1e6:.3f} ms of the window"
        for rank, d in hit
    ]
    evidence += [
        f"rank {rank.rank}: {len(rank.host.launch_calls())} launch calls, no device record at all"
        for rank in silent
    ]
    ranks = sorted({rank.rank for rank, _ in hit} | {rank.rank for rank in silent})
    share = sum(d.missing.total for _, d in hit) / scope.window_ns if hit else None
    return [_note(entry, ranks, evidence, share)]


def _ranks_missing(scope: Scope, missing: list[int]) -> Finding:
    total = len(missing) + len(scope.ranks)
    evidence = [f"{len(missing)} of {total} ranks have no trace: {ranks_text(missing)}"]
    return _note(CATALOGUE["ranks_missing"], [], evidence, None)


def ranks_text(numbers: list[int]) -> str:
    """Return rank numbers as runs: ``0-2, 4``; after eight runs the rest is left to the reader."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:_RUNS_OF_RANKS]]
    return ", ".join(texts) + (", ..." if len(runs) > _RUNS_OF_RANKS else "")


def _note(entry: Entry, ranks: list[int], evidence: list[str], share: float | None) -> Finding:
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
