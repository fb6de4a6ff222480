"""Ranks without a trace: there is an answer, its limits are said, and nobody wrong is named."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest
from simulator import faults
from simulator.faults import Injected

from gpudiag.analyze.job import analyze_job
from gpudiag.trace import read_job

RANKS, LATE = 4, 2
SUBSETS = [kept for n in range(1, RANKS) for kept in combinations(range(RANKS), n)]
FAULTS = ("gc", "input", "slow GPU", "more work", "launch")
# What is about a rank that others wait for; on the rank itself it is in no bucket.
ABOUT_WAITS = {"straggler", "slow_gpu", "workload_imbalance"}


@cache
def traces(fault):
    job = faults.build(5, (Injected(fault, (LATE,), 12_000_000),), RANKS).run()
    return [job.trace(rank) for rank in range(RANKS)]


@pytest.mark.parametrize("kept", SUBSETS)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_subset_of_ranks_names_a_wrong_culprit(tmp_path, fault, kept):
    """The late rank if it is there, else none; that ranks are missing is a finding."""
    for rank in kept:
        (tmp_path / f"rank{rank}.json").write_text(traces(fault)[rank])
    analysis = analyze_job(read_job([str(tmp_path)]))
    for result in analysis.ranks:
        assert sum(result.buckets_ns.values()) == result.window_ns
    found = {one.id: one for one in analysis.findings}
    assert "ranks_missing" in found
    assert analysis.job.missing_ranks == sorted(set(range(RANKS)) - set(kept))
    expected = faults.FAULTS[fault].finding
    known = {expected} if LATE in kept else set()
    assert {one for one in found if one in ABOUT_WAITS or one == expected} <= known
    if LATE in kept and len(kept) > 1:
        assert found[expected].ranks == [LATE]
    waits = sum(row.wait_ns for row in analysis.blame)
    on_others = sum(row.wait_ns for row in analysis.blame if row.rank != LATE)
    allowed = 0.02 * sum(result.window_ns for result in analysis.ranks)
    assert on_others <= allowed
    assert LATE in kept or waits <= allowed
    if len(kept) > 1:
        assert "members_missing" in [entry.id for entry in analysis.quality]
    else:
        assert "comm.wait" not in analysis.ranks[0].buckets_ns
