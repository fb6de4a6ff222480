"""One file of any kind: told by content, then read, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.trace.kineto import read_kineto
from gpudiag.trace.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudiag.model.tables import Trace


def read_trace(path: str, progress: Callable[[int], None] | None = None) -> Trace:
    """Read one trace file; ``-`` is standard input. ``progress`` is told the bytes read so far."""
    with open_source(path, progress) as source:
        return read_kineto(source)
