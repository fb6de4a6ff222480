"""Readers: a file of any known format becomes the columns of ``gpudiag.model.tables``."""

from __future__ import annotations

from gpudiag.trace.job import read_job
from gpudiag.trace.read import read_trace

__all__ = ["read_job", "read_trace"]
