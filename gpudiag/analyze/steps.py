"""Step marks of one trace: ``ProfilerStep#N`` spans, each with a number of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.names import distinct, step_number
from gpudiag.model.tables import I32, I64

# Steps of a second run in one file count on from here, a third's from twice that: the same on
# every rank, whichever steps it recorded.
REPEATED_FROM = 10**9


@dataclass(frozen=True, slots=True)
class Step:
    """A ``ProfilerStep#N`` span on the host, ns."""

    number: int
    start: int
    end: int
    thread: int


def find_steps(
    strings: Sequence[str], starts: I64, ends: I64, name: I32, thread: I32
) -> tuple[list[Step], int]:
    """Return the step spans in order of their numbers, and how many repeat a number.

    A span that begins after all others of its number have ended is a step of a further run in the
    same file. One that overlaps is the same step, recorded again: the earliest stands for it.
    Spans are given in order of their starts.
    """
    numbers = {
        int(code): number
        for code in distinct(name)
        if (number := step_number(strings[code])) is not None
    }
    steps: dict[int, Step] = {}
    runs: dict[int, tuple[int, int]] = {}  # number -> times seen, end of the last
    for row in np.flatnonzero(np.isin(name, list(numbers))):
        number, start, end = numbers[int(name[row])], int(starts[row]), int(ends[row])
        seen, until = runs.get(number, (0, start))
        if start < until or (seen and end == start):
            continue
        runs[number] = (seen + 1, end)
        own = number + seen * REPEATED_FROM
        steps.setdefault(own, Step(own, start, end, int(thread[row])))
    repeated = sum(seen - 1 for seen, _ in runs.values())
    return [steps[number] for number in sorted(steps)], repeated
