"""Findings about exposed transfers: what a message costs, what its bytes cost, what is slower."""

from __future__ import annotations

from gpudiag.model.entry import Entry
from gpudiag.model.thresholds import DEGRADED_TIMES, SMALL_FRAC, WARNING_FRAC

TRANSFER_FINDINGS = (
    Entry(
        id="collective_latency",
        kind="finding",
        title="many small collectives cost more latency than their bytes take",
        meaning="Each collective costs a fixed time; here that is more than its bytes cost.",
        measured=(
            "Exposed transfer up to alpha, of collectives whose alpha exceeds bytes x c / B; tp "
            "and pp aside, whose collectives depend on each other. What comes back is all but one "
            "collective a step of each kind and group."
        ),
        threshold=f"at least {SMALL_FRAC:.0%} of GPU time",
        min_share=SMALL_FRAC,
        buckets=("comm.transfer",),
        advice=(
            "Send fewer, larger messages: larger DDP buckets, coalescing, fewer FSDP units.",
            "Compare ring and tree at this size (docs/concepts/collectives.md).",
        ),
    ),
    Entry(
        id="collective_bandwidth",
        kind="finding",
        title="exposed collectives are as fast as the link: their bytes are the cost",
        meaning="Large messages run at the job's own best bus bandwidth, with no compute beside.",
        measured="Exposed transfer up to bytes x c / B, of collectives whose bytes cost most.",
        threshold=f"at least {WARNING_FRAC:.0%} of GPU time",
        min_share=WARNING_FRAC,
        buckets=("comm.transfer",),
        advice=(
            "Hide them: prefetch the next layer's all-gather, reduce gradients in the backward.",
            "Send less: bf16 gradients, accumulation without synchronising, sharding in a node.",
            (
                "Compare the bus bandwidth with nccl-tests on the same nodes: a slow path "
                "(sockets in place of InfiniBand) is slow for every message."
            ),
        ),
    ),
    Entry(
        id="link_degraded",
        kind="finding",
        title="some transfers are far slower than the same ones at other times",
        meaning="Equal collectives of one group take much longer now and then.",
        measured=(
            "Exposed transfer beyond alpha + bytes x c / B (B: the job's best decile), of "
            f"collectives that take {DEGRADED_TIMES} times that on every rank or more."
        ),
        threshold=f"at least {SMALL_FRAC:.0%} of GPU time",
        min_share=SMALL_FRAC,
        buckets=("comm.transfer",),
        advice=(
            (
                "Look at the error, retransmission and pause counters of the group's links, and "
                "at other jobs on them, at those times."
            ),
        ),
    ),
)
