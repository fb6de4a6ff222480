"""Waits by the finding that explains them: a late loader on rank 2 is one finding, on rank 2."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpudiag.analyze.comm.blame import Blame
from gpudiag.analyze.rank import RankAnalysis
from gpudiag.model import thresholds
from gpudiag.model.catalogue import CATALOGUE

_COMPUTE = frozenset({"compute.tensor", "compute.other"})
STRAGGLER, SLOW_GPU, IMBALANCE = "straggler", "slow_gpu", "workload_imbalance"


@dataclass(slots=True)
class CausedWait:
    """What one rank made others wait, for one finding, ns."""

    rank: int
    ns: int = 0
    ambiguous_ns: int = 0
    affected: frozenset[int] = frozenset()
    causes: frozenset[str] = frozenset()


def waits_by_finding(
    blame: Blame, ranks: Sequence[RankAnalysis]
) -> dict[str, dict[int, CausedWait]]:
    """Return finding id -> culprit rank -> the waits it caused."""
    owner = _finding_of_bucket()
    reason = {
        rank: None if rank in blame.staged else _why_compute(rank, ranks)
        for rank, _ in blame.charges
    }
    leading = _leading_cause(blame)
    waits: dict[str, dict[int, CausedWait]] = defaultdict(dict)
    for (rank, cause), charge in blame.charges.items():
        named = cause
        if cause in _COMPUTE:
            # A rank that computes no more than its peers is late for another reason: its compute
            # only came later than theirs.
            finding = reason[rank] or owner.get(leading.get(rank, ""), STRAGGLER)
        else:
            finding = owner.get(cause, STRAGGLER)
        one = waits[finding].setdefault(rank, CausedWait(rank))
        one.ns += charge.wait_ns
        one.ambiguous_ns += charge.ambiguous_ns
        one.affected |= charge.affected or set()
        one.causes |= {named}
    return dict(waits)


def _finding_of_bucket() -> dict[str, str]:
    owner: dict[str, str] = {}
    for entry in CATALOGUE.values():
        if entry.kind != "finding" or entry.id in (*thresholds.GUESSES, "memory_bound"):
            continue
        buckets = (*entry.buckets, *([entry.host_bucket] if entry.host_bucket else []))
        for bucket in buckets:
            if not bucket.startswith(("compute.", "comm.")):
                owner.setdefault(bucket, entry.id)
    return owner


def _leading_cause(blame: Blame) -> dict[int, str]:
    """Return for each culprit its largest cause other than compute."""
    best: dict[int, tuple[int, str]] = {}
    for (rank, cause), charge in blame.charges.items():
        if cause not in _COMPUTE and charge.wait_ns > best.get(rank, (0, ""))[0]:
            best[rank] = (charge.wait_ns, cause)
    return {rank: cause for rank, (_, cause) in best.items()}


def _why_compute(rank: int, ranks: Sequence[RankAnalysis]) -> str | None:
    """Return why a rank computes longer than its peers; None if it doesn't."""
    totals = {one.rank: _compute_ns(one) for one in ranks if one.devices}
    peers = [ns for other, ns in totals.items() if other != rank]
    if rank not in totals or not peers:
        return None
    if totals[rank] < (1 + thresholds.MORE_COMPUTE_FRAC) * median(peers):
        return None
    return _why_compute_longer(rank, ranks)


def _compute_ns(rank: RankAnalysis) -> int:
    return sum(d.partition.tensor.total + d.partition.other.total for d in rank.devices)


def _why_compute_longer(rank: int, ranks: Sequence[RankAnalysis]) -> str:
    """Tell more work from a slower device: the same operators on the same shapes, timed.

    Where most of the rank's operators have no equal on the peers, its work differs. Where shapes
    are not recorded nothing can be compared, and the rank is late for a reason that isn't known.
    """
    times = {one.rank: _operator_times(one) for one in ranks if one.devices}
    mine = times.pop(rank)
    if not mine:
        return STRAGGLER
    slower = compared = 0.0
    for what, (ns, mean) in mine.items():
        others = [peer[what][1] for peer in times.values() if what in peer]
        if others:
            compared += ns
            slower += ns if mean > thresholds.SLOWER_KERNEL * median(others) else 0
    whole = sum(ns for ns, _ in mine.values())
    same = compared >= thresholds.MOSTLY_FRAC * whole
    return SLOW_GPU if same and slower >= thresholds.MOST_KERNELS_FRAC * compared else IMBALANCE


def _operator_times(rank: RankAnalysis) -> dict[tuple[str, str, int], tuple[int, float]]:
    """Return (operator, shapes, phase) -> (ns of its kernels, ns a call), of known shapes."""
    times: dict[tuple[str, str, int], tuple[int, int]] = {}
    rows = (row for device in rank.devices for row in device.flops.operators)
    for one in (row for row in rows if row.dims):
        ns, count = times.get((one.name, one.dims, one.phase), (0, 0))
        times[one.name, one.dims, one.phase] = (ns + one.time_ns, count + one.count)
    return {what: (ns, ns / count) for what, (ns, count) in times.items() if count}


def total_ns(waits: Mapping[int, CausedWait]) -> int:
    """Return the waits of all culprits, ns."""
    return sum(one.ns for one in waits.values())
