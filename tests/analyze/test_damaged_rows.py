"""Single damaged rows of a trace: said, left out, and nothing else changes for them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli.tiny import tiny_trace

from analyze.traces import US, Span, Work, annotation, call, job, trace
from gpudiag.analyze.early import offset_of
from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.model.tables import INVALID_TIME
from gpudiag.trace.job import read_job
from gpudiag.trace.read import read_trace

MS = 1_000_000
DAY_US = 86_400e6
STEPS = 12
# Steps of tiny_trace: 1 ms, 701 us of it in the loader, a kernel of 200 us.
INPUT_FRAC = 0.70


def analysed(tmp_path, events):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(tiny_trace(steps=STEPS) | {"traceEvents": events}))
    return analyze_job(read_job([str(path)]))


def events():
    return tiny_trace(steps=STEPS)["traceEvents"]


def kernels(rows):
    return [row for row in rows if row["cat"] == "kernel"]


def entry(analysis, name):
    (found,) = [one for one in analysis.quality if one.id == name]
    return found


def buckets(analysis):
    return analysis.ranks[0].buckets_ns


def test_one_early_record_moves_no_clock(tmp_path):
    """A kernel that starts 60 ms before its launch is counted; causes and window stay."""
    whole = analysed(tmp_path, events())
    assert buckets(whole)["idle.input"] / whole.ranks[0].window_ns > INPUT_FRAC - 0.01
    rows = events()
    kernels(rows)[6]["ts"] -= 60_000
    found = analysed(tmp_path, rows)
    assert entry(found, "early_records").count == 1
    assert "60.0 ms" in entry(found, "early_records").message
    assert found.ranks[0].host_device_offset_ns == 0
    assert found.ranks[0].window_ns == whole.ranks[0].window_ns
    assert "idle.device_blocked" not in buckets(found)
    assert found.findings[0].id == whole.findings[0].id == "input_stall"
    assert found.findings[0].confidence == "high"


def test_a_clock_that_is_early_is_told_from_single_records():
    """Delays that agree are the clock's, those that stand alone are damaged, many are no damage."""
    usual = [10_000 + 10 * i for i in range(300)]
    for low, offset, wrong in (
        ([], 0, 0),
        ([-20_000], 20_000, 0),  # jitter, by the law
        ([-60 * MS], 0, 1),
        ([-60 * MS, -3 * MS, -900_000], 0, 3),
        ([-60 * MS, -3 * MS, -900_000, -500_000], 60 * MS, 0),  # more than 1 %
        ([-MS, -MS + 5_000, -MS + 40_000], MS, 0),
        ([-60 * MS, -MS, -MS + 5_000], MS, 1),
    ):
        got, mask = offset_of(np.array(low + usual))
        assert (got, int(mask.sum())) == (offset, wrong), low
    assert offset_of(np.array([-60 * MS]))[0] == 60 * MS  # nothing tells it from the clock
    assert offset_of(np.array([], dtype=np.int64))[0] == 0


def test_where_clocks_differ_no_finding_rests_on_enqueued_time(tmp_path):
    """Half the kernels 600 us early: what the device waited for isn't known, and it is said."""
    rows = events()
    for kernel in kernels(rows)[::2]:
        kernel["ts"] -= 600
    found = analysed(tmp_path, rows)
    assert buckets(found)["idle.device_blocked"] > 0
    assert found.ranks[0].host_device_offset_ns == 590 * US
    ids = {one.id for one in found.findings}
    assert not ids & {"device_blocked", "gpu_shared"}
    assert {one.confidence for one in found.findings if one.buckets[0].startswith("idle.")} <= {
        "low"
    }
    assert "no finding" in entry(found, "host_device_offset").message
    assert "steps only" not in found.headline  # it isn't the steps that are few


@pytest.mark.parametrize("shift_us", [-46 * DAY_US, 46 * DAY_US, None])
@pytest.mark.parametrize("base_ns", [0, 1_700_000_000 * 10**9])
def test_rows_far_from_all_others_are_left_out(tmp_path, shift_us, base_ns):
    """Rows that lie days apart, or at time zero, are counted, and their time is said."""
    absolute = 0 if base_ns else 1.7e15
    rows = events()
    for row in rows:
        row["ts"] += absolute + (50 * DAY_US if base_ns else 0)
    whole = analysed_with_base(tmp_path, rows, base_ns)
    spoilt = [kernels(rows)[0], rows[-3]]
    for row in spoilt:
        row["ts"] = 0 if shift_us is None else row["ts"] + shift_us
    for options in (None, Options(window="all"), Options(window="device_span")):
        found = analysed_with_base(tmp_path, rows, base_ns, options)
        said = entry(found, "start_times_disbelieved")
        assert said.count == 2
        assert "before" in said.message or "after" in said.message
        assert found.ranks[0].window_ns <= STEPS * MS
    assert whole.ranks[0].window_ns <= STEPS * MS
    assert not [one for one in whole.quality if one.id == "start_times_disbelieved"]


def analysed_with_base(tmp_path, rows, base_ns, options=None):
    path = tmp_path / "trace.json"
    data = tiny_trace() | {"traceEvents": rows, "baseTimeNanoseconds": base_ns}
    path.write_text(json.dumps(data))
    return analyze_job(read_job([str(path)]), options)


def test_a_long_recording_is_left_whole(tmp_path):
    """Minutes of silence are no damage, nor is a file of two long parts hours apart."""
    for silence_us, late in ((3_000e6, 1), (90 * 60e6, 6)):
        rows = events()
        for row in rows[-5 * late :]:
            row["ts"] += silence_us
        path = tmp_path / "long.json"
        path.write_text(json.dumps(tiny_trace() | {"traceEvents": rows}))
        read = read_trace(str(path))
        assert (read.host.ts_ns != INVALID_TIME).all()
        assert (read.device.ts_ns != INVALID_TIME).all()
        assert not read.quality


def test_steps_of_a_second_run_in_one_file_are_kept(tmp_path):
    """Numbers that come again are counted on, and it is said; the same step seen twice is one."""
    rows = events()
    again = json.loads(json.dumps(rows))
    for row in again:
        row["ts"] += STEPS * 1000
        if "correlation" in row.get("args", {}):
            row["args"]["correlation"] += 1000
    found = analysed(tmp_path, rows + again)
    assert found.ranks[0].periods == 2 * STEPS - 2
    assert found.ranks[0].window_ns == (2 * STEPS - 2) * MS
    assert entry(found, "steps_repeated").count == STEPS
    twice = [row for row in rows if row["name"].startswith("ProfilerStep")]
    same = analysed(tmp_path, rows + [row | {"tid": 2} for row in twice])
    assert same.ranks[0].periods == STEPS - 2
    assert "steps_repeated" not in {one.id for one in same.quality}


def test_two_runs_whose_ids_repeat_are_linked_by_time(tmp_path):
    """Each kernel belongs to the launch before it, where the launches before that have theirs."""
    rows = events()
    again = [row | {"ts": row["ts"] + STEPS * 1000} for row in rows]
    once, found = analysed(tmp_path, rows), analysed(tmp_path, rows + again)
    assert found.ranks[0].periods == 2 * STEPS - 2
    said = entry(found, "correlations_repeated")
    assert (said.count, said.severity) == (STEPS, "info")
    for name, ns in buckets(once).items():
        assert buckets(found)[name] * (STEPS - 2) == ns * (2 * STEPS - 2)


def test_one_id_on_all_launches_links_only_what_is_sure():
    """Work that may be of several launches is of none: its gap is unknown, and counted."""
    host = [call(0, 2, 9), call(30, 32, 9), call(40, 42, 9), Span(0, 100, "aten::mm")]
    device = [
        Work(5, 20, launch=9),  # of the first
        Work(45, 50, launch=9),  # of the second or the third
        Work(60, 70, launch=9),  # of either, for one launch may make several records
    ]
    found = analyze_job(job(trace(host, device)), Options(window="device_span"))
    said = entry(found, "correlations_repeated")
    assert said.severity == "warning"
    assert "2 can't be linked" in said.message
    assert buckets(found)["idle.unknown"] == (25 + 10) * US


def test_a_driver_call_inside_a_runtime_call_is_the_same_launch():
    """Both carry the id; nothing is ambiguous."""
    host = [call(0, 9, 1), call(2, 8, 1, "cuLaunchKernel"), call(20, 29, 2)]
    device = [Work(12, 18, launch=1), Work(30, 40, launch=2)]
    found = analyze_job(job(trace(host, device)), Options(window="device_span"))
    assert "correlations_repeated" not in {one.id for one in found.quality}


def test_a_negative_rank_is_said(tmp_path):
    """It is read as not recorded."""
    for rank in (-1, "x"):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(tiny_trace(rank=rank)))
        found = analyze_job(read_job([str(path)]))
        assert str(rank) in entry(found, "rank_beyond_world").message
        assert found.job.ranks == [0]


def test_a_step_mark_is_the_same_everywhere():
    """Hand-made rows: marks on the host only, by one rule of names."""
    host = [annotation(at, at + 9, f"ProfilerStep # {at}") for at in (0, 10, 20)]
    host += [call(at + 1, at + 2, at + 1) for at in (0, 10, 20)]
    device = [Work(at + 3, at + 5, launch=at + 1) for at in (0, 10, 20)]
    (result,) = analyze_job(job(trace(host, device))).ranks
    assert result.window_basis == "steps"
