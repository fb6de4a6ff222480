"""Activation checkpointing: blocks whose forward runs again in the backward.

What torch 2.13 records for each kind is held on real traces by tests/trace_flops.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator import training
from simulator.engine import Steps
from simulator.host import Thread


def saves(kind: str) -> bool:
    """Tell whether the first forward of a block runs with grad mode on."""
    return kind != "reentrant"


def _plain(th: Thread, plan: training.Plan) -> Steps:
    """Nothing is recomputed."""
    yield from training.block_backward(th, plan)


def _reentrant(th: Thread, plan: training.Plan) -> Steps:
    """One node runs the whole forward again, then a backward of its own inside."""
    with (
        th.op("autograd::engine::evaluate_function: CheckpointFunctionBackward"),
        th.op("CheckpointFunctionBackward"),
    ):
        with th.differentiated(again=True):
            yield from training.block(th, plan)
        yield from training.block_backward(th, plan)


def _non_reentrant(th: Thread, plan: training.Plan) -> Steps:
    """The first node that unpacks a saved tensor runs the forward, up to its last product."""

    def again() -> Steps:
        with th.differentiated(again=True):
            yield from training.block(th, plan, last=_stopped)

    yield from training.block_backward(th, plan, first=again)


def _selective(th: Thread, plan: training.Plan) -> Steps:
    """The same, with products served from the cache; attention and the rest run again."""

    def again() -> Steps:
        with th.differentiated(again=True):
            yield from training.block(th, plan, product=_cached, last=_stopped)

    yield from training.block_backward(th, plan, first=again)


def _stopped(th: Thread, plan: training.Plan, n: int, k: int) -> Steps:
    """Record a product that early stop ends once its inputs are saved: no kernel."""
    yield from _product_without_kernel(th, plan, n, k, "aten::detach")


def _cached(th: Thread, plan: training.Plan, n: int, k: int) -> Steps:
    """Record a product whose result comes from the cache: no kernel."""
    yield from _product_without_kernel(th, plan, n, k, "PythonDispatchMode")


def _product_without_kernel(th: Thread, plan: training.Plan, n: int, k: int, held: str) -> Steps:
    dims = training.inputs([[plan.shape.tokens, k], [k, n]], training.BF16)
    with th.op("aten::linear"), th.op("aten::matmul"), th.op("aten::mm", **dims):
        yield th.about(plan.op_ns // 2)
        with th.op(held):
            yield th.about(plan.op_ns // 2)


BACKWARD: dict[str, Callable[[Thread, training.Plan], Steps]] = {
    "none": _plain,
    "reentrant": _reentrant,
    "non_reentrant": _non_reentrant,
    "selective": _selective,
}
