"""Scenarios of one rank."""

from __future__ import annotations

from simulator import kernels, training
from simulator.device import Hold
from simulator.engine import Steps
from simulator.host import Thread
from simulator.job import ANY, Clock, Job
from simulator.kernels import Shape
from simulator.training import Plan, fixed

SMALL = {"batch": 1, "sequence": 128, "hidden": 512, "heads": 8, "vocab": 2048}


def _job(name: str, seed: int, finding: str | None, plan: Plan, **expected: object) -> Job:
    job = Job(name, seed)
    training.start(job.rank(), plan)
    job.expected = {"finding": finding, "ranks": [0] if finding else [], **expected}
    return job


def clean(steps: int = 6, layers: int = 2) -> Job:
    """Compute bound: the host is far ahead, gaps are kernel-to-kernel only."""
    return _job("clean", 1, None, Plan(steps=steps, shape=Shape(layers=layers)))


def slow_loader(steps: int = 6, layers: int = 2, loader_ms: int = 60) -> Job:
    """The batch is not there when the GPU has finished the last one."""
    plan = Plan(
        steps=steps,
        shape=Shape(layers=layers),
        loader_ns=fixed(loader_ms * 1_000_000),
        sync_every_step=True,
    )
    return _job("slow_loader", 2, "input_stall", plan)


def loader_fills_step(steps: int = 6, layers: int = 2, loader_ms: int = 60) -> Job:
    """The GPU's work hides inside the loader's wait, which is over 95 % of every host step."""
    plan = Plan(steps=steps, shape=Shape(layers=layers), loader_ns=fixed(loader_ms * 1_000_000))
    return _job("loader_fills_step", 6, "input_stall", plan)


def launch_bound(steps: int = 6, layers: int = 4) -> Job:
    """Kernels shorter than the host's time to launch them."""
    shape = Shape(layers=layers, **SMALL)
    return _job("launch_bound", 3, "launch_bound", Plan(steps=steps, shape=shape, op_ns=9_000))


def host_sync_item(steps: int = 6, layers: int = 2, python_us: int = 2_500) -> Job:
    """`loss.item()` mid-step drains the queue; the Python after it then runs on an idle GPU."""

    def sync(th: Thread, _step: int) -> Steps:
        yield from training.item(th)
        with th.note("log_metrics"):
            yield th.about(python_us * 1000)

    plan = Plan(steps=steps, shape=Shape(layers=layers), mid_forward=sync, before_backward=sync)
    return _job("host_sync_item", 4, "host_sync", plan)


def host_sync_capped(steps: int = 6, layers: int = 2) -> Job:
    """A sync that drains next to nothing: the idle time after it exceeds its own duration."""

    def sync(th: Thread, _step: int) -> Steps:
        yield from training.item(th)
        yield 400_000
        yield from training.item(th)
        with th.note("log_metrics"):
            yield th.about(900_000)

    plan = Plan(steps=steps, shape=Shape(layers=layers), mid_forward=sync)
    return _job("host_sync_capped", 7, ANY, plan)


def pageable_copy_blocking(steps: int = 6, layers: int = 1, megabytes: int = 48) -> Job:
    """The batch is copied from pageable memory: the host waits, and so does the GPU."""
    plan = Plan(
        steps=steps, shape=Shape(layers=layers), pinned=False, batch_bytes=megabytes * 1_000_000
    )
    return _job("pageable_copy_blocking", 8, "h2d_copy", plan, accept=["blocking_copy"])


def h2d_exposed(steps: int = 6, layers: int = 1, megabytes: int = 300) -> Job:
    """A large pinned copy on the compute stream: nothing blocks, but nothing overlaps it."""
    plan = Plan(steps=steps, shape=Shape(layers=layers), batch_bytes=megabytes * 1_000_000)
    return _job("h2d_exposed", 9, "h2d_copy", plan)


def allocator_churn(steps: int = 6, layers: int = 2) -> Job:
    """Memory goes back to the driver and is taken again, mid-step."""

    def churn(th: Thread, _step: int) -> Steps:
        for _ in range(3):
            with th.op("aten::empty"):
                yield 2_000
                yield from th.free(600_000)
                yield from th.malloc(900_000)

    plan = Plan(steps=steps, shape=Shape(layers=layers), mid_forward=churn)
    return _job("allocator_churn", 10, "allocator_stall", plan)


def gc_pause(steps: int = 7, layers: int = 2, pause_ms: int = 30) -> Job:
    """Python collects garbage every second step, sometimes inside the loader's `__next__`."""

    def collect(th: Thread, step: int) -> Steps:
        if step % 2:
            with th.note("gc.collect", "gc"):
                yield th.about(pause_ms * 1_000_000)

    def collect_in_loader(th: Thread, step: int) -> Steps:
        if step % 4 == 0:
            with th.note(training.LOADER, "input"):
                yield 300_000
                with th.note("gc.collect", "gc"):
                    yield th.about(pause_ms * 1_000_000)

    plan = Plan(
        steps=steps,
        shape=Shape(layers=layers),
        at_start=collect_in_loader,
        before_forward=collect,
        sync_every_step=True,
    )
    return _job("gc_pause", 11, "gc_pause", plan)


def checkpoint_every_n(steps: int = 7, layers: int = 2, every: int = 3) -> Job:
    """Every few steps the state is read back and written to disk, the GPU waiting."""

    def save(th: Thread, step: int) -> Steps:
        if step % every:
            return
        with th.note("save_checkpoint", "checkpoint"):
            for _ in range(4):
                with th.op("aten::copy_"):
                    yield from th.memcpy(kernels.copy("d2h", 50_000_000))
            yield from th.synchronize(7)
            with th.frame("torch/serialization.py(967): save"):
                yield th.about(60_000_000)

    plan = Plan(steps=steps, shape=Shape(layers=layers), at_end=save)
    return _job("checkpoint_every_n", 12, "checkpoint_stall", plan)


def recompile(steps: int = 7, layers: int = 2) -> Job:
    """New shapes in two steps: the compiler runs again; compiled regions run in all."""

    def compile_again(th: Thread, step: int) -> Steps:
        if step not in (12, 14):
            return
        with (
            th.op("Torch-Compiled Region: 0/1"),
            th.note("_compile.compile_inner (dynamo_timed)", "compile"),
        ):
            yield th.about(25_000_000)
            with th.note("compile_fx.<locals>.fw_compiler_base (dynamo_timed)", "compile"):
                yield th.about(40_000_000)
                for _ in range(3):
                    with th.call("cuModuleLoadData", "compile", cat="cuda_driver"):
                        yield th.about(700_000)

    plan = Plan(
        steps=steps, shape=Shape(layers=layers), compiled=True, before_forward=compile_again
    )
    return _job("recompile", 13, "recompile", plan)


def eval_pause(steps: int = 7, layers: int = 2, batches: int = 5) -> Job:
    """Every third step evaluates: forward passes, with host work between them."""

    def evaluate(th: Thread, step: int) -> Steps:
        if step % 3:
            return
        plan = Plan(shape=Shape(layers=1))
        with th.note("evaluate", "eval"):
            for _ in range(batches):
                yield from training.load(th, plan, step)
                yield from training.forward(th, plan, step)
                yield from training.item(th)
                yield th.about(9_000_000)

    plan = Plan(steps=steps, shape=Shape(layers=layers), at_end=evaluate)
    return _job("eval_pause", 14, "eval_pause", plan)


def backward_thread(steps: int = 6, layers: int = 3, note: str = "") -> Job:
    """Autograd's thread launches the backward while the main thread waits for it."""

    def hooks(_th: Thread, step: int) -> Steps:
        yield 40_000 if step % 2 else 15_000

    plan = Plan(
        steps=steps,
        shape=Shape(layers=layers, **SMALL),
        op_ns=9_000,
        autograd_thread=True,
        backward_note=note,
        between_layers=hooks,
        sync_every_step=True,
    )
    return _job("backward_thread", 15, "launch_bound", plan)


def backward_thread_noted(steps: int = 6, layers: int = 3) -> Job:
    """The same with an annotation open on the main thread: it explains autograd's pauses."""
    job = backward_thread(steps, layers, note="loss.backward")
    job.name = "backward_thread_noted"
    return job


def device_blocked(steps: int = 6, layers: int = 2) -> Job:
    """Work is enqueued in time, yet the device stays empty: a host callback holds the stream."""

    def hold(th: Thread, step: int) -> Steps:
        stream = th.proc.devices[th.device].stream(7)
        stream.put(Hold(900_000 + 650_000 * (step % 5)))
        yield 0

    plan = Plan(steps=steps, shape=Shape(layers=layers), mid_forward=hold, before_backward=hold)
    return _job("device_blocked", 16, "device_blocked", plan)


def gpu_shared(steps: int = 6, layers: int = 2) -> Job:
    """Another process has the GPU for 1.5 ms of every 4.5 ms."""
    plan = Plan(steps=steps, shape=Shape(layers=layers))
    job = _job("gpu_shared", 17, "gpu_shared", plan)
    gpu = job.ranks[0].devices[0]
    gpu.slice_ns, gpu.slice_every_ns = 1_500_000, 3_000_000
    return job


def host_python(steps: int = 6, layers: int = 1, python_us: int = 10_000) -> Job:
    """Slow Python between the batch and the forward, with frames that name its lines."""

    def targets(th: Thread, _step: int) -> Steps:
        with th.frame("train.py(57): build_targets"):
            yield th.about(python_us * 300)
            with th.frame("metrics.py(18): histogram"):
                yield th.about(python_us * 700)
        with th.frame("train.py(71): augment"):
            yield th.about(python_us * 1000)

    plan = Plan(
        steps=steps,
        shape=Shape(layers=layers),
        before_forward=targets,
        main_frame="train.py(121): main",
    )
    return _job("host_python", 18, "host_overhead", plan)


def unknown(steps: int = 6, layers: int = 1) -> Job:
    """The host is somewhere that no record tells of."""

    def elsewhere(th: Thread, _step: int) -> Steps:
        yield th.about(9_000_000)

    plan = Plan(
        steps=steps, shape=Shape(layers=layers), before_forward=elsewhere, between_layers=elsewhere
    )
    return _job("unknown", 19, ANY, plan)


def records_missing(steps: int = 6, layers: int = 3, lost_pct: int = 12) -> Job:
    """The tracer lost device records: what looks idle was not."""
    job = _job(
        "records_missing", 20, "records_missing", Plan(steps=steps, shape=Shape(layers=layers))
    )
    job.lost_device_pct = lost_pct
    return job


def launches_missing(steps: int = 6, layers: int = 3, lost_pct: int = 12) -> Job:
    """The tracer lost launch calls: the gaps that their kernels end can't be explained."""
    shape = Shape(layers=layers, **SMALL)
    job = _job("launches_missing", 21, ANY, Plan(steps=steps, shape=shape, op_ns=9_000))
    job.lost_launch_pct = lost_pct
    return job


def late_launch_return(steps: int = 6, layers: int = 3) -> Job:
    """Launch calls return after their kernels started: no time between them is negative."""
    shape = Shape(layers=layers, **SMALL)
    plan = Plan(steps=steps, shape=shape, op_ns=9_000, launch_tail_ns=4_700)
    return _job("late_launch_return", 22, "launch_bound", plan)


def host_device_offset(steps: int = 6, layers: int = 3) -> Job:
    """The device's clock is 40 us early: kernels seem to start before their launch."""
    shape = Shape(layers=layers, **SMALL)
    plan = Plan(steps=steps, shape=shape, op_ns=9_000, batch_bytes=1_000_000)
    job = _job("host_device_offset", 23, "launch_bound", plan)
    job.clocks[0] = Clock(device_early_ns=40_000)
    return job


def recomputation(
    steps: int = 6, layers: int = 3, kind: str = "non_reentrant", seed: int = 24
) -> Job:
    """Blocks are checkpointed: their forward runs again in the backward."""
    plan = Plan(steps=steps, shape=Shape(layers=layers), recompute=kind)
    return _job("recomputation", seed, ANY, plan)


SCENARIOS = (
    clean,
    slow_loader,
    loader_fills_step,
    launch_bound,
    host_sync_item,
    host_sync_capped,
    pageable_copy_blocking,
    h2d_exposed,
    allocator_churn,
    gc_pause,
    checkpoint_every_n,
    recompile,
    eval_pause,
    backward_thread,
    backward_thread_noted,
    device_blocked,
    gpu_shared,
    host_python,
    unknown,
    records_missing,
    launches_missing,
    late_launch_return,
    host_device_offset,
    recomputation,
)
