"""Scenarios of one process whose host does not run the standard training loop."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext

from simulator import chance, kernels, training
from simulator.device import DeviceOp
from simulator.engine import Steps
from simulator.host import Thread
from simulator.job import ANY, Job
from simulator.training import Plan

LEAVES = ("compute.tensor", "compute.other")


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

    def step(_number: int) -> Steps:
        for turn in range(12):
            for stream, (leaf, pause, dur) in lanes.items():
                if turn % 4 == 3 and stream in (7, 8):
                    continue
                with th.op("aten::mm" if leaf == "compute.tensor" else "aten::add"):
                    op = _lane_op(leaf, (dur + 17 * turn) * 1000)
                    op.gap = pause * 1000 + 31 * turn
                    yield from th.launch(op, stream=stream)
            yield 400_000

    proc.engine.spawn(_loop(th, steps, step))
    return job


def _lane_op(leaf: str, ns: int) -> DeviceOp:
    if leaf == "comm":
        return kernels.nccl("AllReduce_Sum_bf16_RING_LL", {}, None, ns)
    if leaf.startswith("copy"):
        return kernels.copy(leaf.removeprefix("copy."), ns * 50 // 1000, ns)
    return kernels.busy(ns, leaf)


def cuda_graph(steps: int = 6, nodes: int = 120) -> Job:
    """One launch call per step, many kernels of one correlation; one node waits for the host."""
    job = Job("cuda_graph", 30)
    job.expected = {"finding": ANY, "ranks": []}
    th = job.rank().thread()

    def replay() -> Steps:
        graph = []
        for node in range(nodes):
            op = kernels.busy(9_000 + 700 * (node % 7), LEAVES[node % 2])
            op.gap = 48_000 if node == nodes // 2 else 1_100 + 13 * (node % 5)
            graph.append(op)
        with th.note("graph replay"):
            yield from th.launch(*graph, api="cudaGraphLaunch", call_ns=42_000)

    def step(number: int) -> Steps:
        yield from training.load(th, Plan(), number)
        yield from replay()
        if number % 2:
            yield from training.item(th)

    th.engine.spawn(_loop(th, steps, step))
    return job


def two_devices(steps: int = 5) -> Job:
    """One process drives two devices; each has its own window and partition."""
    job = Job("two_devices", 31)
    job.expected = {"finding": ANY, "ranks": []}
    th = job.rank(devices=[0, 1]).thread()

    def step(number: int) -> Steps:
        with th.note(training.LOADER, "input"):
            yield th.about(700_000)
        for turn in range(20):
            for device, us in ((0, 150), (1, 60 + 7 * turn)):
                with th.op(("aten::mm", "aten::gelu")[turn % 2]):
                    yield th.about(5_000)
                    op = kernels.busy(us * 1000, LEAVES[turn % 2])
                    yield from th.launch(op, device=device, stream=7 + 4 * device)
        with th.note("combine"):
            yield th.about(900_000 + 1000 * number)

    th.engine.spawn(_loop(th, steps, step))
    return job


def mixed(steps: int = 6, seed: int = 0, actions: int = 60) -> Job:
    """Anything in any order, on two launching threads and four streams: a partition's trial."""
    job = Job("mixed", 1000 + seed)
    job.expected = {"finding": ANY, "ranks": []}
    proc = job.rank()
    main, worker = proc.thread(), proc.thread(proc.pid + 80)
    rng = random.Random(seed)

    def step(_number: int) -> Steps:
        yield from chance.act(main, rng, actions // 2)
        if rng.random() < 0.7:
            with main.note("loss.backward") if rng.random() < 0.5 else nullcontext():
                yield proc.start(chance.act(worker, rng, actions // 3))
        yield from main.launch(kernels.busy(30_000))
        yield from chance.act(main, rng, actions // 2)

    proc.engine.spawn(_loop(main, steps, step))
    return job


def mixed_again(steps: int = 5, seed: int = 7, actions: int = 90) -> Job:
    """Another draw of `mixed`."""
    job = mixed(steps, seed, actions)
    job.name = "mixed_again"
    return job


def _loop(th: Thread, steps: int, step: Callable[[int], Steps]) -> Steps:
    yield 20_000
    for number in range(training.FIRST_STEP, training.FIRST_STEP + steps):
        with th.step(number):
            yield from step(number)
        yield 2_000
    for device in th.proc.devices:
        yield from th.synchronize(device=device)


SCENARIOS = (multi_stream_overlap, cuda_graph, two_devices, mixed, mixed_again)
