"""What ``gpudiag doctor`` finds on a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that gpudiag uses where it is there: whether it is, and what that means."""

    id: str
    ok: bool
    found: str  # a version, a path, or why not
    use: str  # what it is for, or what is done without it
