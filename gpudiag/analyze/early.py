"""How far a device's clock is early, told by its records that start before their launch."""

from __future__ import annotations

import numpy as np

from gpudiag.model import thresholds
from gpudiag.model.tables import I64, Mask


def offset_of(delay: I64) -> tuple[int, Mask]:
    """Return δ (accounting.md 1), and the mask of records whose start is wrong and bounds nothing.

    δ = max(0, -min delay): no kernel starts before its launch. A clock that is early makes many
    records early, by amounts that agree. So a record that is early by more than clocks jitter, by
    an amount that no other comes near, is a damaged one, as long as these are few: then the
    minimum is that of the rest.

    Args:
        delay: device start less launch start of each linked record, ns, shape (n,).
    """
    wrong = np.zeros(len(delay), dtype=bool)
    if not len(delay):
        return 0, wrong
    most = max(1, int(thresholds.FEW_EARLY_FRAC * len(delay)))
    order = np.argsort(delay, kind="stable")[: most + 2]
    lowest = delay[order]
    alone = _alone(lowest[:-1], lowest[1:])
    count = len(alone) if alone.all() else int(alone.argmin())
    if count > most:
        count = 0  # more are early than single records would be
    wrong[order[:count]] = True
    return max(0, -int(lowest[count])), wrong


def _alone(delay: I64, following: I64) -> Mask:
    """Mask delays that no clock makes, and that the next higher one doesn't come near."""
    near = np.maximum(thresholds.LAUNCH_LATENCY_NS, -delay * thresholds.AGREEING_FRAC)
    mask: Mask = (delay < -thresholds.CLOCK_JITTER_NS) & (following - delay > near)
    return mask
