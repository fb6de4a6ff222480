"""A training loop: what the host of one rank does, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from simulator import kernels
from simulator.device import DeviceOp
from simulator.engine import Signal, Steps
from simulator.host import Group, Process, Thread
from simulator.kernels import Shape

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
COMM_STREAM = 20
FIRST_STEP = 10
BF16, F32 = "c10::BFloat16", "float"

Hook = Callable[[Thread, int], Steps]


def nothing(_th: Thread, _step: int) -> Steps:
    """Hook that does nothing."""
    yield 0


def fixed(ns: int) -> Callable[[int], int]:
    """Return a loader time that is the same in every step."""
    return lambda _step: ns


@dataclass(kw_only=True)
class Plan:
    """How one rank trains; hooks are where a scenario puts its fault."""

    shape: Shape = field(default_factory=Shape)
    steps: int = 6
    loader_ns: Callable[[int], int] = field(default_factory=lambda: fixed(180_000))
    op_ns: int = 4_000  # host time of one operator outside its launches
    pinned: bool = True
    batch_bytes: int = 131_072
    data_parallel: Group | None = None
    autograd_thread: bool = False
    frames: bool = False
    sync_every_step: bool = False
    at_start: Hook = nothing
    before_forward: Hook = nothing
    mid_forward: Hook = nothing
    before_backward: Hook = nothing
    at_end: Hook = nothing


def train(th: Thread, plan: Plan) -> Steps:
    """Run the main thread over all recorded steps."""
    yield 50_000
    for number in range(FIRST_STEP, FIRST_STEP + plan.steps):
        with th.step(number):
            yield from plan.at_start(th, number)
            yield from load(th, plan, number)
            yield from train_step(th, plan, number)
            yield from plan.at_end(th, number)
        yield 2_000
    # The profiler stops: wait for the device, outside any step.
    yield from th.synchronize()


def load(th: Thread, plan: Plan, number: int) -> Steps:
    """Take the next batch and copy it to the device."""
    with th.note(LOADER, "input"):
        yield th.about(plan.loader_ns(number))
    with th.op("aten::to"), th.op("aten::_to_copy"):
        with th.op("aten::empty_strided"):
            yield th.about(2_000)
        with th.op("aten::copy_"):
            kind = "h2d_pinned" if plan.pinned else "h2d_pageable"
            op = kernels.copy(kind, plan.batch_bytes)
            yield from th.memcpy(op, blocking=not plan.pinned)


def train_step(th: Thread, plan: Plan, number: int) -> Steps:
    """Forward, backward, optimizer."""
    yield from plan.before_forward(th, number)
    yield from forward(th, plan, number)
    yield from plan.before_backward(th, number)
    reduced: list[Signal] = []
    if plan.autograd_thread:
        worker = th.proc.thread(th.proc.pid + 80)
        yield 15_000
        yield th.proc.start(backward(worker, plan, reduced))
        yield 10_000
    else:
        yield from backward(th, plan, reduced)
    for signal in reduced:
        yield from th.wait_event(signal)
    yield from optimizer(th, plan)
    if plan.sync_every_step:
        yield from item(th)


def item(th: Thread) -> Steps:
    """Read a scalar back: a tiny copy, then a synchronise that waits for all before it."""
    with th.op("aten::item"), th.op("aten::_local_scalar_dense"):
        yield 1_500
        yield from th.memcpy(kernels.copy("d2h", 4))
        yield from th.synchronize(7)


def launch_op(th: Thread, plan: Plan, name: str, op: DeviceOp, dims: list, dtype: str) -> Steps:
    """Run one operator that launches one kernel."""
    types = [dtype] * len(dims)
    with th.op(
        name, **{"Input Dims": dims, "Input type": types, "Concrete Inputs": [""] * len(dims)}
    ):
        yield th.about(plan.op_ns)
        yield from th.launch(op)


def mm(th: Thread, plan: Plan, m: int, n: int, k: int, layout: str = "tn") -> Steps:
    """Multiply [m, k] by [k, n]."""
    yield from launch_op(
        th, plan, "aten::mm", kernels.gemm(m, n, k, layout), [[m, k], [k, n]], BF16
    )


def linear(th: Thread, plan: Plan, n: int, k: int) -> Steps:
    """Linear layer without bias."""
    with th.op("aten::linear"), th.op("aten::matmul"):
        yield th.about(plan.op_ns // 2)
        yield from mm(th, plan, plan.shape.tokens, n, k)


def pointwise(th: Thread, plan: Plan, name: str, functor: str, width: int) -> Steps:
    """Run an elementwise operator over [tokens, width]."""
    op = kernels.elementwise(plan.shape.tokens * width * 4, functor)
    yield from launch_op(th, plan, name, op, [[plan.shape.tokens, width]], BF16)


def norm(th: Thread, plan: Plan, name: str = "aten::native_layer_norm") -> Steps:
    """Normalise [tokens, hidden]."""
    width = plan.shape.hidden
    op = kernels.layer_norm(plan.shape.tokens * width * 4)
    yield from launch_op(th, plan, name, op, [[plan.shape.tokens, width]], BF16)


def attention(th: Thread, plan: Plan, direction: str = "fwd") -> Steps:
    """Run flash attention, causal."""
    s = plan.shape
    dims = [[s.batch, s.heads, s.sequence, s.hidden // s.heads]] * 3
    back = "_backward" if direction == "bwd" else ""
    op = kernels.flash(s, direction)
    name = f"aten::_scaled_dot_product_flash_attention{back}"
    yield from launch_op(th, plan, name, op, dims, BF16)


def forward(th: Thread, plan: Plan, number: int) -> Steps:
    """Embedding, blocks, head and loss."""
    h, s = plan.shape.hidden, plan.shape
    yield from pointwise(th, plan, "aten::embedding", "CUDAFunctor_embedding", h)
    for layer in range(s.layers):
        yield from norm(th, plan)
        yield from linear(th, plan, 3 * h, h)
        yield from attention(th, plan)
        yield from linear(th, plan, h, h)
        yield from norm(th, plan)
        yield from linear(th, plan, 4 * h, h)
        yield from pointwise(th, plan, "aten::gelu", "GeluCUDAKernelImpl", 4 * h)
        yield from linear(th, plan, h, 4 * h)
        yield from pointwise(th, plan, "aten::add", "CUDAFunctor_add", h)
        if layer == 0:
            yield from plan.mid_forward(th, number)
    yield from linear(th, plan, s.vocab, h)
    yield from pointwise(th, plan, "aten::_log_softmax", "LogSoftMaxForward", s.vocab)


def backward(th: Thread, plan: Plan, reduced: list[Signal]) -> Steps:
    """Gradients in reverse; each block's bucket is reduced as soon as it is complete."""
    h, s = plan.shape.hidden, plan.shape
    yield from pointwise(
        th, plan, "aten::_log_softmax_backward_data", "LogSoftMaxBackward", s.vocab
    )
    yield from mm_backward(th, plan, s.vocab, h)
    for _ in range(s.layers):
        yield from mm_backward(th, plan, h, 4 * h)
        yield from pointwise(th, plan, "aten::gelu_backward", "GeluBackwardCUDAKernelImpl", 4 * h)
        yield from mm_backward(th, plan, 4 * h, h)
        yield from norm(th, plan, "aten::native_layer_norm_backward")
        yield from mm_backward(th, plan, h, h)
        yield from attention(th, plan, "bwd")
        yield from mm_backward(th, plan, 3 * h, h)
        yield from norm(th, plan, "aten::native_layer_norm_backward")
        if plan.data_parallel:
            reduced.append((yield from all_reduce(th, plan.data_parallel, 12 * h * h)))
    if plan.data_parallel:
        reduced.append((yield from all_reduce(th, plan.data_parallel, s.vocab * h)))


def mm_backward(th: Thread, plan: Plan, n: int, k: int) -> Steps:
    """Backward of a linear layer: towards the input, then towards the weight."""
    m = plan.shape.tokens
    with (
        th.op("autograd::engine::evaluate_function: MmBackward0"),
        th.op("MmBackward0"),
    ):
        yield th.about(plan.op_ns // 2)
        yield from mm(th, plan, m, k, n, "nn")
        yield from mm(th, plan, n, k, m, "nt")


def optimizer(th: Thread, plan: Plan) -> Steps:
    """Run one fused AdamW call over all parameters."""
    s = plan.shape
    params = s.layers * 12 * s.hidden**2 + s.vocab * s.hidden
    with th.note("Optimizer.step#AdamW.step"):
        yield th.about(plan.op_ns)
        op = kernels.adamw(params)
        yield from launch_op(th, plan, "aten::_fused_adamw_", op, [[params]], F32)
    with th.note("Optimizer.zero_grad#AdamW.zero_grad"):
        yield th.about(plan.op_ns)


def all_reduce(th: Thread, group: Group, elements: int) -> Steps:
    """Enqueue a bf16 all-reduce on the communication stream; returns its completion."""
    meeting = group.meet(th.proc.rank, "allreduce", 2 * elements)
    args = collective_args(group, "allreduce", elements, meeting.seq)
    with th.op("c10d::allreduce_", "collective"), th.op("record_param_comms", "collective", **args):
        with th.note("nccl:all_reduce", "collective"):
            produced = yield from th.record_event(7)
            yield from th.wait_event(produced, COMM_STREAM)
            op = kernels.nccl("AllReduce_Sum_bf16_RING_LL", args, meeting)
            yield from th.launch(op, stream=COMM_STREAM, call_ns=7_000, api="cudaLaunchKernelExC")
    return op.done


def collective_args(group: Group, name: str, elements: int, seq: int) -> dict:
    """Arguments that both the operator and the kernel of a collective carry."""
    args = {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": len(group.ranks),
        "dtype": "BFloat16",
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": group.name,
        "Process Group Description": group.desc,
        "Process Group Ranks": str(group.ranks),
    }
    return args | ({"Seq": seq} if group.with_seq else {})


def start(proc: Process, plan: Plan, *, after_ns: int = 0) -> None:
    """Put the training loop on a rank's main thread."""
    proc.engine.spawn(train(proc.thread(), plan), after_ns)
