"""Transfer of matched collectives: latency, bandwidth, and what is slower than the job's best.

A transfer takes ``t = alpha + bytes x c / B`` (c: the bus factor of nccl-tests). Alpha is fitted
per (kind, group) over its message sizes, B is the best decile of bus bandwidth per (kind, group,
size class); both from whole transfers, last arrival to last end on aligned clocks. The exposed
transfer tau of one rank in one collective is then::

    latency = min(tau, alpha)
    bandwidth = min(tau - latency, bytes x c / B)
    degraded = the rest
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

from gpudiag.analyze.comm.clock import Clocks
from gpudiag.analyze.comm.kinds import POINT_TO_POINT, Kind, bus_factor
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.records import GroupKey
from gpudiag.analyze.comm.split import Arrivals, RankSplit
from gpudiag.model import thresholds

# Who moves what between whom: collectives of one fit. For send and recv the pair counts, too.
FitKey = tuple[Kind, GroupKey | None, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One whole transfer: bytes over the bus (size x factor) and how long it took, ns."""

    size_bytes: int
    bus_bytes: float
    took_ns: int
    shortest_ns: int  # the shortest record of any rank: no clock can make it longer


@dataclass(frozen=True, slots=True)
class Alpha:
    """The fixed cost of one collective of a (kind, group), and how many transfers show it."""

    ns: int
    samples: int
    sizes: int


@dataclass(frozen=True, slots=True)
class Reference:
    """The job's own best: how long the bytes of a size class take, and of how many transfers."""

    bus_gb_s: float  # inf where the messages are too small to cost more than alpha
    samples: int


@dataclass(frozen=True, slots=True)
class Part:
    """The exposed transfer of one rank in one collective, ns; None: can't be told apart."""

    collective: int
    transfer_ns: int
    latency_ns: int | None
    bandwidth_ns: int | None
    degraded_ns: int | None
    # The whole transfer over alpha + bytes x c / B; by the rank that was in it for the shortest
    # time, so that no error of clocks and no late rank can make it large.
    times_expected: float | None
    bandwidth_bound: bool | None  # its bytes take longer than its alpha


@dataclass(frozen=True, slots=True)
class Transfer:
    """All transfers of a job against its own alpha and best bandwidth."""

    took_ns: Mapping[int, int]  # by matched collective: last arrival to last end
    alphas: Mapping[int, Alpha] = field(default_factory=dict)
    references: Mapping[int, Reference] = field(default_factory=dict)
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict)  # by rank


def transfers(
    matched: Sequence[Matched],
    arrived: Mapping[int, Arrivals],
    clocks: Clocks,
    splits: Mapping[int, RankSplit],
) -> Transfer:
    """Fit every (kind, group) and part the exposed transfer of every rank."""
    took = {
        index: max(clocks.aligned(rank, r.end) for rank, r in matched[index].records.items())
        - one.last
        for index, one in arrived.items()
    }
    took = {index: ns for index, ns in took.items() if ns > 0}
    samples: dict[FitKey, dict[int, Sample]] = defaultdict(dict)
    for index, ns in took.items():
        one = matched[index]
        if one.bytes:
            bus = one.bytes * bus_factor(one.kind, one.size)
            shortest = min(record.end - record.start for record in one.records.values())
            samples[_fit_key(one)][index] = Sample(one.bytes, bus, ns, shortest)
    alphas: dict[int, Alpha] = {}
    references: dict[int, Reference] = {}
    for mine in samples.values():
        alpha = fit_alpha(mine.values())
        if alpha:
            alphas |= dict.fromkeys(mine, alpha)
        references |= _references(mine, alpha)
    every = {index: sample for mine in samples.values() for index, sample in mine.items()}
    parts = {
        rank: tuple(
            split_transfer(
                part.collective,
                part.transfer_ns,
                every.get(part.collective),
                alphas.get(part.collective),
                references.get(part.collective),
            )
            for part in split.parts
            if part.transfer_ns
        )
        for rank, split in splits.items()
    }
    return Transfer(took, alphas, references, parts)


def _fit_key(one: Matched) -> FitKey:
    pair = tuple(sorted(one.records)) if one.kind in POINT_TO_POINT else ()
    return one.kind, one.group, one.size, pair


def fit_alpha(samples: Iterable[Sample]) -> Alpha | None:
    """Return the intercept of time over bytes; None where the transfers can't tell.

    Each size stands for its lower decile; the slope is the median over pairs of sizes (Theil and
    Sen), the intercept is taken at the smallest size, where bytes cost least.
    """
    by_size: dict[float, list[int]] = defaultdict(list)
    for sample in samples:
        by_size[sample.bus_bytes].append(sample.took_ns)
    seen = {x: t for x, t in by_size.items() if len(t) >= thresholds.FEW_OF_A_SIZE and x > 0}
    points = sorted((x, _best_decile(sorted(times))) for x, times in seen.items())
    count = sum(len(times) for times in seen.values())
    if len(points) < 2 or count < thresholds.FEW_COLLECTIVES:  # noqa: PLR2004 - a line needs two
        return None
    if points[-1][0] < thresholds.SIZES_APART * points[0][0]:
        return None
    slope = max(median((tb - ta) / (b - a) for (a, ta), (b, tb) in combinations(points, 2)), 0.0)
    smallest, fastest = points[0]
    alpha = fastest - slope * smallest
    if alpha < thresholds.LATENCY_SEEN_FRAC * fastest:
        return None  # the smallest message is too large to show what a message costs
    return Alpha(round(alpha), count, len(points))


def _best_decile(ordered: Sequence[float]) -> float:
    """Return the value at a tenth of an ascending list (nearest rank)."""
    return ordered[math.ceil(len(ordered) / 10) - 1]


def _references(samples: Mapping[int, Sample], alpha: Alpha | None) -> dict[int, Reference]:
    """Return the best decile of bus bandwidth of each collective's size class.

    A class is a factor of two of bytes; one size only where alpha isn't known, since it would make
    the smaller messages of a class look slow.
    """
    classes: dict[int, list[int]] = defaultdict(list)
    for index, sample in samples.items():
        classes[sample.size_bytes.bit_length() if alpha else sample.size_bytes].append(index)
    references: dict[int, Reference] = {}
    fixed = alpha.ns if alpha else 0
    for mine in classes.values():
        if len(mine) < thresholds.FEW_COLLECTIVES:
            continue
        costs = sorted(
            max(samples[index].took_ns - fixed, 0) / samples[index].bus_bytes
            for index in mine
            if samples[index].bus_bytes
        )
        if costs:
            best = _best_decile(costs)
            rate = 1 / best if best > 0 else math.inf
            references |= dict.fromkeys(mine, Reference(rate, len(mine)))
    return references


def split_transfer(
    collective: int,
    transfer_ns: int,
    sample: Sample | None,
    alpha: Alpha | None,
    reference: Reference | None,
) -> Part:
    """Return the parts of an exposed transfer; they sum to it where all are known.

    Without alpha only the degraded part is: what exceeds the best of the same size.
    """
    if sample is None or reference is None:
        return Part(collective, transfer_ns, None, None, None, None, None)
    fixed = alpha.ns if alpha else 0
    moving = round(sample.bus_bytes / reference.bus_gb_s)
    latency = min(transfer_ns, fixed)
    bandwidth = min(transfer_ns - latency, moving)
    return Part(
        collective=collective,
        transfer_ns=transfer_ns,
        latency_ns=latency if alpha else None,
        bandwidth_ns=bandwidth if alpha else None,
        degraded_ns=transfer_ns - latency - bandwidth,
        times_expected=min(sample.took_ns, sample.shortest_ns) / max(fixed + moving, 1),
        bandwidth_bound=moving > fixed if alpha else None,
    )


LATENCY, BANDWIDTH, DEGRADED = "collective_latency", "collective_bandwidth", "link_degraded"
# Collectives that depend on each other, layer by layer: they can't be merged to save latency.
_IN_TURN = frozenset({"tp", "pp"})


def parts_of_finding(finding: str, parts: Iterable[Part], roles: Mapping[int, str]) -> list[Part]:
    """Return the parts of which a finding takes its nanoseconds; ``roles`` by collective.

    Jitter, transfers without a fit, the latency of large messages and of collectives that can't be
    merged are of no finding here.
    """
    if finding == LATENCY:
        return [
            part
            for part in parts
            if part.bandwidth_bound is False and roles.get(part.collective) not in _IN_TURN
        ]
    if finding == BANDWIDTH:
        return [part for part in parts if part.bandwidth_bound]
    return [part for part in parts if (part.times_expected or 0) >= thresholds.DEGRADED_TIMES]


def taken_ns(finding: str, part: Part) -> int:
    """Return what a finding takes of a part, ns: each nanosecond is of one finding only."""
    leaf = {LATENCY: part.latency_ns, BANDWIDTH: part.bandwidth_ns, DEGRADED: part.degraded_ns}
    return leaf[finding] or 0
