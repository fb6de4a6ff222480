"""A job: the traces of its ranks, read and told apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudiag.model.analysis import Input
    from gpudiag.model.tables import Quality, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """One rank's trace and how its rank was known."""

    rank: int
    rank_source: str  # "distributedInfo", "file name", "order", "only file"
    host: str | None
    trace: Trace
    tokens_per_step: int | None = None  # as the run's own event log tells it
    samples_per_step: int | None = None  # the same


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTraces:
    """All readable traces of one run of one job, by rank."""

    ranks: list[RankTrace]
    world_size: int | None  # as recorded; None where no file says
    missing_ranks: list[int]
    inputs: list[Input]  # every file that was handed in, also those skipped
    quality: list[Quality] = field(default_factory=list)  # of the set of files, not of one file
