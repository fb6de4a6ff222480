"""Event logs of wrapped runs: read line by line, attached to the trace of the same process."""

from __future__ import annotations

import json
import math
from statistics import median_low

import pytest
import require
from cli.tiny import gpudiag, write_trace

from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.names import HostClass, HostNames
from gpudiag.analyze.rank import Options
from gpudiag.trace import read_job
from gpudiag.trace.detect import detect
from gpudiag.trace.event_log import read_event_log
from gpudiag.trace.source import source_of

MS = 1_000_000
GLOO = require.SHARED / "traces" / "gloo-faults"
# The traces of cli.tiny count from 0, and their first step starts at 1 ms.
PROC = {"k": "proc", "schema": 1, "pid": 1, "rank": 0, "clock": {"mono_ns": 500, "wall_ns": 0}}


def text(*lines: object) -> bytes:
    return b"".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
    )


def read(*lines: object):
    return read_event_log(source_of(text(*lines), "rank0.events.jsonl"))


def spans(*lines: object):
    (process,) = read(*lines).processes
    return process.spans


def at(ms: float, **rest) -> dict:
    return {"t": math.floor(ms * MS) + 500, **rest}


def analyze(*paths, **options):
    return analyze_job(read_job([str(path) for path in paths]), Options(**options))


def test_spans_stand_on_the_wall_clock_of_the_last_anchor_before_them():
    """A clock that was set in between moves only what came after."""
    later = {"k": "anchor", "clock": {"mono_ns": 0, "wall_ns": 7 * MS}, "t": 0}
    ckpt = {"k": "ckpt", "api": "torch.save", "t": MS, "dur": MS}
    found = spans(PROC | {"clock": {"mono_ns": 0, "wall_ns": 5 * MS}}, ckpt, later, ckpt)
    assert [one.start_ns for one in found] == [6 * MS, 8 * MS]


def test_the_first_writers_stamped_collections_at_their_end():
    """Without a schema number, a collection's time is its end."""
    gc = {"k": "gc", "t": 10 * MS + 500, "dur": 4 * MS, "gen": 2}
    old = {key: value for key, value in PROC.items() if key != "schema"}
    assert [one.start_ns for one in spans(PROC, gc)] == [10 * MS]
    assert [one.start_ns for one in spans(old, gc)] == [6 * MS]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]\n",
        b"\x00\xff\n",
        b'{"k": 5}\n',
        b'{"k":"gc","what":"\xff\xfe"}\n',
        b'{"k":"gc","t":"soon"}\n',
        b"[" * 5000 + b"\n",
        b'{"k":"ckpt","t":1' + b"0" * 30 + b',"dur":5}\n',
        b'{"k":"ckpt","t":5,"dur":1' + b"0" * 30 + b"}\n",
        b'{"k":"ckpt","t":5,"dur":-5}\n',
        b'{"k":"ckpt","t":5}\n',
        b'{"k":"eval","dur":5}\n',
        b'{"k":"tokens","t":5}\n',
        b'{"k":"anchor","t":5}\n',
    ],
)
def test_damaged_lines_are_counted_and_the_others_read(line):
    """Torn, binary, of another type or size, without what it must have: each costs itself only."""
    ckpt = at(1, k="ckpt", api="torch.save", dur=MS)
    log = read(PROC, ckpt, line) if line == b"{" else read(PROC, line, ckpt)
    assert (log.damaged, len(log.processes[0].spans)) == (1, 1)


def test_without_an_anchor_nothing_can_be_placed():
    """A log whose first line is torn has no clock until the next anchor."""
    ckpt = at(1, k="ckpt", api="torch.save", dur=MS)
    log = read(b'{"k":"pro\n', ckpt, {"k": "anchor", "clock": PROC["clock"]}, ckpt)
    assert (log.damaged, len(log.processes[0].spans)) == (2, 1)
    assert detect(b'"proc","pid":1}\n{"k":"ckpt","t":1}\n') == "event_log"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        *(
            ({"k": "ckpt", "api": api}, HostClass.CHECKPOINT)
            for api in (
                "torch.save",
                "torch.distributed.checkpoint.save",
                "dcp.async_save",
                "safetensors.torch.save_file",
                "Trainer._save",
                None,
            )
        ),
        ({"k": "dl_wait"}, HostClass.INPUT),
        ({"k": "gc", "gen": 2}, HostClass.GC),
        ({"k": "eval"}, HostClass.EVAL),
        ({"k": "compile", "what": "forward"}, HostClass.COMPILE),
        ({"k": "alloc"}, HostClass.ALLOCATOR),
    ],
)
def test_every_kind_of_span_is_known_to_the_analysis(line, kind):
    """Whatever function saved, its time is a checkpoint's."""
    (span,) = spans(PROC, line | at(1, dur=MS))
    assert HostNames().span_class(span.name) == kind


def test_a_checkpoint_in_the_log_is_a_checkpoint_of_the_trace(tmp_path):
    """The wait that the profiler named a loader's is said to be what the run says it is."""
    write_trace(tmp_path / "rank0.json")
    saves = [at(1 + n + 0.1, k="ckpt", api="torch.save", dur=MS // 2) for n in range(5)]
    outside = at(9_000, k="ckpt", api="torch.save", dur=MS)
    (tmp_path / "rank0.events.jsonl").write_bytes(text(PROC, *saves, outside, b"{torn"))
    done = gpudiag("analyze", tmp_path, "--json")
    analysis = json.loads(done.stdout)
    assert analysis["ranks"][0]["buckets_ns"]["idle.checkpoint"] == 3 * MS // 2
    assert analysis["ranks"][0]["host_window_ns"] == 3 * MS
    (log,) = (one for one in analysis["inputs"] if one["format"] == "event_log")
    assert (log["status"], log["rank"]) == ("partial", 0)
    assert "1 of 8 lines" in log["message"]
    assert done.returncode == 4


def test_a_run_tells_its_tokens(tmp_path):
    """Where no shape does."""
    write_trace(tmp_path / "rank0.json")
    tokens = [{"k": "tokens", "tokens": n, "t": 0} for n in (8192, 8192, 4096)]
    (tmp_path / "rank0.events.jsonl").write_bytes(text(PROC, *tokens))
    (result,) = analyze(tmp_path).ranks
    assert result.tokens.per_step == 8192


def buckets(folder, **process):
    """Analyse the tiny trace of rank 0, pid 1, with logs that tell a checkpoint in its window."""
    save = at(3.1, k="ckpt", api="torch.save", dur=MS // 2)
    (folder / "rank0.events.jsonl").write_bytes(text(PROC | process, save))
    analysis = analyze(folder)
    (log,) = (one for one in analysis.inputs if one.format == "event_log")
    return analysis.ranks[0].buckets_ns, log.status


@pytest.mark.parametrize(
    ("process", "used"),
    [
        ({}, True),
        ({"rank": None}, True),
        ({"pid": None}, True),
        ({"pid": 7}, True),  # another namespace's; the time and the rank are the trace's
        ({"pid": 7, "clock": {"mono_ns": 500, "wall_ns": 9_000 * MS}}, False),
        ({"rank": "3"}, False),
        ({"rank": "3", "pid": 7}, False),
        ({"rank": None, "pid": 7}, False),
        ({"rank": None, "pid": None}, False),
    ],
)
def test_a_log_belongs_to_the_trace_of_its_own_process(tmp_path, process, used):
    """By pid and rank, none of which may contradict; another's events are nobody's."""
    write_trace(tmp_path / "rank0.json")
    found, status = buckets(tmp_path, **process)
    assert ("idle.checkpoint" in found) == used
    assert status == ("ok" if used else "skipped")


def test_a_rank_that_was_started_again_tells_in_the_same_file(tmp_path):
    """The events of the process that wrote the trace count, in whatever order they stand."""
    write_trace(tmp_path / "rank0.json")
    other, mine = (at(ms, k="ckpt", api="torch.save", dur=MS // 2) for ms in (4.1, 3.1))
    earlier = [PROC | {"pid": 9, "clock": {"mono_ns": 9_000 * MS, "wall_ns": 0}}, other, other]
    log = text(*earlier, PROC, mine)
    (tmp_path / "rank0.events.jsonl").write_bytes(log)
    assert analyze(tmp_path).ranks[0].buckets_ns["idle.checkpoint"] == MS // 2


def test_the_layout_of_a_run_directory(tmp_path):
    """``events/rank*.jsonl`` beside ``traces/rank*.json``."""
    for name in ("events", "traces"):
        (tmp_path / name).mkdir()
    write_trace(tmp_path / "traces" / "rank0.json")
    save = at(3.1, k="ckpt", api="torch.save", dur=MS // 2)
    (tmp_path / "events" / "rank0.jsonl").write_bytes(text(PROC, save))
    assert analyze(tmp_path).ranks[0].buckets_ns["idle.checkpoint"] == MS // 2


def test_a_clock_that_cannot_be_the_traces_is_said(tmp_path):
    """A process can't start after its own trace ended."""
    write_trace(tmp_path / "rank0.json")
    late = PROC | {"clock": {"mono_ns": 0, "wall_ns": 9_000 * MS}}
    save = at(3.1, k="ckpt", api="torch.save", dur=MS // 2)
    (tmp_path / "rank0.events.jsonl").write_bytes(text(late, save))
    analysis = analyze(tmp_path)
    assert "idle.checkpoint" not in analysis.ranks[0].buckets_ns
    assert "event_log_clock" in [entry.id for entry in analysis.quality]


def steps(case: str, rank: int) -> list[dict[str, float]]:
    return json.loads((GLOO / case / f"t.rank{rank}.json").read_text())["steps"]


@pytest.mark.needs("shared")
def test_a_checkpoint_on_one_rank_is_what_its_peer_waits_for():
    """torch.save on rank 0 every third step: its own time to 5 %, rank 1's wait blamed on it."""
    analysis = analyze(GLOO / "ddp_ckpt_every3", window="all")
    saver, peer = (result.host_buckets_ns for result in analysis.ranks)
    saved = sum(step.get("ckpt", 0) for step in steps("ddp_ckpt_every3", 0)[8:14]) * 1e9
    assert saver["host.checkpoint"] == pytest.approx(saved, rel=0.05)
    assert "host.checkpoint" not in peer
    leading = analysis.findings[0]
    assert (leading.id, leading.ranks) == ("checkpoint_stall", [0])
    largest = max(analysis.blame, key=lambda row: row.wait_ns)
    assert (largest.rank, largest.cause, largest.affected) == (0, "host.checkpoint", [1])


@pytest.mark.needs("shared")
@pytest.mark.parametrize("rank", [0, 1])
def test_loader_waits_of_the_log_are_those_of_the_script(rank):
    """The whole run's waits, also outside the traced window, within 2 %."""
    (path,) = GLOO.glob(f"ddp_slow_loader_100ms/ranks/rank{rank}-*.events.jsonl")
    (process,) = read_event_log(source_of(path.read_bytes())).processes
    waits = [one.end_ns - one.start_ns for one in process.spans if "DataLoader" in one.name]
    slept = [step["dl"] * 1e9 for step in steps("ddp_slow_loader_100ms", rank)]
    assert median_low(waits) == pytest.approx(median_low(map(int, slept)), rel=0.02)
