"""Bytes of a trace, whatever they are wrapped in: plain, gzip, gzip in gzip, with a BOM, stdin.

Told by content, never by name; streamed, so that memory doesn't grow with the file.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from gpudiag.errors import InputError
from gpudiag.trace.inflate import MAGIC, Gunzip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

STDIN = "-"
UTF8_BOM = b"\xef\xbb\xbf"
BLOCK_BYTES = 1 << 20  # of text; fits the second-level cache together with what is decoded from it
HEAD_BYTES = 1 << 16  # enough to tell any kind of file
_MAX_WRAPPINGS = 3  # gzip in gzip happens; more is a bomb


@dataclass(slots=True)
class Note:
    """Something found wrong with the wrapping of the bytes."""

    id: str
    message: str
    at: int  # bytes of text before it


@dataclass(slots=True)
class ByteSource:
    """A stream of text bytes, with what was noted on the way."""

    path: str
    file: BinaryIO
    notes: list[Note] = field(default_factory=list)
    progress: Callable[[int], None] | None = None  # told the bytes read from the file so far
    text_bytes: int = 0  # handed out so far
    file_bytes: int = 0
    _head: bytes = b""
    _chunks: Iterator[bytes] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        pieces: Iterator[bytes] = iter(lambda: self._read_file(BLOCK_BYTES), b"")
        for _ in range(_MAX_WRAPPINGS):
            pushed = _Pushback(pieces)
            if pushed.peek(len(MAGIC)) != MAGIC:
                pieces = iter(pushed)
                break
            pieces = iter(Gunzip(pushed.read, self._note))
        pushed = _Pushback(pieces)
        if pushed.peek(len(UTF8_BOM)) == UTF8_BOM:
            pushed.read(len(UTF8_BOM))
        self._head = pushed.peek(HEAD_BYTES)
        self._chunks = iter(pushed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if sys.stdin is None or self.file is not sys.stdin.buffer:
            self.file.close()

    @property
    def head(self) -> bytes:
        """The first bytes of the text, up to ``HEAD_BYTES``, for telling what it is."""
        return self._head

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yield the text in blocks of at least ``size`` bytes (the last one may be smaller)."""
        parts: list[bytes] = []
        held = 0
        for chunk in self._chunks:
            parts.append(chunk)
            held += len(chunk)
            self.text_bytes += len(chunk)
            if held >= size:
                yield b"".join(parts)
                parts, held = [], 0
        if parts:
            yield b"".join(parts)

    def _read_file(self, size: int) -> bytes:
        try:
            data = self.file.read(size)
        except OSError as error:
            raise InputError(
                f"{self.path}: reading stopped after {self.file_bytes:,} bytes",
                str(error),
                "Copy the file to a local disk and try again.",
            ) from error
        self.file_bytes += len(data)
        if self.progress is not None:
            self.progress(self.file_bytes)
        return data

    def _note(self, kind: str, message: str) -> None:
        self.notes.append(Note(kind, message, self.text_bytes))


class _Pushback:
    """An iterator of chunks that can be looked into and read by count."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""
        self._start = 0  # of what is held and not yet read

    def peek(self, count: int) -> bytes:
        while len(self._held) - self._start < count:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._held = self._held[self._start :] + chunk
            self._start = 0
        return self._held[self._start : self._start + count]

    def read(self, count: int) -> bytes:
        if self._start == len(self._held):
            self._held, self._start = next(self._chunks, b""), 0
        data = self._held[self._start : self._start + count]
        self._start += len(data)
        return data

    def __iter__(self) -> Iterator[bytes]:
        held, self._held = self._held[self._start :], b""
        self._start = 0
        if held:
            yield held
        yield from self._chunks


def open_source(path: str, progress: Callable[[int], None] | None = None) -> ByteSource:
    """Open a file (``-`` is standard input) as a stream of text bytes."""
    if path == STDIN:
        if sys.stdin is None:
            raise InputError("Standard input is closed", "PATH is -.", "Pipe a trace in.")
        return ByteSource("<stdin>", sys.stdin.buffer, progress=progress)
    try:
        return ByteSource(path, Path(path).open("rb"), progress=progress)
    except OSError as error:
        raise _cannot_open(path, error) from error


def source_of(data: bytes, path: str = "<memory>") -> ByteSource:
    """Return a source over bytes in memory."""
    return ByteSource(path, io.BytesIO(data))


def _cannot_open(path: str, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{path}: no such file", "", "Check the path; quote it if it has spaces.")
    if isinstance(error, PermissionError):
        return InputError(f"{path}: permission denied", "", f"Run: chmod u+r '{path}'")
    if isinstance(error, IsADirectoryError):
        return InputError(
            f"{path}: is a folder, not a file",
            "",
            "Give a file; gpudiag analyze also takes folders.",
        )
    return InputError(f"{path}: can't be opened", str(error), "Check the file and its disk.")
