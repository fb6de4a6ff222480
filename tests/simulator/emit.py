"""Kineto's JSON, laid out as torch.profiler of 2026 writes it; `ts` and `dur` are decimal text."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simulator.host import CBID

if TYPE_CHECKING:
    from simulator.device import DeviceOp
    from simulator.host import HostSpan, Process
    from simulator.job import Job

BASE_NS = 1_767_189_312_000_000_000
SYNC_ROW_TID = 1_000_000  # since 2026-04 stream syncs have rows of their own

GPU_PROPERTIES = {
    "totalGlobalMem": 85_028_372_480,
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 132,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
}


def trace(job: Job, proc: Process) -> str:
    """Return the whole file of one rank."""
    head = json.dumps(_head(job, proc), indent=2)
    events = ",\n  ".join(_events(job, proc))
    tail = json.dumps(f"/traces/{job.name}/rank{proc.rank}.pt.trace.json")
    return f'{head[:-2]},\n  "traceEvents": [\n  {events}\n  ],\n  "traceName": {tail}\n}}\n'


def _head(job: Job, proc: Process) -> dict[str, Any]:
    gpus = max(len(job.ranks), *(d + 1 for p in job.ranks for d in p.devices))
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": i, "name": job.gpu, **GPU_PROPERTIES} for i in range(gpus)],
        "cupti_version": 28,
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
    }
    if len(job.ranks) > 1:
        head["distributedInfo"] = {
            "backend": "nccl",
            "rank": proc.rank,
            "world_size": len(job.ranks),
            "pg_count": len(job.groups),
            "pg_config": [
                {
                    "pg_name": g.name,
                    "pg_desc": g.desc,
                    "backend_config": "cuda:nccl",
                    "pg_size": len(g.ranks),
                    "ranks": g.ranks,
                }
                for g in job.groups
            ],
            "nccl_version": "2.28.9",
        }
    if any(s.cat == "python_function" for s in proc.spans):
        head["with_stack"] = 1
    head |= {
        "record_shapes": 1,
        "trace_id": f"{job.seed:016X}{proc.rank:016X}",
        "host_name": "gpu-node-0",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
    }
    return head


def micros(ns: int) -> str:
    """Return ns as microseconds with three decimals; the text is exact where a float is not."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _span(
    cat: str, name: str, pid: int, tid: int, start: int, end: int, args: dict[str, Any]
) -> str:
    times = f'"ts": {micros(start)}, "dur": {micros(end - start)}'
    return (
        f'{{\n    "ph": "X", "cat": "{cat}", "name": {json.dumps(name)}, '
        f'"pid": {pid}, "tid": {tid},\n    {times},\n    "args": {json.dumps(args)}\n  }}'
    )


def _arrow(ph: str, number: int, pid: int, tid: int, at: int) -> str:
    end = ', "bp": "e"' if ph == "f" else ""
    return (
        f'{{\n    "ph": "{ph}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {micros(at)},\n'
        f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
    )


def _events(job: Job, proc: Process) -> Iterator[str]:
    spans = sorted((s for s in proc.spans if s.recorded and s.cat), key=lambda s: s.start)
    ops = [op for device in proc.devices.values() for op in device.log if op.recorded]
    ops.sort(key=lambda op: op.start)
    yield from _host_events(proc, spans)
    linked = {op.correlation for op in ops}
    for span in spans:
        if span.correlation:
            yield from _call(proc, span, linked=span.correlation in linked)
    for op in ops:
        yield from _device_op(op)
    yield from _device_annotations(ops)
    yield from _metadata(job, proc, spans, ops)


def _host_events(proc: Process, spans: list[HostSpan]) -> Iterator[str]:
    python_ids: dict[HostSpan, int] = {}
    index = 0
    for span in spans:
        if span.correlation:
            continue
        if span.cat == "python_function":
            python_ids[span] = len(python_ids) + 1
            parent = span.parent
            while parent and parent not in python_ids:
                parent = parent.parent
            args = {"Python id": python_ids[span], "Python parent id": python_ids.get(parent)}
        else:
            args = {"External id": span.external_id, "Record function id": 0, **span.args}
        args["Ev Idx"] = index
        index += 1
        yield _span(span.cat, span.name, proc.pid, span.tid, span.start, span.end, args)


def _external(span: HostSpan | None) -> dict[str, int]:
    while span and not span.external_id:
        span = span.parent
    return {"External id": span.external_id} if span else {}


def _call(proc: Process, span: HostSpan, *, linked: bool) -> Iterator[str]:
    args = _external(span.parent) | {
        "cbid": CBID.get(span.name, 0),
        "correlation": span.correlation,
    }
    yield _span(span.cat, span.name, proc.pid, span.tid, span.start, span.end, args)
    if linked:
        yield _arrow("s", span.correlation, proc.pid, span.tid, span.start)
    if span.sync_stream is not None:
        yield _sync_row(proc, span)


def _sync_row(proc: Process, span: HostSpan) -> str:
    kind = "Context Sync" if span.sync_stream == -1 else "Stream Sync"
    device = min(proc.devices)
    args = _external(span.parent) | {
        "cuda_sync_kind": kind,
        "stream": span.sync_stream,
        "correlation": span.correlation,
        "device": device,
        "context": 1,
    }
    tid = SYNC_ROW_TID + max(0, span.sync_stream or 0)
    return _span("cuda_sync", kind, device, tid, span.start + 600, span.end - 600, args)


def _device_op(op: DeviceOp) -> Iterator[str]:
    assert op.launch is not None
    place = {
        "device": op.device,
        "context": 1,
        "stream": op.stream,
        "correlation": op.correlation,
    }
    in_graph = op.launch.name == "cudaGraphLaunch"
    external = {} if in_graph else _external(op.launch.parent)
    queued = {"queued": 0} if op.cat == "kernel" else {}
    args = external | queued | place | op.args
    yield _span(op.cat, op.name, op.device, op.stream, op.start, op.end, args)
    if op.launch.recorded:
        yield _arrow("f", op.correlation, op.device, op.stream, op.start)


def _device_annotations(ops: list[DeviceOp]) -> Iterator[str]:
    """Annotations projected on the device: from the first to the last activity they launched."""
    extents: dict[tuple[int, int, HostSpan], list[int]] = defaultdict(list)
    for op in ops:
        span = op.launch if op.launch and op.launch.recorded else None
        while span:
            if span.cat == "user_annotation":
                extents[op.device, op.stream, span] += [op.start, op.end]
            span = span.parent
    for (device, stream, span), times in extents.items():
        args = {"External id": span.external_id}
        yield _span("gpu_user_annotation", span.name, device, stream, min(times), max(times), args)


def _metadata(job: Job, proc: Process, spans: list[HostSpan], ops: list[DeviceOp]) -> Iterator[str]:
    start, end = spans[0].start, max(s.end for s in spans)
    gpus = max(len(job.ranks), *(d + 1 for p in job.ranks for d in p.devices))

    def row(kind: str, pid: Any, tid: int, args: dict[str, Any]) -> str:
        text = json.dumps({"name": kind, "ph": "M", "ts": None, "pid": pid, "tid": tid})
        text = text.replace('"ts": null', f'"ts": {micros(start)}')
        return f'{text[:-1]}, "args": {json.dumps(args)}}}'

    for pid, label in [(proc.pid, "CPU"), *((i, f"GPU {i}") for i in range(gpus))]:
        yield row("process_name", pid, 0, {"name": "python"})
        yield row("process_labels", pid, 0, {"labels": label})
        yield row("process_sort_index", pid, 0, {"sort_index": pid})
    for device, stream in sorted({(op.device, op.stream) for op in ops}):
        yield row("thread_name", device, stream, {"name": f"stream {stream} "})
    for tid in sorted({s.tid for s in spans}):
        yield row("thread_name", proc.pid, tid, {"name": f"thread {tid} (python)"})
    yield (
        f'{{\n    "ph": "X", "cat": "Trace", "ts": {micros(start)}, "dur": {micros(end - start)},\n'
        '    "pid": "Spans", "tid": "PyTorch Profiler",\n    "name": "PyTorch Profiler (0)",\n'
        '    "args": {"Op count": 0}\n  }'
    )
    yield (
        '{\n    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",\n'
        f'    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {micros(start)}\n  }}'
    )
    yield (
        '{\n    "name": "Record Window End", "ph": "i", "s": "g",\n'
        f'    "pid": "", "tid": "", "ts": {micros(end)}\n  }}'
    )
