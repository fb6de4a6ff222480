"""Whom each wait of a job with faults is truly due to, told by what was put in.

What a fault delays is a difference of simulations: every rank runs by itself, where nobody waits,
once as it is and once with that fault alone. The wait of rank r in a collective whose last rank is
q is due to the faults of q, in proportion to what they delay q more than r since the step began.
What they don't explain is chance, as far as the job without faults has such waits too; beyond it,
it is due to the faults of q all the same: a fault on all ranks delays them by different amounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator import faults
from simulator.faults import Injected
from simulator.job import Job
from simulator.truth import RankTruth

CHANCE = ("chance", -1)
RARE_FRAC = 0.01  # waits that faults don't explain are looked into from this share of the others on
Due = tuple[str, int]  # name of the fault, rank
Lateness = dict[tuple[int, int], int]  # by (rank, number of the collective)


def waits(seed: int, injected: Sequence[Injected], job: Job, steps: int) -> Counter[Due]:
    """Return what ranks wait in the windows, by the fault and the rank that it is due to, ns."""
    ranks = len(job.ranks)
    shared = [one for one in injected if one.fault.is_shared]  # it makes nobody late
    own = [one for one in injected if not one.fault.is_shared]
    delays = {one: _delays(seed, shared, one, ranks, steps) for one in own}
    found: Counter[Due] = Counter()
    rest: Counter[int] = Counter()
    for (culprit, waiting, seq), ns in _waited(job).items():
        excess = {
            one.name: max(0, late.get((culprit, seq), 0) - late.get((waiting, seq), 0))
            for one, late in delays.items()
        }
        whole = max(sum(excess.values()), ns)
        shares = {name: ns * more // whole for name, more in excess.items()}
        found.update({(name, culprit): share for name, share in shares.items() if share})
        rest[culprit] += ns - sum(shares.values())
    worth_it = sum(rest.values()) > RARE_FRAC * sum(found.values())
    chance = sum(_waited(faults.build(seed, (), ranks, steps)).values()) if worth_it else 0
    for culprit, ns in rest.most_common():
        names = [one.name for one in own if culprit in one.ranks]
        usually = min(ns, chance) if names else ns
        chance -= usually if names else 0
        found[CHANCE] += usually
        for name in names:
            found[name, culprit] += (ns - usually) // len(names)
    return found


def _waited(job: Job) -> Counter[tuple[int, int, int]]:
    """Return exposed waits of the windows by (last rank, waiting rank, collective), ns."""
    found: Counter[tuple[int, int, int]] = Counter()
    for proc in job.run().ranks:
        device = RankTruth(proc, job.clocks[proc.rank], len(job.ranks)).device(proc.rank)
        for meeting, ns in device.waited.items():
            found[meeting.last_rank, proc.rank, meeting.seq] += ns
    return found


def _delays(
    seed: int, shared: Sequence[Injected], fault: Injected, ranks: int, steps: int
) -> Lateness:
    """Return what a fault delays the ranks that it hits, by (rank, collective), ns."""
    usual = _lateness(seed, shared, ranks, steps, fault.ranks)
    late = _lateness(seed, (*shared, fault), ranks, steps, fault.ranks)
    return {key: at - usual[key] for key, at in late.items()}


def _lateness(
    seed: int, injected: Sequence[Injected], ranks: int, steps: int, alone: Sequence[int]
) -> Lateness:
    """Return when each rank by itself arrives, since the last collective of the step before."""
    job = faults.build(seed, injected, ranks, steps, alone).run()
    arrivals = {}
    for group in (job.groups[rank] for rank in alone):
        (rank,) = group.ranks
        since, each = 0, len(group.meetings) // steps
        for _, meeting in sorted(group.meetings.items()):
            arrivals[rank, meeting.seq] = meeting.last_arrival - since
            if meeting.seq % each == 0:
                since = meeting.last_arrival + meeting.transfer_ns
    return arrivals
