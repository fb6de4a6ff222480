"""The simulator's truth holds against a plain recount of what it wrote."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pytest
from simulator import make_samples, scenarios
from simulator.job import file_name

NAMES = scenarios.names()


@pytest.fixture(scope="module")
def jobs():
    return {name: scenarios.build(name).run() for name in NAMES}


@pytest.fixture(scope="module")
def traces(jobs):
    return {name: [job.trace(proc.rank) for proc in job.ranks] for name, job in jobs.items()}


@pytest.fixture(scope="module")
def truths(jobs):
    return {name: job.truth() for name, job in jobs.items()}


@pytest.mark.parametrize("name", NAMES)
def test_leaves_sum_to_the_window_and_none_is_negative(name, truths):
    for rank in truths[name]["ranks"]:
        leaves = rank["buckets_ns"]
        assert sum(leaves.values()) == rank["window_ns"]
        assert min(leaves.values()) > 0
        assert sum(rank["steps_ns"]) == rank["window_ns"]


@pytest.mark.parametrize("name", NAMES)
def test_level1_and_the_host_view_sum_to_their_windows(name, truths):
    for rank in truths[name]["ranks"]:
        assert sum(rank["level1_ns"].values()) == rank["window_ns"]
        assert sum(rank["host_buckets_ns"].values()) == rank["host_window_ns"]


@pytest.mark.parametrize("name", NAMES)
def test_the_emitted_trace_recounts_to_level1(name, traces, truths):
    for rank in truths[name]["ranks"]:
        doc = parse(traces[name][rank["rank"]])
        start, end, counted = recount(doc, rank["device"])
        base = doc["baseTimeNanoseconds"]
        assert (start + base, end - start) == (rank["window_start_ns"], rank["window_ns"])
        assert counted == rank["level1_ns"]


@pytest.mark.parametrize("name", NAMES)
def test_times_are_whole_nanoseconds_and_doubles_come_near(name, traces):
    text = traces[name][0]
    plain = json.loads(text)["traceEvents"]
    for double, exact in zip(plain, parse(text)["traceEvents"], strict=True):
        assert (exact["ts"] * 1000) % 1 == 0
        assert abs(round(double["ts"] * 1000) - to_ns(exact["ts"])) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_two_builds_are_the_same_bytes(name):
    first, second = (scenarios.build(name, steps=4) for _ in range(2))
    assert first.trace(0) == second.trace(0)
    assert first.truth() == second.truth()


def test_a_written_folder_holds_a_trace_per_rank_and_the_truth(tmp_path):
    folder = scenarios.build("ddp_clean", steps=4).write(tmp_path / "job")
    assert sorted(path.name for path in folder.iterdir()) == [
        "rank0.pt.trace.json.gz",
        "rank1.pt.trace.json.gz",
        "truth.json",
    ]
    truth = json.loads((folder / "truth.json").read_text())
    assert [rank["file"] for rank in truth["ranks"]] == [
        "rank0.pt.trace.json.gz",
        "rank1.pt.trace.json.gz",
    ]


@pytest.mark.parametrize("name", make_samples.build())
def test_a_sample_is_what_the_simulator_writes(name):
    job = make_samples.build()[name]
    job.name = name
    folder = make_samples.SAMPLES / name
    assert json.loads((folder / "answer.json").read_text()) == json.loads(json.dumps(job.truth()))
    for proc in job.ranks:
        with gzip.open(folder / file_name(proc.rank), "rt") as file:
            assert file.read() == job.trace(proc.rank)


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_of_actions_is_partitioned_whole(seed):
    job = scenarios.build("mixed", steps=4, seed=seed, actions=40)
    (rank,) = job.truth()["ranks"]
    assert sum(rank["buckets_ns"].values()) == rank["window_ns"]
    assert recount(parse(job.trace(0)), 0)[2] == rank["level1_ns"]


@pytest.mark.parametrize("name", NAMES)
def test_no_span_is_near_the_whole_step_limit(name, jobs):
    for proc in jobs[name].ranks:
        lengths = sorted(s.end - s.start for s in proc.steps)
        for span in proc.spans:
            if span.kind in ("annotation", "frame"):
                share = (span.end - span.start) / lengths[len(lengths) // 2]
                assert not 0.9 < share < 1.0, span


def parse(text: str) -> dict:
    return json.loads(text, parse_float=Decimal)


def to_ns(micros: Decimal) -> int:
    return int(micros * 1000)


def recount(doc: dict, device: int) -> tuple[int, int, dict[str, int]]:
    """Level 1 by plain unions over emitted events: what is left after the higher priority."""
    rows = [e for e in doc["traceEvents"] if e["ph"] == "X"]
    for e in rows:
        e["t0"], e["t1"] = to_ns(e["ts"]), to_ns(e["ts"]) + to_ns(e["dur"])
    gpu = [
        e
        for e in rows
        if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") and e["args"]["device"] == device
    ]
    start, end = window(rows, gpu)
    taken: set[tuple[int, int]] = set()
    counted = {}
    covered = 0
    for level in ("compute", "comm", "copy"):
        taken |= {(e["t0"], e["t1"]) for e in gpu if level_of(e) == level}
        now = union_length(taken, start, end)
        counted[level], covered = now - covered, now
    return start, end, counted | {"idle": end - start - covered}


def level_of(event: dict) -> str:
    if event["cat"] != "kernel":
        return "copy"
    return "comm" if event["name"].startswith("nccl") else "compute"


def window(rows: list[dict], gpu: list[dict]) -> tuple[int, int]:
    steps = sorted(
        (e["t0"], e["t1"])
        for e in rows
        if e["cat"] == "user_annotation" and e["name"].startswith("ProfilerStep#")
    )
    launches = {
        e["args"]["correlation"]: e["t0"]
        for e in rows
        if e["cat"] in ("cuda_runtime", "cuda_driver")
    }
    starts = []
    for t0, t1 in steps:
        starts.append(
            min(e["t0"] for e in gpu if t0 <= launches.get(e["args"]["correlation"], -1) < t1)
        )
    return starts[1], starts[-1]


def union_length(spans: set[tuple[int, int]], start: int, end: int) -> int:
    total, reached = 0, start
    for t0, t1 in sorted(spans):
        total += max(0, min(t1, end) - max(t0, reached))
        reached = max(reached, min(t1, end))
    return total
