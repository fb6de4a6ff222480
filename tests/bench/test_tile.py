"""The tiler repeats a trace in time without touching anything else."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import require

TILE = Path(__file__).with_name("tile.py")
SOURCE = require.SAMPLES / "gloo-slow-loader" / "rank0.json.gz"
COPIES = 4


def load(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.fixture(scope="module")
def source() -> dict:
    return load(SOURCE)


@pytest.fixture(scope="module")
def tiled(source: dict, tmp_path_factory: pytest.TempPathFactory) -> dict:
    target = tmp_path_factory.mktemp("tile") / "big.json.gz"
    megabytes = len(gzip.decompress(SOURCE.read_bytes())) * (COPIES - 0.5) / 1e6
    command = [sys.executable, TILE, SOURCE, target, "--mb", str(megabytes)]
    subprocess.run(command, check=True, capture_output=True)
    assert source["traceEvents"]
    return load(target)


def spans(trace: dict) -> list[dict]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e.get("cat") != "Trace"]


def test_every_span_occurs_once_per_copy_with_its_duration(source, tiled):
    once = Counter((e["name"], e["dur"]) for e in spans(source) if "ProfilerStep" not in e["name"])
    many = Counter((e["name"], e["dur"]) for e in spans(tiled) if "ProfilerStep" not in e["name"])
    assert many == Counter({key: count * COPIES for key, count in once.items()})


def test_metadata_is_written_once_and_header_is_kept(source, tiled):
    def metadata(trace):
        return [e for e in trace["traceEvents"] if e["ph"] == "M"]

    assert metadata(tiled) == metadata(source)
    for key in source.keys() - {"traceEvents"}:
        assert tiled[key] == source[key]


@pytest.mark.parametrize("key", ["External id", "Ev Idx"])
def test_ids_of_copies_never_meet(source, tiled, key):
    def ids(trace):
        return {e["args"][key] for e in spans(trace) if e.get("args", {}).get(key)}

    assert len(ids(tiled)) == COPIES * len(ids(source))


def test_steps_go_on_counting_and_copies_do_not_overlap(tiled):
    steps = [e for e in spans(tiled) if e["name"].startswith("ProfilerStep#")]
    numbers = [int(e["name"].partition("#")[2]) for e in steps]
    assert numbers == list(range(3, 3 + 6 * COPIES))
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(steps))


def test_the_profilers_own_span_covers_all_copies(tiled):
    window = next(e for e in tiled["traceEvents"] if e.get("cat") == "Trace")
    last = max(e["ts"] + e["dur"] for e in spans(tiled))
    # The writer's own span may end a little before its last event.
    assert window["ts"] + window["dur"] >= last - 1e4
