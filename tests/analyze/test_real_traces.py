"""The accounting on real traces, against figures computed independently of this project."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import require

from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.trace import read_job

if TYPE_CHECKING:
    from pathlib import Path

    from gpudiag.model.analysis import Analysis

GOLDEN = require.SHARED / "golden" / "kineto_partition.json"
WINDOWS = {"device_span": "device_window", "steps": "step_window"}


def golden_cases() -> list[tuple[str, str]]:
    if not GOLDEN.is_file():
        return []
    golden = json.loads(GOLDEN.read_text())
    return [
        (name, window)
        for name, entry in golden.items()
        for window, key in WINDOWS.items()
        if key in entry
    ]


def analyze(*paths: Path, **options: object) -> Analysis:
    return analyze_job(read_job([str(path) for path in paths]), Options(**options))


# The golden calls a kernel comm if its name contains "nccl"; accounting.md 4 also counts custom
# all-reduce kernels (here multimem_all_reduce_kernel): that moves so much, ns.
BY_OUR_RULE = {
    "kt-tracelens-b200-rank0of8/eager_trace.json.gz": {
        "compute": 10_771_685 - 8_652_137,
        "comm": 21_953 - 2_141_501,
    },
}


@pytest.mark.needs("shared")
@pytest.mark.parametrize(("name", "window"), golden_cases())
def test_level_1_equals_the_golden_to_the_nanosecond(name, window):
    """Compute, exposed comm, exposed copy, idle and the window itself are exactly the golden's."""
    golden = json.loads(GOLDEN.read_text())[name]
    want = golden[WINDOWS[window]]
    results = analyze(require.SHARED / "traces" / name, window=window).ranks
    measured = [result for result in results if result.window_ns is not None]
    assert len(measured) == 1
    result = measured[0]
    moved = BY_OUR_RULE.get(name, {})
    assert result.window_ns == want["window_ns"]
    assert result.level1_ns == {
        "compute": want["compute_ns"] - moved.get("compute", 0),
        "comm": want["exposed_comm_ns"] - moved.get("comm", 0),
        "copy": want["exposed_copy_ns"],
        "idle": want["idle_ns"],
    }
    assert result.periods == want.get("periods", 0)
    assert sum(result.buckets_ns.values()) == result.window_ns


@pytest.mark.needs("shared")
def test_custom_all_reduce_is_what_moves_the_b200_trace():
    """The one file that differs from the golden does so by its multimem_all_reduce kernels."""
    name = next(iter(BY_OUR_RULE))
    analysis = analyze(require.SHARED / "traces" / name, window="device_span")
    custom = [row for row in analysis.kernels if "multimem_all_reduce" in row.name]
    assert custom
    assert {row.category for row in custom} == {"comm"}
    assert sum(row.total_ns for row in custom) >= BY_OUR_RULE[name]["compute"]


@pytest.mark.needs("shared")
def test_without_loader_workers_the_gpu_waits_for_input_and_with_four_it_does_not(shared):
    """ResNet-50 on a V100: num_workers 0 leads with input_stall, 4 has no such finding."""
    folder = shared / "traces" / "kt-kineto2021-w0-vs-w4-v100"
    slow = analyze(folder / "worker0.1623143089861.pt.trace.json.gz")
    fast = analyze(folder / "worker0.1623212756351.pt.trace.json.gz")
    assert slow.findings[0].id == "input_stall"
    idle = {k: v for k, v in slow.job_buckets_ns.items() if k.startswith("idle.")}
    assert idle["idle.input"] > 0.6 * sum(idle.values())
    assert any("resnet50_profiler_api.py:44" in line for line in slow.findings[0].evidence)
    assert "input_stall" not in [finding.id for finding in fast.findings]


def truth(shared: Path, case: str, rank: int) -> list[dict[str, float]]:
    path = shared / "traces" / "gloo-faults" / case / f"t.rank{rank}.json"
    return json.loads(path.read_text())["steps"]


@pytest.mark.needs("shared")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_slow_loader_is_seen_on_the_host_to_two_percent(shared, rank):
    """100 ms a batch in both ranks' datasets is host.input, in the window and step by step."""
    folder = shared / "traces" / "gloo-faults" / "ddp_slow_loader_100ms" / "ranks"
    analysis = analyze(next(folder.glob(f"rank{rank}-*.trace.json.gz")), window="all")
    (result,) = analysis.ranks
    assert result.window_ns is None
    assert sum(result.host_buckets_ns.values()) == result.host_window_ns
    slept = [step["dl"] * 1e9 for step in truth(shared, "ddp_slow_loader_100ms", rank)]
    first = min(
        range(len(slept) - 5),
        key=lambda i: abs(sum(slept[i : i + 6]) - result.host_buckets_ns["host.input"]),
    )
    assert result.host_buckets_ns["host.input"] == pytest.approx(
        sum(slept[first : first + 6]), rel=0.02
    )


@pytest.mark.needs("shared")
def test_a_sleeping_rank_is_seen_on_the_host_and_not_on_its_peer(shared):
    """150 ms of sleep before each forward is host time outside collectives on rank 1 only."""
    folder = shared / "traces" / "gloo-faults" / "ddp_slow_rank1_150ms" / "ranks"
    analysis = analyze(*sorted(folder.glob("*.trace.json.gz")), window="all")
    peer, slow = (result.host_buckets_ns for result in analysis.ranks)
    assert slow["host.other"] - peer["host.other"] == pytest.approx(0.901e9, rel=0.02)
    assert peer["host.collective"] - slow["host.collective"] > 0.9e9


@pytest.mark.needs("shared")
def test_messages_both_ways_align_two_stages(shared):
    """A receive ends after its send began, in both directions: that bounds the clocks."""
    analysis = analyze(shared / "traces" / "gloo-faults" / "pp_1f1b_m4" / "ranks")
    assert analysis.clock.aligned
    assert 0 < analysis.clock.half_width_ns < 5_000_000
    for row in analysis.collectives:
        assert row.wait_ns + row.transfer_ns + row.unsplit_ns + row.pipeline_ns == row.exposed_ns
        assert row.exposed_ns > 0
