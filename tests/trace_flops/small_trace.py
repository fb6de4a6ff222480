"""Hand-made traces of a device: operators, the kernels that they launch, and their FLOPs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudiag.analyze.device import build_devices
from gpudiag.analyze.host import build_host
from gpudiag.analyze.trace_flops.count import count_flops
from gpudiag.analyze.window import DEVICE_SPAN, Window
from gpudiag.trace import read_trace

if TYPE_CHECKING:
    from gpudiag.analyze.trace_flops.results import WindowFlops

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn"
BF16 = "c10::BFloat16"


class SmallTrace:
    """Times are microseconds; a kernel starts when it is launched, on the device's only stream."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._correlation = itertools.count(1)

    def operator(self, name, ts, dur, *, dims=(), concrete=None, dtype=BF16, tid=1, **args):
        """Add a host operator, with shapes and scalars where given."""
        if dims:
            scalars = concrete or []
            args["Input Dims"] = [*dims, *([] for _ in scalars)]
            args["Input type"] = [dtype] * len(dims) + ["Scalar"] * len(scalars)
            args["Concrete Inputs"] = [""] * len(dims) + list(scalars)
        self._add("cpu_op", name, ts, dur, tid, args)

    def mm(self, ts, m, n, k, *, kernels=(GEMM,), each=10, tid=1, **kwargs):
        """Add aten::mm of [m, k] by [k, n], 50 us long, with its kernels from ``ts`` + 10 on."""
        self.operator("aten::mm", ts, 50, dims=[[m, k], [k, n]], tid=tid, **kwargs)
        for index, name in enumerate(kernels):
            self.kernel(name, ts + 10 + index * each, each, tid=tid)

    def annotation(self, name, ts, dur, tid=1):
        """Add a user annotation."""
        self._add("user_annotation", name, ts, dur, tid, {})

    def kernel(
        self, name, ts, dur, *, tid=1, api="cudaLaunchKernel", device=0, launched=True, **more
    ):
        """Add a kernel and its launch; ``more`` are args of the kernel."""
        number = next(self._correlation)
        if launched:
            self._add("cuda_runtime", api, ts, 1, tid, {"correlation": number})
        args = {"device": device, "stream": 7, "correlation": number, **more}
        self._add("kernel", name, ts, dur, 7, args, pid=device)

    def _add(self, category, name, ts, dur, tid, args, pid=100) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": ts,
                "dur": dur,
                "args": args,
            }
        )

    def count(self, folder: Path, start: int = 0, end: int = 10_000) -> WindowFlops:
        """Count the FLOPs of the first device in [start, end) microseconds."""
        return self.count_all(folder, start, end)[0]

    def count_all(self, folder: Path, start: int = 0, end: int = 10_000) -> list[WindowFlops]:
        """Count the FLOPs of every device in [start, end) microseconds."""
        path = folder / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        trace = read_trace(str(path))
        host = build_host(trace)
        devices, _ = build_devices(trace, host)
        window = Window(start * 1000, end * 1000, DEVICE_SPAN)
        return count_flops(trace, host, [(device, window) for device in devices])
