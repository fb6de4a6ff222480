"""Findings about communication: late ranks, and what messages, bytes and links cost."""

from __future__ import annotations

from gpudiag.model.entry import Entry, at_least
from gpudiag.model.thresholds import (
    DEGRADED_TIMES,
    SMALL_FRAC,
    WARNING_FRAC,
)

COMM_FINDINGS = (
    Entry(
        id="straggler",
        kind="finding",
        title="the other ranks wait for a late one",
        meaning="One rank arrives last at the collectives, for a reason that no record names.",
        measured="Waits in matched collectives, charged to the last arriver; clocks aligned.",
        threshold=at_least(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("comm.wait",),
        advice=("Record the late rank with with_stack=True, and look at what its host does.",),
    ),
    Entry(
        id="slow_gpu",
        kind="finding",
        title="the other ranks wait for a slow GPU",
        meaning="The same operators on the same shapes take longer on one rank than on its peers.",
        measured=(
            "Waits charged to compute of a rank that computes 2 % longer, most of it in operators "
            "that its peers run on the same shapes, and 80 % of that over 5 % slower than their "
            "median. Without recorded shapes it can't be told, and the rank is a straggler."
        ),
        threshold=at_least(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("comm.wait",),
        advice=(
            "Look at its clocks, power cap, temperature, ECC errors; drain the node if they stay.",
        ),
    ),
    Entry(
        id="workload_imbalance",
        kind="finding",
        title="the other ranks wait for one with more work",
        meaning="One rank has more or larger kernels: longer sequences, more tokens, more experts.",
        measured=(
            "Waits charged to compute of a rank that computes 2 % longer, on other shapes than its "
            "peers or as fast on the same."
        ),
        threshold=at_least(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("comm.wait",),
        advice=("Balance tokens (or the sum of squared lengths) over the ranks of each step.",),
    ),
    Entry(
        id="comm_exposed",
        kind="finding",
        title="communication is not hidden behind compute",
        meaning="Transfers run while no kernel computes; waiting for late ranks is not in this.",
        measured="Exposed time of matched collectives after the last rank arrived.",
        threshold=at_least(WARNING_FRAC),
        min_share=WARNING_FRAC,
        buckets=("comm.transfer",),
        advice=(
            "Overlap: larger buckets, prefetch the next layer's all-gather, gradient accumulation.",
        ),
    ),
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
        threshold=at_least(SMALL_FRAC),
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
        threshold=at_least(WARNING_FRAC),
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
        threshold=at_least(SMALL_FRAC),
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
