"""Pipelines: bubbles told from imbalance, and both from a stage that is late once."""

from __future__ import annotations

from itertools import combinations

import pytest
import require
from simulator import pipeline, stages

from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.trace import read_job

MS = 1_000_000
NAMES = {"1F1B": "1f1b", "GPipe": "gpipe", "interleaved": "interleaved"}
# Chunk times are medians here and there; the analyzer tells F from B by messages alone.
TOLERANCE = 0.005
PER_CHUNK = 0.02


def simulate(tmp_path, layers, microbatches, steps=5, given=None, kept=None, **rest):
    job = pipeline.build("pipeline", 50, steps, microbatches, layers, **rest)
    job.write(tmp_path)
    files = sorted(str(path) for path in tmp_path.glob("rank*.gz"))
    files = files if kept is None else [files[rank] for rank in kept]
    return job, analyze_job(read_job(files), Options(pipeline_schedule=given))


def assert_accounted(analysis):
    """Both levels sum to the window to the ns; blame and what is unattributed to all waits."""
    for result in analysis.ranks:
        assert sum(result.buckets_ns.values()) == result.window_ns
        assert sum(result.level1_ns.values()) == result.window_ns
        pipelined = sum(ns for k, ns in result.buckets_ns.items() if k.startswith("pipeline."))
        comm = sum(ns for k, ns in result.buckets_ns.items() if k.startswith("comm."))
        assert comm <= result.level1_ns["comm"] <= comm + pipelined
        assert min(result.buckets_ns.values()) >= 0
    waits = sum(result.buckets_ns.get("comm.wait", 0) for result in analysis.ranks)
    charged = sum(row.wait_ns for row in analysis.blame)
    assert charged + (analysis.unattributed_wait_ns or 0) == waits


SHAPES = [
    ("1F1B", 2, 4), ("1F1B", 3, 5), ("1F1B", 4, 8), ("1F1B", 4, 2),
    ("GPipe", 2, 4), ("GPipe", 3, 8), ("GPipe", 4, 6),
    ("interleaved", 3, 6), ("interleaved", 4, 8),
]  # fmt: skip


@pytest.mark.parametrize(("order", "count", "microbatches"), SHAPES)
def test_equal_stages_idle_by_the_closed_form(tmp_path, order, count, microbatches):
    """(p - 1)/(vm + p - 1) of the schedule, and (p - 1)(F + B) a step on every stage."""
    chunks = 2 if order == "interleaved" else 1
    job, analysis = simulate(tmp_path, [1] * count, microbatches, order=order, chunks=chunks)
    assert_accounted(analysis)
    found = analysis.pipeline
    assert (found.p, found.m, found.chunks) == (count, microbatches, chunks)
    share = (count - 1) / (chunks * microbatches + count - 1)
    assert found.structural_share == pytest.approx(share, abs=1e-9)
    assert found.structural_share_of_useful == pytest.approx(share / (1 - share), abs=1e-9)
    assert found.slow_stage is None
    if microbatches > count:
        assert (found.schedule, found.schedule_basis) == (NAMES[order], "inferred")
    truth = stages.stage_times(job)
    for result, times in zip(analysis.ranks, truth, strict=True):
        expected = result.periods * (count - 1) * (times["F"] + times["B"])
        got = result.buckets_ns["pipeline.schedule"]
        assert got == pytest.approx(expected, rel=TOLERANCE)
        assert result.buckets_ns.get("pipeline.imbalance", 0) <= PER_CHUNK * expected
    assert [f.id for f in analysis.findings if f.id.startswith("pipeline")] == ["pipeline_bubble"]
    assert analysis.findings[0].ranks == []
    assert not analysis.blame


@pytest.mark.parametrize(
    ("order", "layers", "microbatches", "slow"),
    [
        ("1F1B", [2, 3, 2, 2], 8, 1),
        ("1F1B", [1, 1, 2], 6, 2),
        ("1F1B", [2, 1], 4, 0),
        ("GPipe", [1, 2, 1], 6, 1),
        ("GPipe", [1, 1, 1, 2], 8, 3),
        ("interleaved", [1, 2, 1, 1], 8, 1),
    ],
)
def test_a_stage_with_more_layers_is_named_with_what_to_move(
    tmp_path, order, layers, microbatches, slow
):
    """Both parts equal what the simulator's own times give, on every rank."""
    chunks = 2 if order == "interleaved" else 1
    job, analysis = simulate(tmp_path, layers, microbatches, order=order, chunks=chunks)
    assert_accounted(analysis)
    truth = stages.stage_times(job)
    level, more = stages.parts(job.stages, truth)
    for stage, result in enumerate(analysis.ranks):
        row = analysis.pipeline.stages[stage]
        allowed = TOLERANCE * result.window_ns
        schedule = min(row.pool_ns, result.periods * level[stage])
        imbalance = min(row.pool_ns - schedule, result.periods * more[stage])
        assert row.schedule_ns == pytest.approx(schedule, abs=allowed)
        assert row.imbalance_ns == pytest.approx(imbalance, abs=allowed)
        assert result.buckets_ns.get("pipeline.imbalance", 0) == row.imbalance_ns
        assert (row.forward_ns, row.backward_ns) == pytest.approx(
            (truth[stage]["F"], truth[stage]["B"]), rel=PER_CHUNK
        )
    totals = [chunks * (one["F"] + one["B"]) for one in truth]
    lighten = totals[slow] - sum(totals) / len(totals)
    assert (analysis.pipeline.slow_stage, analysis.pipeline.slow_rank) == (slow, slow)
    assert analysis.pipeline.lighten_ns == pytest.approx(lighten, rel=PER_CHUNK)
    (finding,) = (f for f in analysis.findings if f.id == "pipeline_imbalance")
    assert finding.ranks == [slow]
    assert set(finding.affected) == set(range(len(layers)))
    assert not {f.id for f in analysis.findings} & {"straggler", "slow_gpu", "workload_imbalance"}


@pytest.mark.parametrize(("count", "late"), [(2, 0), (3, 2), (4, 1)])
def test_a_stage_that_is_late_in_one_step_is_no_imbalance(tmp_path, count, late):
    """The others' waits of that step are charged to it and to what its host did then."""
    delay = 30 * MS
    _, analysis = simulate(tmp_path, [1] * count, 6, steps=7, late=(late, 13, delay))
    assert_accounted(analysis)
    assert analysis.pipeline.slow_stage is None
    assert "pipeline_imbalance" not in [f.id for f in analysis.findings]
    assert {row.rank for row in analysis.blame} == {late}
    assert analysis.blame[0].cause == "idle.host_other"
    others = count - 1
    assert sum(row.wait_ns for row in analysis.blame) == pytest.approx(others * delay, rel=0.25)
    lead = analysis.findings[0]
    assert (lead.id, lead.ranks) == ("host_overhead", [late])


def test_pipelines_side_by_side_are_each_accounted_for(tmp_path):
    """Two pipelines under data parallelism: a late rank of one is blamed by both."""
    shape = {"layers": [1, 1, 1], "microbatches": 6, "steps": 7, "pipelines": 2}
    job, clean = simulate(tmp_path / "clean", **shape)
    assert_accounted(clean)
    assert (clean.pipeline.pipelines, clean.pipeline.p, clean.pipeline.m) == (2, 3, 6)
    assert [row.rank for row in clean.pipeline.stages] == [0, 1, 2, 3, 4, 5]
    # Loaders jitter by some microseconds.
    assert sum(row.wait_ns for row in clean.blame) < MS / 10
    for result, times in zip(clean.ranks, stages.stage_times(job), strict=True):
        expected = result.periods * 2 * (times["F"] + times["B"])
        assert result.buckets_ns["pipeline.schedule"] == pytest.approx(expected, rel=TOLERANCE)
    _, late = simulate(tmp_path / "late", **shape, late=(4, 13, 30 * MS))
    assert_accounted(late)
    assert late.pipeline.slow_stage is None
    charged = sum(row.wait_ns for row in late.blame)
    assert sum(row.wait_ns for row in late.blame if row.rank == 4) > 0.95 * charged
    assert {rank for row in late.blame for rank in row.affected} == {0, 1, 2, 3, 5}


def test_a_given_schedule_is_taken(tmp_path):
    """Zero-bubble kinds can't be told from messages; what is given is marked so."""
    _, plain = simulate(tmp_path, [1] * 4, 8)
    _, given = simulate(tmp_path, [1] * 4, 8, given=("zb-h1", None))
    assert (given.pipeline.schedule, given.pipeline.schedule_basis) == ("zb-h1", "given")
    assert given.pipeline.structural_share < 0.6 * plain.pipeline.structural_share
    assert_accounted(given)


@pytest.mark.parametrize("kept", [k for n in (1, 2, 3) for k in combinations(range(4), n)])
def test_ranks_without_a_trace_make_it_unclear_and_nobody_guilty(tmp_path, kept):
    """No bubble is told where a stage may be the slow one; one rank keeps comm.unsplit."""
    _, analysis = simulate(tmp_path, [2, 3, 2, 2], 4, kept=kept)
    assert_accounted(analysis)
    assert analysis.pipeline is None
    assert not analysis.blame
    assert not [f for f in analysis.findings if f.id.startswith(("pipeline", "straggler"))]
    assert not {f.id for f in analysis.findings} & {"slow_gpu", "workload_imbalance"}
    assert "pipeline_unclear" in [entry.id for entry in analysis.quality]
    if len(kept) == 1:
        assert "comm.unsplit" in analysis.ranks[0].buckets_ns


def folder(name):
    return str(require.SHARED / "traces" / "gloo-faults" / name)


@pytest.mark.needs("shared")
def test_a_sleeping_stage_of_a_real_pipeline_is_named():
    """30 ms of sleep in each forward of stage 1."""
    analysis = analyze_job(read_job([folder("pp_1f1b_m4_slow_stage1_30ms")]), Options(window="all"))
    found = analysis.pipeline
    assert (found.p, found.m, found.schedule) == (2, 4, "1f1b")
    assert (found.slow_stage, found.slow_rank) == (1, 1)
    totals = [row.forward_ns + row.backward_ns for row in found.stages]
    assert totals[1] - totals[0] == pytest.approx(30 * MS, rel=0.15)
    (finding,) = (f for f in analysis.findings if f.id == "pipeline_imbalance")
    assert finding.ranks == [1]
    assert analysis.findings[0].ranks == [1]


@pytest.mark.needs("shared")
@pytest.mark.parametrize(("name", "schedule"), [("pp_1f1b_m4", "1f1b"), ("pp_gpipe_m4", "gpipe")])
def test_a_real_pipeline_without_a_fault_has_its_bubble_alone(name, schedule):
    """Nobody is named for an imbalance; the schedule is told from the messages."""
    analysis = analyze_job(read_job([folder(name)]), Options(window="all"))
    found = analysis.pipeline
    assert (found.p, found.m, found.schedule, found.schedule_basis) == (2, 4, schedule, "inferred")
    assert found.structural_share == pytest.approx(1 / 5)
    assert found.slow_stage is None
    assert {"pipeline_bubble"} <= {f.id for f in analysis.findings}
    assert not {f.id for f in analysis.findings} & {"pipeline_imbalance", "straggler"}
