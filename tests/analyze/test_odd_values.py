"""Wrong types and impossible values in any field of a trace: an analysis that adds up, or an error.

Each case takes a trace that is well formed and puts values that don't belong there into a few of
its fields, drops fields, or repeats events. Seeded; more: ``ODD_CASES=20000``.
"""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
import shutil

import pytest
import require
from cli.tiny import tiny_trace

from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.errors import GpudiagError
from gpudiag.report.describe import describe
from gpudiag.report.json import to_json
from gpudiag.report.terminal import Style, render
from gpudiag.trace.job import read_job

SAMPLES = ("sim-host-sync", "sim-straggler-4rank", "sim-pipeline-1f1b", "gloo-slow-rank")
CASES = int(os.environ.get("ODD_CASES", "240"))
BATCHES = 8
HEAD, TAIL = 900, 300  # events kept of each rank
ODD = [
    *(None, True, -1, 0, 1, 1e308, -1e18, 2**63, -(2**63), 2**70, 10**30, 1.0000001),
    *(float("nan"), float("inf"), "", "x", "NaN", "123", "1.5e3", "é\ud800", "kernel"),
    *("ProfilerStep#3", [], [1], [[2**62, 2**62]], {}, {"a": 1}),
]


def sample(name, head=HEAD):
    """Return the traces of all ranks of a sample, cut short."""
    paths = sorted((require.REPO / "sample_traces" / name).glob("*.json.gz"))
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    for trace in traces:
        events = trace["traceEvents"]
        trace["traceEvents"] = events[:head] + events[head:][-TAIL:]
    return traces


def fields(value, path=()):
    """Yield the path of every field and element."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from fields(child, (*path, key))


def spoil(trace, path, rng):
    """Put an odd value at a path, or drop it, or repeat it; what isn't there any more stays so."""
    *above, last = path
    holder = trace
    for key in above:
        try:
            holder = holder[key]
        except (LookupError, TypeError):
            return
    known = range(len(holder)) if isinstance(holder, list) else holder
    if not isinstance(holder, dict | list) or last not in known:
        return
    how = rng.random()
    if how < 0.15 and isinstance(holder, dict):
        del holder[last]
    elif how < 0.25 and isinstance(holder, list):
        holder.insert(last, copy.deepcopy(holder[last]))
    else:
        holder[last] = rng.choice(ODD)


@pytest.fixture(scope="module")
def originals():
    without_steps = sample("sim-straggler-4rank", head=300)
    jobs = [*map(sample, SAMPLES), without_steps, [tiny_trace()], [tiny_trace(device=False)]]
    return [(traces, list(fields(traces))) for traces in jobs]


@pytest.mark.parametrize("batch", range(BATCHES))
def test_odd_values_are_survived(batch, originals, tmp_path):
    """No exception but gpudiag's own; whatever is printed adds up to the nanosecond."""
    for seed in range(batch, CASES, BATCHES):
        rng = random.Random(seed)
        original, known = rng.choice(originals)
        traces = copy.deepcopy(original)
        for _ in range(rng.choice([1, 2, 5, 20])):
            spoil(traces, rng.choice(known), rng)
        folder = tmp_path / str(seed)
        folder.mkdir()
        for index, trace in enumerate(traces):
            (folder / f"{index}.json").write_text(json.dumps(trace))
        options = Options(
            window=rng.choice([None, "steps", "device_span", "all"]),
            peak_tflops=rng.choice([None, 100.0]),
            sm_clock_mhz=rng.choice([None, 1000.0]),
        )
        try:
            analysis = analyze_job(read_job([str(folder)]), options)
            style = Style(width=rng.choice([40, 100]), color=False, ascii=rng.random() < 0.5)
            shown = render(describe(analysis, top=5, verbose=True), style)
            found = json.loads(to_json(analysis))
        except GpudiagError:
            continue
        except Exception as error:
            error.add_note(f"seed {seed}: {folder}")
            raise
        assert shown, seed
        assert_adds_up(found, seed)
        shutil.rmtree(folder)


def assert_adds_up(found, seed):
    """Hold the sums of accounting.md 8, and that no more is promised than there is."""
    for rank in found["ranks"]:
        if rank["window_ns"] is not None:
            assert sum(rank["buckets_ns"].values()) == rank["window_ns"], seed
            assert sum(rank["level1_ns"].values()) == rank["window_ns"], seed
        if rank["host_window_ns"] is not None:
            assert sum(rank["host_buckets_ns"].values()) == rank["host_window_ns"], seed
    if found["waterfall"]:
        assert abs(sum(term["share"] for term in found["waterfall"]) - 1) < 1e-9, seed
    promised = sum(finding["recoverable_ns"] or 0 for finding in found["findings"])
    windows = ("window_ns", "host_window_ns")
    assert promised <= max(sum(r[name] or 0 for r in found["ranks"]) for name in windows), seed
    if (found["job"]["mfu"] or 0) > 1:
        assert "flops_over_peak" in [finding["id"] for finding in found["findings"]], seed
