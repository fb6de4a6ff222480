"""Who delayed a step of a pipeline: the stage that worked longer in it than it usually does.

Stages do different work at different times, so they can't be compared with each other, as the
members of a data-parallel group can. Each is compared with itself: what it spent on a leaf in one
step, over its own median of all steps. A stage that is slow in every step is an imbalance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.comm.timeline import Timeline
from gpudiag.analyze.window import Window
from gpudiag.model import thresholds

Cause = tuple[int, str]  # rank, leaf


@dataclass(frozen=True, slots=True)
class Delays:
    """What every stage spent more in each step than usual, and whose waits that explains."""

    chains: Mapping[int, tuple[int, ...]]  # rank -> all ranks of its pipeline
    owners: Mapping[int, frozenset[int]]  # rank -> matched collectives that are the pipeline's
    edges: Mapping[int, tuple[int, ...]]  # rank -> of the periods of its window
    excess: Mapping[int, list[dict[str, int]]]  # rank -> by step, leaf: ns
    unclear: frozenset[int] = frozenset()  # ranks with messages whose pipeline isn't told

    def step(self, rank: int, at: int) -> int:
        """Return the period that holds a time of the rank's own clock; -1 for none."""
        edges = self.edges[rank]
        index = int(np.searchsorted(edges, at, side="right")) - 1
        return index if 0 <= index < len(edges) - 1 else -1

    def causes(self, rank: int, step: int) -> dict[Cause, int]:
        """Return what other stages of a rank's pipeline spent more in a step than usual, ns."""
        if step < 0:
            return {}
        return {
            (other, leaf): ns
            for other in self.chains[rank]
            if other != rank and step < len(self.excess.get(other, ()))
            for leaf, ns in self.excess[other][step].items()
        }


NO_DELAYS = Delays({}, {}, {}, {})


def excess_by_step(timeline: Timeline, window: Window) -> list[dict[str, int]]:
    """Return by step what each leaf took more than its median, where the stage was delayed.

    Fewer steps than thresholds.FEW_PERIODS have no usual.
    """
    edges = np.array(window.edges, dtype=np.int64)
    if window.periods < thresholds.FEW_PERIODS:
        return []
    took = timeline.between(edges[:-1], edges[1:])
    total = np.sum(list(took.values()), axis=0) if took else np.zeros(window.periods, np.int64)
    usual = np.median(total)
    found: list[dict[str, int]] = []
    for step in range(window.periods):
        late = total[step] - usual
        if late < thresholds.DELAYED_FRAC * usual:
            found.append({})
            continue
        over = {leaf: int(ns[step] - np.median(ns)) for leaf, ns in took.items()}
        found.append({leaf: ns for leaf, ns in over.items() if ns > 0})
    return found
