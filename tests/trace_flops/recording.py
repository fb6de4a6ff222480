"""Record what a function does with torch's profiler, and count the FLOPs of the trace."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudiag.analyze.host import build_host
from gpudiag.analyze.trace_flops.count import count_host_flops
from gpudiag.analyze.trace_flops.operators import find_operators
from gpudiag.analyze.window import ALL, host_window
from gpudiag.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudiag.analyze.trace_flops.results import WindowFlops
    from gpudiag.model.tables import Trace


@dataclass(frozen=True)
class Recording:
    """One recorded call: what we count, and what torch's own counter says of the same call."""

    flops: WindowFlops
    torch_flops: int
    naive_recompute_flops: int  # without leaving out operators that were cut short


def record(
    function: Callable[[], Any], folder: Path, *, count_with_torch: bool = True
) -> Recording:
    """Profile a function (after a run to warm up), count its trace, and count it with torch."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - only where torch is
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            function()
        path = folder / "trace.json"
        profiler.export_chrome_trace(str(path))
        total = 0
        if count_with_torch:
            with FlopCounterMode(display=False) as counter:
                function()
            total = counter.get_total_flops()
    trace = read_trace(str(path))
    return Recording(count(trace), total, naive_recompute(trace))


def count(trace: Trace) -> WindowFlops:
    """Count the whole of a trace without a device."""
    host = build_host(trace)
    window = host_window(host, forced=ALL)
    assert window is not None
    return count_host_flops(trace, host, window)


def naive_recompute(trace: Trace) -> int:
    """Count recomputation as the sequence numbers alone tell it."""
    operators = find_operators(trace, build_host(trace))
    return int(operators.parts[:, 1].sum())
