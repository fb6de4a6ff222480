"""One entry of the catalogue of findings and buckets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What there is to know of one finding or bucket."""

    id: str
    kind: str  # finding, bucket
    title: str
    meaning: str
    measured: str
    threshold: str = ""
    min_share: float | None = None
    buckets: tuple[str, ...] = ()
    host_bucket: str | None = None  # stands in where no device activity was recorded
    host_title: str | None = None
    advice: tuple[str, ...] = ()


def at_least(frac: float) -> str:
    """The threshold of a finding that stands from a share of the GPU time on."""
    return f"at least {frac:.0%} of GPU time"
