"""Across ranks: matching, clocks, waiting against transfer, and who is to blame."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
import require
from hypothesis import given
from hypothesis import strategies as st
from simulator import scenarios, training
from simulator.job import Job
from simulator.kernels import Shape

from analyze.simulated import POOL, pipelines_joined
from analyze.traces import US, Work, annotation, call, job, trace
from gpudiag.analyze.comm.clock import align
from gpudiag.analyze.comm.kinds import Kind, bus_factor, item_bytes, kind_of, message_elements
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.records import Record
from gpudiag.analyze.comm.shared import culprit_changes
from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.trace import read_job

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEVERAL_RANKS = [
    "ddp_clean",
    "ddp_slow_loader_rank",
    "ddp_no_seq",
    "ddp_slow_gpu",
    "ddp_clocks",
    "ddp_gc_in_turn",
    "host_barrier",
    "pipeline_1f1b",
    "pipeline_imbalanced",
]


def analyze(*paths, **options):
    return analyze_job(read_job([str(path) for path in paths]), Options(**options))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", Kind.ALL_REDUCE),
        ("_allgather_base", Kind.ALL_GATHER),
        ("c10d::_reduce_scatter_base_", Kind.REDUCE_SCATTER),
        ("nccl:all_to_all", Kind.ALL_TO_ALL),
        ("c10d::alltoall_base_", Kind.ALL_TO_ALL),
        ("gloo:broadcast", Kind.BROADCAST),
        ("c10d::recv_", Kind.RECV),
        ("c10d::send", Kind.SEND),
        ("ncclDevKernel_SendRecv", Kind.SEND_RECV),
        ("ncclDevKernel_Generic", Kind.UNKNOWN),
        ("c10d::barrier", Kind.BARRIER),
    ],
)
def test_collectives_are_known_by_every_spelling(name, kind):
    """Kernel names, arguments, c10d operators and annotations name the same kinds."""
    assert kind_of(name) == kind


def test_sizes_and_bus_factors_are_those_of_nccl_tests():
    """An all-gather's size is what comes out, an all-reduce moves 2(n-1)/n of it."""
    assert message_elements(Kind.ALL_GATHER, 10, 80) == 80
    assert message_elements(Kind.REDUCE_SCATTER, 80, 10) == 80
    assert bus_factor(Kind.ALL_REDUCE, 8) == 2 * 7 / 8
    assert bus_factor(Kind.ALL_GATHER, 8) == 7 / 8
    assert bus_factor(Kind.BROADCAST, 8) == 1
    assert [item_bytes(t) for t in ("BFloat16", "Float", "Long", "Float8_e4m3fn", "?")] == [
        2, 4, 8, 1, None,
    ]  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL_RANKS)
def test_waiting_and_transfer_equal_the_simulations(tmp_path, name):
    """To the nanosecond with equal clocks, within the drift where they drift."""
    scenarios.build(name).write(tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    analysis = analyze(*sorted(tmp_path.glob("rank*.gz")))
    drifting = any(want["clock"]["drift_ppb"] for want in truth["ranks"])
    for want in truth["ranks"]:
        (got,) = (r for r in analysis.ranks if r.rank == want["rank"])
        mine, theirs = pipelines_joined(got.buckets_ns, want["buckets_ns"])
        for leaf in ("comm.wait", "comm.transfer", "comm.unsplit", POOL):
            allowed = 5_000 if drifting else 0
            assert mine.get(leaf, 0) == pytest.approx(theirs.get(leaf, 0), abs=allowed), leaf
        estimate = analysis.clock.offsets_ns[str(want["rank"])]
        reference = truth["ranks"][0]["clock"]["offset_ns"]
        assert estimate == pytest.approx(want["clock"]["offset_ns"] - reference, abs=50_000)


@pytest.mark.parametrize("name", SEVERAL_RANKS)
def test_blame_and_what_is_unattributed_are_all_of_the_waiting(tmp_path, name):
    """No wait is charged twice or lost, and nobody waits for himself."""
    scenarios.build(name).write(tmp_path)
    analysis = analyze(*sorted(tmp_path.glob("rank*.gz")))
    waits = sum(result.buckets_ns.get("comm.wait", 0) for result in analysis.ranks)
    charged = sum(row.wait_ns for row in analysis.blame)
    assert charged + analysis.unattributed_wait_ns == waits
    assert all(row.ambiguous_ns <= row.wait_ns for row in analysis.blame)
    assert all(row.rank not in row.affected for row in analysis.blame)


@pytest.mark.parametrize(
    ("name", "finding", "rank"),
    [
        ("ddp_slow_loader_rank", "input_stall", 2),
        ("ddp_no_seq", "input_stall", 2),
        ("ddp_clocks", "input_stall", 1),
        ("ddp_slow_gpu", "slow_gpu", 1),
    ],
)
def test_the_late_rank_is_named_with_its_cause_and_the_others_waits(tmp_path, name, finding, rank):
    """One finding names the culprit; what the others wait for it is in it."""
    scenarios.build(name).write(tmp_path)
    analysis = analyze(*sorted(tmp_path.glob("rank*.gz")))
    lead = analysis.findings[0]
    assert (lead.id, lead.ranks) == (finding, [rank])
    assert set(lead.affected) == {0, 1, 2, 3}
    waits = sum(result.buckets_ns["comm.wait"] for result in analysis.ranks if result.rank != rank)
    assert lead.recoverable_ns >= 0.95 * waits


def read_back(th, _step):
    """Drain the queue after the forward, then be in Python for 4 ms."""
    yield from training.item(th)
    with th.note("log_metrics"):
        yield 4_000_000


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"before_backward": read_back}, "idle.host_sync"),
        ({"op_ns": 900_000, "sync_every_step": False}, "idle.launch"),
    ],
)
def test_a_late_rank_is_not_charged_with_what_its_peers_compute_beside_a_wait(
    tmp_path, changes, cause
):
    """The peers finish their backward while the first bucket waits; the late rank has it to do."""
    late = 1
    simulated = Job("ahead", 3)
    group = simulated.group("0", "default_pg", [0, 1, 2])
    for rank in range(3):
        usual = {"shape": Shape(layers=3, vocab=4_096), "sync_every_step": True}
        plan = training.Plan(data_parallel=group, **usual | (changes if rank == late else {}))
        training.start(simulated.rank(), plan)
    simulated.write(tmp_path)
    analysis = analyze(*sorted(tmp_path.glob("rank*.gz")))
    waits = sum(result.buckets_ns["comm.wait"] for result in analysis.ranks if result.rank != late)
    (charged,) = (row for row in analysis.blame if (row.rank, row.cause) == (late, cause))
    assert charged.wait_ns >= 0.95 * waits


@pytest.mark.parametrize("kept", [(0, 1), (0, 2), (1, 3), (2,), (0, 1, 3)])
def test_any_subset_of_the_ranks_still_gives_an_answer(tmp_path, kept):
    """Ranks without a trace are named; the accounting of those that are there holds."""
    scenarios.build("ddp_slow_loader_rank").write(tmp_path)
    analysis = analyze(*(tmp_path / f"rank{rank}.pt.trace.json.gz" for rank in kept))
    assert analysis.job.missing_ranks == sorted({0, 1, 2, 3} - set(kept))
    for result in analysis.ranks:
        assert sum(result.buckets_ns.values()) == result.window_ns
    if 2 not in kept:
        assert "members_missing" in [entry.id for entry in analysis.quality]
        assert not any(f.id in ("input_stall", "straggler") for f in analysis.findings)


COLLECTIVE = st.tuples(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(1, 50))


@given(
    st.lists(COLLECTIVE, min_size=1, max_size=12),
    st.integers(-(10**6), 10**6),
    st.integers(-(10**6), 10**6),
)
def test_the_hard_interval_always_holds_the_true_offset(collectives, offset_0, offset_1):
    """Whoever is late, and whatever the clocks say, the truth lies within the half-width."""
    matched, now = [], 0
    for late_0, late_1, transfer in collectives:
        starts = (now + late_0, now + late_1)
        end = max(starts) + transfer
        records = {
            rank: Record(Kind.ALL_REDUCE, None, start + offset, end + offset, 0, None, None, None,
                         None, None, None, 0)
            for rank, (start, offset) in enumerate(zip(starts, (offset_0, offset_1), strict=True))
        }  # fmt: skip
        matched.append(Matched(Kind.ALL_REDUCE, None, records, ()))
        now = end
    clocks = align(matched, [0, 1])
    assert not clocks.inconsistent
    clock = clocks.of_rank[1]
    assert abs(clock.offset_ns - (offset_1 - offset_0)) <= 2 * clock.half_width_ns


def test_ranks_that_recorded_different_numbers_of_collectives_are_not_matched():
    """A key on which the ranks disagree is reported and stays unsplit."""

    def rank(count):
        host = [annotation(i * 1000, i * 1000 + 900, f"ProfilerStep#{i}") for i in range(4)]
        device = []
        for step in range(4):
            for k in range(count):
                at, correlation = step * 1000 + k * 50, step * 10 + k + 1
                host.append(call(at, at + 2, correlation))
                device.append(Work(at + 10, at + 40, ALL_REDUCE, launch=correlation, stream=20))
        return trace(host, device)

    analysis = analyze_job(job(rank(2), rank(3)))
    assert "collectives_unmatched" in [entry.id for entry in analysis.quality]
    for result in analysis.ranks:
        assert result.buckets_ns["comm.unsplit"] > 0
        assert "comm.wait" not in result.buckets_ns


def test_the_wait_matrix_has_a_row_a_rank_and_a_column_a_step(tmp_path):
    """What each rank waited in each step sums to its waiting."""
    scenarios.build("ddp_slow_loader_rank").write(tmp_path)
    analysis = analyze(*sorted(tmp_path.glob("rank*.gz")))
    for result in analysis.ranks:
        waits = analysis.wait_matrix_ns[str(result.rank)]
        assert len(waits) == result.periods
        assert sum(waits) == result.buckets_ns.get("comm.wait", 0)


@pytest.mark.parametrize("window", ["steps", "device_span", "all"])
@pytest.mark.parametrize("name", ["gloo-slow-rank", "sim-straggler-4rank"])
def test_every_window_can_be_forced_on_a_job(name, window):
    """Also one that the job doesn't have: a rank without it has no row in the wait map."""
    found = analyze(require.REPO / "sample_traces" / name, window=window)
    known = [str(r.rank) for r in found.ranks if r.window_ns or r.host_window_ns]
    assert set(found.wait_matrix_ns) <= set(known)


def folder(name):
    return require.SHARED / "traces" / name


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("kt-torchrec-dlrm-4rank-a2a", 2),
        ("kt-megatron-tp2-v100-2rank", 0),
        ("kt-nanogpt-8rank-h100", 1),
    ],
)
def test_the_late_rank_of_a_real_job_is_found(name, late):
    """The rank known to arrive last is charged with nearly all waits that are charged."""
    analysis = analyze(folder(name))
    charged = sum(row.wait_ns for row in analysis.blame)
    on_it = sum(row.wait_ns for row in analysis.blame if row.rank == late)
    assert on_it > 0.9 * charged
    for ranks in combinations(analysis.ranks, 2):
        assert all(sum(r.buckets_ns.values()) == r.window_ns for r in ranks)


@pytest.mark.needs("shared")
def test_a_late_tensor_parallel_rank_is_all_that_the_other_waits_for():
    """Megatron on two V100s: rank 1's 48 ms in NCCL are waiting for rank 0."""
    analysis = analyze(folder("kt-megatron-tp2-v100-2rank"))
    early, late = (result.buckets_ns for result in analysis.ranks)
    assert early.get("comm.wait", 0) < analysis.clock.half_width_ns  # below what clocks can tell
    assert late["comm.wait"] > 40_000 * US
    assert late["comm.wait"] > 50 * late["comm.transfer"]
    assert {row.rank for row in analysis.blame if row.wait_ns > 1_000 * US} == {0}


@pytest.mark.needs("shared")
def test_how_often_a_rank_came_last_is_said_with_what_the_clocks_can_tell():
    """Eight H100s: rank 1 is last in every collective whose order shows; two periods are few."""
    analysis = analyze(folder("kt-nanogpt-8rank-h100"))
    last = [row.last_rank_counts for row in analysis.collectives if row.last_rank_counts]
    counted = {rank: sum(one.get(rank, 0) for one in last) for rank in map(str, range(8))}
    assert counted["1"] > 0.5 * sum(counted.values())
    assert counted["1"] == max(counted.values())
    lead = analysis.findings[0]
    assert 1 in lead.ranks
    assert lead.confidence == "low"
    (order,) = (line for line in lead.evidence if line.startswith("came last"))
    assert "rank 1 in " in order
    assert "±" in order


@pytest.mark.needs("shared")
def test_a_job_bound_by_its_hosts_has_little_to_blame_on_a_rank():
    """ResNet on two V100s: the devices are idle for their hosts, hardly for each other."""
    analysis = analyze(folder("kt-torchrec-ddp-resnet-2rank"))
    assert analysis.findings[0].id == "launch_bound"
    assert analysis.findings[0].ranks == [0, 1]
    window = sum(result.window_ns for result in analysis.ranks)
    assert sum(row.wait_ns for row in analysis.blame) < 0.05 * window
    assert not {f.id for f in analysis.findings} & {"straggler", "slow_gpu", "workload_imbalance"}


@pytest.mark.needs("shared")
def test_a_second_late_each_step_is_waiting_on_the_other_ranks():
    """DLRM's rank 2 is a second late: the others' NCCL time is wait, its own transfer."""
    analysis = analyze(folder("kt-torchrec-dlrm-4rank-a2a"))
    for result in analysis.ranks:
        if result.rank == 2:
            assert result.buckets_ns.get("comm.wait", 0) == 0
        else:
            assert result.buckets_ns["comm.wait"] > 1000 * 1000 * US
            assert result.buckets_ns["comm.transfer"] < 20 * 1000 * US


@pytest.mark.needs("shared")
def test_a_sleeping_gloo_rank_is_charged_with_the_others_waiting():
    """0.901 s of sleep on rank 1 is what rank 0 waits for, to 5 %."""
    analysis = analyze(folder("gloo-faults/ddp_slow_rank1_150ms"), window="all")
    waited = sum(row.wait_ns for row in analysis.blame) + analysis.unattributed_wait_ns
    assert waited == pytest.approx(0.901e9, rel=0.05)
    assert {row.rank for row in analysis.blame} == {1}
    assert analysis.findings[0].ranks == [1]


@pytest.mark.needs("shared")
def test_a_loader_that_is_slow_on_both_ranks_is_no_straggler():
    """The same 100 ms on both ranks makes nobody late."""
    analysis = analyze(folder("gloo-faults/ddp_slow_loader_100ms"), window="all")
    assert analysis.findings[0].id == "input_stall"
    assert analysis.findings[0].ranks == [0, 1]
    assert sum(row.wait_ns for row in analysis.blame if row.cause == "host.input") < 1000 * US


def test_a_late_rank_is_shown_with_its_waits_its_order_and_its_kernels(tmp_path):
    """Who waits for whom per step, who came last how often, and kernels beside the peers'."""
    scenarios.build("ddp_slow_gpu").write(tmp_path)
    evidence = analyze(*sorted(tmp_path.glob("rank*.gz"))).findings[0].evidence
    assert any("a step each for rank 1" in line for line in evidence)
    assert any("came last: rank 1 in 8 of 8 collectives" in line for line in evidence)
    assert any("take 1.25× the peers'" in line for line in evidence)


@pytest.mark.parametrize(
    ("late", "shared"),
    [((3, 3, 3, 3, 3), False), ((3, 1, 6, 0, 4), True), ((3, 3, 3, 3, 1), False), ((3, 1), False)],
)
def test_a_culprit_that_changes_from_step_to_step_is_nobody(late, shared):
    """Who waits least is waited for; two steps are too few to tell."""
    matrix = {str(r): [0 if r == culprit else 28_000_000 for culprit in late] for r in range(8)}
    assert culprit_changes(matrix) == shared


@pytest.mark.needs("shared")
def test_ranks_that_are_late_in_turn_are_no_stragglers():
    """A clean gloo job on two cores: its waits are noted, and no rank is named or promised."""
    analysis = analyze(folder("gloo-faults/ddp_normal"), window="all")
    (noted,) = (one for one in analysis.findings if one.id == "straggler")
    assert analysis.waits_shared
    assert (noted.ranks, noted.recoverable_ns, noted.severity) == ([], None, "info")
