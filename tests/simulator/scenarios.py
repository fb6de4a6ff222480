"""The scenarios by name: each is a short function that returns a job ready to run."""

from __future__ import annotations

from collections.abc import Callable

from simulator import multi, pipeline, single, special
from simulator.job import Job

ALL: dict[str, Callable[..., Job]] = {
    f.__name__: f for module in (single, special, multi, pipeline) for f in module.SCENARIOS
}


def build(name: str, **params: object) -> Job:
    """Return the job of a scenario; `params` scale it (steps, layers, ...)."""
    job = ALL[name](**params)
    job.params = params
    return job


def names() -> list[str]:
    """Return the names of all scenarios."""
    return list(ALL)
