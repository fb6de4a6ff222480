"""Peaks with 2:4 sparsity: never a denominator, but told when somebody gives one as a peak."""

from __future__ import annotations

from gpudiag.hardware.device import Device
from gpudiag.hardware.table import devices

# Data sheets round to four digits.
_SAME = 0.002


def sparse_of(peak_tflops: float, dtype: str) -> tuple[Device, ...]:
    """Return the devices of which this is the figure with sparsity; none if it's a dense one."""
    if any(_same(row.dense_tflops.get(dtype), peak_tflops) for row in devices()):
        return ()
    return tuple(row for row in devices() if _same(row.sparse_tflops.get(dtype), peak_tflops))


def _same(known: float | None, given: float) -> bool:
    return known is not None and abs(known - given) <= _SAME * known
