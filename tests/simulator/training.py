"""A training loop: what the host of one rank does, step by step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from simulator import checkpoint, kernels
from simulator.device import DeviceOp
from simulator.engine import Signal, Steps
from simulator.host import Group, Process, Thread
from simulator.kernels import Shape

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
COMM_STREAM = 20
FIRST_STEP = 10
BF16, F32 = "c10::BFloat16", "float"

Hook = Callable[[Thread, int], Steps]
Product = Callable[[Thread, "Plan", int, int], Steps]  # a linear layer, [tokens, k] by [k, n]


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
    compiled: bool = False
    recompute: str = "none"  # how blocks are checkpointed: a key of checkpoint.BACKWARD
    frames: bool = False  # Python frames, as with_stack records them
    samples: int = 0  # samples the main thread itself prepares for a batch; 0: workers do
    backward_note: str = ""  # what the main thread has open while autograd's thread works
    sync_every_step: bool = False
    main_frame: str = ""  # the Python function that holds the loop
    launch_tail_ns: int = 0  # the launch call goes on after the kernel is enqueued
    at_start: Hook = nothing
    before_forward: Hook = nothing
    mid_forward: Hook = nothing
    before_backward: Hook = nothing
    between_layers: Hook = nothing  # in the backward, on the thread that runs it
    at_end: Hook = nothing


def train(th: Thread, plan: Plan) -> Steps:
    """Run the main thread over all recorded steps."""
    yield 50_000
    with th.frame(plan.main_frame) if plan.main_frame else nullcontext():
        yield from loop(th, plan)
        # The profiler stops: wait for the device, outside any step.
        yield from th.synchronize()


def loop(th: Thread, plan: Plan) -> Steps:
    """Step after step."""
    for number in range(FIRST_STEP, FIRST_STEP + plan.steps):
        with th.step(number):
            yield from plan.at_start(th, number)
            yield from load(th, plan, number)
            yield from train_step(th, plan, number)
            yield from plan.at_end(th, number)
        yield 2_000


def load(th: Thread, plan: Plan, number: int) -> Steps:
    """Take the next batch and copy it to the device."""
    if plan.samples:
        yield from load_samples(th, plan, number)
    else:
        with th.note(LOADER, "input"):
            yield th.about(plan.loader_ns(number))
    with th.op("aten::to"), th.op("aten::_to_copy"):
        with th.op("aten::empty_strided"):
            yield th.about(2_000)
        with th.op("aten::copy_"):
            kind = "h2d_pinned" if plan.pinned else "h2d_pageable"
            op = kernels.copy(kind, plan.batch_bytes)
            yield from th.memcpy(op, blocking=not plan.pinned)


def load_samples(th: Thread, plan: Plan, number: int) -> Steps:
    """Prepare a batch in this thread (num_workers=0), sample by sample."""
    each = plan.loader_ns(number) // plan.samples
    with (
        th.note(LOADER.replace("MultiProcessing", "SingleProcess"), "input"),
        framed(th, plan, "torch/utils/data/dataloader.py(733): __next__"),
        framed(th, plan, "torch/utils/data/_utils/fetch.py(46): fetch"),
    ):
        for _ in range(plan.samples):
            with framed(th, plan, "data/corpus.py(58): __getitem__"):
                yield th.about(each // 8)
                with framed(th, plan, "data/corpus.py(31): tokenize"):
                    yield th.about(each * 7 // 8)


def framed(th: Thread, plan: Plan, where: str) -> AbstractContextManager:
    """Be inside a Python function, if frames are recorded."""
    return th.frame(where) if plan.frames else nullcontext()


def train_step(th: Thread, plan: Plan, number: int) -> Steps:
    """Forward, backward, optimizer."""
    with framed(th, plan, "train.py(64): train_step"):
        yield from _train_step(th, plan, number)
    if plan.sync_every_step:
        yield from item(th)


def _train_step(th: Thread, plan: Plan, number: int) -> Steps:
    yield from plan.before_forward(th, number)
    if plan.compiled:
        with th.op("Torch-Compiled Region: 0/0"):
            yield from forward(th, plan, number)
    else:
        with framed(th, plan, "model.py(88): forward"):
            yield from forward(th, plan, number)
    yield from plan.before_backward(th, number)
    reduced: list[Signal] = []
    if plan.autograd_thread:
        worker = th.proc.thread(th.proc.pid + 80)
        with th.note(plan.backward_note) if plan.backward_note else nullcontext():
            yield 15_000
            yield th.proc.start(backward(worker, plan, reduced, number))
            yield 10_000
    else:
        yield from backward(th, plan, reduced, number)
    for signal in reduced:
        yield from th.wait_event(signal)
    with framed(th, plan, "torch/optim/optimizer.py(485): wrapper"):
        yield from optimizer(th, plan)


def item(th: Thread) -> Steps:
    """Read a scalar back: a tiny copy, then a synchronise that waits for all before it."""
    with th.op("aten::item"), th.op("aten::_local_scalar_dense"):
        yield 1_500
        yield from th.memcpy(kernels.copy("d2h", 4))
        yield from th.synchronize(7)


def launch_op(th: Thread, plan: Plan, name: str, op: DeviceOp, dims: list, dtype: str) -> Steps:
    """Run one operator that launches one kernel."""
    with th.op(name, **inputs(dims, dtype)):
        yield th.about(plan.op_ns)
        yield from th.launch(op, tail_ns=plan.launch_tail_ns)


def inputs(dims: list, dtype: str, scalars: tuple[str, ...] = ()) -> dict:
    """Arguments of an operator that took tensors of `dims`, then `scalars`."""
    types = [dtype] * len(dims) + ["Scalar" if s else "" for s in scalars]
    return {
        "Concrete Inputs": [""] * len(dims) + list(scalars),
        "Input type": types,
        "Input Dims": [*dims, *([] for _ in scalars)],
    }


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


def embedding(th: Thread, plan: Plan) -> Steps:
    """Look the tokens of a batch up."""
    s = plan.shape
    op = kernels.elementwise(s.tokens * s.hidden * 4, "CUDAFunctor_embedding")
    yield from launch_op(
        th, plan, "aten::embedding", op, [[s.vocab, s.hidden], [s.batch, s.sequence]], BF16
    )


def norm(th: Thread, plan: Plan, name: str = "aten::native_layer_norm") -> Steps:
    """Normalise [tokens, hidden]."""
    width = plan.shape.hidden
    op = kernels.layer_norm(plan.shape.tokens * width * 4)
    yield from launch_op(th, plan, name, op, [[plan.shape.tokens, width]], BF16)


def attention(th: Thread, plan: Plan) -> Steps:
    """Run flash attention, causal."""
    s = plan.shape
    head = s.hidden // s.heads
    outer, inner = [s.batch, s.heads, s.sequence, head], [s.batch, s.sequence, s.heads, head]
    name = "aten::_scaled_dot_product_flash_attention"
    causal = ("0.", "True", "False", "")
    with th.op(name, **inputs([outer] * 3, BF16, causal)):
        yield th.about(plan.op_ns // 2)
        scalars = ("", "", str(s.sequence), str(s.sequence), "0.", "True", "False", "")
        with th.op("aten::_flash_attention_forward", **inputs([inner] * 3, BF16, scalars)):
            yield th.about(plan.op_ns // 2)
            yield from th.launch(kernels.flash(s), tail_ns=plan.launch_tail_ns)


def attention_backward(th: Thread, plan: Plan) -> Steps:
    """Backward of flash attention, causal."""
    s = plan.shape
    head = s.hidden // s.heads
    dims = [[s.batch, s.heads, s.sequence, head]] * 5 + [[s.batch, s.heads, s.sequence]]
    scalars = ("", "", str(s.sequence), str(s.sequence), "0.", "True", "", "", "")
    name = "aten::_scaled_dot_product_flash_attention_backward"
    with (
        th.op("autograd::engine::evaluate_function: ScaledDotProductFlashAttentionBackward0"),
        th.op("ScaledDotProductFlashAttentionBackward0"),
        th.op(name, **inputs(dims, BF16, scalars)),
    ):
        yield th.about(plan.op_ns)
        yield from th.launch(kernels.flash(s, "bwd"), tail_ns=plan.launch_tail_ns)


def forward(th: Thread, plan: Plan, number: int) -> Steps:
    """Embedding, blocks, head and loss."""
    h, s = plan.shape.hidden, plan.shape
    with th.differentiated():
        yield from embedding(th, plan)
    for layer in range(s.layers):
        with th.differentiated() if checkpoint.saves(plan.recompute) else nullcontext():
            yield from block(th, plan)
        if layer == 0:
            yield from plan.mid_forward(th, number)
    with th.differentiated():
        yield from linear(th, plan, s.vocab, h)
        yield from pointwise(th, plan, "aten::_log_softmax", "LogSoftMaxForward", s.vocab)


def block(
    th: Thread, plan: Plan, product: Product | None = None, last: Product | None = None
) -> Steps:
    """One decoder block; a recomputation says how its products run, and the last of them."""
    h = plan.shape.hidden
    product = product or linear
    yield from norm(th, plan)
    yield from product(th, plan, 3 * h, h)
    yield from attention(th, plan)
    yield from product(th, plan, h, h)
    yield from norm(th, plan)
    yield from product(th, plan, 4 * h, h)
    yield from pointwise(th, plan, "aten::gelu", "GeluCUDAKernelImpl", 4 * h)
    if last is None:
        yield from product(th, plan, h, 4 * h)
        yield from pointwise(th, plan, "aten::add", "CUDAFunctor_add", h)
    else:
        yield from last(th, plan, h, 4 * h)


def backward(th: Thread, plan: Plan, reduced: list[Signal], number: int) -> Steps:
    """Gradients in reverse; each block's bucket is reduced as soon as it is complete."""
    h, s = plan.shape.hidden, plan.shape
    yield from pointwise(
        th, plan, "aten::_log_softmax_backward_data", "LogSoftMaxBackward", s.vocab
    )
    yield from mm_backward(th, plan, s.vocab, h)
    for _ in range(s.layers):
        yield from checkpoint.BACKWARD[plan.recompute](th, plan)
        yield from plan.between_layers(th, number)
        if plan.data_parallel:
            reduced.append((yield from all_reduce(th, plan.data_parallel, 12 * h * h)))
    if plan.data_parallel:
        reduced.append((yield from all_reduce(th, plan.data_parallel, s.vocab * h)))


def block_backward(th: Thread, plan: Plan, first: Callable[[], Steps] | None = None) -> Steps:
    """Gradients of one block; `first` runs in its first node, when that unpacks its inputs."""
    h = plan.shape.hidden
    yield from mm_backward(th, plan, h, 4 * h, first)
    yield from pointwise(th, plan, "aten::gelu_backward", "GeluBackwardCUDAKernelImpl", 4 * h)
    yield from mm_backward(th, plan, 4 * h, h)
    yield from norm(th, plan, "aten::native_layer_norm_backward")
    yield from mm_backward(th, plan, h, h)
    yield from attention_backward(th, plan)
    yield from mm_backward(th, plan, 3 * h, h)
    yield from norm(th, plan, "aten::native_layer_norm_backward")


def mm_backward(
    th: Thread, plan: Plan, n: int, k: int, first: Callable[[], Steps] | None = None
) -> Steps:
    """Backward of a linear layer: towards the input, then towards the weight."""
    m = plan.shape.tokens
    with (
        th.op("autograd::engine::evaluate_function: MmBackward0"),
        th.op("MmBackward0"),
    ):
        yield th.about(plan.op_ns // 2)
        if first:
            yield from first()
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
    with (
        th.op("c10d::allreduce_", "collective"),
        th.op("record_param_comms", "collective", **args),
        th.note("nccl:all_reduce", "collective"),
    ):
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
