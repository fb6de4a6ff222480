"""Pipeline-parallel scenarios: stages that send to each other by rendezvous."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator import kernels, training
from simulator.engine import Signal, Steps
from simulator.host import Group, Thread
from simulator.job import Job
from simulator.kernels import Shape
from simulator.training import Plan

# Communication streams by (direction of the data, what this rank does).
STREAMS = {("F", "recv"): 21, ("F", "send"): 22, ("B", "recv"): 23, ("B", "send"): 24}


@dataclass(kw_only=True)
class Stage:
    """One stage of the pipeline."""

    th: Thread
    plan: Plan
    stages: int
    microbatches: int
    p2p: Group
    world: Group
    replicas: Group | None = None  # the same stage of all pipelines
    order: str = "1F1B"
    chunks: int = 1
    late: tuple[int, int] = (-1, 0)  # a step, and what this stage's host sleeps in it, ns

    @property
    def rank(self) -> int:
        """Rank: pipelines side by side have consecutive ones."""
        return self.th.proc.rank

    @property
    def stage(self) -> int:
        """The stage's number in its pipeline."""
        return self.rank % self.stages

    def schedule(self) -> Iterator[tuple[str, int]]:
        """Yield F and B, each with its chunk: warm up, alternate, cool down."""
        total = self.microbatches * self.chunks
        warm = self.stages - 1 - self.stage
        if self.order == "interleaved":
            warm = 2 * warm + self.stages * (self.chunks - 1)
        warm = total if self.order == "GPipe" else min(warm, total)
        turns = "F" * warm + "FB" * (total - warm) + "B" * warm
        done = {"F": 0, "B": 0}
        for what in turns:
            chunk = done[what] // self.stages % self.chunks
            done[what] += 1
            yield what, chunk if what == "F" else self.chunks - 1 - chunk

    def peer(self, stage: int, chunk: int) -> int | None:
        """Return the rank of a neighbour stage; around the ring where that is another chunk."""
        if not 0 <= chunk * self.stages + stage < self.stages * self.chunks:
            return None
        return self.rank - self.stage + stage % self.stages

    def run(self, steps: int) -> Steps:
        """Train."""
        th = self.th
        yield 50_000
        for number in range(training.FIRST_STEP, training.FIRST_STEP + steps):
            with th.step(number):
                yield from self._step(number)
            yield 2_000
        yield from th.synchronize()

    def _step(self, number: int) -> Steps:
        th = self.th
        yield from training.load(th, self.plan, number)
        for turn, (what, chunk) in enumerate(self.schedule()):
            ahead = 1 if what == "F" else -1
            yield from self._receive(what, self.peer(self.stage - ahead, chunk))
            with th.note("forward_step" if what == "F" else "backward_step"):
                if turn == self.microbatches and number == self.late[0]:
                    yield self.late[1]
                yield from self._chunk(what, number)
            yield from self._send(what, self.peer(self.stage + ahead, chunk))
        if self.replicas:
            layers = self.plan.shape.layers
            reduced = yield from training.all_reduce(th, self.replicas, layers * 2**22)
            yield from th.wait_event(reduced)
        flushed = yield from training.all_reduce(th, self.world, 8)
        yield from th.wait_event(flushed)
        yield from training.optimizer(th, self.plan)
        yield from training.item(th)

    def _chunk(self, what: str, number: int) -> Steps:
        if what == "F":
            yield from blocks_forward(self.th, self.plan)
        else:
            yield from blocks_backward(self.th, self.plan, number)

    def _receive(self, what: str, peer: int | None) -> Steps:
        if peer is not None:
            arrived = yield from self._transfer(what, "recv", peer, self.rank)
            yield from self.th.wait_event(arrived)

    def _send(self, what: str, peer: int | None) -> Steps:
        if peer is not None:
            yield from self._transfer(what, "send", self.rank, peer)

    def _transfer(self, what: str, side: str, src: int, dst: int) -> Iterator[Signal]:
        """Enqueue one side of a send/recv pair; returns its completion."""
        th, shape, stream = self.th, self.plan.shape, STREAMS[what, side]
        elements = shape.tokens * shape.hidden
        meeting = self.p2p.meet(self.rank, "sendrecv", 2 * elements, f":{src}->{dst}", (src, dst))
        args = training.collective_args(self.p2p, side, elements, meeting.seq)
        args |= {"Src Rank": src, "Dst Rank": dst}
        with (
            th.op(f"c10d::{side}" + ("_" if side == "recv" else ""), "collective"),
            th.op("record_param_comms", "collective", **args),
            th.note(f"nccl:{side} {src}->{dst}", "collective"),
        ):
            if side == "send":
                ready = yield from th.record_event(7)
                yield from th.wait_event(ready, stream)
            op = kernels.nccl("SendRecv", args, meeting)
            yield from th.launch(op, stream=stream, call_ns=6_500, api="cudaLaunchKernelExC")
        return op.done


def blocks_forward(th: Thread, plan: Plan) -> Steps:
    """Blocks of one stage, forward."""
    h = plan.shape.hidden
    for _ in range(plan.shape.layers):
        yield from training.norm(th, plan)
        yield from training.linear(th, plan, 3 * h, h)
        yield from training.attention(th, plan)
        yield from training.linear(th, plan, 4 * h, h)
        yield from training.linear(th, plan, h, 4 * h)


def blocks_backward(th: Thread, plan: Plan, _number: int) -> Steps:
    """Blocks of one stage, backward."""
    h = plan.shape.hidden
    for _ in range(plan.shape.layers):
        yield from training.mm_backward(th, plan, h, 4 * h)
        yield from training.mm_backward(th, plan, 4 * h, h)
        yield from training.attention_backward(th, plan)
        yield from training.mm_backward(th, plan, 3 * h, h)
        yield from training.norm(th, plan, "aten::native_layer_norm_backward")


def build(
    name: str,
    seed: int,
    steps: int,
    microbatches: int,
    layers: list[int],
    *,
    order: str = "1F1B",
    chunks: int = 1,
    late: tuple[int, int, int] | None = None,
    pipelines: int = 1,
) -> Job:
    """Simulate a pipeline with so many layers in a chunk of each stage.

    ``late``: a rank, a step and what that rank's host sleeps in it, ns.
    """
    job = Job(name, seed)
    stages = len(layers)
    everyone = list(range(stages * pipelines))
    world = job.group("0", "default_pg", everyone, alpha_ns=22_000)
    groups = [
        job.group(str(1 + k), "pp", everyone[k * stages :][:stages], alpha_ns=9_000,
                  bytes_per_us=150_000)
        for k in range(pipelines)
    ]  # fmt: skip
    replicas = [
        job.group(str(20 + stage), "dp", everyone[stage::stages])
        for stage in (range(stages) if pipelines > 1 else ())
    ]
    for number in everyone:
        count = layers[number % stages]
        shape = Shape(layers=count, batch=1, vocab=8_192)
        stage = Stage(
            th=job.rank().thread(),
            plan=Plan(shape=shape),
            stages=stages,
            microbatches=microbatches,
            p2p=groups[number // stages],
            replicas=replicas[number % stages] if replicas else None,
            world=world,
            order=order,
            chunks=chunks,
            late=late[1:] if late and late[0] == number else (-1, 0),
        )
        job.stages.append(stage)
        job.engine.spawn(stage.run(steps))
    job.expected = {
        "finding": "pipeline_bubble",
        "ranks": [],
        "pipeline": {
            "p": stages,
            "m": microbatches,
            "schedule": order,
            "layers": layers,
            "structural_share_of_wall": (stages - 1) / (chunks * microbatches + stages - 1),
            "structural_share_of_useful": (stages - 1) / (chunks * microbatches),
        },
    }
    return job


def pipeline_1f1b(steps: int = 5, microbatches: int = 8, layers: int = 1) -> Job:
    """Four equal stages: the bubble is the schedule's own."""
    return build("pipeline_1f1b", 50, steps, microbatches, [layers] * 4)


def pipeline_imbalanced(steps: int = 5, microbatches: int = 8, layers: int = 2) -> Job:
    """Stage 1 has one block more than the others: they wait for it all through the step."""
    stages = [layers, layers + 1, layers, layers]
    job = build("pipeline_imbalanced", 51, steps, microbatches, stages)
    job.expected |= {"finding": "pipeline_imbalance", "ranks": [1], "accept": ["pipeline_bubble"]}
    return job


SCENARIOS = (pipeline_1f1b, pipeline_imbalanced)
