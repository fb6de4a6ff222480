"""Peaks and device names: a data file with a source per row, names matched whole."""

from __future__ import annotations

from gpudiag.hardware.device import Ambiguous, Device, Unknown
from gpudiag.hardware.lookup import Hints, lookup, lookup_named
from gpudiag.hardware.sparse import sparse_of
from gpudiag.hardware.table import devices

__all__ = [
    "Ambiguous",
    "Device",
    "Hints",
    "Unknown",
    "devices",
    "lookup",
    "lookup_named",
    "sparse_of",
]
