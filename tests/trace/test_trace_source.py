"""Bytes are read whatever they are wrapped in; damage to the wrapping costs only what it hit."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import sys
import zlib

import pytest
from trace_tables import kernel, read, tables, trace_of

from gpudiag.errors import InputError
from gpudiag.trace import inflate, read_trace
from gpudiag.trace.source import source_of

TRACE = trace_of(*(kernel(f"k{i}", ts=i) for i in range(2000)))
TEXT = json.dumps(TRACE).encode()
GZ = gzip.compress(TEXT)
HALF = len(TEXT) // 2
WHOLE = {
    "plain": TEXT,
    "gzip": GZ,
    "two members": gzip.compress(TEXT[:HALF]) + gzip.compress(TEXT[HALF:]),
    "gzip in gzip": gzip.compress(GZ),
    "byte order mark": b"\xef\xbb\xbf" + TEXT,
    "byte order mark in gzip": gzip.compress(b"\xef\xbb\xbf" + TEXT),
    "zero padding": GZ + b"\0" * 512,
    "leading white space": b"\n \t" + TEXT,
}


def named_gzip():
    """Return gzip data with every optional header field."""
    header = (
        b"\x1f\x8b\x08\x1e" + b"\0" * 6 + b"\x03\x00abc" + b"name.json\0" + b"comment\0" + b"\0\0"
    )
    return header + GZ[10:]


@pytest.fixture(params=[True, False], ids=["isal", "zlib"])
def each_zlib(request, monkeypatch):
    """Run with the fast inflater, and without it."""
    if request.param and not inflate.FAST:
        pytest.skip("needs isal")
    monkeypatch.setattr(inflate, "FAST", request.param)


@pytest.mark.usefixtures("each_zlib")
@pytest.mark.parametrize("data", [*WHOLE.values(), named_gzip()], ids=[*WHOLE, "all header fields"])
def test_wrapping_does_not_change_the_trace(data):
    """Plain, gzip, several members, gzip twice, BOM, padding: the same tables and no complaint."""
    trace = read(data)
    assert tables(trace) == tables(read(TEXT))
    assert not trace.quality


@pytest.mark.usefixtures("each_zlib")
@pytest.mark.parametrize("cut", [0.3, 0.6, 0.95])
def test_truncated_gzip_gives_the_events_before_the_cut(cut):
    """A gzip file cut off: whole events are kept, the trace is partial, and both are said."""
    trace = read(GZ[: int(len(GZ) * cut)])
    assert 0 < len(trace.device) < 2000
    assert trace.partial
    assert [q.id for q in trace.quality] == ["gzip_truncated", "truncated"]
    assert trace.strings[trace.device.name[-1]] == f"k{len(trace.device) - 1}"


@pytest.mark.usefixtures("each_zlib")
def test_gzip_without_its_trailer_is_said_to_be_truncated():
    """All events are there, but nothing vouches for them."""
    trace = read(GZ[:-6])
    assert (len(trace.device), trace.partial) == (2000, True)
    assert [q.id for q in trace.quality] == ["gzip_truncated"]


@pytest.mark.usefixtures("each_zlib")
def test_wrong_checksum_is_said_and_the_data_is_kept():
    """A checksum that doesn't match makes the trace partial: something was changed."""
    data = bytearray(GZ)
    data[-8] ^= 1
    trace = read(bytes(data))
    assert (len(trace.device), trace.partial) == (2000, True)
    assert [q.id for q in trace.quality] == ["gzip_checksum"]


@pytest.mark.usefixtures("each_zlib")
def test_damaged_deflate_data_gives_what_was_before():
    """A damaged byte in the middle: what was inflated before it counts."""
    raw = zlib.compress(TEXT, 0, wbits=31)  # stored blocks: damage is found where it is
    data = bytearray(raw)
    data[65_000 + 30 :] = b"\xff" * 100
    trace = read(bytes(data))
    assert 0 < len(trace.device) < 2000
    assert trace.partial


def test_other_bytes_after_gzip_are_said():
    """Bytes that are no gzip member after the last one are not read, and that is said."""
    trace = read(GZ + b"more")
    assert len(trace.device) == 2000
    assert [q.id for q in trace.quality] == ["gzip_trailing"]


def test_gzip_around_gzip_without_end_is_refused():
    """Wrapping is followed three times, no further."""
    data = TEXT
    for _ in range(5):
        data = gzip.compress(data)
    with pytest.raises(InputError, match="binary"):
        read(data)


def test_only_a_gzip_header():
    """A gzip file of a few bytes holds nothing."""
    with pytest.raises(InputError, match="empty"):
        read(b"\x1f\x8b\x08")


def test_other_compressions_are_named():
    """bzip2 isn't read; the message says how to unpack it."""
    with pytest.raises(InputError) as error:
        read(bz2.compress(TEXT))
    assert "bunzip2" in error.value.fix


def test_standard_input(monkeypatch):
    """``-`` reads standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GZ)))
    assert len(read_trace("-").device) == 2000


def test_progress_is_told_the_bytes_of_the_file(tmp_path):
    """Progress counts compressed bytes, up to the file's size."""
    path = tmp_path / "a.json.gz"
    path.write_bytes(GZ)
    seen = []
    read_trace(str(path), seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(GZ)


@pytest.mark.parametrize(
    ("name", "message"), [("missing.json", "no such file"), (".", "is a folder, not a file")]
)
def test_what_cannot_be_opened_is_an_input_error(tmp_path, name, message):
    """Missing files and folders give one line that says so."""
    with pytest.raises(InputError, match=message):
        read_trace(str(tmp_path / name))


def test_permission_denied_says_what_to_do(monkeypatch):
    """A file that may not be read: the command to allow it."""

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(InputError, match="permission denied") as error:
        read_trace("a.json")
    assert "chmod" in error.value.fix


def test_a_disk_error_while_reading_is_an_input_error():
    """An I/O error in mid-file says how far it got."""

    class Broken(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

    source = source_of(b"")
    source.file = Broken()
    with pytest.raises(InputError, match="reading stopped"):
        source._read_file(10)  # noqa: SLF001 the seam where the disk fails
