"""Whether waits have a late rank behind them, or a limit that all ranks share (accounting.md 6)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from gpudiag.model import thresholds


def culprit_changes(matrix: Mapping[str, Sequence[int]]) -> bool:
    """Tell whether who is waited for changes from step to step: no rank is slow, all share it.

    Of each step, the rank that waits least is waited for, by as much as the one that waits most;
    the entropy of that over ranks is held against the highest that so many steps can have.

    Args:
        matrix: waits of every step, ns, by rank.
    """
    steps = min((len(waits) for waits in matrix.values()), default=0)
    if steps < thresholds.FEW_PERIODS or len(matrix) < 2:  # noqa: PLR2004 - nobody to change with
        return False
    weights: Counter[str] = Counter()
    for step in range(steps):
        waits = {rank: mine[step] for rank, mine in matrix.items()}
        weights[min(waits, key=waits.__getitem__)] += max(waits.values())
    shares = [ns / weights.total() for ns in weights.values() if ns]
    entropy = -sum(share * math.log(share) for share in shares)
    return entropy > thresholds.CHANGING_CULPRIT * math.log(min(len(matrix), steps))
