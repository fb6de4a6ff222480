"""What each device, or training thread, lost to each finding.

Every finding owns buckets, or gaps, that no other finding owns, so that no time is promised twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.comm.causes import CausedWait, waits_by_finding
from gpudiag.analyze.idle import BLOCKED, CAUSE_BUCKETS, host_late_ns
from gpudiag.analyze.intervals import as_pieces, intersect, sum_by_owner, union
from gpudiag.analyze.names import HostClass
from gpudiag.model import thresholds

if TYPE_CHECKING:
    from gpudiag.analyze.comm.job import Communication
    from gpudiag.analyze.comm.split import RankSplit
    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis
    from gpudiag.analyze.window import Window
    from gpudiag.model.entry import Entry
    from gpudiag.model.tables import I64, Mask


@dataclass(frozen=True, slots=True)
class Loss:
    """Time lost to one finding through one rank, ns; ``recoverable`` is what can come back."""

    rank: int
    lost: int  # on the rank itself
    recoverable: int  # of both
    count: int  # gaps or pieces
    window_ns: int
    caused: int = 0  # waits of other ranks that are charged to it
    affected: frozenset[int] = frozenset()  # who waits

    @property
    def total(self) -> int:
        """What the rank lost and made others lose, ns."""
        return self.lost + self.caused

    @property
    def frac(self) -> float:
        """Share of a window: the rank's own loss, and what each of those waiting lost to it."""
        return (self.lost + self.caused / max(len(self.affected), 1)) / self.window_ns

    @property
    def recoverable_frac(self) -> float:
        """The part of ``frac`` that can come back."""
        return self.frac * self.recoverable / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Scope:
    """What findings are measured against: devices, or training threads where there is no device."""

    ranks: list[RankAnalysis]
    windows: list[Window]
    # What ranks made others wait, by finding and culprit; and each rank's communication, split.
    waits: Mapping[str, Mapping[int, CausedWait]] = field(default_factory=dict)
    splits: Mapping[int, RankSplit] = field(default_factory=dict)

    @property
    def window_ns(self) -> int:
        """Windows summed over all devices of all ranks."""
        return sum(window.length for window in self.windows)

    @property
    def periods(self) -> int:
        """Full periods summed over all devices of all ranks."""
        return sum(window.periods for window in self.windows)

    def per_step(self, ns: int) -> int | None:
        """Return the mean over all periods of all windows; None without steps."""
        return ns // self.periods if self.periods else None

    @property
    def on_host(self) -> bool:
        """Whether no rank has device activity, so that the host's view is the whole answer."""
        return not self.devices

    @property
    def devices(self) -> list[tuple[RankAnalysis, DeviceAnalysis]]:
        """Every device with its rank."""
        return [(rank, device) for rank in self.ranks for device in rank.devices]


def scope_of(ranks: list[RankAnalysis], found: Communication | None) -> Scope:
    """Return the windows of all devices, those of the training threads where there is none."""
    devices = [device.window for rank in ranks for device in rank.devices]
    return Scope(
        ranks,
        devices or [rank.host_window for rank in ranks if rank.host_window],
        waits_by_finding(found.blame, ranks) if found else {},
        found.splits if found else {},
    )


def losses_of(entry: Entry, scope: Scope) -> list[Loss]:
    """Return what was lost to a finding through each rank: its own time, and waits for it."""
    own = _own_losses(entry, scope)
    waits = scope.waits.get(entry.id, {})
    merged = [_with_wait(loss, waits.get(loss.rank)) for loss in own]
    lone = [rank for rank in waits if rank not in {loss.rank for loss in own}]
    windows = {rank.rank: window for rank in scope.ranks if (window := _window_of(rank))}
    return merged + [
        _with_wait(Loss(rank, 0, 0, 0, windows[rank].length), waits[rank]) for rank in lone
    ]


def _window_of(rank: RankAnalysis) -> Window | None:
    return rank.devices[0].window if rank.devices else rank.host_window


def _with_wait(loss: Loss, wait: CausedWait | None) -> Loss:
    if wait is None:
        return loss
    sure = wait.ns - wait.ambiguous_ns
    recoverable = loss.recoverable + sure
    return replace(loss, caused=wait.ns, recoverable=recoverable, affected=wait.affected)


def _own_losses(entry: Entry, scope: Scope) -> list[Loss]:
    if entry.buckets[0] == "comm.transfer":
        return _transfer_losses(scope)
    if entry.buckets[0] == "comm.wait":
        return []
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


def _transfer_losses(scope: Scope) -> list[Loss]:
    losses = []
    for rank, analysis in scope.devices:
        split = scope.splits.get(rank.rank)
        if split and split.transfer_ns:
            pieces = union(split.transfer.starts, split.transfer.ends)
            late = host_late_ns(analysis.device, rank.host, pieces)
            lost = split.transfer_ns
            losses.append(Loss(rank.rank, lost, lost - late, len(pieces), analysis.window.length))
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
    long = np.flatnonzero(lengths >= thresholds.SHARED_GAP_NS)
    mask = np.zeros(len(lengths), dtype=bool)
    ordered = np.sort(lengths[long])
    tolerance = thresholds.SHARED_TOLERANCE_FRAC
    low = np.searchsorted(ordered, lengths[long] * (1 - tolerance), side="left")
    high = np.searchsorted(ordered, lengths[long] * (1 + tolerance), side="right")
    mask[long[high - low >= thresholds.SHARED_GAPS]] = True
    return mask
