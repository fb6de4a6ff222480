"""The tables depend on the events alone: not on layout, nor on where blocks end."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_tables import SHARED, kernel, read, span, tables, trace_of

NAMES = st.text(max_size=12) | st.sampled_from(
    ['a "quoted" name', "}, {", '"},{"ph":', "[x]", "\\"]
)
TIMES = st.integers(0, 10**6) | st.floats(0, 10**6).map(lambda f: round(f, 3))
NESTED = st.sampled_from([{}, {"l": [{"ph": "X"}, {"name": "a"}]}, {"Input Dims": [[1, 2], []]}])


@st.composite
def events(draw):
    """Return a row of any of a few kinds."""
    kind = draw(st.integers(0, 4))
    name, ts, dur = draw(NAMES), draw(TIMES), draw(TIMES)
    number = draw(st.integers(0, 2**66))
    if kind == 0:
        return kernel(name, ts, dur, correlation=number, **draw(NESTED))
    if kind == 1:
        return span("cpu_op", name, ts, dur, args={"External id": number} | draw(NESTED))
    if kind == 2:
        return span("cuda_runtime", name, ts, dur, tid=number % 5, args={"correlation": number})
    if kind == 3:
        return {"ph": "f", "id": number, "pid": 0, "tid": 7, "ts": ts, "cat": "ac2g", "bp": "e"}
    return draw(st.sampled_from([{}, {"name": "thread_name", "ph": "M", "pid": 100, "tid": 100,
                                      "args": {"name": name}}]))  # fmt: skip


METADATA = {"distributedInfo": {"rank": 1, "world_size": 2}, "traceName": "x],[y"}


def layouts(rows):
    """Return the same trace in every layout seen in the wild."""
    head, tail = {"schemaVersion": 1, "baseTimeNanoseconds": 10**18}, METADATA
    before = head | tail | {"traceEvents": rows}
    after = {"traceEvents": rows} | tail | head
    yield json.dumps(before)
    yield json.dumps(before, separators=(",", ":"))
    yield json.dumps(before, indent=2)
    yield json.dumps(before, indent="\t").replace("\n", "\r\n")
    yield json.dumps(before, ensure_ascii=False, indent=1)
    yield json.dumps(after)
    yield json.dumps(after, indent=4)
    yield json.dumps({k: after[k] for k in ("schemaVersion", "traceEvents", *tail)} | after)


@settings(max_examples=60, deadline=None)
@given(st.lists(events(), min_size=1, max_size=25), st.integers(64, 4096))
def test_layout_and_block_size_change_nothing(rows, block_bytes):
    """Compact, indented, CRLF, metadata first or last, blocks of any size: identical tables."""
    rows = [kernel(), *rows]
    expected = None
    for text in layouts(rows):
        for size in (block_bytes, 1 << 20):
            trace = read(text.encode("utf-8", "surrogatepass"), block_bytes=size)
            expected = expected or tables(trace)
            assert tables(trace) == expected
            assert not trace.quality


@settings(max_examples=30, deadline=None)
@given(st.lists(events(), min_size=1, max_size=25))
def test_a_bare_list_holds_the_same_rows(rows):
    """The list form has no metadata, and the same tables."""
    rows = [kernel(), *rows]
    as_list, as_object = tables(read(rows)), tables(read(trace_of(*rows)))
    assert as_list == as_object


@pytest.mark.parametrize("block_bytes", [64, 65, 127, 500, 1000, 2048, 4096])
def test_block_boundaries_fall_anywhere(block_bytes):
    """Blocks from 64 bytes up give the tables of one block, whatever they cut."""
    rows = [kernel(f'k{i} }}, {{ "ph', ts=i * 1.001, **{"Collective name": "x"}) for i in range(40)]
    rows += [span("cpu_op", f"é{i}", i, 1, args={"Input Dims": [[i]]}) for i in range(40)]
    text = json.dumps(trace_of(*rows), indent=1, ensure_ascii=False).encode()
    assert tables(read(text, block_bytes=block_bytes)) == tables(read(text))


@pytest.mark.needs("shared")
@pytest.mark.parametrize("block_bytes", [64, 512, 4096])
@pytest.mark.parametrize(
    "name",
    [
        "cases/inputs/C01_windows_backslash.json",
        "cases/inputs/C03_control_char.json",
        "traces/kt-kineto-h100-toy-before-after/after_fix_trace.json",
        "traces/kt-tracelens-small-mi300/trace.json.gz",
        "traces/kt-hta-mi250-rocm62/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    ],
)
def test_real_traces_are_the_same_in_any_block_size(name, block_bytes):
    """Real and damaged files, in small blocks and in large ones."""
    data = (SHARED / name).read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    small, large = read(data, block_bytes=block_bytes), read(data)
    assert tables(small) == tables(large)
    assert small.quality == large.quality
