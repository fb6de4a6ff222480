"""One file of any kind: told by content, then read, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpudiag.trace.detect import KINETO, NotATraceError, detect
from gpudiag.trace.kineto import read_kineto
from gpudiag.trace.source import BLOCK_BYTES, open_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudiag.model.tables import Trace
    from gpudiag.trace.source import ByteSource


class Reader(Protocol):
    """Anything that turns the text of one format into columns, such as a faster reader."""

    def __call__(self, source: ByteSource, *, shapes: bool, block_bytes: int) -> Trace:
        """Read the whole source, in blocks of about ``block_bytes``."""


READERS: dict[str, Reader] = {KINETO: read_kineto}


def read_trace(
    path: str, progress: Callable[[int], None] | None = None, *, shapes: bool = True
) -> Trace:
    """Read one trace file; ``-`` is standard input. ``progress`` is told the bytes read so far.

    Without ``shapes`` the table of operator args stays empty, which saves time and memory.
    """
    with open_source(path, progress) as source:
        return read_source(source, shapes=shapes)


def read_source(
    source: ByteSource, *, shapes: bool = True, block_bytes: int = BLOCK_BYTES
) -> Trace:
    """Read an open source with the reader of its format."""
    kind = detect(source.head)
    if kind not in READERS:
        raise NotATraceError(source.path, kind)
    return READERS[kind](source, shapes=shapes, block_bytes=block_bytes)
