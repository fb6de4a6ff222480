"""Scenarios of one rank."""

from __future__ import annotations

from simulator import kernels, training
from simulator.engine import Steps
from simulator.host import Thread
from simulator.job import Job
from simulator.kernels import Shape
from simulator.training import Plan, fixed

ANY = "*"  # the scenario is about the partition; what leads is not asserted
SMALL = Shape(batch=1, sequence=256, hidden=512, heads=8, vocab=4096)


def _job(name: str, seed: int, finding: str | None, plan: Plan) -> Job:
    job = Job(name, seed)
    training.start(job.rank(), plan)
    job.expected = {"finding": finding, "ranks": [0] if finding else []}
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
    shape = Shape(layers=layers, batch=1, sequence=128, hidden=512, heads=8, vocab=2048)
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


def multi_stream_overlap(steps: int = 5) -> Job:
    """Compute, communication and copies overlap in every combination, on four streams."""
    job = Job("multi_stream_overlap", 5)
    job.expected = {"finding": ANY, "ranks": []}
    proc = job.rank()
    th = proc.thread()
    # stream -> (pause, kernel) in us: the starts shift so that all subsets of four occur.
    lanes = {
        7: ("compute.tensor", 300, 160),
        8: ("compute.other", 210, 130),
        20: ("comm", 260, 240),
        24: ("copy.h2d_pinned", 170, 150),
        28: ("copy.d2h", 330, 90),
    }

    def step(number: int) -> Steps:
        with th.step(number):
            for turn in range(12):
                for stream, (leaf, pause, dur) in lanes.items():
                    if turn % 4 == 3 and stream in (7, 8):
                        continue
                    with th.op("aten::mm" if leaf == "compute.tensor" else "aten::add"):
                        op = _lane_op(leaf, (dur + 17 * turn) * 1000)
                        op.gap = pause * 1000 + 31 * turn
                        yield from th.launch(op, stream=stream)
                yield 400_000
        yield 2_000

    def run() -> Steps:
        for number in range(training.FIRST_STEP, training.FIRST_STEP + steps):
            yield from step(number)
        yield from th.synchronize()

    proc.engine.spawn(run())
    return job


def _lane_op(leaf: str, ns: int):
    if leaf == "comm":
        return kernels.nccl("AllReduce_Sum_bf16_RING_LL", {}, None, ns)
    if leaf.startswith("copy"):
        return kernels.copy(leaf.removeprefix("copy."), ns * 50 // 1000, ns)
    return kernels.busy(ns, leaf)


SCENARIOS = (
    clean,
    slow_loader,
    loader_fills_step,
    launch_bound,
    host_sync_item,
    host_sync_capped,
    multi_stream_overlap,
)
