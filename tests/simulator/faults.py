"""Faults that can be put into a data-parallel job, alone or together, and what is to be found.

A fault costs about `size_ns` a step on the ranks that it hits. `finding` is what an analyzer should
name it; the bench and the tests hold it against what it names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from simulator import kernels, training
from simulator.device import Hold
from simulator.engine import Steps
from simulator.host import Group, Thread
from simulator.job import Clock, Job
from simulator.kernels import Shape
from simulator.training import Hook, Plan, fixed

SECOND_NS = 1_000_000_000
SKEW_NS = 5_000_000  # between the ranks' starts
SHAPE = Shape(layers=2, batch=4, vocab=8_192)
AHEAD_NS = 11_000_000  # a healthy step's device time less its host time
LOADER_NS = 60_000  # of a loader that is never late
SYNCS = 2 + SHAPE.layers  # read-backs in a step
MESSAGES = 24  # of a job with too many small ones
# The allocator's and the loader's share of a fault is random by the host's own jitter of 5 %.
LAUNCHES = 16  # launches of the forward that a launch-bound host is slow at
LAST = SHAPE.vocab * SHAPE.hidden  # elements of the last bucket, which nothing hides
PINNED = kernels.PINNED_BYTES_PER_US


@dataclass
class Ranks:
    """The plans of all ranks before they start, and the job they are part of."""

    job: Job
    plans: list[Plan]
    groups: list[Group]  # of each rank: all the same one, or one of its own where it is alone


Inject = Callable[[Ranks, Sequence[int], int], None]


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    finding: str
    inject: Inject
    everywhere: bool = False  # it hits all ranks; else one, whom the others wait for
    hidden_ns: int = 0  # so much of it costs nothing: the host is that far ahead of the device
    most_ns: int = 1_000_000_000  # a larger one would be another fault
    on_device: bool = False  # the host stays ahead
    is_shared: bool = False  # it lies in what the ranks share, not in each of them


def hook(where: str, act: Callable[[Thread, int], Steps]) -> Inject:
    """Return a fault that does something at one place of every step."""

    def inject(ranks: Ranks, hit: Sequence[int], size_ns: int) -> None:
        for rank in hit:
            plan = ranks.plans[rank]
            before: Hook = getattr(plan, where)

            def both(th: Thread, step: int, before: Hook = before) -> Steps:
                yield from before(th, step)
                yield from act(th, size_ns)

            setattr(plan, where, both)

    return inject


def _loader(ranks: Ranks, hit: Sequence[int], size_ns: int) -> None:
    for rank in hit:
        ranks.plans[rank].loader_ns = fixed(size_ns)


def _slow_gpu(ranks: Ranks, hit: Sequence[int], size_ns: int) -> None:
    for rank in hit:
        device = ranks.job.ranks[rank].devices[rank]
        device.slowdown_pct = 100 * size_ns // compute_ns(SHAPE)


def _more_work(ranks: Ranks, hit: Sequence[int], size_ns: int) -> None:
    """Longer batches on a rank: more of the same tokens."""
    for rank in hit:
        batch = SHAPE.batch + max(1, round(SHAPE.batch * size_ns / compute_ns(SHAPE)))
        ranks.plans[rank].shape = replace(SHAPE, batch=batch)


def _batch_copy(ranks: Ranks, hit: Sequence[int], size_ns: int) -> None:
    for rank in hit:
        ranks.plans[rank].batch_bytes = size_ns * PINNED // 1000


def _slow_bus(ranks: Ranks, _hit: Sequence[int], size_ns: int) -> None:
    """Every byte takes longer: all buckets of a step take `size_ns` more than computing them."""
    n = len(ranks.plans)
    moved = 2 * (SHAPE.layers * 12 * SHAPE.hidden**2 + LAST) * 2 * (n - 1) // n
    for group in ranks.groups:
        group.bytes_per_us = moved * 1000 // (size_ns + compute_ns(SHAPE) * 2 // 3)


def _latency(ranks: Ranks, _hit: Sequence[int], size_ns: int) -> None:
    """Many small all-reduces before the forward, one after the other, each mostly alpha."""

    def tiny(th: Thread, _step: int) -> Steps:
        group = ranks.groups[th.proc.rank]
        for index in range(MESSAGES):
            done = yield from training.all_reduce(th, group, 512 * (1 + 7 * (index % 2)))
        yield from th.wait_event(done)

    for plan, group in zip(ranks.plans, ranks.groups, strict=True):
        group.alpha_ns = size_ns // MESSAGES
        plan.before_forward = tiny


def _degraded(ranks: Ranks, _hit: Sequence[int], size_ns: int) -> None:
    """A link stutters: in every second step the last bucket takes twice `size_ns` more."""
    for group in {id(group): group for group in ranks.groups}.values():
        _stutter(group, size_ns)


def _stutter(group: Group, size_ns: int) -> None:
    meet = group.meet
    seen: set[int] = set()

    def stutter(rank: int, op: str, nbytes: int, *rest: object) -> object:
        meeting = meet(rank, op, nbytes, *rest)
        if nbytes == 2 * LAST and meeting.seq not in seen:
            seen.add(meeting.seq)
            meeting.transfer_ns += 2 * size_ns if len(seen) % 2 else 0
        return meeting

    group.meet = stutter


def _gc(th: Thread, ns: int) -> Steps:
    with th.note("gc.collect", "gc"):
        yield th.about(ns)


def _checkpoint(th: Thread, ns: int) -> Steps:
    with th.note("save_checkpoint", "checkpoint"):
        with th.op("aten::copy_"):
            yield from th.memcpy(kernels.copy("d2h", 1_000_000))
        yield from th.synchronize(7)
        with th.frame("torch/serialization.py(967): save"):
            yield th.about(ns)


def _evaluation(th: Thread, ns: int) -> Steps:
    with th.note("evaluate", "eval"):
        yield th.about(ns)


def _allocator(th: Thread, ns: int) -> Steps:
    with th.op("aten::empty"):
        yield from th.free(ns // 2)
        yield from th.malloc(ns // 2)


def _compile(th: Thread, ns: int) -> Steps:
    with (
        th.op("Torch-Compiled Region: 0/1"),
        th.note("_compile.compile_inner (dynamo_timed)", "compile"),
    ):
        yield th.about(ns)


def _python(th: Thread, ns: int) -> Steps:
    for name in ("build_targets", "augment"):  # one span of nearly all of a step says nothing
        with th.note(name):
            yield th.about(ns // 2)


def _sync(th: Thread, ns: int) -> Steps:
    """Reads a value back: the queue drains, and the Python after it runs on an idle GPU."""
    yield from training.item(th)
    with th.note("log_metrics"):
        yield th.about(ns // SYNCS)


def _syncs(ranks: Ranks, hit: Sequence[int], size_ns: int) -> None:
    for where in ("mid_forward", "before_backward", "between_layers"):
        hook(where, _sync)(ranks, hit, size_ns)


def _slow_launches(th: Thread, ns: int) -> Steps:
    """Operators that each take the host long and the device next to nothing."""
    for _ in range(LAUNCHES):
        with th.op("aten::add_", **training.inputs([[64]], training.BF16)):
            yield th.about(ns // LAUNCHES)
            yield from th.launch(kernels.elementwise(128))


def _blocked(ranks: Ranks, hit: Sequence[int], size_ns: int) -> None:
    """Hold the stream, for another time in every step."""
    for rank in hit:

        def hold(th: Thread, step: int) -> Steps:
            th.proc.devices[th.device].stream(7).put(Hold(size_ns * (70 + 15 * (step % 5)) // 100))
            yield 0

        ranks.plans[rank].mid_forward = hold


def compute_ns(shape: Shape) -> int:
    """Return about what a step computes, ns."""
    h, t = shape.hidden, shape.tokens
    flops = 6 * t * (12 * shape.layers * h * h + shape.vocab * h)
    return flops * 1_000_000_000 * 100 // (kernels.PEAK_FLOPS * kernels.MATMUL_PCT)


ONE_RANK = (
    Fault("input", "input_stall", _loader, hidden_ns=AHEAD_NS),
    Fault("gc", "gc_pause", hook("before_forward", _gc), hidden_ns=AHEAD_NS),
    Fault("checkpoint", "checkpoint_stall", hook("at_end", _checkpoint)),
    Fault("eval", "eval_pause", hook("at_end", _evaluation), hidden_ns=AHEAD_NS),
    Fault("allocator", "allocator_stall", hook("before_forward", _allocator)),
    Fault("compile", "recompile", hook("before_forward", _compile), hidden_ns=AHEAD_NS),
    Fault("python", "host_overhead", hook("before_forward", _python), hidden_ns=AHEAD_NS),
    Fault("host sync", "host_sync", _syncs, most_ns=8_000_000),
    Fault("launch", "launch_bound", hook("before_forward", _slow_launches), hidden_ns=AHEAD_NS),
    Fault("copy", "h2d_copy", _batch_copy, on_device=True),
    Fault("blocked", "device_blocked", _blocked, on_device=True),
    Fault("slow GPU", "slow_gpu", _slow_gpu, on_device=True),
    Fault("more work", "workload_imbalance", _more_work, on_device=True),
)
# Faults that lie in what the ranks share, and those above that may hit all ranks alike.
ALL_RANKS = (
    Fault(
        "bandwidth",
        "collective_bandwidth",
        _slow_bus,
        everywhere=True,
        on_device=True,
        is_shared=True,
    ),
    Fault(
        "latency", "collective_latency", _latency, everywhere=True, on_device=True, is_shared=True
    ),
    Fault("degraded", "link_degraded", _degraded, everywhere=True, on_device=True, is_shared=True),
    *(
        replace(fault, name=f"{fault.name}, all ranks", everywhere=True)
        for fault in ONE_RANK
        if fault.finding not in ("slow_gpu", "workload_imbalance")
    ),
)


FAULTS = {fault.name: fault for fault in (*ONE_RANK, *ALL_RANKS)}


@dataclass(frozen=True)
class Injected:
    """A fault in a job: which ranks it hits, and what it costs a step there, ns."""

    name: str
    ranks: tuple[int, ...]
    cost_ns: int

    @property
    def fault(self) -> Fault:
        """The fault of that name."""
        return FAULTS[self.name]


def _plan(steps: int, group: Group) -> Plan:
    """Return a healthy rank: its gradients are reduced, then their norm and the loss."""

    def norms(th: Thread, _step: int) -> Steps:
        for elements in (1, 64):
            done = yield from training.all_reduce(th, group, elements)
            yield from th.wait_event(done)

    return Plan(
        steps=steps,
        shape=SHAPE,
        data_parallel=group,
        loader_ns=fixed(LOADER_NS),
        at_end=norms,
    )


def random_clock(rng: random.Random) -> Clock:
    """Return a clock that is off by up to a second, and drifts by up to 20 ppm."""
    offset = rng.randint(-SECOND_NS, SECOND_NS)
    return Clock(offset_ns=offset, drift_ppb=rng.randint(-20_000, 20_000))


def build(
    seed: int,
    faults: Sequence[Injected],
    ranks: int,
    steps: int = 6,
    alone: Sequence[int] = (),
) -> Job:
    """Return a job with faults in it; clocks are off by up to a second, and drift.

    ``alone``: only these ranks run, each reduces with nobody but itself, and none waits.
    """
    rng = random.Random(seed)
    job = Job("faults", seed)
    members = [[rank] for rank in range(ranks)] if alone else [list(range(ranks))]
    made = [
        job.group("0", "default_pg", who, bytes_per_us=1_200_000, speed_of=ranks) for who in members
    ]
    groups = made if alone else made * ranks
    plans = [_plan(steps, group) for group in groups]
    for _ in plans:
        job.rank(clock=random_clock(rng))
    everyone = Ranks(job, plans, groups)
    late: set[int] = set()  # ranks whose host is ahead of the device no more
    for one in faults:
        hidden = 0 if late & set(one.ranks) else one.fault.hidden_ns
        one.fault.inject(everyone, one.ranks, one.cost_ns + hidden)
        late |= set() if one.fault.on_device else set(one.ranks)
    for process, plan in zip(job.ranks, plans, strict=True):
        after_ns = rng.randint(0, SKEW_NS)
        if not alone or process.rank in alone:
            training.start(process, plan, after_ns=after_ns)
    return job
