"""Exit codes and where text goes: the table of docs/reference/exit-codes.md, in real processes."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.tiny import gpudiag, tiny_trace, write_trace

FULL = Path("/dev/full")


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "trace one.json")


@pytest.fixture
def broken(tmp_path):
    whole = json.dumps(tiny_trace(steps=9))
    path = tmp_path / "broken.json"
    path.write_text(whole[: len(whole) * 2 // 3], encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], 0),
        (["--json"], 0),
        (["--brief"], 0),
        (["-v"], 0),
        (["-q"], 0),
        (["--window", "device_span"], 0),
        (["--window", "all"], 0),
        (["--top", "1"], 0),
        (["--fail-on", "input_stall"], 1),
        (["--fail-on", "checkpoint_stall"], 0),
        (["--fail-on", "checkpoint_stall", "--fail-on", "info"], 1),
        (["--fail-on", "error"], 1),
        (["--window", "weeks"], 2),
        (["--top", "none"], 2),
        (["--color", "red"], 2),
        (["--fail-on", "input_stal"], 2),
        (["--json", "--brief"], 2),
        (["--jsno"], 2),
    ],
)
def test_options_decide_the_exit_code(trace, args, code):
    """Whatever goes wrong says so on stderr, and leaves stdout empty."""
    done = gpudiag("analyze", trace, *args)
    assert done.returncode == code, done.stderr
    assert bool(done.stdout) == (code < 2)
    assert bool(done.stderr) == (code == 2)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ""),
        (b"not a trace\n", ""),
        (b'{"traceEvents": []}', ""),
        (b"\x80\x04\x95 pickle", ""),
        (None, "No such file"),
    ],
)
def test_an_input_without_anything_to_analyse_is_exit_3(tmp_path, content, said):
    """Three lines at most: what, why, what to do."""
    path = tmp_path / "odd.json"
    if content is not None:
        path.write_bytes(content)
    done = gpudiag("analyze", path)
    assert done.returncode == 3, done.stderr
    assert not done.stdout
    assert "odd.json" in done.stderr
    assert said.lower() in done.stderr.lower()
    assert 1 <= len(done.stderr.splitlines()) <= 4
    assert "Traceback" not in done.stderr


def test_a_broken_off_file_is_analysed_with_exit_4(broken):
    """What could be read is analysed; the loss is said on stderr and in the report."""
    done = gpudiag("analyze", broken)
    assert done.returncode == 4, done.stderr
    assert "data quality" in done.stdout
    assert "broken.json: partial" in done.stderr
    assert gpudiag("analyze", broken, "--partial-ok").returncode == 0
    assert gpudiag("analyze", broken, "--fail-on", "input_stall").returncode == 1


def test_a_named_file_that_cannot_be_read_is_exit_4_beside_one_that_can(trace, tmp_path):
    """The rest is analysed, and the exit code doesn't hide the loss."""
    bad = tmp_path / "bad.json"
    bad.write_text("not a trace")
    done = gpudiag("analyze", trace, bad)
    assert done.returncode == 4, done.stderr
    assert "bad.json" in done.stderr


def test_a_window_that_cannot_be_had_is_exit_3(tmp_path):
    """Without step marks there are no steps to account for; the message says what to try."""
    trace = tiny_trace()
    steps = [e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep")]
    path = tmp_path / "unmarked.json"
    path.write_text(json.dumps(trace | {"traceEvents": steps}))
    done = gpudiag("analyze", path, "--window", "steps")
    assert done.returncode == 3, done.stderr
    assert "--window" in done.stderr
    assert gpudiag("analyze", path).returncode == 0


def test_traces_of_two_runs_are_exit_2(tmp_path):
    """Found only after reading; the files are named, their folder once, and nothing is analysed."""
    for name, size in (("a", 1), ("b", 2)):
        trace = tiny_trace()
        trace["distributedInfo"]["world_size"] = size
        (tmp_path / f"{name}.json").write_text(json.dumps(trace))
    done = gpudiag("analyze", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count(str(tmp_path)) == 1
    assert "world size 1: a.json" in done.stderr


def test_other_files_in_a_folder_are_null_in_the_json_and_no_fault(tmp_path):
    """A file that was not read has no number of events, not 0; the report doesn't count it."""
    write_trace(tmp_path / "trace.json")
    (tmp_path / "answer.json").write_text('{"answer": 42}')
    data = json.loads(gpudiag("analyze", tmp_path, "--json").stdout)
    answer = next(one for one in data["inputs"] if one["status"] == "skipped")
    assert (answer["events"], answer["bytes"]) == (None, None)
    assert "skipped" not in gpudiag("analyze", tmp_path).stdout
    shown = gpudiag("analyze", tmp_path, "-v").stdout
    assert "a JSON file without traceEvents" in " ".join(shown.split())


def test_stdin_is_a_trace(trace):
    """``zcat trace.json.gz | gpudiag analyze -``, compressed or not."""
    raw = trace.read_bytes()
    for data in (raw, gzip.compress(raw)):
        done = gpudiag("analyze", "-", "--json", input=data, encoding=None)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["ranks"][0]["window_ns"] == 3_000_000


def test_json_is_pure_and_o_writes_the_same(trace, tmp_path):
    """Stdout holds JSON and nothing else; -o refuses to overwrite without --force."""
    out = tmp_path / "analysis.json"
    done = gpudiag("analyze", trace, "--json", "-o", out)
    assert json.loads(done.stdout) == json.loads(out.read_text())
    again = gpudiag("analyze", trace, "-o", out)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert gpudiag("analyze", trace, "-o", out, "--force").returncode == 0
    assert gpudiag("analyze", trace, "-o", tmp_path / "no" / "x.json").returncode == 1


@pytest.mark.parametrize(
    "args", [["analyze", "{trace}", "--json"], ["explain"], ["config", "show"]]
)
def test_a_reader_who_left_is_no_error(trace, args):
    """``gpudiag ... | head -0`` is silent and keeps its exit code."""
    command = [sys.executable, "-m", "gpudiag", *(a.format(trace=trace) for a in args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(60) == 0
    assert said == b""


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_an_error_with_a_reason(trace):
    """A result that could not be written is never exit 0."""
    with FULL.open("w") as full:
        done = gpudiag("analyze", trace, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_streams_are_no_crash(trace):
    """``gpudiag ... >&- 2>&-`` has nothing to say and no reason to fail."""
    command = f'exec "{sys.executable}" -m gpudiag analyze "{trace}" >&- 2>&-'
    assert subprocess.run(["sh", "-c", command], check=False, timeout=60).returncode == 0


def test_ctrl_c_is_exit_130_without_a_traceback():
    """SIGINT while a trace is read from stdin."""
    command = [sys.executable, "-m", "gpudiag", "analyze", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        # More than a pipe holds: when this returns, the process is reading.
        process.stdin.write(b'{"traceEvents": [' + b" " * 300_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        said = process.stderr.read()
        assert process.wait(60) == 130, said
    assert b"Traceback" not in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "Usage"),
        (["analyse", "x"], "Did you mean 'analyze'"),
        (["analyze"], "PATH"),
        (["analyze", "--jsno", "x"], "--json"),
        (["explain", "input_stal"], "Did you mean input_stall"),
        (["explain", "input_stall", "more"], "unexpected extra argument"),
        (["config", "shw"], "Did you mean 'show'"),
    ],
)
def test_usage_errors_suggest(args, said):
    """Exit 2, on stderr alone, with the word that was meant."""
    done = gpudiag(*args)
    assert done.returncode == 2
    assert said in done.stdout + done.stderr
    assert not done.stdout or not args
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [[], ["analyze"], ["explain"]])
def test_examples_of_the_help_fit_narrow_terminals(command):
    """They are commands to copy, so they are not wrapped: 40 columns hold them."""
    shown = gpudiag(*command, "--help").stdout
    if "Examples:" in shown:
        examples = shown.split("Examples:")[1].split("\n\n")[0].splitlines()
        assert not [line for line in examples if len(line) > 40]


@pytest.mark.parametrize(
    "args", [["--help"], ["-h"], ["analyze", "--help"], ["config", "show", "-h"], ["--version"]]
)
def test_help_and_version_go_to_stdout(args):
    """Asked-for text is data."""
    done = gpudiag(*args)
    assert done.returncode == 0
    assert done.stdout
    assert not done.stderr
