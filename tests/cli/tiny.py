"""A trace small enough to read: steps of one kernel each, most of the time waiting for data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEP_US = 1000.0
KERNEL_US = 200.0
LOADER_US = 700.0


def tiny_trace(rank: int = 0, steps: int = 5, *, device: bool = True) -> dict:
    """Each step: 700 µs in the loader, a launch, 200 µs of kernel."""
    events = []
    for number in range(steps):
        start = 1000.0 + number * STEP_US
        launch = start + LOADER_US + 10
        host = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            host | span("user_annotation", f"ProfilerStep#{number}", start, STEP_US - 1),
            host | span("user_annotation", LOADER, start + 1, LOADER_US),
            host | span("cpu_op", "aten::mm", launch - 5, 20) | {"args": {"External id": number}},
        ]
        if device:
            link = {"correlation": 100 + number, "External id": number}
            call = span("cuda_runtime", "cudaLaunchKernel", launch, 8)
            kernel = span("kernel", "ampere_sgemm_128x64_nn", launch + 10, KERNEL_US)
            events += [
                host | call | {"args": link},
                {"ph": "X", "pid": 0, "tid": 7} | kernel
                | {"args": link | {"device": 0, "stream": 7}},
            ]  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}] if device else [],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 1},
        "traceEvents": events,
    }


def span(category: str, name: str, ts: float, dur: float) -> dict:
    return {"cat": category, "name": name, "ts": ts, "dur": dur}


def write_trace(path: Path, **options) -> Path:
    path.write_text(json.dumps(tiny_trace(**options)), encoding="utf-8")
    return path


def gpudiag(*args: object, **options) -> subprocess.CompletedProcess[str]:
    """Run the command line as users do, in a process of its own."""
    command = [sys.executable, "-m", "gpudiag", *map(str, args)]
    defaults = {"capture_output": True, "timeout": 60, "encoding": "utf-8"}
    return subprocess.run(command, check=False, **(defaults | options))
