"""Buckets of an analysis beside those of the simulator's truth, which splits no pipeline off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

POOL = "the pipeline's pool"


def pipelines_joined(
    mine: Mapping[str, int], theirs: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return both with what a pipeline may have taken from joined, where a pipeline was found.

    The truth of pipeline.* itself is held by test_pipeline.py.
    """
    if not any(name.startswith("pipeline.") for name in mine):
        return dict(mine), dict(theirs)
    return _joined(mine), _joined(theirs)


def _joined(buckets: Mapping[str, int]) -> dict[str, int]:
    joined: Counter[str] = Counter()
    for name, ns in buckets.items():
        taken = name.startswith("pipeline.") or name in ("comm.wait", "comm.transfer")
        joined[POOL if taken else name] += ns
    return dict(joined)
