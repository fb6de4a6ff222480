"""Pipeline schedules, and the time each stage idles in them when chunks take given times.

A schedule is, for each stage, the order of its chunks: forwards F, backwards B, and for the
zero-bubble kinds weight gradients W, which fill what would be waiting. Messages take no time::

    1F1B, p = 2, m = 3     stage 0  [F0][F1]    [B0 ][F2]    [B1 ]     [B2 ]
                           stage 1      [F0][B0 ][F1][B1 ]   [F2][B2 ]

Sources: GPipe (Huang 2019), 1F1B (PipeDream-Flush, Narayanan 2021), interleaved 1F1B (Narayanan
2021), ZB-H1 and ZB-H2 (Qi 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GPIPE, ONE_F_ONE_B, INTERLEAVED = "gpipe", "1f1b", "interleaved"
ZB_H1, ZB_H2 = "zb-h1", "zb-h2"
SCHEDULES = (GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_H2)
_SPLIT_BACKWARD = frozenset({ZB_H1, ZB_H2})

# ("F" or "B", virtual stage, micro-batch)
Task = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What one micro-batch takes in one chunk of a stage, ns."""

    forward_ns: int
    backward_ns: int

    @property
    def total_ns(self) -> int:
        """Forward and backward."""
        return self.forward_ns + self.backward_ns


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated step; the stages start together and end together, at the flush."""

    length_ns: int
    idle_ns: tuple[int, ...]  # by stage


def simulate(
    schedule: str, stages: Sequence[StageTimes], microbatches: int, chunks: int = 1
) -> Simulated | None:
    """Run one step of a schedule; None where it can't be run with these numbers.

    Args:
        schedule: one of SCHEDULES.
        stages: times of a chunk, by stage.
        microbatches: micro-batches of a step.
        chunks: model chunks of a stage; above 1 for the interleaved schedule only.
    """
    if schedule == INTERLEAVED and microbatches % len(stages):
        return None
    orders = [
        _order(schedule, stage, len(stages), microbatches, chunks) for stage in range(len(stages))
    ]
    return _Run(schedule, stages, orders, len(stages) * chunks).run()


def equalised(stages: Sequence[StageTimes]) -> list[StageTimes]:
    """Return as many stages that all take the mean."""
    forward = round(sum(one.forward_ns for one in stages) / len(stages))
    backward = round(sum(one.backward_ns for one in stages) / len(stages))
    return [StageTimes(forward, backward)] * len(stages)


def _order(schedule: str, stage: int, stages: int, microbatches: int, chunks: int) -> list[Task]:
    """Return a stage's forwards and backwards in the order in which it runs them."""
    total = microbatches * chunks
    warm = {
        GPIPE: total,
        ONE_F_ONE_B: stages - 1 - stage,
        ZB_H1: stages - 1 - stage,
        ZB_H2: 2 * (stages - 1 - stage),
        INTERLEAVED: 2 * (stages - 1 - stage) + (chunks - 1) * stages,
    }[schedule]
    warm = min(warm, total)
    forwards = [_task("F", k, stage, stages, chunks) for k in range(total)]
    backwards = [_task("B", k, stage, stages, chunks) for k in range(total)]
    order = forwards[:warm]
    for forward, backward in zip(forwards[warm:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[total - warm :]


def _task(kind: str, k: int, stage: int, stages: int, chunks: int) -> Task:
    """Return the k-th forward or backward of a stage: chunk by chunk, p micro-batches at a time."""
    if chunks == 1:
        return kind, stage, k
    chunk = k % (stages * chunks) // stages
    chunk = chunk if kind == "F" else chunks - 1 - chunk
    return kind, chunk * stages + stage, k // (stages * chunks) * stages + k % stages


@dataclass(slots=True)
class _Run:
    """One step being run: when each stage is free, and when each task was done."""

    schedule: str
    stages: Sequence[StageTimes]
    orders: list[list[Task]]
    virtual: int  # virtual stages: stages x chunks
    done: dict[Task, int] = field(default_factory=dict)

    def run(self) -> Simulated | None:
        count = len(self.stages)
        free, at, weights = [0] * count, [0] * count, [0] * count
        busy = [0] * count
        while any(at[s] < len(self.orders[s]) for s in range(count)):
            ready = {s: self._ready(s, at[s]) for s in range(count) if at[s] < len(self.orders[s])}
            able = {s: max(free[s], t) for s, t in ready.items() if t is not None}
            if not able:
                return None  # the orders wait for each other
            stage = min(able, key=lambda s: (able[s], s))
            # One that fits by most is begun: schedules don't hang on the last microsecond.
            while weights[stage] and 2 * (able[stage] - free[stage]) >= self._weight(stage) > 0:
                free[stage] += self._weight(stage)
                busy[stage] += self._weight(stage)
                weights[stage] -= 1
            task = self.orders[stage][at[stage]]
            took = self._time(stage, task)
            self.done[task] = free[stage] = max(free[stage], able[stage]) + took
            busy[stage] += took
            at[stage] += 1
            weights[stage] += task[0] == "B" and self.schedule in _SPLIT_BACKWARD
        for stage in range(count):
            left = weights[stage] * self._weight(stage)
            free[stage] += left
            busy[stage] += left
        length = max(free)
        return Simulated(length, tuple(length - one for one in busy))

    def _ready(self, stage: int, position: int) -> int | None:
        """Return when a stage's next task has its inputs; None where they aren't there yet."""
        kind, virtual, batch = self.orders[stage][position]
        if kind == "F":
            needs = [("F", virtual - 1, batch)] if virtual else []
        else:
            needs = [("F", virtual, batch)]
            needs += [("B", virtual + 1, batch)] if virtual + 1 < self.virtual else []
        done: Mapping[Task, int] = self.done
        return (
            None
            if any(one not in done for one in needs)
            else max((done[n] for n in needs), default=0)
        )

    def _time(self, stage: int, task: Task) -> int:
        if task[0] == "F":
            return self.stages[stage].forward_ns
        return self.stages[stage].backward_ns - self._weight(stage)

    def _weight(self, stage: int) -> int:
        """Return the time of a weight gradient: half of a backward, where they are split."""
        return self.stages[stage].backward_ns // 2 if self.schedule in _SPLIT_BACKWARD else 0
