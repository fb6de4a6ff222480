"""Findings about the kernels themselves and the peak they are held against."""

from __future__ import annotations

from gpudiag.model.entry import Entry, at_least
from gpudiag.model.thresholds import (
    LOW_TENSOR_EFFICIENCY_FRAC,
    MEMORY_BOUND_COMPUTE_FRAC,
    MEMORY_BOUND_WINDOW_FRAC,
    WARNING_FRAC,
)

COMPUTE_FINDINGS = (
    Entry(
        id="memory_bound",
        kind="finding",
        title="memory-bound kernels take most of the compute time",
        meaning="Kernels other than matmul, convolution and attention fill the compute time.",
        measured="compute.other against compute; a kernel's kind is told by its operator or name.",
        threshold=(
            f"at least {MEMORY_BOUND_COMPUTE_FRAC:.0%} of compute time and "
            f"{MEMORY_BOUND_WINDOW_FRAC:.0%} of GPU time"
        ),
        min_share=MEMORY_BOUND_WINDOW_FRAC,
        buckets=("compute.other",),
        advice=(
            "Fuse elementwise work with torch.compile; use fused norms, losses and optimizers.",
        ),
    ),
    Entry(
        id="low_tensor_efficiency",
        kind="finding",
        title="tensor kernels run far below the peak",
        meaning="Matmul, convolution and attention kernels use a small part of the tensor cores.",
        measured="FLOPs from operator shapes over kernel time, against the dtype's dense peak.",
        threshold=(
            f"under {LOW_TENSOR_EFFICIENCY_FRAC:.0%} of peak, over {WARNING_FRAC:.0%} of GPU time"
        ),
        min_share=WARNING_FRAC,
        buckets=("compute.tensor",),
        advice=(
            (
                "Make matmul dimensions multiples of 64 (vocabulary, heads, hidden), and larger: "
                "a bigger micro-batch."
            ),
            "Use bf16 or fp8 instead of fp32; set torch.set_float32_matmul_precision('high').",
        ),
    ),
    Entry(
        id="recompute_overhead",
        kind="finding",
        title="activation recomputation takes tensor time",
        meaning="Activation checkpointing does forwards again in the backward.",
        measured="FLOPs of forward operators inside backward nodes, at the mean rate.",
        threshold=at_least(WARNING_FRAC),
        min_share=WARNING_FRAC,
        buckets=("compute.tensor",),
        advice=(
            "Checkpoint fewer layers, or selectively (attention only), as far as memory allows.",
        ),
    ),
    Entry(
        id="unknown_gpu",
        kind="finding",
        title="the GPU is not in the hardware table",
        meaning="Without the device's dense peak there is no MFU; a likeness is never taken.",
        measured="The device's whole name against the table of `gpudiag doctor --gpus`.",
        threshold="any",
        advice=("Give the dense peak of the dtype with --peak-tflops.",),
    ),
    Entry(
        id="flops_over_peak",
        kind="finding",
        title="more FLOPs are counted than the GPU can do",
        meaning="MFU above 100 %: the count, the dtype or the peak is wrong.",
        measured="Model FLOPs over peak x window.",
        threshold="over 100 %",
        advice=(
            "Check the GPU and the dtype; --peak-tflops takes a dense peak, without sparsity.",
        ),
    ),
)
