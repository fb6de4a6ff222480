"""From FLOPs per token and a throughput to MFU: over all GPUs, against the dense peak."""

from __future__ import annotations

_TERA = 1e12


def tflops_per_gpu(*, flops_per_token: float, tokens_per_s: float, gpus: int) -> float:
    """Return the rate that one GPU achieves: tokens/s x FLOPs/token / GPUs, in TFLOP/s."""
    return flops_per_token * tokens_per_s / gpus / _TERA


def utilization(tflops: float, peak_tflops: float) -> float:
    """Return achieved / peak as a fraction: MFU of model FLOPs, HFU of executed ones.

    MFU = tokens/s x model FLOPs per token / (GPUs x dense peak) (PaLM, arXiv 2204.02311, 4.1).
    """
    return tflops / peak_tflops
