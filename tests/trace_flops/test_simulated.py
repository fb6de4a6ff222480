"""The simulator's kernels last FLOPs / (share of peak): the count must find that share again."""

from __future__ import annotations

import pytest
from simulator import kernels, scenarios

from gpudiag.analyze.device import build_devices
from gpudiag.analyze.host import build_host
from gpudiag.analyze.trace_flops.count import count_flops
from gpudiag.analyze.window import device_window
from gpudiag.trace import read_trace


def test_the_share_of_peak_that_was_put_in_comes_out(tmp_path):
    job = scenarios.build("clean").run()
    path = tmp_path / "trace.json"
    path.write_text(job.trace(job.ranks[0].rank))
    trace = read_trace(str(path))
    host = build_host(trace)
    devices, _ = build_devices(trace, host)
    windows = [(device, device_window(device, host)) for device in devices]
    (found,) = count_flops(trace, host, windows)
    assert found.flops_coverage_frac == 1
    assert found.dominant_dtype == "bf16"
    for one in found.operators:
        share = kernels.FLASH_PCT if "attention" in one.name else kernels.MATMUL_PCT
        reached = one.visible_flops * 1_000_000_000 / one.time_ns
        # The simulator halves the square for a causal mask; the visible pairs are 1/S more.
        assert reached == pytest.approx(kernels.PEAK_FLOPS * share / 100, rel=0.001), one.name
