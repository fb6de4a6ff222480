"""What a pipeline's stages truly take, and what its schedule idles: apart from any analyzer.

Chunks are told by the annotation that their kernels were launched in. The end of each task is
found by recursion: after the task before it on its stage, and after what it gets from others.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from statistics import mean, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.host import HostSpan
    from simulator.job import Job
    from simulator.pipeline import Stage

NOTES = {"forward_step": "F", "backward_step": "B"}
Times = dict[str, float]  # F, B: ns


def stage_times(job: Job) -> list[Times]:
    """Return the median device time of a chunk of each rank, from first start to last end."""
    return [_of_rank(proc) for proc in job.run().ranks]


def _of_rank(proc) -> Times:
    chunks: dict[int, list] = defaultdict(list)
    notes: dict[int, HostSpan] = {}
    for op in proc.devices[proc.rank].log:
        note = op.launch and _note(op.launch)
        if note and op.leaf.startswith("compute"):
            chunks[id(note)].append(op)
            notes[id(note)] = note
    took: dict[str, list[int]] = defaultdict(list)
    for key, ops in chunks.items():
        span = max(op.end for op in ops) - min(op.start for op in ops)
        took[NOTES[notes[key].name]].append(span)
    return {what: median(spans) for what, spans in took.items()}


def _note(span: HostSpan) -> HostSpan | None:
    while span and span.name not in NOTES:
        span = span.parent
    return span


def idle(orders: Sequence[Sequence[tuple[str, int]]], times: Sequence[Times]) -> list[float]:
    """Return what each stage idles in a step.

    Args:
        orders: (F or B, chunk) by stage, in the order in which it runs them.
        times: of a chunk, by stage.
    """
    stages = len(orders)
    virtual = stages * (1 + max(chunk for _, chunk in orders[0]))
    tasks: list[list[tuple[str, int, int]]] = []
    for stage, order in enumerate(orders):
        count: dict[tuple[str, int], int] = defaultdict(int)
        tasks.append([])
        for what, chunk in order:
            tasks[-1].append((what, chunk * stages + stage, count[what, chunk]))
            count[what, chunk] += 1
    place = {task: (s, k) for s, mine in enumerate(tasks) for k, task in enumerate(mine)}

    @cache
    def end(task: tuple[str, int, int]) -> float:
        what, where, batch = task
        stage, k = place[task]
        needs = [tasks[stage][k - 1]] if k else []
        if what == "F" and where:
            needs.append(("F", where - 1, batch))
        if what == "B":
            needs.append(("F", where, batch))
            needs += [("B", where + 1, batch)] if where + 1 < virtual else []
        return max(map(end, needs), default=0.0) + times[stage][what]

    length = max(end(mine[-1]) for mine in tasks)
    return [length - sum(times[s][what] for what, _, _ in mine) for s, mine in enumerate(tasks)]


def parts(stages: Sequence[Stage], times: Sequence[Times]) -> tuple[list[float], list[float]]:
    """Return what each stage idles if all are equal, and what it idles more as they are."""
    orders = [list(stage.schedule()) for stage in stages]
    equal = {what: mean(one[what] for one in times) for what in "FB"}
    level = idle(orders, [equal] * len(times))
    measured = idle(orders, times)
    return level, [max(a - b, 0) for a, b in zip(measured, level, strict=True)]
