"""One file of any kind: told by content, then read, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpudiag.trace.detect import KINETO, NotATraceError, detect
from gpudiag.trace.kineto import read_kineto
from gpudiag.trace.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudiag.model.tables import Trace
    from gpudiag.trace.source import ByteSource


class Reader(Protocol):
    """Anything that turns the text of one format into columns, such as a faster reader."""

    def __call__(self, source: ByteSource, /) -> Trace:
        """Read the whole source."""


READERS: dict[str, Reader] = {KINETO: read_kineto}


def read_trace(path: str, progress: Callable[[int], None] | None = None) -> Trace:
    """Read one trace file; ``-`` is standard input. ``progress`` is told the bytes read so far."""
    with open_source(path, progress) as source:
        return read_source(source)


def read_source(source: ByteSource) -> Trace:
    """Read an open source with the reader of its format."""
    kind = detect(source.head)
    if kind not in READERS:
        raise NotATraceError(source.path, kind)
    return READERS[kind](source)
