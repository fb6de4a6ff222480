"""One clock for all ranks, from the collectives themselves (accounting.md 5, Clocks).

Nobody ends a synchronising collective before everybody has started it. With rank r's clock ahead by
theta_r, each collective of ranks p and q therefore bounds theta_q - theta_p::

    a_q - e_p  <=  theta_q - theta_p  <=  e_q - a_p

The intersection over all collectives is a hard interval; the median of e_q - e_p, which is about
the same moment on both, is the estimate. Recordings over 30 s get a drift as well.

Host records of processes on one machine are read from one clock: where the interval allows it, the
offset of such ranks is 0. A rank that is always late leaves the interval as wide as it is late.

Ranks that share no such collective, but messages in both directions, are compared by these: no
receive ends before its send starts. One direction gives the lower bound, the other the upper; the
middle is the estimate.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.comm.kinds import SYNCHRONISING, Kind
from gpudiag.analyze.comm.match import Matched
from gpudiag.model.tables import I64

# A recording longer than this may drift by more than its collectives take.
_DRIFT_FROM_NS = 30 * 10**9
_MOST_DRIFT_SAMPLES = 400
# Processes of one machine count its clock each by a calibration of their own.
_ONE_MACHINE_NS = 10_000


@dataclass(frozen=True, slots=True)
class RankClock:
    """How far a rank's clock is ahead of the reference rank's, ns; certain to +- half_width_ns."""

    offset_ns: int
    half_width_ns: int
    drift_ppm: float = 0.0
    origin_ns: int = 0  # the rank's own time at which ``offset_ns`` holds

    def ahead(self, at: int) -> int:
        """Return how far the clock is ahead at one of its own times, ns."""
        if not self.drift_ppm:
            return self.offset_ns
        return self.offset_ns + round(self.drift_ppm * 1e-6 * (at - self.origin_ns))


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of all ranks that can be compared; pairs may contradict themselves."""

    of_rank: Mapping[int, RankClock]
    unreached: tuple[int, ...]  # ranks that share no collective with the reference
    inconsistent: tuple[tuple[int, int], ...]  # no offset fits all of their collectives

    def aligned(self, rank: int, at: int) -> int:
        """Return one of a rank's times on the reference's clock."""
        return at - self.of_rank[rank].ahead(at)

    def half_width(self, rank: int) -> int:
        """Return how uncertain a rank's aligned times are, ns."""
        return self.of_rank[rank].half_width_ns


@dataclass(frozen=True, slots=True)
class _Pair:
    offset_ns: int
    half_width_ns: int
    drift_ppm: float
    origin_ns: int
    consistent: bool
    low_ns: int
    high_ns: int

    def allows(self, offset_ns: int) -> bool:
        """Tell whether the collectives allow an offset, to what one machine's clock is off by."""
        return self.low_ns - _ONE_MACHINE_NS <= offset_ns <= self.high_ns + _ONE_MACHINE_NS


def align(
    matched: Sequence[Matched], ranks: Sequence[int], machines: Mapping[int, str] | None = None
) -> Clocks:
    """Return the clock of every rank against the lowest one, over as few others as possible.

    ``machines`` names the machine of ranks whose records hold its clock.
    """
    times = _times_by_pair(matched)
    pairs = {pair: _pair(np.array(rows, dtype=np.int64)) for pair, rows in times.items()}
    for (p, q), pair in pairs.items():
        if machines and p in machines and machines[p] == machines.get(q) and pair.allows(0):
            pairs[p, q] = _Pair(0, min(_ONE_MACHINE_NS, pair.half_width_ns), 0.0, 0, True, 0, 0)
    reference = min(ranks)
    clocks = {reference: RankClock(0, 0)}
    _reach(clocks, pairs)
    if len(clocks) < len(ranks):
        pairs = _message_pairs(matched) | pairs
        _reach(clocks, pairs)
    return Clocks(
        of_rank=clocks,
        unreached=tuple(rank for rank in ranks if rank not in clocks),
        inconsistent=tuple(pair for pair, one in sorted(pairs.items()) if not one.consistent),
    )


def _reach(clocks: dict[int, RankClock], pairs: Mapping[tuple[int, int], _Pair]) -> None:
    """Add the clocks of all ranks that pairs lead to, over as few others as possible."""
    neighbours: dict[int, list[int]] = defaultdict(list)
    for p, q in sorted(pairs):
        neighbours[p].append(q)
        neighbours[q].append(p)
    queue = deque(sorted(clocks))
    while queue:
        p = queue.popleft()
        for q in neighbours[p]:
            if q not in clocks:
                clocks[q] = _chained(clocks[p], pairs, p, q)
                queue.append(q)


def _message_pairs(matched: Iterable[Matched]) -> dict[tuple[int, int], _Pair]:
    """Return the pairs of ranks (p < q) that have messages in both directions."""
    low: dict[tuple[int, int], list[int]] = defaultdict(list)
    high: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in matched:
        ends = {record.kind: rank for rank, record in one.records.items()}
        source, target = ends.get(Kind.SEND), ends.get(Kind.RECV)
        if source is None or target is None:
            continue
        bound = one.records[target].end - one.records[source].start
        if source < target:
            high[source, target].append(bound)
        else:
            low[target, source].append(-bound)
    pairs = {}
    for pair in low.keys() & high.keys():
        least, most = max(low[pair]), min(high[pair])
        half = (abs(most - least) + 1) // 2
        pairs[pair] = _Pair((least + most) // 2, half, 0.0, 0, least <= most, least, most)
    return pairs


def _times_by_pair(matched: Iterable[Matched]) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """Collect (a_p, e_p, a_q, e_q) of the lowest rank of each collective with every other."""
    times: dict[tuple[int, int], list[tuple[int, ...]]] = defaultdict(list)
    for one in matched:
        if one.kind not in SYNCHRONISING:
            continue
        p = min(one.records)
        first = one.records[p]
        for q, other in one.records.items():
            if q != p:
                times[p, q].append((first.start, first.end, other.start, other.end))
    return times


def _pair(times: I64) -> _Pair:
    """Return theta_q - theta_p from rows (a_p, e_p, a_q, e_q)."""
    a_p, e_p, a_q, e_q = times.T
    drift = _drift(e_p, e_q - e_p)
    origin = int(e_q[0])
    moved = np.rint(drift * 1e-6 * (e_q - origin)).astype(np.int64)
    low = int((a_q - e_p - moved).max())
    high = int((e_q - a_p - moved).min())
    estimate = int(np.median(e_q - e_p - moved))
    consistent = low <= high
    if consistent:
        estimate = min(max(estimate, low), high)
    half = (abs(high - low) + 1) // 2
    return _Pair(estimate, half, drift, origin, consistent, low, high)


def _drift(at: I64, difference: I64) -> float:
    """Return the drift of two clocks, ppm, by Theil and Sen; 0 for recordings under 30 s."""
    if len(at) < 3 or at.max() - at.min() < _DRIFT_FROM_NS:  # noqa: PLR2004 - two points make any line
        return 0.0
    step = max(len(at) // _MOST_DRIFT_SAMPLES, 1)
    at, difference = at[::step], difference[::step]
    i, j = np.triu_indices(len(at), 1)
    apart = at[j] - at[i]
    keep = apart > 0
    slopes = (difference[j] - difference[i])[keep] / apart[keep]
    return float(np.median(slopes) * 1e6) if len(slopes) else 0.0


def _chained(
    through: RankClock, pairs: Mapping[tuple[int, int], _Pair], p: int, q: int
) -> RankClock:
    """Return q's clock against the reference, by way of p; uncertainties add up."""
    forward = (p, q) in pairs
    pair = pairs[(p, q) if forward else (q, p)]
    sign = 1 if forward else -1
    return RankClock(
        offset_ns=through.offset_ns + sign * pair.offset_ns,
        half_width_ns=through.half_width_ns + pair.half_width_ns,
        drift_ppm=through.drift_ppm + sign * pair.drift_ppm,
        origin_ns=pair.origin_ns,
    )
