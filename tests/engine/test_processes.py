"""Ranks summed up in processes: the same answer, a small summary, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import require
from cli.tiny import gpudiag, write_trace
from hypothesis import given
from hypothesis import strategies as st
from simulator import scenarios

from gpudiag.analyze.rank import Options
from gpudiag.engine.pack import pack, unpack
from gpudiag.engine.summary import Summary, summarise

SEVERAL = [
    *(str(path) for path in sorted(require.SAMPLES.iterdir()) if len(list(path.glob("rank*"))) > 1),
    "traces/kt-nanogpt-8rank-h100",
    "traces/kt-torchrec-dlrm-4rank-a2a",
    "traces/kt-kineto2021-w0-vs-w4-v100",
    "traces/gloo-faults/ddp_ckpt_every3",
    "traces/gloo-faults/pp_1f1b_m4",
]
SMALL_FRAC = 0.01  # a rank's summary, of its trace


def both(*arguments):
    """Return what one process and two print."""
    one, two = (gpudiag("analyze", *arguments, "--processes", n, "--json") for n in ("1", "2"))
    return (one.returncode, one.stdout, one.stderr), (two.returncode, two.stdout, two.stderr)


@pytest.mark.parametrize("path", SEVERAL)
def test_processes_give_the_same_answer_to_the_byte(path):
    """Also refusals, event logs beside the traces, and pipelines."""
    if path.startswith("traces/"):
        require.require("shared")
        path = str(require.SHARED / path)
    one, two = both(path)
    assert one == two


def test_ranks_with_other_steps_are_read_again(tmp_path):
    """A rank that recorded more steps than the others is held to those that all have."""
    write_trace(tmp_path / "rank0.json", rank=0, steps=7)
    write_trace(tmp_path / "rank1.json", rank=1, steps=5)
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "broken.json").write_text('{"traceEvents": [')
    one, two = both(tmp_path)
    assert one == two
    periods = {rank["periods"] for rank in json.loads(one[1])["ranks"]}
    assert periods == {3}


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    "pattern",
    [
        "kt-nanogpt-8rank-h100/*",
        "kt-tracelens-mi300-ddp-rank0of8/*.json*",
        "gloo-faults/*/ranks/*0-*.gz",
    ],
)
def test_a_summary_is_a_hundredth_of_its_trace(pattern):
    """Of the text of the trace, as it is before compression."""
    sizes = {}
    for path in sorted((require.SHARED / "traces").glob(pattern)):
        packed = summarise(str(path), (), Options(), None)
        summary = unpack(packed)
        if isinstance(summary, Summary) and summary.member.trace.bytes > 5_000_000:
            sizes[path.name] = len(packed) / summary.member.trace.bytes
    assert sizes
    assert max(sizes.values()) <= SMALL_FRAC, sizes


@given(
    st.lists(st.integers(min_value=-(2**63), max_value=2**63 - 1), max_size=60),
    st.sampled_from([0, 1, 300, 70_000, 2**40]),
)
def test_arrays_come_back_as_they_were(values, step):
    """Wide, narrow, empty, two-dimensional, of other types."""
    wild = np.array(values, dtype=np.int64)
    even = np.arange(40, dtype=np.int64) * step - 17
    for array in (wild, even, even.reshape(8, 5), even.astype(np.int32), even > 0):
        found = unpack(pack({"x": array}))["x"]
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)


def test_a_killed_process_is_said_in_three_lines(many):
    """Out of memory, most likely: what to do is named; nothing of ours is left."""
    run = started(many)
    victim = next(one for one in children_of(run.pid) if b"spawn_main" in command_of(one))
    os.kill(victim, signal.SIGKILL)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "--processes 1" in err
    assert len(err.splitlines()) <= 3
    assert not alive(children_of(run.pid))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_ends_early(many, number):
    """Ctrl-C, a polite kill and a hard one."""
    run = started(many)
    left = children_of(run.pid)
    run.send_signal(number)
    _, err = run.communicate(timeout=60)
    assert run.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in err
    until = time.monotonic() + 10
    while alive(left) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(left)


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """Return a folder that takes some seconds to read."""
    folder = tmp_path_factory.mktemp("many")
    scenarios.build("ddp_clean", steps=40, layers=8, ranks=2).write(folder)
    for rank in range(2):
        data = (folder / f"rank{rank}.pt.trace.json.gz").read_bytes()
        for copy in range(1, 9):
            (folder / f"rank{2 * copy + rank}.pt.trace.json.gz").write_bytes(data)
    return folder


def started(folder: Path) -> subprocess.Popen[str]:
    """Start an analysis in two processes, and wait until these run."""
    command = [sys.executable, "-m", "gpudiag", "analyze", str(folder), "--processes", "2"]
    run = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=require.REPO
    )
    until = time.monotonic() + 30
    while len(children_of(run.pid)) < 3 and time.monotonic() < until:  # two, and their tracker
        time.sleep(0.01)
    time.sleep(0.7)
    return run


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(one) for one in text.read_text().split()] if text.exists() else []


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        status = Path(f"/proc/{pid}/stat")
        try:
            found += [pid] if status.read_text().rsplit(")", 1)[1].split()[0] != "Z" else []
        except OSError:
            continue
    return found
