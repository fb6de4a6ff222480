"""Findings about a device that waits for its host: input, launches, pauses, copies."""

from __future__ import annotations

from gpudiag.model.entry import Entry, at_least
from gpudiag.model.thresholds import (
    COMMON_FRAC,
    RARE_FRAC,
    SHARED_GAPS,
    SMALL_FRAC,
)

HOST_FINDINGS = (
    Entry(
        id="input_stall",
        kind="finding",
        title="the GPU waits for the data loader",
        meaning="The thread that launches the next kernel is inside the DataLoader's next().",
        measured="Idle time before the next launch, the launching thread being in a loader span.",
        threshold=at_least(SMALL_FRAC),
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
        threshold=at_least(COMMON_FRAC),
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
        threshold=at_least(SMALL_FRAC),
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
        threshold=at_least(COMMON_FRAC),
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
        threshold=at_least(RARE_FRAC),
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
        threshold=at_least(SMALL_FRAC),
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
        threshold=at_least(RARE_FRAC),
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
        threshold=at_least(RARE_FRAC),
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
        threshold=at_least(RARE_FRAC),
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
        threshold=at_least(RARE_FRAC),
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
        threshold=at_least(RARE_FRAC),
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
        threshold=at_least(SMALL_FRAC),
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
        threshold=f"{SHARED_GAPS} gaps of one length and {at_least(SMALL_FRAC)}",
        min_share=SMALL_FRAC,
        buckets=("idle.device_blocked",),
        advice=("Find the other process with nvidia-smi; give the job the GPU alone, or use MIG.",),
    ),
)
