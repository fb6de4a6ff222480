"""Scenarios of several ranks that train in data parallel."""

from __future__ import annotations

from simulator import training
from simulator.engine import Signal, Steps
from simulator.host import Thread
from simulator.job import ANY, Clock, Job
from simulator.kernels import Shape
from simulator.training import Plan, fixed

# Profilers start at different times: the first recorded step waits for the last of them.
START_SKEW_NS = (0, 310_000_000, 95_000_000, 740_000_000)
CLOCKS = (
    Clock(),
    Clock(offset_ns=3_000_000, drift_ppb=12_000),
    Clock(offset_ns=-7_000_000, drift_ppb=-8_000),
    Clock(offset_ns=50_000_000, drift_ppb=20_000),
)


def _job(name: str, seed: int, plans: list[Plan], **changes: object) -> Job:
    job = Job(name, seed)
    job.with_seq = bool(changes.get("with_seq", True))
    group = job.group("0", "default_pg", list(range(len(plans))))
    clocks = changes.get("clocks") or [Clock()] * len(plans)
    for number, plan in enumerate(plans):
        plan.data_parallel = group
        training.start(job.rank(clock=clocks[number]), plan, after_ns=START_SKEW_NS[number])
    return job


def _plans(ranks: int, steps: int, layers: int, **faults: object) -> list[Plan]:
    """Return one plan per rank; they share the model and the loss read-back of every step."""
    shape = Shape(layers=layers)
    return [Plan(steps=steps, shape=shape, sync_every_step=True, **faults) for _ in range(ranks)]


def ddp_clean(steps: int = 6, layers: int = 2, ranks: int = 2) -> Job:
    """Nobody is late; the last bucket is exposed, as it must be."""
    job = _job("ddp_clean", 40, _plans(ranks, steps, layers))
    job.expected = {
        "finding": None,
        "ranks": [],
        "accept": ["comm_exposed", "collective_bandwidth"],
    }
    return job


def ddp_slow_loader_rank(
    steps: int = 6, layers: int = 2, ranks: int = 4, late: int = 2, loader_ms: int = 18
) -> Job:
    """One rank's loader is late; the others wait for it in the all-reduce."""
    plans = _plans(ranks, steps, layers)
    plans[late].loader_ns = fixed(loader_ms * 1_000_000)
    job = _job("ddp_slow_loader_rank", 41, plans)
    job.expected = {"finding": "input_stall", "ranks": [late], "wait_cause": "idle.input"}
    return job


def ddp_no_seq(steps: int = 6, layers: int = 2) -> Job:
    """The same, traced by a torch that doesn't record the collectives' numbers."""
    plans = _plans(4, steps, layers)
    plans[2].loader_ns = fixed(18_000_000)
    job = _job("ddp_no_seq", 42, plans, with_seq=False)
    job.expected = {"finding": "input_stall", "ranks": [2], "wait_cause": "idle.input"}
    return job


def ddp_slow_gpu(steps: int = 6, layers: int = 2, slow: int = 1, percent: int = 25) -> Job:
    """One GPU computes slower at equal work."""
    job = _job("ddp_slow_gpu", 43, _plans(4, steps, layers))
    job.ranks[slow].devices[slow].slowdown_pct = percent
    job.expected = {"finding": "slow_gpu", "ranks": [slow], "wait_cause": "compute.tensor"}
    return job


def ddp_clocks(steps: int = 6, layers: int = 2, late: int = 1) -> Job:
    """Clocks are off by up to 50 ms and drift; one loader is late."""
    plans = _plans(4, steps, layers)
    plans[late].loader_ns = fixed(18_000_000)
    job = _job("ddp_clocks", 44, plans, clocks=CLOCKS)
    job.expected = {"finding": "input_stall", "ranks": [late], "wait_cause": "idle.input"}
    return job


def ddp_gc_in_turn(steps: int = 9, layers: int = 2) -> Job:
    """Each rank collects garbage in a step of its own: everyone is late in turn."""

    def collect(th: Thread, step: int) -> Steps:
        if step % 4 == th.proc.rank:
            with th.note("gc.collect", "gc"):
                yield th.about(22_000_000)

    job = _job("ddp_gc_in_turn", 45, _plans(4, steps, layers, before_forward=collect))
    job.expected = {"finding": "gc_pause", "ranks": [0, 1, 2, 3], "wait_cause": "idle.gc"}
    return job


def host_barrier(steps: int = 6, layers: int = 1) -> Job:
    """Two ranks meet at a barrier on the host each step; one comes late from its Python."""
    gates: dict[int, list[Signal]] = {}

    def meet(th: Thread, step: int) -> Steps:
        if th.proc.rank == 1:
            with th.note("build_targets"):
                yield th.about(11_000_000)
        with th.op("c10d::barrier", "host_comm"), th.note("gloo:barrier", "host_comm"):
            mine = Signal()
            gates.setdefault(step, []).append(mine)
            if len(gates[step]) == 2:
                yield 120_000
                for gate in gates[step]:
                    th.engine.fire(gate)
            else:
                yield mine
            yield 30_000

    plans = _plans(2, steps, layers, before_forward=meet)
    job = _job("host_barrier", 46, plans)
    job.expected = {"finding": ANY, "ranks": [1]}
    return job


SCENARIOS = (
    ddp_clean,
    ddp_slow_loader_rank,
    ddp_no_seq,
    ddp_slow_gpu,
    ddp_clocks,
    ddp_gc_in_turn,
    host_barrier,
)
