"""Transfers of collectives: alpha and bandwidth fitted, parted exactly, given roles."""

from __future__ import annotations

import numpy as np
import pytest
import require
from hypothesis import given
from hypothesis import strategies as st
from simulator import scenarios, training
from simulator.job import Clock, Job
from simulator.kernels import Shape

from gpudiag.analyze.comm.clock import Clocks, RankClock
from gpudiag.analyze.comm.kinds import Kind, bus_factor
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.records import GroupKey, Record
from gpudiag.analyze.comm.ringtree import ring_alpha_us, ring_tree_rows, tree_alpha_us
from gpudiag.analyze.comm.roles import parallelism, rank_stride, roles_of
from gpudiag.analyze.comm.split import arrivals, split_rank
from gpudiag.analyze.comm.transfer import (
    DEGRADED,
    LATENCY,
    Alpha,
    Reference,
    Sample,
    parts_of_finding,
    split_transfer,
    taken_ns,
    transfers,
)
from gpudiag.analyze.intervals import union
from gpudiag.analyze.job import analyze_job
from gpudiag.trace import read_job

RANKS = (0, 1, 2, 3)
GROUP = GroupKey(RANKS, None, "default_pg", 4)
ALPHA_NS, BUS_GB_S = 20_000, 300.0
SIZES = [2**k for k in (10, 14, 18, 22, 24, 26)]


def collective(at, took, size, *, kind=Kind.ALL_REDUCE, group=GROUP, step=0):
    """Return a collective at which rank 1 is 5 us late, and all end ``took`` after it."""
    ranks = group.ranks or RANKS
    records = {
        rank: Record(kind, group, at + (5_000 if rank == ranks[1] else 0), at + 5_000 + took, 20,
                     None, step, None, "Float", size, None, at)
        for rank in ranks
    }  # fmt: skip
    return Matched(kind, group, records, ())


def expected(size, kind=Kind.ALL_REDUCE):
    return ALPHA_NS + round(size * bus_factor(kind, 4) / BUS_GB_S)


def fitted(matched):
    clocks = Clocks({rank: RankClock(0, 0) for rank in RANKS}, (), ())
    arrived = {i: arrivals(one, clocks) for i, one in enumerate(matched)}
    splits = {}
    for rank in RANKS:
        mine = [one.records[rank] for one in matched]
        exposed = union(
            np.array([r.start for r in mine], dtype=np.int64),
            np.array([r.end for r in mine], dtype=np.int64),
        )
        splits[rank] = split_rank(rank, exposed, matched, arrived, clocks)
    return transfers(matched, arrived, clocks, splits), splits


def series(sizes, slow=()):
    at, found = 0, []
    for index, size in enumerate(sizes):
        took = expected(size) * (3 if index in slow else 1)
        found.append(collective(at, took, size))
        at += took + 50_000
    return found


def test_a_known_alpha_and_bandwidth_are_recovered_within_a_hundredth():
    """Ten transfers of each of six sizes show what they were made from."""
    matched = series(SIZES * 10)
    transfer, _ = fitted(matched)
    assert transfer.alphas
    for alpha in transfer.alphas.values():
        assert alpha.ns == pytest.approx(ALPHA_NS, rel=0.01)
    large = [i for i, one in enumerate(matched) if one.bytes >= 2**22]
    for index in large:
        assert transfer.references[index].bus_gb_s == pytest.approx(BUS_GB_S, rel=0.01)


@pytest.mark.parametrize("sizes", [[2**24] * 20, [2**20, 2**21] * 10, [2**10, 2**24], []])
def test_no_alpha_is_guessed_from_one_size_near_sizes_or_few_transfers(sizes):
    """What the transfers can't tell is None, and so are the parts that need it."""
    transfer, _ = fitted(series(sizes))
    assert transfer.alphas == {}
    assert all(part.latency_ns is None for mine in transfer.parts.values() for part in mine)


@pytest.mark.parametrize("sizes", [[2**24] * 20, [2**24] * 20 + [2**10] * 5 + [2**12] * 5])
def test_one_transfer_of_twenty_that_is_three_times_slower_is_degraded(sizes):
    """With and without alpha: the excess over the others is found, on every rank, and no more."""
    matched = series(sizes, slow={7})
    transfer, _ = fitted(matched)
    for mine in transfer.parts.values():
        (part,) = parts_of_finding(DEGRADED, mine, {})
        assert part.collective == 7
        assert taken_ns(DEGRADED, part) == pytest.approx(2 * expected(2**24), rel=0.01)
        assert part.times_expected == pytest.approx(3, rel=0.01)


def test_a_rank_that_waits_long_makes_no_transfer_slow():
    """Lateness isn't degradation: the shortest record of any rank holds it down."""
    matched = series([2**24] * 20)
    late = matched[3]
    early = {rank: r for rank, r in late.records.items() if rank != 1}
    waiting = {
        rank: Record(r.kind, r.group, r.start - 40_000, *_rest(r)) for rank, r in early.items()
    }
    matched[3] = Matched(late.kind, late.group, {**late.records, **waiting}, ())
    transfer, _ = fitted(matched)
    assert not any(parts_of_finding(DEGRADED, mine, {}) for mine in transfer.parts.values())


def _rest(r):
    return (r.end, r.stream, r.seq, r.step, r.elements, r.dtype, r.bytes, r.peer, r.launched)


@given(
    st.integers(0, 10**8),
    st.integers(1, 2**31),
    st.integers(1, 10**8),
    st.one_of(st.none(), st.integers(0, 10**6)),
    st.floats(0.001, 1000),
)
def test_parts_of_a_transfer_sum_to_it_and_none_is_negative(tau, size, took, alpha, bus):
    """To the nanosecond where alpha is known; without it only the excess is told."""
    known = None if alpha is None else Alpha(alpha, 10, 2)
    part = split_transfer(0, tau, Sample(size, size * 1.5, took, took), known, Reference(bus, 10))
    assert 0 <= part.degraded_ns <= tau
    if alpha is None:
        assert part.latency_ns is None
        assert part.bandwidth_ns is None
    else:
        assert min(part.latency_ns, part.bandwidth_ns) >= 0
        assert part.latency_ns + part.bandwidth_ns + part.degraded_ns == tau


@given(st.lists(st.sampled_from(SIZES), min_size=1, max_size=40), st.sets(st.integers(0, 39)))
def test_parts_of_all_ranks_are_all_of_the_exposed_transfer(sizes, slow):
    """Nothing of a rank's transfer is lost, or in two parts."""
    transfer, splits = fitted(series(sizes, slow))
    for rank, split in splits.items():
        assert sum(part.transfer_ns for part in transfer.parts[rank]) == split.transfer_ns


def test_tensor_parallel_latency_is_not_promised():
    """Collectives that depend on each other can't be merged."""
    transfer, _ = fitted(series(SIZES * 10))
    parts = transfer.parts[0]
    roles = {part.collective: "tp" for part in parts}
    assert parts_of_finding(LATENCY, parts, {})
    assert parts_of_finding(LATENCY, parts, roles) == []


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("mesh_dp_shard", "fsdp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("mesh_tp", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("default_pg", None),
        ("stepper", None),
    ],
)
def test_a_description_names_the_role(description, role):
    """By whole words only; a barrier says nothing by itself."""
    group = GroupKey(RANKS, None, description, 4)
    found = roles_of([collective(0, 10, None, kind=Kind.BARRIER, group=group)])
    assert (found[group].name if group in found else None) == role


@pytest.mark.parametrize(
    ("ranks", "uses", "role"),
    [
        ((0, 1, 2, 3), [(Kind.ALL_REDUCE, 2**25), (Kind.ALL_REDUCE, 2**24)], "dp"),
        ((0, 1), [(Kind.ALL_REDUCE, 2**16)] * 8, "tp"),
        ((0, 1), [(Kind.ALL_REDUCE, 2**26)] * 8, None),
        ((0, 2), [(Kind.ALL_REDUCE, 2**25), (Kind.ALL_REDUCE, 2**24)], "dp"),
        ((0, 1), [(Kind.ALL_REDUCE, 2**25), (Kind.ALL_REDUCE, 2**24)], None),
        ((0, 1), [(Kind.ALL_TO_ALL, 2**20)] * 3, "ep"),
        ((0, 1, 2, 3), [(Kind.ALL_TO_ALL, 2**20)] * 3, None),
        ((0, 3), [(Kind.SEND_RECV, 2**20)] * 3, "pp"),
        ((0, 1, 2, 3), [(Kind.ALL_GATHER, 9)] * 4 + [(Kind.REDUCE_SCATTER, 9)] * 2, "fsdp"),
        ((0, 1, 2, 3), [(Kind.ALL_GATHER, 9)] * 2 + [(Kind.REDUCE_SCATTER, 9)] * 2, "dp"),
        ((0, 1), [(Kind.ALL_GATHER, 9)] * 2 + [(Kind.REDUCE_SCATTER, 9)] * 2, None),
    ],
)
def test_use_tells_the_role_where_the_description_does_not(ranks, uses, role):
    """Kinds, stride, size and repetition; what may be two things is None."""
    group = GroupKey(ranks, None, "undefined", len(ranks))
    mine = [collective(i * 100, 10, size, kind=kind, group=group) for i, (kind, size) in
            enumerate(uses)]  # fmt: skip
    found = roles_of([*mine, collective(0, 10, 8, kind=Kind.BARRIER)])
    assert (found[group].name if group in found else None) == role


def test_sizes_of_parallel_dimensions_are_given_where_all_groups_agree():
    """Two groups of two are tp 2; groups of different sizes are no size."""
    use = [(Kind.ALL_REDUCE, 2**16)] * 8

    def groups(*members):
        every = [GroupKey(ranks, None, "mesh_tp", len(ranks)) for ranks in members]
        return parallelism(roles_of([collective(0, 1, size, kind=kind, group=group)
                                     for group in every for kind, size in use]))  # fmt: skip

    assert groups((0, 1), (2, 3)).tp == 2
    assert groups((0, 1), (1, 2, 3)).tp is None
    assert groups((0, 1)).dp is None
    assert rank_stride((0, 2, 4)) == 2
    assert rank_stride((0, 1, 3)) is None


def test_ring_and_tree_are_those_of_the_worked_example():
    """128 nodes of 8: 9.7 ms in a ring, 0.26 ms in a tree; inside a node the tree is a chain."""
    assert ring_alpha_us(Kind.ALL_REDUCE, 1024, 128, "Simple") == pytest.approx(9700, rel=0.01)
    assert tree_alpha_us(Kind.ALL_REDUCE, 1024, 128, "Simple") == pytest.approx(260, rel=0.01)
    assert ring_alpha_us(Kind.ALL_GATHER, 8, 1, "LL") == pytest.approx(6.6 + 7 * 0.6)
    assert tree_alpha_us(Kind.ALL_GATHER, 8, 1, "LL") is None
    assert ring_alpha_us(Kind.BROADCAST, 8, 1, "LL") is None
    rows = ring_tree_rows([Kind.ALL_REDUCE], 8, 1, "hosts")
    assert sorted({(row.ranks, row.nodes) for row in rows}) == [(8, 1), (16, 2), (32, 4), (64, 8)]


def check_rows(analysis):
    for row in analysis.collectives:
        parts = (row.latency_ns, row.bandwidth_ns, row.degraded_ns)
        assert None in parts or sum(parts) == row.transfer_ns
        assert row.role_inferred == (row.role is not None)
    for result in analysis.ranks:
        assert sum(result.comm_by_role_ns.values()) == result.level1_ns["comm"]


@pytest.mark.parametrize(
    ("name", "role", "size"), [("ddp_clean", "dp", 2), ("pipeline_1f1b", "pp", 4)]
)
def test_roles_and_parts_of_simulated_jobs(tmp_path, name, role, size):
    """Exposed communication by role sums to all of it."""
    scenarios.build(name).write(tmp_path)
    analysis = analyze_job(read_job([str(p) for p in sorted(tmp_path.glob("rank*.gz"))]))
    check_rows(analysis)
    assert getattr(analysis.job.parallelism, role) == size
    assert all(role in result.comm_by_role_ns for result in analysis.ranks)


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    ("name", "dimension", "size", "slowest", "fastest"),
    [
        ("kt-nanogpt-8rank-h100", "dp", 8, 150, 480),
        ("kt-megatron-tp2-v100-2rank", "tp", 2, 0.5, 150),
    ],
)
def test_real_jobs_have_plausible_bandwidth_latency_and_roles(
    name, dimension, size, slowest, fastest
):
    """NVLink of an H100 carries at most 450 GB/s one way; alphas are microseconds."""
    analysis = analyze_job(read_job([str(require.SHARED / "traces" / name)]))
    check_rows(analysis)
    assert getattr(analysis.job.parallelism, dimension) == size
    assert {row.role for row in analysis.collectives} == {dimension}
    fitted_rows = [row for row in analysis.collectives if row.best_busbw_gb_s]
    assert fitted_rows
    for row in fitted_rows:
        assert slowest < row.busbw_gb_s < fastest
        assert 1 < row.alpha_us < 100


def job_of(tmp_path, *, small=0, alpha_ns=None, bytes_per_us=None, slow=()):
    """Simulate two ranks in data parallel, with ``small`` tiny all-reduces more a step."""

    def tiny(th, _step):
        for index in range(small):
            # Two sizes far apart from the buckets, so that alpha shows.
            yield from training.all_reduce(th, group, 512 * (1 + 7 * (index % 2)))

    plans = [
        training.Plan(steps=12, shape=Shape(layers=2), sync_every_step=True, before_forward=tiny)
        for _ in range(2)
    ]
    simulated = Job("transfers", 7)
    group = simulated.group("0", "default_pg", [0, 1])
    group.alpha_ns = alpha_ns or group.alpha_ns
    group.bytes_per_us = bytes_per_us or group.bytes_per_us
    meet = group.meet

    def slowed(*args):
        meeting = meet(*args)
        if meeting.seq in slow and not meeting.arrivals:
            meeting.transfer_ns = 40_000_000
        return meeting

    group.meet = slowed
    for plan in plans:
        plan.data_parallel = group
        training.start(simulated.rank(clock=Clock()), plan)
    simulated.expected = {"finding": None, "ranks": []}
    simulated.write(tmp_path)
    analysis = analyze_job(read_job([str(p) for p in sorted(tmp_path.glob("rank*.gz"))]))
    check_rows(analysis)
    window = sum(result.window_ns for result in analysis.ranks)
    assert sum(f.recoverable_ns or 0 for f in analysis.findings) <= window
    transfer = sum(result.buckets_ns["comm.transfer"] for result in analysis.ranks)
    about = [f for f in analysis.findings if f.buckets == ["comm.transfer"]]
    assert sum(f.recoverable_ns for f in about) <= transfer
    return analysis


@pytest.mark.parametrize(
    ("finding", "job"),
    [
        ("collective_latency", {"small": 8, "alpha_ns": 600_000}),
        ("collective_bandwidth", {"small": 4, "bytes_per_us": 20_000}),
        ("link_degraded", {"slow": (14, 26)}),
        (None, {"small": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_kind_of_slow_transfer_leads_the_findings_of_a_job(tmp_path, finding, job):
    """What was put in leads, with the fit that proves it; a clean job has none of the three."""
    analysis = job_of(tmp_path, **job)
    about = {f.id for f in analysis.findings if f.buckets == ["comm.transfer"]}
    if finding is None:
        assert about == set()
        return
    lead = analysis.findings[0]
    assert lead.id == finding
    assert any("all_reduce" in line for line in lead.evidence)
    if finding == "link_degraded":
        assert any("2 × all_reduce" in line for line in lead.evidence)


def test_a_row_of_the_table_sums_and_says_what_its_clocks_can_not_tell(tmp_path):
    """Exposed is wait, transfer, unsplit and the pipeline's; short waits are unresolved."""
    scenarios.build("pipeline_1f1b").write(tmp_path)
    found = analyze_job(read_job([str(path) for path in sorted(tmp_path.glob("rank*.gz"))]))
    for row in found.collectives:
        parts = row.wait_ns + row.transfer_ns + row.unsplit_ns + row.pipeline_ns
        assert row.exposed_ns == parts
        assert 0 <= row.wait_unresolved_ns <= row.wait_ns
    exposed = sum(result.level1_ns["comm"] for result in found.ranks)
    assert sum(row.exposed_ns for row in found.collectives) == exposed
    (receive,) = (row for row in found.collectives if row.op == "recv")
    assert receive.wait_unresolved_ns > 0
    assert receive.pipeline_ns > receive.wait_ns
