"""What every bucket of the accounting means and how it is measured; see catalogue.py."""

from __future__ import annotations

from gpudiag.model.entry import Entry


def _bucket(name: str, title: str, meaning: str, measured: str) -> Entry:
    return Entry(id=name, kind="bucket", title=title, meaning=meaning, measured=measured)


def _copy(name: str, title: str) -> Entry:
    meaning = (
        "Only what is exposed is charged: time in which neither a kernel nor communication ran."
    )
    return _bucket(name, title, meaning, "Copy time less compute and communication time.")


_GAP = "Time without device activity, before the next activity was enqueued, in which "
_LAUNCHER = "the thread that launches it (or, if that has nothing open, the step thread) was "


def _idle(name: str, title: str, meaning: str, doing: str) -> Entry:
    return _bucket(name, title, meaning, f"{_GAP}{_LAUNCHER}{doing}")


def _host(name: str, title: str, doing: str) -> Entry:
    meaning = (
        "Part of the host's view: what the training thread did, whether the GPU worked or not."
    )
    return _bucket(
        name, title, meaning, f"Time of the window in which the training thread was {doing}"
    )


BUCKETS = (
    _bucket(
        "compute.tensor",
        "matmul, convolution and attention kernels",
        "The kernels that tensor cores are for; what MFU counts happens here.",
        "Time with such a kernel running, told by its operator, by its name where none is linked.",
    ),
    _bucket(
        "compute.other",
        "all other kernels",
        "Elementwise work, norms, softmax, optimizers, embeddings: bound by memory bandwidth.",
        "Time with a compute kernel running, but no tensor kernel.",
    ),
    _bucket(
        "comm.wait",
        "exposed communication, waiting for a rank that is late",
        "The collective can't begin: the wait is charged to the last rank and what it did instead.",
        "Exposed part of a matched collective before the last rank started it, on one clock.",
    ),
    _bucket(
        "comm.transfer",
        "exposed communication, the transfer itself",
        "Every member is there; data moves, and no compute kernel hides it.",
        "Exposed part of a matched collective after the last rank started it.",
    ),
    _bucket(
        "comm.unsplit",
        "exposed communication, waiting and transfer together",
        "One rank alone can't tell waiting for others from the transfer itself.",
        "Time with a communication kernel and no compute kernel running.",
    ),
    _bucket(
        "pipeline.schedule",
        "waiting that the pipeline's schedule makes of itself",
        "Stages idle while the pipeline fills and drains, even if all stages are equal.",
        "Exposed sends and receives of a pipeline, gaps after them and the wait at the flush: the "
        "first of it in each step, up to what the schedule idles, simulated with equal stages.",
    ),
    _bucket(
        "pipeline.imbalance",
        "waiting for a stage of the pipeline with more work",
        "The slowest stage sets the pace; in every step the others wait for it.",
        "The next of it, up to what the schedule idles more, simulated with each stage's medians.",
    ),
    _copy("copy.h2d_pageable", "copies from pageable host memory"),
    _copy("copy.h2d_pinned", "copies from pinned host memory"),
    _copy("copy.h2d", "copies from the host, kind of memory not told"),
    _copy("copy.d2h", "copies to the host"),
    _copy("copy.d2d", "copies inside the device"),
    _copy("copy.p2p", "copies between devices"),
    _copy("copy.memset", "memsets"),
    _copy("copy.other", "copies of another kind"),
    _bucket(
        "idle.launch_latency",
        "enqueued, not yet started, up to 10 us",
        "What a launch takes to reach the device; CUDA graphs shorten it.",
        "Gap time after the launch call returned, where that is at most 10 us.",
    ),
    _bucket(
        "idle.device_blocked",
        "enqueued, and the device empty for more than 10 us",
        "The host has done its part; the stream waits for another device, rank or process.",
        "Gap time after the launch call returned, where that is more than 10 us.",
    ),
    _idle(
        "idle.checkpoint",
        "saving a checkpoint",
        "Nothing is launched while weights are written.",
        "in a checkpoint span (torch.save, save_checkpoint, ...).",
    ),
    _idle(
        "idle.eval",
        "evaluating",
        "Time of an evaluation in which the GPU had nothing to run.",
        "in a span named eval, evaluate or validation.",
    ),
    _idle(
        "idle.compile",
        "compiling, capturing, loading modules",
        "torch.compile, autotuning, graph capture and module loading hold the launches up.",
        "compiling, autotuning, capturing a graph or loading a module.",
    ),
    _idle(
        "idle.allocator",
        "allocating device memory",
        "cudaMalloc and cudaFree are slow, and cudaFree waits for the device.",
        "in an allocation call (cudaMalloc, cudaFree, cuMem*).",
    ),
    _idle(
        "idle.gc",
        "collecting garbage",
        "Python's collector stops the thread that launches.",
        "in gc.collect.",
    ),
    _idle(
        "idle.input",
        "waiting for the data loader",
        "The next batch was not ready.",
        "in the data loader's next().",
    ),
    _idle(
        "idle.blocking_copy",
        "blocked in a copy",
        "A copy call that returns only when its copy is done lets nothing else be launched.",
        "in a memcpy call that returns at or after its copy's end.",
    ),
    _idle(
        "idle.host_comm",
        "in a collective on the host",
        "Barriers, stores and gloo collectives hold the thread.",
        "in a host-side collective, store or barrier.",
    ),
    _idle(
        "idle.host_sync",
        "blocked on the device, and recovering from it",
        "A synchronise call drains the queue; then every launch is late for a while.",
        "in a synchronise call, or in its shadow: until a compute kernel has 50 us of lead, "
        "at most as long as the call itself.",
    ),
    _idle(
        "idle.launch",
        "launching: inside an operator or runtime call",
        "The host can't launch as fast as the device runs.",
        "in an operator or runtime call.",
    ),
    _idle(
        "idle.host_other",
        "in Python or an annotation only",
        "Code between operators: Python, logging, callbacks.",
        "in an annotation or a Python frame, and in nothing more telling.",
    ),
    _idle(
        "idle.unknown",
        "nothing recorded",
        "No record says what the host did; with_stack=True would.",
        "in nothing that was recorded, or its launch call is not recorded.",
    ),
    _host("host.checkpoint", "training thread: saving a checkpoint", "in a checkpoint span."),
    _host("host.eval", "training thread: evaluating", "in an evaluation span."),
    _host("host.compile", "training thread: compiling", "compiling, capturing or loading modules."),
    _host("host.gc", "training thread: collecting garbage", "in gc.collect."),
    _host("host.input", "training thread: waiting for data", "in the data loader's next()."),
    _host(
        "host.collective",
        "training thread: in a collective or blocked on one",
        "in a collective, or ran no operator until one of another thread ended.",
    ),
    _host("host.sync", "training thread: blocked on a device", "in a synchronise call."),
    _host("host.op", "training thread: inside an operator", "in an operator or runtime call."),
    _host("host.other", "training thread: anything else", "in none of the others."),
)
