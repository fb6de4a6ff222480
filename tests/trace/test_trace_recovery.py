"""Damaged JSON: what can be read is read, what is lost is counted and placed, nothing crashes.

The rules are those of docs/reference/recovery.md.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_tables import decoded, kernel, read, span, trace_of

from gpudiag.errors import InputError
from gpudiag.trace import read_trace
from gpudiag.trace.events import EVENTS
from gpudiag.trace.repair import repair, requote

GOOD = json.dumps(kernel("good"))


def event(name):
    """Return an event's text with its name spliced in unescaped."""
    return GOOD.encode().replace(b'"good"', b'"' + name + b'"')


def with_arg(value):
    """Return an event's text with one more arg, spliced in as it is."""
    return GOOD.replace("1}}", f'1, "x": {value}}}}}').encode()


def trace_text(*events):
    """Return a trace with sound events around the given texts."""
    return (
        b'{"schemaVersion": 1, "traceEvents": ['
        + b",\n".join([GOOD.encode(), *events, GOOD.encode()])
        + b'], "traceName": "x"}'
    )


REPAIRED = [
    # raw name, name read, quality, count
    (rb"torch\cuda\__init__.py", r"torch\cuda\__init__.py", "repaired_escapes", 2),
    (rb"torch\nn\modules\x.py", r"torch\nn\modules\x.py", "repaired_escapes", 2),
    (rb"torch\utils\data.py", r"torch\utils\data.py", "repaired_escapes", 2),
    (rb"C:\\ok\\fine", r"C:\ok\fine", None, 0),
    (b"config.py(0): \x01\x02", "config.py(0): \x01\x02", "repaired_control_chars", 2),
    (b"two\nlines", "two\nlines", "repaired_control_chars", 1),
    (b"caf\xe9 \xff", "caf\ufffd \ufffd", "repaired_utf8", 2),
    (rb"lone \ud800 surrogate", "lone \ufffd surrogate", "repaired_escapes", 1),
    (rb"a pair \ud83d\ude00", "a pair \U0001f600", None, 0),
    (b'{"device": "cpu", "n": 1}(12): run', '{"device": "cpu", "n": 1}(12): run',
     "repaired_quotes", 1),
    (b'a "b", "c": d\nnext', 'a "b", "c": d\nnext', "repaired_quotes", 1),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "name", "quality", "count"), REPAIRED)
def test_names_that_are_no_json_are_read_as_written(raw, name, quality, count):
    """Escapes, control characters, encodings, quotes in names: nothing is lost, all is counted."""
    trace = read(trace_text(event(raw)))
    assert decoded(trace, trace.device.name) == ["good", name, "good"]
    assert not trace.partial
    found = {q.id: q.count for q in trace.quality}
    assert found.get(quality, 0) == count
    if quality == "repaired_utf8":
        assert [q.severity for q in trace.quality] == ["warning"]


@pytest.mark.parametrize(
    "value", ["N/A", "nan", "NaN", "Infinity", "-Infinity", "None", "1.2.3", "+1"]
)
def test_values_that_are_no_json_are_missing(value):
    """A bare word is read as missing; the event stays."""
    trace = read(trace_text(with_arg(value)))
    assert len(trace.device) == 3
    assert [q.id for q in trace.quality] == ["repaired_bare_words"]
    assert not trace.partial


@pytest.mark.parametrize("end", [b"],", b",],", b" , , ]\n,", b",\n\n]  ,"])
def test_superfluous_commas_are_ignored(end):
    """Trailing and doubled commas cost nothing."""
    text = trace_text(GOOD.replace("}}", ", }}").encode()).replace(b"],", end)
    trace = read(text)
    assert len(trace.device) == 3
    assert not trace.partial


LOST = [
    b'{"ph": "X", "cat": "kernel", "name": broken "quote, "ts": 1, "dur": 2}',
    b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"a": "b" "c"}}',
    b'{"ph": "X", "name": {"an": "object"}, "ts": 1, "dur": 2}',
    b'{"ph": "X", "cat": "kernel" "name": "k", "ts": 1, "dur": 2}',
    b'{"ph": "X", "cat": "kernel", "name": "k", "args": {"x": '
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}}",
    b'{"ph": "X", "cat": "kernel", "name": "unterminated, "ts": 1 }',
    b"junk",
    b'"a string"',
    b"null",
]


@pytest.mark.parametrize("text", LOST)
def test_an_event_beyond_repair_costs_itself_only(text):
    """The events around a broken one are read; it is counted, with byte and line."""
    trace = read(trace_text(event(b"first"), text, event(b"last")))
    names = decoded(trace, trace.device.name)
    assert names[:2] + names[-2:] == ["good", "first", "last", "good"]
    assert trace.partial
    lost = next(q for q in trace.quality if q.id == "events_lost")
    assert lost.count >= 1
    assert "byte" in lost.message


def test_losses_are_placed_by_byte_and_line(tmp_path):
    """The message gives the byte and, for a file, the line of the first loss."""
    text = trace_text(event(b"a"), b"junk")
    path = tmp_path / "a.json"
    path.write_bytes(text)
    message = next(q.message for q in read_trace(str(path)).quality if q.id == "events_lost")
    assert f"byte {text.index(b'junk'):,} (line 3)" in message


@pytest.mark.parametrize("where", ["inside an event", "after an event", "after a comma"])
def test_a_truncated_file_gives_the_events_before_the_cut(where):
    """Cut off anywhere: whole events are kept, and the message says how many and where."""
    text = trace_text(event(b"a"), event(b"b"))
    start = text.index(b'"b"')
    cut = {
        "inside an event": start + 20,
        "after an event": text.index(b"}}", start) + 2,
        "after a comma": text.index(b"}}", start) + 3,
    }[where]
    trace = read(text[:cut])
    assert decoded(trace, trace.device.name) == ["good", "a"] + ["b"] * (where != "inside an event")
    assert trace.partial
    assert [q.id for q in trace.quality] == ["truncated"]
    assert f"{len(trace.device)} events before it were read" in trace.quality[0].message


def test_a_trace_cut_off_in_its_metadata_keeps_what_can_be_read():
    """Metadata after the events that is cut off: its whole values count."""
    tail = b', "baseTimeNanoseconds": 5000, "host_name": "n1", "distributedInfo": {"rank": 3, "wor'
    trace = read(b'{"schemaVersion": 1, "traceEvents": [' + GOOD.encode() + b"]" + tail)
    assert (trace.info.base_time_ns, trace.info.host, trace.info.rank) == (5000, "n1", None)
    assert [q.id for q in trace.quality] == ["metadata_lost"]
    assert trace.partial


def test_metadata_with_bad_characters_is_repaired():
    """Windows paths and control characters in metadata cost nothing."""
    text = (
        b'{"traceName": "C:\\logs\\x", "distributedInfo": {"rank": 2}, "traceEvents": ['
        + GOOD.encode()
    )
    assert read(text + b"]}").info.rank == 2


def test_a_broken_quote_before_the_events_does_not_hide_them():
    """Damaged metadata costs metadata, however long the trace."""
    rows = b",".join([GOOD.encode()] * 40_000)  # beyond where the strict search for events ends
    trace = read(b'{"schemaVersion": 1, "host"_name": "x", "traceEvents": [' + rows + b"]}")
    assert len(trace.device) == 40_000
    assert [q.id for q in trace.quality] == ["metadata_lost"]


def test_nested_objects_in_args_are_no_event_boundary():
    """A list of objects in args looks like a boundary: the event is read whole all the same."""
    nested = {"list": [{"ph": "X", "cat": "kernel"}, {"name": "y", "ts": 1}], "more": {"name": "z"}}
    rows = [kernel(f"k{i}", **nested) for i in range(50)]
    for block in (64, 300, 5000, 1 << 20):
        trace = read(trace_of(*rows), block_bytes=block)
        assert len(trace.device) == 50
        assert not trace.quality


def test_an_endless_string_does_not_take_the_rest_with_it():
    """A quote that is never closed costs its own event; millions of bytes after it are read."""
    rows = [event(b"k%d" % i) for i in range(3000)]
    rows[5] = GOOD.encode().replace(b'"good"', b'"open')
    trace = read(trace_text(*rows))
    assert len(trace.device) == 3001
    assert [(q.id, q.count) for q in trace.quality] == [("events_lost", 1)]


def test_a_trace_without_spans_is_refused():
    """Metadata only, or no events at all: nothing to analyse, said in one line."""
    for text in (
        '{"schemaVersion": 1, "traceEvents": []}',
        '{"schemaVersion": 1, "traceEvents": [',
    ):
        with pytest.raises(InputError, match="holds no spans"):
            read(text)
    with pytest.raises(InputError, match="no traceEvents"):
        read('{"schemaVersion": 1, "deviceProperties": [')


def test_a_legacy_list_with_unquoted_keys_is_refused_with_the_place():
    """The old writer's file without quotes around keys holds nothing readable: where it broke."""
    text = '[{name: "add", ph: "X", ts: 1, dur: 2}, {name: "add", ph: "X", ts: 3, dur: 2}]'
    with pytest.raises(InputError, match="holds no spans") as error:
        read(text)
    assert "the first at byte 1" in error.value.why


def test_pickles_and_code_are_never_run():
    """Text that would be code to eval is a missing value."""
    trace = read(trace_text(with_arg('__import__("os")')))
    assert trace.partial


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.integers(-(2**70), 2**70),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_sound_json_needs_no_repair(value, ascii_only, indent):
    """Repairing JSON changes nothing and counts nothing."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode(
        "utf-8", "surrogatepass"
    )
    try:
        text.decode()
        EVENTS.decode(b'[{"ph":"i","v":' + text + b"}]")
    except ValueError:  # lone surrogates: no JSON for the decoder either
        return
    assert repair(text) == (text, {})


@given(st.binary(max_size=60))
def test_what_was_repaired_needs_no_repair(data):
    """Repairing twice gives what repairing once gives."""
    once, _ = repair(b'{"a": "' + data + b'"}')
    assert repair(once)[0] == once


def test_requoting_sound_names_changes_nothing():
    """Escaped quotes in a name are left alone."""
    assert requote(json.dumps(kernel('a "quoted" name')).encode()) is None
    assert requote(json.dumps(span("cpu_op", "a", 1, 2)).encode()) is None


@pytest.mark.parametrize("block_bytes", [1 << 16, 3 << 20, 1 << 24])
def test_megabytes_without_an_event_are_one_loss_after_another(block_bytes):
    """A stretch of damage longer than any event is left out in bounded memory."""
    text = trace_text(event(b"a"), b"x" * (20 << 20), event(b"b"))
    trace = read(text, block_bytes=block_bytes)
    assert decoded(trace, trace.device.name) == ["good", "a", "b", "good"]
    assert [(q.id, q.count) for q in trace.quality] == [("events_lost", 3)]
