"""Times are exact integer nanoseconds from decimal text."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_tables import kernel, read, span, trace_of

from gpudiag.model.tables import INVALID_TIME
from gpudiag.trace.times import TIME_LIMIT_NS, ns_from_text, ns_from_texts

TEXTS = [
    ("0", 0),
    ("1", 1000),
    ("1.5", 1500),
    ("0.001", 1),
    ("0.0019999", 1),  # digits below 1 ns are cut off, not rounded
    ("12.34499999999999999", 12344),
    ("-2.0005", -2000),
    ("1698955063520869", 1698955063520869000),
    ("1698955063520869.123", 1698955063520869123),  # a float would be off by up to 125 ns
    ("1711964646000000.999999", 1711964646000000999),
    ('"1698955063520869.123"', 1698955063520869123),  # Ascend writes times as strings
    ('" 7.25 "', 7250),
    ("1.7e3", 1700000),
    ("1.69895506352086912E15", 1698955063520869120),
    ("25e-4", 2),
    ("1e-30", 0),
    ("4611686018427387.903", TIME_LIMIT_NS),
    ("4611686018427387.904", INVALID_TIME),
    ("7447000000000000", INVALID_TIME),  # 236 years: damage, seen in production
    ("99999999999999999999999999", INVALID_TIME),
    ("1e400", INVALID_TIME),
    ("null", INVALID_TIME),
    ("NaN", INVALID_TIME),
    ('"N/A"', INVALID_TIME),
    ('""', INVALID_TIME),
    ("", INVALID_TIME),
    ("[1]", INVALID_TIME),
    ("true", INVALID_TIME),
    ("1.2.3", INVALID_TIME),
    (".", INVALID_TIME),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_text_becomes_exact_nanoseconds(text, expected):
    """Each spelling of a time gives the nanoseconds that its digits say."""
    assert ns_from_text(text.encode()) == expected
    assert ns_from_texts([msgspec.Raw(text)]).tolist() == [expected]


def test_one_odd_time_does_not_change_its_neighbours():
    """Times are converted in groups; each is as if it were alone."""
    raws = [msgspec.Raw(text) for text, _ in TEXTS] * 2
    assert ns_from_texts(raws).tolist() == [ns for _, ns in TEXTS] * 2


@given(st.lists(st.decimals(0, 4 * 10**15, places=3) | st.integers(0, 4 * 10**15), min_size=1))
def test_any_mix_of_plain_numbers_is_exact(numbers):
    """Integers and decimals in one group give what exact arithmetic gives."""
    raws = [msgspec.Raw(f"{n:f}" if isinstance(n, Decimal) else str(n)) for n in numbers]
    assert ns_from_texts(raws).tolist() == [int(Decimal(n) * 1000) for n in numbers]


@given(st.decimals(0, 10**6, places=9))
def test_digits_below_a_nanosecond_are_cut_off(number):
    """More than three decimals are truncated."""
    assert ns_from_texts([msgspec.Raw(f"{number:f}")]).tolist() == [int(number * 1000)]


def test_base_time_is_added_wherever_the_writer_put_it():
    """``ts`` + ``baseTimeNanoseconds``, with the base before or after the events."""
    events = [span("cpu_op", "a", 1.5, 2), kernel(ts=4458676758374.138)]
    before = read({"baseTimeNanoseconds": 1711964646000000000} | trace_of(*events))
    after = read(trace_of(*events) | {"baseTimeNanoseconds": 1711964646000000000})
    for trace in (before, after):
        assert trace.host.ts_ns.tolist() == [1711964646000001500]
        assert trace.device.ts_ns.tolist() == [1711964646000000000 + 4458676758374138]
        assert trace.info.base_time_ns == 1711964646000000000


def test_unreadable_times_stay_marked_whatever_the_base():
    """A missing or bad ``ts`` is INVALID_TIME, also after the base was added."""
    text = (
        '{"baseTimeNanoseconds": 1711964646000000000, "traceEvents": ['
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"dur":NaN},'
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"ts":Infinity,"dur":-5},'
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"ts":0,"dur":0}]}'
    )
    trace = read(text)
    assert trace.device.ts_ns.tolist() == [INVALID_TIME, INVALID_TIME, 1711964646000000000]
    assert trace.device.dur_ns.tolist() == [INVALID_TIME, -5000, 0]
    assert [(q.id, q.count) for q in trace.quality] == [("repaired_bare_words", 2)]
    assert not trace.partial


def test_start_plus_duration_never_leaves_int64():
    """Absurd durations (236 years) can't overflow: they count as unreadable."""
    trace = read(trace_of(kernel(ts=1e15, dur=7447000000000000), kernel(ts=4.6e15, dur=4.6e15)))
    ends = [int(t) + int(d) for t, d in zip(trace.device.ts_ns, trace.device.dur_ns, strict=True)]
    assert trace.device.dur_ns.tolist() == [INVALID_TIME, 4600000000000000000]
    assert ends[1] < 2**63
