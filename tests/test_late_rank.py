"""A real job of four ranks, one of them late: who, why, and by how much."""

from __future__ import annotations

from statistics import mean

import pytest
from test_workloads import run_job

from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.trace import read_job

RANKS, LATE, MS = 4, 1, 1_000_000
SLOW_MS = 400
ATTEMPTS = 3
# What a fault is called, and the bucket of the training thread that its time is in.
FAULTS = [
    ("compute", "straggler", "host.op"),
    ("backward", "straggler", "host.op"),
    ("loader", "input_stall", "host.input"),
    ("gc", "gc_pause", "host.gc"),
    ("checkpoint", "checkpoint_stall", "host.checkpoint"),
    ("host", "host_overhead", "host.other"),
]


def job(tmp_path, fault, ms):
    """Train with a fault on one rank; return the analysis, and what a peer waits a step, ns."""
    options = ["--fault", fault, "--slow-rank", str(LATE), "--slow-ms", str(ms)]
    recordings = run_job(tmp_path, RANKS, *options, "--layers", "1")
    traces = sorted(str(path) for path in tmp_path.glob("rank?.json.gz"))
    analysis = analyze_job(read_job(traces), Options())
    steps = [[s for s in one.truth["steps"] if s["recorded"]][1:-1] for one in recordings]
    peers = [steps[rank] for rank in range(RANKS) if rank != LATE]
    waits = [
        lateness(late, early, fault)
        for peer in peers
        for late, early in zip(steps[LATE], peer, strict=True)
    ]
    return analysis, mean(waits)


def lateness(late, early, fault):
    """Return how much later a rank has its gradients than a peer, for the fault, ns.

    On a busy machine the peers are late by themselves, too: they wait less than the fault lasts. Or
    the late one is later than that; where the fault is an operator, that is in the same bucket.
    """
    lasted = late["fault_ns"] + late["loader_ns"]
    apart = late["gradients_unix_ns"] - early["gradients_unix_ns"]
    return max(apart if fault in ("compute", "backward") else min(apart, lasted), 0)


def near(ns):
    return pytest.approx(ns, abs=max(0.05 * ns, 5 * MS))


@pytest.mark.slow
@pytest.mark.needs("torch")
@pytest.mark.parametrize(("fault", "finding", "bucket"), FAULTS)
def test_a_late_rank_of_a_real_job_is_named_with_its_cause_and_amount(
    tmp_path, fault, finding, bucket
):
    """What the peers wait by the workload's own clock is charged to it, to 5 % or 5 ms.

    Rank and cause are right in every recording; the amount in one of ATTEMPTS, as where the machine
    is busy what delays the peers may lie in any bucket.
    """
    found = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        analysis, truth_ns = job(folder, fault, SLOW_MS)
        lead = analysis.findings[0]
        assert (lead.id, lead.ranks) == (finding, [LATE])
        (charged,) = (row for row in analysis.blame if (row.rank, row.cause) == (LATE, bucket))
        assert charged.affected == [0, 2, 3]
        periods = [len(one.host_steps_ns) for one in analysis.ranks if one.rank != LATE]
        found.append((charged.wait_ns / sum(periods), truth_ns))
        if found[-1][0] == near(truth_ns):
            return
    pytest.fail(f"charged and true ns of each recording: {found}")
