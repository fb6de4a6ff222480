"""Every finding and bucket: what it means, how it is measured, its threshold, what to do.

`gpudiag explain`, docs/reference/findings.md and the analyzer all read this one file. A finding
is reported when its share of the window reaches ``min_share``; thresholds.py says why.
"""

from __future__ import annotations

from gpudiag.model.buckets import BUCKETS
from gpudiag.model.catalogue_comm import TRANSFER_FINDINGS
from gpudiag.model.entry import Entry
from gpudiag.model.thresholds import (
    COMMON_FRAC,
    LOW_TENSOR_EFFICIENCY_FRAC,
    MEMORY_BOUND_COMPUTE_FRAC,
    MEMORY_BOUND_WINDOW_FRAC,
    RARE_FRAC,
    SHARED_GAPS,
    SMALL_FRAC,
    WARNING_FRAC,
)


def _share(frac: float) -> str:
    return f"at least {frac:.0%} of GPU time"


_FINDINGS = (
    Entry(
        id="input_stall",
        kind="finding",
        title="the GPU waits for the data loader",
        meaning="The thread that launches the next kernel is inside the DataLoader's next().",
        measured="Idle time before the next launch, the launching thread being in a loader span.",
        threshold=_share(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("idle.input",),
        host_bucket="host.input",
        host_title="the training thread waits for the data loader",
        advice=(
            (
                "Raise num_workers to ceil(time per batch / step time) + 1, as far as cores allow, "
                "with persistent_workers and pin_memory."
            ),
            (
                "Workers at 100 % CPU: decode less (pre-decoded shards, GPU decode) and set "
                "torch.set_num_threads(1) in workers. Workers waiting for disk: pack samples into "
                "shards on local NVMe or RAM."
            ),
        ),
    ),
    Entry(
        id="launch_bound",
        kind="finding",
        title="the GPU waits for kernel launches",
        meaning="Kernels are too short for the host to launch them as fast as the GPU runs them.",
        measured=(
            "Idle time before the next launch, while the launching thread is inside an operator "
            "or a runtime call. The profiler slows launches: events there x their cost give the "
            "lower end of the range."
        ),
        threshold=_share(COMMON_FRAC),
        min_share=COMMON_FRAC,
        buckets=("idle.launch",),
        advice=(
            "Use CUDA graphs (torch.compile mode='reduce-overhead') or torch.compile to fuse.",
            (
                "Use a larger micro-batch, fused or foreach optimizers; pin the process to cores "
                "next to its GPU."
            ),
        ),
    ),
    Entry(
        id="host_sync",
        kind="finding",
        title="the host stops to wait for the GPU",
        meaning=(
            "A synchronise call (.item(), nonzero, print(loss), cuda.synchronize) drains the "
            "queue; afterwards the GPU waits until launches are ahead again."
        ),
        measured=(
            "Idle time inside blocking synchronise calls and in their shadow, until a compute "
            "kernel starts 50 us after its launch returned. The part of the call in which the GPU "
            "works costs nothing."
        ),
        threshold=_share(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("idle.host_sync",),
        advice=(
            "Keep losses and metrics on the device; read them every n-th step, one step late.",
            (
                "Replace boolean indexing by torch.where; find the rest with "
                "torch.cuda.set_sync_debug_mode('warn')."
            ),
        ),
    ),
    Entry(
        id="host_overhead",
        kind="finding",
        title="the GPU waits for Python",
        meaning="The launching thread runs code that is no operator: Python, logging, callbacks.",
        measured=(
            "Idle time before the next launch, while the launching thread has only an annotation "
            "or a Python frame open."
        ),
        threshold=_share(COMMON_FRAC),
        min_share=COMMON_FRAC,
        buckets=("idle.host_other",),
        host_bucket="host.other",
        host_title="the training thread is outside any operator (Python, sleeping, I/O)",
        advice=(
            (
                "Record once with with_stack=True to see the lines; move logging, metrics and "
                "tokenisation off the training thread."
            ),
        ),
    ),
    Entry(
        id="allocator_stall",
        kind="finding",
        title="the GPU waits for device memory to be allocated",
        meaning="cudaMalloc and cudaFree run in steady state; cudaFree waits for the whole device.",
        measured="Idle time while the launching thread is in an allocation call.",
        threshold=_share(RARE_FRAC),
        min_share=RARE_FRAC,
        buckets=("idle.allocator",),
        advice=(
            (
                "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; don't call empty_cache() in "
                "the loop."
            ),
            "Lower peak memory: smaller micro-batch, chunked or fused cross-entropy.",
        ),
    ),
    Entry(
        id="h2d_copy",
        kind="finding",
        title="compute waits for copies from the host",
        meaning="Host-to-device copies run while no kernel does.",
        measured="Exposed time of copies from the host, less what passed while the host was late.",
        threshold=_share(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("copy.h2d_pageable", "copy.h2d_pinned", "copy.h2d"),
        advice=(
            (
                "Pin the batch (pin_memory=True) and copy with non_blocking=True on a side stream, "
                "one batch ahead."
            ),
            "Send fewer bytes: uint8 to the GPU, convert there.",
        ),
    ),
    Entry(
        id="blocking_copy",
        kind="finding",
        title="the host stands still during a copy",
        meaning="A memcpy call returns only when its copy is done, so nothing else is launched.",
        measured="Idle time inside memcpy calls that return at or after their copy's end.",
        threshold=_share(RARE_FRAC),
        min_share=RARE_FRAC,
        buckets=("idle.blocking_copy",),
        advice=("Copy from pinned memory with non_blocking=True; pageable copies always block.",),
    ),
    Entry(
        id="checkpoint_stall",
        kind="finding",
        title="training stands still while a checkpoint is saved",
        meaning="The launching thread is inside a checkpoint save.",
        measured="Idle time while the launching thread is in a checkpoint span.",
        threshold=_share(RARE_FRAC),
        min_share=RARE_FRAC,
        buckets=("idle.checkpoint",),
        host_bucket="host.checkpoint",
        host_title="training stands still while a checkpoint is saved",
        advice=(
            "Save asynchronously (torch.distributed.checkpoint.async_save, pinned staging).",
            "Save every sqrt(2 x save time x mean time to failure), not more often.",
        ),
    ),
    Entry(
        id="eval_pause",
        kind="finding",
        title="training pauses for evaluation",
        meaning="The launching thread is inside an evaluation span.",
        measured="Idle time while the launching thread is in an eval or validation span.",
        threshold=_share(RARE_FRAC),
        min_share=RARE_FRAC,
        buckets=("idle.eval",),
        host_bucket="host.eval",
        host_title="training pauses for evaluation",
        advice=("Evaluate less often, on all ranks at once, or in a job of its own.",),
    ),
    Entry(
        id="gc_pause",
        kind="finding",
        title="the GPU waits for Python's garbage collector",
        meaning="The launching thread is inside a garbage collection.",
        measured="Idle time while the launching thread is in gc.collect.",
        threshold=_share(RARE_FRAC),
        min_share=RARE_FRAC,
        buckets=("idle.gc",),
        host_bucket="host.gc",
        host_title="the training thread waits for Python's garbage collector",
        advice=(
            (
                "gc.disable() and gc.collect(1) every n steps, at the same step on all ranks; "
                "gc.freeze() after set-up."
            ),
        ),
    ),
    Entry(
        id="recompile",
        kind="finding",
        title="the GPU waits for compilation",
        meaning="torch.compile, autotuning, graph capture or module loading runs in the window.",
        measured="Idle time while the launching thread compiles, captures or loads modules.",
        threshold=_share(RARE_FRAC),
        min_share=RARE_FRAC,
        buckets=("idle.compile",),
        host_bucket="host.compile",
        host_title="the training thread compiles",
        advice=(
            "Pad or bucket shapes, or mark them dynamic; TORCH_LOGS=recompiles names the guard.",
            "cudnn.benchmark=False where shapes vary.",
        ),
    ),
    Entry(
        id="device_blocked",
        kind="finding",
        title="work is enqueued but the GPU does not start it",
        meaning="The launch had returned, yet the device stayed empty for more than 10 us.",
        measured="Time between a launch's return and its start with nothing running; graphs aside.",
        threshold=_share(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("idle.device_blocked",),
        advice=(
            (
                "See what the stream waits for: an event of another device or rank, or work that "
                "the profiler did not record."
            ),
        ),
    ),
    Entry(
        id="gpu_shared",
        kind="finding",
        title="another process shares the GPU",
        meaning="Gaps of one length recur with work enqueued: time slices given to someone else.",
        measured="At least 5 enqueued gaps of 0.5 ms or more within 10 % of one length.",
        threshold=f"{SHARED_GAPS} gaps of one length and {_share(SMALL_FRAC)}",
        min_share=SMALL_FRAC,
        buckets=("idle.device_blocked",),
        advice=("Find the other process with nvidia-smi; give the job the GPU alone, or use MIG.",),
    ),
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
        threshold=_share(WARNING_FRAC),
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
    Entry(
        id="straggler",
        kind="finding",
        title="the other ranks wait for a late one",
        meaning="One rank arrives last at the collectives, for a reason that no record names.",
        measured="Waits in matched collectives, charged to the last arriver; clocks aligned.",
        threshold=_share(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("comm.wait",),
        advice=("Record the late rank with with_stack=True, and look at what its host does.",),
    ),
    Entry(
        id="slow_gpu",
        kind="finding",
        title="the other ranks wait for a slow GPU",
        meaning="The same kernels take longer on one rank than on its peers.",
        measured=(
            "Waits charged to compute of a rank whose kernels, at equal name and count, are over "
            "5 % slower than the peers' median for 80 % of its kernel time."
        ),
        threshold=_share(SMALL_FRAC),
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
        measured="Waits charged to compute of a rank that computes 2 % longer, at equal speed.",
        threshold=_share(SMALL_FRAC),
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
        threshold=_share(WARNING_FRAC),
        min_share=WARNING_FRAC,
        buckets=("comm.transfer",),
        advice=(
            "Overlap: larger buckets, prefetch the next layer's all-gather, gradient accumulation.",
        ),
    ),
    Entry(
        id="records_missing",
        kind="finding",
        title="device records are missing from the trace",
        meaning="Launch calls have no device record, so the idle time there may have been work.",
        measured="Launch calls without a device record, and graph replays cut short, per step.",
        threshold="more than 1 % of a step's launches",
        advice=(
            (
                "Record again with a warm-up step in the schedule, and a shorter window; no idle "
                "finding is given for the steps concerned."
            ),
        ),
    ),
    Entry(
        id="ranks_missing",
        kind="finding",
        title="traces of some ranks are missing",
        meaning="The job has more ranks than traces, so the slowest rank may not be among them.",
        measured="World size as recorded against the ranks read.",
        threshold="any",
        advice=("Record all ranks; waits can be charged only to ranks that are there.",),
    ),
)


CATALOGUE: dict[str, Entry] = {
    entry.id: entry for entry in (*_FINDINGS, *TRANSFER_FINDINGS, *BUCKETS)
}
