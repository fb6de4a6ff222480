"""Real traces, read a second time by plain json and exact decimals: the tables must agree."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pytest
from trace_tables import SHARED, decoded

from gpudiag.trace import read_trace

KINDS = {"kernel": 0, "Kernel": 0, "gpu_memcpy": 1, "Memcpy": 1, "gpu_memset": 2, "Memset": 2}
NEITHER = {"gpu_user_annotation", "cuda_sync", "Trace"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
SHAPED = {"cpu_op", "Operator", "user_annotation"}
SHAPE_KEYS = {"Input Dims", "Input type", "Concrete Inputs", "Sequence number", "kernel_flop"}
MAX_BYTES = 1_300_000  # of the file as it lies there; larger ones take seconds in plain json


def _files():
    files = [
        *SHARED.glob("traces/kt-*/*.json*"),
        *SHARED.glob("traces/gloo-faults/*/ranks/*0-*.gz"),
    ]
    skip = ("unitrace", "_et", "memory_timeline")
    small = (
        f for f in files if f.stat().st_size < MAX_BYTES and not any(s in f.name for s in skip)
    )
    return sorted(small)


def _load(path):
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    trace = json.loads(data, strict=False, parse_float=Decimal)
    rows = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") not in NEITHER]
    device = [e for e in rows if e.get("cat") in KINDS]
    host = [e for e in rows if e.get("cat") not in KINDS]
    return trace, host, device


def _ns(value):
    return int(Decimal(value) * 1000)


def _args(event):
    return event.get("args") or {}


def _external(events):
    return [_args(e).get("External id", _args(e).get("external id", -1)) for e in events]


@pytest.mark.needs("shared")
@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(SHARED / "traces")))
def test_tables_agree_with_a_plain_reading(path):
    """Every row of every column that a plain reading can check, to the nanosecond."""
    recorded, host, device = _load(path)
    trace = read_trace(str(path))
    base = recorded.get("baseTimeNanoseconds", 0)
    assert trace.events == len(recorded["traceEvents"])
    for table, rows in ((trace.host, host), (trace.device, device)):
        assert table.ts_ns.tolist() == [_ns(e["ts"]) + base for e in rows]
        assert table.dur_ns.tolist() == [_ns(e["dur"]) for e in rows]
        assert decoded(trace, table.name) == [e["name"] for e in rows]
        assert table.external_id.tolist() == _external(rows)
    _check_host(trace, host)
    _check_device(trace, device)
    collective = [e for e in host + device if "Collective name" in _args(e)]
    assert len(trace.collectives) == len(collective)


def _check_host(trace, rows):
    threads = [(trace.threads[i].pid, trace.threads[i].tid) for i in trace.host.thread.tolist()]
    assert threads == [(str(e.get("pid", "")), str(e.get("tid", ""))) for e in rows]
    calls = [_args(e).get("correlation", -1) if e.get("cat") in CALLS else -1 for e in rows]
    assert trace.host.correlation.tolist() == calls
    shaped = [
        i for i, e in enumerate(rows) if e.get("cat") in SHAPED and SHAPE_KEYS & _args(e).keys()
    ]
    assert trace.operator_args.row.tolist() == shaped
    for i, text in zip(shaped, decoded(trace, trace.operator_args.input_dims), strict=True):
        dims = _args(rows[i]).get("Input Dims")
        expected = json.loads(dims) if isinstance(dims, str) and dims[:1] == "[" else dims
        assert (json.loads(text) if text else None) == expected


def _check_device(trace, rows):
    assert trace.device.kind.tolist() == [KINDS[e["cat"]] for e in rows]
    devices = [_args(e).get("device", e.get("pid", 0)) for e in rows]
    assert trace.device.device.tolist() == devices
    streams = [str(_args(e).get("stream", e.get("tid", ""))) for e in rows]
    assert decoded(trace, trace.device.stream) == streams
    for column, key in ((trace.device.correlation, "correlation"), (trace.device.bytes, "bytes")):
        assert column.tolist() == [_args(e).get(key, -1) for e in rows]


@pytest.mark.needs("shared")
def test_counts_ranks_and_worlds_agree_with_the_goldens():
    """Device rows, rank and world size are those of an independent reading."""
    goldens = json.loads((SHARED / "golden" / "kineto_partition.json").read_text())
    small = {k: v for k, v in goldens.items() if (SHARED / "traces" / k).stat().st_size < MAX_BYTES}
    assert small
    for name, golden in small.items():
        trace = read_trace(str(SHARED / "traces" / name))
        found = (len(trace.device), trace.info.rank, trace.info.world_size)
        assert found == (golden["device_events"], golden["rank"], golden["world_size"]), name
