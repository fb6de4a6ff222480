"""Gzip, streamed: several members, damage and truncation give what was readable, and a note.

The deflate data is inflated without its wrapper and the checksum is computed here, because a
wrong checksum or a missing trailer must not cost the data before it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

try:
    from isal import isal_zlib
except ImportError:  # four times slower, same result
    FAST = False
else:
    FAST = True

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

MAGIC = b"\x1f\x8b"
# Compressed bytes handed over at a time. When one is damaged, its piece is what is lost of the
# readable data before the damage.
PIECE_BYTES = 4096
_HEADER_BYTES = 10
_TRAILER_BYTES = 8
_RAW_DEFLATE = -15  # window bits of zlib: no header, no trailer
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16


class Inflater(Protocol):
    """The part of zlib's decompressor that is used."""

    @property
    def eof(self) -> bool:
        """Whether the end of the deflate stream was reached."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end of the stream."""

    def decompress(self, data: bytes, /) -> bytes:
        """Inflate what can be inflated of ``data``."""


class Zlib(NamedTuple):
    """An implementation of deflate."""

    new: Callable[[], Inflater]
    crc32: Callable[[bytes, int], int]
    errors: tuple[type[Exception], ...]


def fastest_zlib() -> Zlib:
    """Return isal where it is installed, else the standard library's zlib."""
    if FAST:
        return Zlib(
            lambda: isal_zlib.decompressobj(_RAW_DEFLATE),
            isal_zlib.crc32,
            (isal_zlib.error, zlib.error),  # type: ignore[arg-type]  # a class; its stub says object
        )
    return Zlib(lambda: zlib.decompressobj(_RAW_DEFLATE), zlib.crc32, (zlib.error,))


class Gunzip:
    """Iterates over the inflated bytes of gzip data read from ``read``."""

    def __init__(self, read: Callable[[int], bytes], note: Callable[[str, str], None]) -> None:
        self._read = read
        self._note = note
        self._pending = b""
        self._zlib = fastest_zlib()

    def __iter__(self) -> Iterator[bytes]:
        while self._fill(len(MAGIC)) and self._pending.startswith(MAGIC):
            if not self._skip_header():
                self._note("gzip_truncated", "the gzip data ends inside a member's header")
                return
            if not (yield from self._member()):
                return
        if self._pending.strip(b"\0"):  # zero padding after the last member is harmless
            self._note(
                "gzip_trailing", "bytes that are no gzip data follow the gzip data; not read"
            )

    def _fill(self, count: int) -> bool:
        while len(self._pending) < count:
            more = self._read(PIECE_BYTES)
            if not more:
                return False
            self._pending += more
        return True

    def _skip_header(self) -> bool:
        if not self._fill(_HEADER_BYTES):
            return False
        flags, position = self._pending[3], _HEADER_BYTES
        if flags & _FEXTRA:
            if not self._fill(position + 2):
                return False
            position += 2 + struct.unpack_from("<H", self._pending, position)[0]
        for flag in (_FNAME, _FCOMMENT):
            if flags & flag:
                end = self._find_zero(position)
                if end < 0:
                    return False
                position = end + 1
        position += 2 if flags & _FHCRC else 0
        if not self._fill(position):
            return False
        self._pending = self._pending[position:]
        return True

    def _find_zero(self, start: int) -> int:
        while (end := self._pending.find(b"\0", start)) < 0:
            if not self._fill(len(self._pending) + 1):
                return -1
        return end

    def _member(self) -> Generator[bytes, None, bool]:
        """Yield the member's data; return whether another member may follow."""
        inflater, crc, size = self._zlib.new(), 0, 0
        piece, self._pending = self._pending, b""
        while True:
            try:
                data = inflater.decompress(piece) if piece else b""
            except self._zlib.errors as error:
                self._note("gzip_damaged", f"the gzip data is damaged ({error}); the rest is lost")
                return False
            if data:
                crc = self._zlib.crc32(data, crc)
                size += len(data)
                yield data
            if inflater.eof:
                self._pending = inflater.unused_data
                return self._check_trailer(crc, size)
            piece = self._read(PIECE_BYTES)
            if not piece:
                self._note("gzip_truncated", "the gzip data ends early")
                return False

    def _check_trailer(self, crc: int, size: int) -> bool:
        if not self._fill(_TRAILER_BYTES):
            self._note("gzip_truncated", "the gzip checksum is missing")
            return False
        expected = struct.unpack_from("<II", self._pending)
        self._pending = self._pending[_TRAILER_BYTES:]
        if expected != (crc, size & 0xFFFFFFFF):
            self._note("gzip_checksum", "the gzip checksum doesn't match: data was changed or lost")
        return True
