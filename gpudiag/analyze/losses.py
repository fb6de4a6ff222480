"""What each device, or training thread, lost to each finding.

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

if TYPE_CHECKING:
    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis
    from gpudiag.analyze.window import Window
    from gpudiag.model.entry import Entry
    from gpudiag.model.tables import I64, Mask


@dataclass(frozen=True, slots=True)
class Loss:
    """Time lost to one finding on one device, ns; ``recoverable`` is what can come back."""

    rank: int
    lost: int
    recoverable: int
    count: int  # gaps or pieces
    window_ns: int

    @property
    def lost_frac(self) -> float:
        """Share of its window."""
        return self.lost / self.window_ns

    @property
    def recoverable_frac(self) -> float:
        """Share of its window that can come back."""
        return self.recoverable / self.window_ns


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


def losses_of(entry: Entry, scope: Scope) -> list[Loss]:
    """Return what every device, or training thread where there is no device, lost to a finding."""
    if not scope.on_host:
        return [loss for rank, device in scope.devices if (loss := _loss(entry, rank, device))]
    if entry.host_bucket is None:
        return []
    losses = []
    for rank in scope.ranks:
        ns = (rank.host_buckets_ns or {}).get(entry.host_bucket, 0)
        if ns and rank.host_window:
            losses.append(Loss(rank.rank, ns, ns, 0, rank.host_window.length))
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
    count = int((charged > 0).sum())
    return Loss(rank.rank, lost, max(lost - profiler, 0), count, analysis.window.length)


def _copy_loss(entry: Entry, rank: RankAnalysis, analysis: DeviceAnalysis) -> Loss | None:
    if not analysis.device.is_compute.any():
        return None  # no kernel is recorded, so nothing is known to have waited
    leaves = analysis.partition.leaves_ns()
    lost = sum(leaves.get(bucket, 0) for bucket in entry.buckets)
    late = sum(analysis.host_late_ns.get(bucket, 0) for bucket in entry.buckets)
    pieces = sum(len(part) for part in analysis.partition.copies.values())
    length = analysis.window.length
    return Loss(rank.rank, lost, lost - late, pieces, length) if lost else None


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
