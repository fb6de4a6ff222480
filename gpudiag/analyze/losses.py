"""What each device, or training thread, lost to each finding.

Every finding owns buckets, or gaps, that no other finding owns, so that no time is promised twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.comm.causes import CausedWait, waits_by_finding
from gpudiag.analyze.comm.transfer import (
    BANDWIDTH,
    DEGRADED,
    LATENCY,
    parts_of_finding,
    taken_ns,
)
from gpudiag.analyze.idle import BLOCKED, CAUSE_BUCKETS
from gpudiag.analyze.intervals import as_pieces, intersect, overlap, sum_by_owner, union
from gpudiag.analyze.names import HostClass
from gpudiag.model import thresholds
from gpudiag.model.catalogue import CATALOGUE

if TYPE_CHECKING:
    from gpudiag.analyze.comm.job import Communication
    from gpudiag.analyze.comm.split import RankSplit
    from gpudiag.analyze.comm.transfer import Part
    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis
    from gpudiag.analyze.window import Window
    from gpudiag.model.entry import Entry
    from gpudiag.model.tables import I64, Mask


# Findings that take their share of exposed transfer before comm_exposed does.
PARTS_OF_TRANSFER = (LATENCY, BANDWIDTH, DEGRADED)
BUBBLE, UNEVEN = "pipeline_bubble", "pipeline_imbalance"


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
    found: Communication | None = None

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
        found,
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
    told = _told_by_all_ranks(entry.id, scope)
    if told is not None:
        return told
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


def _bubble_losses(scope: Scope) -> list[Loss]:
    """Return what each rank waits by the schedule; half of it goes with half the micro-batch."""
    windows = {rank.rank: window for rank in scope.ranks if (window := _window_of(rank))}
    parts = scope.found.pipelines.dealt if scope.found else {}
    return [
        Loss(rank, lost, lost // 2, len(part.schedule), windows[rank].length)
        for rank, part in parts.items()
        if (lost := part.schedule.total)
    ]


def _uneven_losses(scope: Scope) -> list[Loss]:
    """Return for each slow stage what the ranks of its pipeline wait for it."""
    windows = {rank.rank: window for rank in scope.ranks if (window := _window_of(rank))}
    losses = []
    for one in scope.found.pipelines.found if scope.found else ():
        waits = {rank: part.imbalance.total for rank, part in one.dealt.items()}
        if one.slow_stage is None or not any(waits.values()):
            continue
        culprit = one.chain.ranks[one.slow_stage]
        own, window = waits.pop(culprit, 0), windows[culprit]
        caused = sum(waits.values())
        steps = sum(windows[rank].periods for rank in one.dealt)
        affected = frozenset(rank for rank, ns in waits.items() if ns)
        back = min(own + caused, one.gain_ns * steps)
        losses.append(Loss(culprit, own, back, 0, window.length, caused, affected))
    return losses


def _told_by_all_ranks(finding: str, scope: Scope) -> list[Loss] | None:
    """Return losses to a finding that has a rule of its own; None for any other finding."""
    if finding in PARTS_OF_TRANSFER:
        return _part_losses(finding, scope)
    if finding == BUBBLE:
        return _bubble_losses(scope)
    return _uneven_losses(scope) if finding == UNEVEN else None


def is_above(entry: Entry, losses: list[Loss], scope: Scope) -> bool:
    """Tell whether what can come back reaches the threshold: on one rank, or of the whole job."""
    share = entry.min_share or 0
    if any(loss.recoverable_frac >= share for loss in losses):
        return True
    return bool(losses) and sum(one.recoverable for one in losses) >= share * scope.window_ns


def _transfer_losses(scope: Scope) -> list[Loss]:
    """Return exposed transfer, less what findings of its parts name."""
    named = [
        losses
        for finding in PARTS_OF_TRANSFER
        if is_above(CATALOGUE[finding], losses := _part_losses(finding, scope), scope)
    ]
    taken: dict[int, int] = {}
    for loss in (loss for losses in named for loss in losses):
        taken[loss.rank] = taken.get(loss.rank, 0) + loss.lost
    losses = []
    for rank, analysis in scope.devices:
        split = scope.splits.get(rank.rank)
        lost = split.transfer_ns - taken.get(rank.rank, 0) if split else 0
        if split and lost:
            in_time = _in_time(analysis, split)
            count = len(union(split.transfer.starts, split.transfer.ends))
            kept = lost * in_time // split.transfer_ns
            losses.append(Loss(rank.rank, lost, kept, count, analysis.window.length))
    return losses


def _in_time(analysis: DeviceAnalysis, split: RankSplit) -> int:
    """Return exposed transfer while the host was not late, ns."""
    pieces = union(split.transfer.starts, split.transfer.ends)
    return split.transfer_ns - overlap(pieces, analysis.host_late).total


def _part_losses(finding: str, scope: Scope) -> list[Loss]:
    """Return one part of exposed transfer of each device, late hosts taken out in proportion.

    Latency comes back where collectives of a group are merged to one a step: of n, n - 1.
    """
    losses = []
    for rank, analysis in scope.devices:
        split = scope.splits.get(rank.rank)
        parts = parts_of(finding, scope, rank.rank)
        lost = sum(taken_ns(finding, part) for part in parts)
        if not split or not lost:
            continue
        kept = lost * _in_time(analysis, split) // split.transfer_ns
        if finding == LATENCY:
            kinds = len({_merging_key(scope, part.collective) for part in parts})
            left = min(kinds * max(analysis.window.periods, 1), len(parts))
            kept = kept * (len(parts) - left) // len(parts)
        losses.append(Loss(rank.rank, lost, kept, len(parts), analysis.window.length))
    return losses


def _merging_key(scope: Scope, collective: int) -> tuple[object, object]:
    """Return what collectives must share to be merged: kind and group."""
    if scope.found is None:
        return (None, None)
    one = scope.found.matched[collective]
    return (one.kind, one.group)


def parts_of(finding: str, scope: Scope, rank: int) -> list[Part]:
    """Return the parts of a rank's transfers that a finding is about."""
    if scope.found is None:
        return []
    found, mine = scope.found, scope.found.transfer.parts.get(rank, ())
    roles = {
        part.collective: role.name
        for part in mine
        if (group := found.matched[part.collective].group) and (role := found.roles.get(group))
    }
    return parts_of_finding(finding, mine, roles)


def _loss(entry: Entry, rank: RankAnalysis, analysis: DeviceAnalysis) -> Loss | None:
    """Return what one device lost to a finding; stretches with missing records are left out."""
    if entry.buckets[0].startswith("copy."):
        return _copy_loss(entry, rank, analysis)
    cause = CAUSE_BUCKETS.index(entry.buckets[0])
    charged = analysis.idle.charged[:, cause] * _recorded(analysis)
    if cause == BLOCKED and analysis.device.is_early:
        return None  # when work was enqueued isn't known
    if cause == BLOCKED:
        charged = charged * _blocked_gaps(analysis, shared=entry.id == "gpu_shared")
    lost = int(charged.sum())
    if not lost:
        return None
    profiler = analysis.idle.profiler_ns if cause == HostClass.LAUNCH else 0
    count = int((charged > 0).sum())
    return Loss(rank.rank, lost, max(lost - profiler, 0), count, analysis.window.length)


def _copy_loss(entry: Entry, rank: RankAnalysis, analysis: DeviceAnalysis) -> Loss | None:
    if not analysis.device.has_compute:
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
