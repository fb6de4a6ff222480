"""Input that is odd on purpose: a clear error, no traceback, nothing that a terminal obeys."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from cli.tiny import gpudiag, tiny_trace, write_trace

LONG = "9" * 5000


def spoilt(tmp_path, field, value):
    """Write a trace with a value in a field of every event, or of every event's arguments."""
    trace = tiny_trace()
    for event in trace["traceEvents"]:
        holder = event.setdefault("args", {}) if field.startswith("args.") else event
        holder[field.removeprefix("args.")] = value
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(trace))
    return path


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tid", "²"),
        ("tid", "--5"),
        ("tid", LONG),
        ("args.stream", "²"),
        ("args.stream", LONG),
        ("name", "ProfilerStep#" + LONG),
        ("args.Process Group Ranks", f"[{LONG}]"),
    ],
)
def test_numbers_that_are_none_are_survived(tmp_path, field, value):
    """Digits that int() refuses, and thousands of digits."""
    done = gpudiag("analyze", spoilt(tmp_path, field, value), "--json")
    assert "bug" not in done.stderr
    assert done.returncode in {0, 3, 4}, done.stderr


def test_a_group_of_an_absurd_rank_is_survived(tmp_path):
    """In the text form of on-demand traces."""
    trace = tiny_trace()
    trace["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": f"[{LONG}]"}]
    path = tmp_path / "group.json"
    path.write_text(json.dumps(trace))
    done = gpudiag("analyze", path, "--json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["tool = 5", "[[tool]]"])
def test_a_project_file_without_a_table_of_tools_configures_nothing(tmp_path, text):
    """It is somebody else's file."""
    (tmp_path / "pyproject.toml").write_text(text)
    assert gpudiag("config", "show", cwd=tmp_path).returncode == 0


def test_closed_standard_input_is_said():
    """PATH - without an input."""
    command = f"{sys.executable} -m gpudiag analyze - <&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 3
    assert "Standard input is closed" in done.stderr


def test_a_full_disk_is_said():
    """Also by help."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = gpudiag("--help", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "bug" not in done.stderr


@pytest.mark.parametrize("value", ["1e-320", "1e308", "nan", "0"])
def test_a_peak_that_cannot_be_is_refused(tmp_path, value):
    """Exit 2 before anything is read."""
    done = gpudiag("analyze", write_trace(tmp_path / "t.json"), "--peak-tflops", value)
    assert done.returncode == 2
    assert "peak_tflops" in done.stderr


def test_a_file_name_cannot_command_the_terminal(tmp_path):
    """Escapes and marks of direction are replaced in messages too."""
    path = tmp_path / "y\x1b]0;pwn\x07\u202ea.json"
    path.write_text("no trace")
    done = gpudiag("analyze", path)
    assert done.returncode == 3
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stderr)


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path):
    """Only files are read from folders."""
    write_trace(tmp_path / "t.json")
    os.mkfifo(tmp_path / "pipe")
    assert gpudiag("analyze", tmp_path).returncode == 0


def test_a_trace_is_not_overwritten(tmp_path):
    """-o onto an input, even with --force."""
    path = write_trace(tmp_path / "t.json")
    before = path.read_bytes()
    done = gpudiag("analyze", path, "-o", path, "--force")
    assert done.returncode == 2
    assert path.read_bytes() == before


def test_an_empty_trace_in_a_folder_is_a_loss(tmp_path):
    """A file of no bytes was to be a rank; a README without bytes was not."""
    write_trace(tmp_path / "rank0.json")
    (tmp_path / "README").touch()
    assert gpudiag("analyze", tmp_path).returncode == 0
    (tmp_path / "rank1.pt.trace.json.gz").touch()
    done = gpudiag("analyze", tmp_path, "--brief")
    assert done.returncode == 4
    assert "rank1" in done.stderr


def test_an_event_log_alone_and_one_that_is_all_broken_are_said(tmp_path):
    """What it is, and that nothing of it was read."""
    log = tmp_path / "rank0.events.jsonl"
    log.write_text('{"k":"proc","clock":[]}\n')
    alone = gpudiag("analyze", log)
    assert alone.returncode == 3
    assert "None" not in alone.stderr
    write_trace(tmp_path / "rank0.json")
    assert gpudiag("analyze", tmp_path).returncode == 4


def test_a_rank_beyond_the_world_is_remarked(tmp_path):
    """Rank 7 of 1."""
    write_trace(tmp_path / "rank7.json", rank=7)
    found = json.loads(gpudiag("analyze", tmp_path, "--json").stdout)
    assert "rank_beyond_world" in {one["id"] for one in found["quality"]}
