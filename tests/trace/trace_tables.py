"""Comparable forms of traces, and small traces as JSON, for the reader's tests."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from gpudiag.trace.read import read_source
from gpudiag.trace.source import source_of

SHARED = Path(__file__).resolve().parents[3] / "shared"
STRING_COLUMNS = {
    "name", "stack", "stream", "op", "group", "group_description", "group_ranks", "dtype",
    "input_dims", "input_types", "concrete_inputs",
}  # fmt: skip


def read(data, **options):
    """Read a trace from bytes, from text or from what json.dumps takes."""
    if not isinstance(data, bytes):
        data = (data if isinstance(data, str) else json.dumps(data)).encode()
    return read_source(source_of(data), **options)


def span(cat, name, ts, dur, **more):
    """Return one complete event; ``args`` and ids by keyword."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 100,
        "tid": 100,
        "ts": ts,
        "dur": dur,
    } | more


def kernel(name="gemm", ts=10, dur=5, **args):
    """Return one kernel row as current versions write it."""
    args = {"device": 0, "stream": 7, "correlation": 1} | args
    return span("kernel", name, ts, dur, pid=0, tid=7, args=args)


def trace_of(*events, **metadata):
    """Return a trace object with some metadata that marks it as PyTorch's."""
    return {"schemaVersion": 1} | metadata | {"traceEvents": list(events)}


def decoded(trace, ids):
    """Return strings for dictionary indices; None for -1."""
    return [trace.strings[i] if i >= 0 else None for i in ids.tolist()]


def columns(trace, table):
    """Return a table as plain lists, strings decoded, so that dictionary order doesn't matter."""
    out = {}
    for field in dataclasses.fields(table):
        column = getattr(table, field.name)
        if field.name in STRING_COLUMNS:
            out[field.name] = decoded(trace, column)
        elif field.name == "thread":
            out[field.name] = [trace.threads[i] for i in column.tolist()]
        else:
            out[field.name] = column.tolist()
    return out


def tables(trace):
    """Return everything that two readings of the same events must agree on."""
    order = np.lexsort((trace.collectives.row, trace.collectives.on_device))
    collectives = columns(trace, trace.collectives)
    return {
        "host": columns(trace, trace.host),
        "device": columns(trace, trace.device),
        # host and device collectives alternate by block: their order among each other is free
        "collectives": {k: [v[i] for i in order] for k, v in collectives.items()},
        "operator_args": columns(trace, trace.operator_args),
        "info": trace.info,
        "events": trace.events,
        "partial": trace.partial,
    }


def check(trace):
    """Assert what holds of any trace: equal lengths, indices in range, known kinds."""
    for table in (trace.host, trace.device, trace.collectives, trace.operator_args):
        lengths = {len(getattr(table, f.name)) for f in dataclasses.fields(table)}
        assert len(lengths) == 1
        for field in dataclasses.fields(table):
            column = getattr(table, field.name)
            if field.name in STRING_COLUMNS and len(column):
                assert -1 <= column.min() <= column.max() < len(trace.strings)
    if len(trace.host):
        assert 0 <= trace.host.thread.min() <= trace.host.thread.max() < len(trace.threads)
    on_device = trace.collectives.on_device
    assert (trace.collectives.row[on_device] < len(trace.device)).all()
    assert (trace.collectives.row[~on_device] < len(trace.host)).all()
    assert (trace.operator_args.row < len(trace.host)).all()
    lost = {"events_lost", "truncated"} & {q.id for q in trace.quality}
    assert not lost or trace.partial
