"""Files become one job by rank: never two runs merged, and nothing left out silently."""

from __future__ import annotations

import gzip
import json

import pytest
from trace_tables import SHARED, kernel, span, trace_of

from gpudiag.errors import InputError, UsageError
from gpudiag.trace import read_job

CASES = SHARED / "cases" / "inputs"
TRACES = SHARED / "traces"


def write(folder, name, start=1000, pid=100, rank=None, world=None, host=None, **metadata):
    """Write a trace of a kernel and an operator, from ``start`` us on; return its path."""
    if rank is not None or world is not None:
        metadata["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    if host:
        metadata["host_name"] = host
    rows = [kernel(ts=start + 1), span("cpu_op", "a", start, 5, pid=pid)]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(trace_of(*rows, **metadata)))
    return str(path)


def ranks(job):
    """Return rank and how it was known, for each rank."""
    return [(r.rank, r.rank_source) for r in job.ranks]


def quality(job):
    """Return the ids of the job's quality entries."""
    return [q.id for q in job.quality]


def test_one_file_without_a_rank_is_rank_0_and_said(tmp_path):
    """A single trace needs no rank."""
    job = read_job([write(tmp_path, "trace.json")])
    assert ranks(job) == [(0, "only file")]
    assert (job.world_size, job.missing_ranks, quality(job)) == (None, [], ["rank_assumed"])
    (only,) = job.inputs
    assert (only.status, only.rank, only.format, only.device, only.events) == (
        "ok",
        0,
        "kineto",
        0,
        2,
    )


def test_ranks_come_from_the_files_and_missing_ones_are_named(tmp_path):
    """DistributedInfo gives ranks and world size; what is not there is listed."""
    for rank in (2, 0, 5):
        write(tmp_path, f"x{9 - rank}.json", rank=rank, world=6)
    job = read_job([str(tmp_path)])
    assert ranks(job) == [(r, "distributedInfo") for r in (0, 2, 5)]
    assert (job.world_size, job.missing_ranks) == (6, [1, 3, 4])
    assert quality(job) == ["ranks_missing"]
    assert "missing: 1, 3, 4" in job.quality[0].message


def test_a_world_that_cannot_be_is_not_counted(tmp_path):
    """A damaged world size costs a remark, not the memory of as many ranks."""
    job = read_job([write(tmp_path, "a.json", rank=1, world=2**62)])
    assert (job.world_size, job.missing_ranks) == (None, [])
    assert quality(job) == ["world_size_disbelieved"]


@pytest.mark.parametrize(
    "name",
    ["rank-{}.json", "a rank_{} b.json", "x-rank{}-chrome-trace.json", "run2/rank_{}/trace.json"],
)
def test_ranks_from_names(tmp_path, name):
    """Without distributedInfo, the file's name, then its folder's, gives the rank."""
    for rank in (3, 11):
        write(tmp_path, name.format(rank))
    assert ranks(read_job([str(tmp_path)])) == [(3, "file name"), (11, "file name")]


def test_host_names_are_not_ranks(tmp_path):
    """``r1t03`` is a machine: ranks are then given in order, and listed."""
    write(tmp_path, "r1t03_53384.1.pt.trace.json", pid=53384)
    write(tmp_path, "r1t04_53390.2.pt.trace.json", pid=53390)
    job = read_job([str(tmp_path)])
    assert ranks(job) == [(0, "order"), (1, "order")]
    assert [r.host for r in job.ranks] == ["r1t03", "r1t04"]
    assert job.quality[0].severity == "warning"
    assert "0: " in job.quality[0].message


def test_ranks_in_order_fill_the_gaps(tmp_path):
    """Traces without a rank take the free ranks; recorded ones stay."""
    write(tmp_path, "a.json", pid=1)
    write(tmp_path, "b.json", rank=0, pid=2)
    write(tmp_path, "c.json", pid=3)
    assert ranks(read_job([str(tmp_path)])) == [(0, "distributedInfo"), (1, "order"), (2, "order")]


def test_paths_in_any_mix_and_each_file_once(tmp_path):
    """Files, folders and globs together; a file reached twice, or by a link, counts once."""
    first = write(tmp_path, "sub/rank0.json")
    write(tmp_path, "sub/deep er/rank1.json")
    (tmp_path / "link.json").symlink_to(first)
    paths = [first, str(tmp_path / "sub"), str(tmp_path / "**" / "*.json"), first]
    job = read_job(paths)
    assert [r.rank for r in job.ranks] == [0, 1]
    assert len(job.inputs) == 2


def test_other_files_in_a_folder_are_listed_as_skipped(tmp_path):
    """A folder's logs and hidden files are no errors; the logs are named for what they are."""
    write(tmp_path, "rank0.json")
    (tmp_path / "train.log").write_text("iteration 1 | loss: 3\n")
    (tmp_path / ".hidden").write_text("x")
    job = read_job([str(tmp_path)])
    assert [(i.status, i.format) for i in job.inputs] == [
        ("ok", "kineto"),
        ("skipped", "training_log"),
    ]
    assert "training log" in job.inputs[1].message
    assert "inputs_unreadable" not in quality(job)


def test_an_unreadable_file_is_left_out_and_said(tmp_path):
    """One bad file of several: the rest is analysed, the bad one has its message."""
    good = write(tmp_path, "rank0.json")
    bad = tmp_path / "rank1.json"
    bad.write_text('{"schemaVersion": 1, "traceEvents": [')
    job = read_job([good, str(bad)])
    assert [(i.status, i.rank) for i in job.inputs] == [("ok", 0), ("skipped", None)]
    assert "no spans" in job.inputs[1].message
    assert quality(job) == ["inputs_unreadable"]


def test_a_partial_file_is_read_and_marked(tmp_path):
    """A truncated trace is part of the job, with status partial and what was lost."""
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(trace_of(kernel(), kernel()))[:-30])
    (only,) = read_job([str(path)]).inputs
    assert (only.status, only.events) == ("partial", 1)
    assert "cut off" in only.message


def test_nothing_readable_is_an_input_error(tmp_path):
    """A single bad file gives its own error; several give one that lists them."""
    bad = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in bad:
        path.write_text("{}")
    with pytest.raises(InputError, match="without traceEvents"):
        read_job([str(bad[0])])
    with pytest.raises(InputError, match="none of 2 files"):
        read_job(map(str, bad))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files"):
        read_job([str(tmp_path / "empty")])


@pytest.mark.parametrize(
    ("path", "message"), [("missing.json", "no such file"), ("*.nothing", "matches no file")]
)
def test_paths_that_lead_nowhere(tmp_path, path, message):
    """A path or pattern without files is an error, even beside good ones."""
    with pytest.raises(InputError, match=message):
        read_job([write(tmp_path, "a.json"), str(tmp_path / path)])


def test_windows_of_one_process_keep_the_latest(tmp_path):
    """Two windows of one process are not two ranks: the later one counts, the other is named."""
    early = write(tmp_path, "h_100.1.pt.trace.json", start=1000)
    late = write(tmp_path, "h_100.2.pt.trace.json", start=900_000)
    job = read_job([late, early])
    assert [r.trace.path for r in job.ranks] == [late]
    skipped = next(i for i in job.inputs if i.status == "skipped")
    assert skipped.path == early
    assert "give this file alone" in skipped.message
    assert "earlier_windows" in quality(job)


def test_windows_per_rank(tmp_path):
    """Each rank's process may have several windows."""
    for rank in (0, 1):
        for window in (1, 2):
            start = 10_000_000 * window
            write(tmp_path, f"r{rank}w{window}.json", start, pid=100, rank=rank, world=2, host="h")
    job = read_job([str(tmp_path)])
    assert [r.trace.path[-9:] for r in job.ranks] == ["r0w2.json", "r1w2.json"]


def test_two_runs_of_a_rank_are_refused(tmp_path):
    """The same rank from two processes: two runs, listed, never merged."""
    for run, pid in enumerate((100, 200)):
        for rank in (0, 1):
            write(tmp_path, f"run{run}-rank{rank}.json", 10**10 * run, pid + rank, rank, 2)
    with pytest.raises(UsageError, match="2 runs") as error:
        read_job([str(tmp_path)])
    lines = error.value.why.splitlines()
    assert [("run0" in line, "run1" in line) for line in lines] == [(True, False), (False, True)]
    assert error.value.exit_code == 2


def test_a_pid_that_comes_back_hours_later_is_another_run(tmp_path):
    """Containers reuse pids: without a host name, files hours apart are two runs."""
    write(tmp_path, "a-rank0.json", 0, rank=0, world=1)
    write(tmp_path, "b-rank0.json", 2 * 3600 * 10**6, rank=0, world=1)
    with pytest.raises(UsageError, match="2 runs"):
        read_job([str(tmp_path)])


def test_unranked_files_hours_apart_are_two_runs(tmp_path):
    """Files without ranks that lie hours apart are not numbered as one job."""
    write(tmp_path, "a.json", 0, pid=1)
    write(tmp_path, "b.json", 2 * 3600 * 10**6, pid=2)
    with pytest.raises(UsageError, match="2 runs"):
        read_job([str(tmp_path)])


def test_distinct_ranks_are_one_job_whatever_their_clocks(tmp_path):
    """Hosts whose clocks differ by hours still make one job."""
    write(tmp_path, "a.json", 0, rank=0, world=2)
    write(tmp_path, "b.json", 9 * 3600 * 10**6, rank=1, world=2)
    assert [r.rank for r in read_job([str(tmp_path)]).ranks] == [0, 1]


def test_jobs_of_different_size_are_refused(tmp_path):
    """World sizes that differ are different jobs, even when the ranks are distinct."""
    write(tmp_path, "a.json", rank=0, world=2)
    write(tmp_path, "b.json", rank=1, world=4)
    with pytest.raises(UsageError, match="different size") as error:
        read_job([str(tmp_path)])
    assert error.value.what.endswith(f"below {tmp_path}")
    assert error.value.why == "world size 2: a.json\nworld size 4: b.json"


def test_runs_given_together_are_listed_by_their_folders(tmp_path):
    """Ranks, pids and times alike: the folder tells which files are one run."""
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        for rank in (0, 1):
            write(tmp_path / run, f"r{rank}.json", 1000 + 10 * rank, pid=7, rank=rank, world=2)
    with pytest.raises(UsageError, match="2 runs") as error:
        read_job([str(tmp_path)])
    assert error.value.why == "run 1: a/ (2 files)\nrun 2: b/ (2 files)"


def test_progress_names_the_file(tmp_path):
    """Progress is told which file it is about."""
    path = write(tmp_path, "a.json")
    seen = []
    read_job([path], lambda name, count: seen.append((name, count)))
    assert seen
    assert {name for name, _ in seen} == {path}


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    ("paths", "expected", "world", "missing"),
    [
        (["traces/kt-nanogpt-8rank-h100"], list(range(8)), 8, 0),
        (["traces/kt-torchrec-dlrm-4rank-a2a"], [0, 1, 2, 3], 4, 0),
        (["traces/kt-torchrec-ddp-resnet-2rank"], [0, 1], 2, 0),
        (["traces/kt-megatron-tp2-v100-2rank"], [0, 1], 2, 0),
        (["traces/kt-hta-sampled-2of128"], [0, 1], 128, 126),
        (["traces/kt-hta-cpu-only-gloo/rank-34.full*"], [34], 300, 299),
        (["traces/gloo-faults/ddp_normal"], [0, 1], 2, 0),
        (["cases/inputs/C25_clock_skew_rank*.json"], [0, 1], 2, 0),
    ],
)
def test_jobs_of_real_traces(paths, expected, world, missing):
    """Real jobs, by folder or glob, with whatever else lies beside the traces."""
    job = read_job([str(SHARED / p) for p in paths])
    assert [r.rank for r in job.ranks] == expected
    assert (job.world_size, len(job.missing_ranks)) == (world, missing)


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    "path",
    [
        "cases/inputs/C26_two_runs*.json",
        "traces/kt-hta-rank-problems",
        "traces/kt-kineto2021-w0-vs-w4-v100",
        "traces/kt-qa-tutorial-h100-two-windows",
    ],
)
def test_real_mixes_of_runs_are_refused(path):
    """Real folders that hold several runs: each file is named in the refusal, their folder once."""
    with pytest.raises(UsageError, match="runs") as error:
        read_job([str(SHARED / path)])
    pattern = path if "*" in path else f"{path}/*.json*"
    for file in SHARED.glob(pattern):
        assert file.name in error.value.why


@pytest.mark.needs("shared")
def test_two_windows_of_a_real_process():
    """The profiler's repeat=2 leaves two files of one process: the latest is analysed."""
    files = sorted((TRACES / "kt-qa-tutorial-h100-two-windows").glob("dc3*.json"))
    job = read_job(map(str, files))
    assert [r.trace.path for r in job.ranks] == [str(files[1])]
    assert [i.status for i in job.inputs] == ["skipped", "ok"]


@pytest.mark.needs("shared")
def test_a_gzip_and_a_plain_rank_together(tmp_path):
    """Ranks may be wrapped differently."""
    data = (CASES / "C25_clock_skew_rank0.json").read_bytes()
    path = tmp_path / "r0.json.gz"
    path.write_bytes(gzip.compress(data))
    job = read_job([str(path), str(CASES / "C25_clock_skew_rank1.json")])
    assert [r.rank for r in job.ranks] == [0, 1]
