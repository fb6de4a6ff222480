"""Random host actions: whatever a thread can do, in an order that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

from simulator import kernels, training
from simulator.device import Hold
from simulator.engine import Steps
from simulator.host import Thread

STREAMS = (7, 7, 7, 13, 20, 24)
BF16 = "c10::BFloat16"

Action = Callable[[Thread, random.Random], Generator]


def act(th: Thread, rng: random.Random, count: int) -> Steps:
    """Do `count` random things."""
    for _ in range(count):
        (action,) = rng.choices(ACTIONS, WEIGHTS)
        yield from action(th, rng)


def _pause(_th: Thread, rng: random.Random) -> Steps:
    yield rng.randint(500, 60_000)


def _tensor(th: Thread, rng: random.Random) -> Steps:
    with th.op("aten::mm", **{"Input Dims": [[64, 64], [64, 64]], "Input type": [BF16, BF16]}):
        yield rng.randint(1_000, 9_000)
        op = kernels.busy(rng.randint(1_000, 90_000), "compute.tensor")
        tail = rng.choice((0, 0, 3_500))
        yield from th.launch(op, stream=rng.choice((7, 7, 13)), tail_ns=tail)


def _other(th: Thread, rng: random.Random) -> Steps:
    with th.op("aten::gelu"):
        yield rng.randint(1_000, 9_000)
        op = kernels.busy(rng.randint(900, 40_000), "compute.other")
        yield from th.launch(op, stream=rng.choice((7, 7, 13)))


def _comm(th: Thread, rng: random.Random) -> Steps:
    op = kernels.nccl("AllReduce_Sum_bf16_RING_LL", {}, None, rng.randint(9_000, 90_000))
    with th.op("c10d::allreduce_", "collective"):
        yield 3_000
        yield from th.launch(op, stream=20)


def _copy(th: Thread, rng: random.Random) -> Steps:
    kind = rng.choice(("h2d_pinned", "d2h", "d2d", "memset"))
    with th.op("aten::copy_"):
        op = kernels.copy(kind, rng.randint(64, 900_000))
        if kind == "memset":
            yield from th.launch(op, api="cudaMemsetAsync", stream=rng.choice(STREAMS))
        else:
            yield from th.memcpy(op, stream=rng.choice(STREAMS))


def _blocking_copy(th: Thread, rng: random.Random) -> Steps:
    with th.op("aten::copy_"):
        op = kernels.copy("h2d_pageable", rng.randint(4_000, 400_000))
        yield from th.memcpy(op, blocking=True)


def _sync(th: Thread, rng: random.Random) -> Steps:
    if rng.random() < 0.5:
        yield from training.item(th)
    else:
        yield from th.synchronize(rng.choice((None, 7, 20)))


def _event(th: Thread, rng: random.Random) -> Steps:
    source, target = rng.choice(((7, 20), (20, 7), (7, 13), (24, 7)))
    signal = yield from th.record_event(source)
    yield from th.wait_event(signal, target)


def _hold(th: Thread, rng: random.Random) -> Steps:
    gpu = th.proc.devices[th.device]
    gpu.stream(rng.choice((7, 13))).put(Hold(rng.randint(5_000, 90_000)))
    yield 0


def _graph(th: Thread, rng: random.Random) -> Steps:
    nodes = [kernels.busy(rng.randint(2_000, 9_000)) for _ in range(rng.randint(2, 9))]
    for node in nodes:
        node.gap = rng.choice((900, 1_500, 14_000))
    yield from th.launch(*nodes, api="cudaGraphLaunch", call_ns=16_000)


def _memory(th: Thread, rng: random.Random) -> Steps:
    with th.op("aten::empty"):
        if rng.random() < 0.5:
            yield from th.free(rng.randint(9_000, 60_000))
        yield from th.malloc(rng.randint(9_000, 90_000))


def _host(th: Thread, rng: random.Random) -> Steps:
    """Be in a host-side span, perhaps with launches, pauses and others inside it."""
    name, kind = rng.choice(HOST_SPANS)
    with th.frame(name, kind) if "(" in name else th.note(name, kind):
        yield rng.randint(2_000, 50_000)
        if rng.random() < 0.7:
            yield from act(th, rng, rng.randint(1, 3))


HOST_SPANS = (
    (training.LOADER, "input"),
    ("gc.collect", "gc"),
    ("save_checkpoint", "checkpoint"),
    ("evaluate", "eval"),
    ("_compile.compile_inner (dynamo_timed)", "compile"),
    ("log_metrics", "annotation"),
    ("preprocess", "annotation"),
    ("train.py(44): augment", "frame"),
)
ACTIONS: tuple[Action, ...] = (
    _tensor,
    _other,
    _pause,
    _copy,
    _comm,
    _host,
    _event,
    _sync,
    _blocking_copy,
    _hold,
    _graph,
    _memory,
)
WEIGHTS = (22, 18, 14, 7, 6, 9, 5, 4, 3, 3, 3, 3)
