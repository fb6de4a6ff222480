"""Numbers as text: units, precision, what is missing, what is unsafe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudiag.model import format as fmt


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (52_040_000, "52.0 ms"),
        (412_300_000, "412 ms"),
        (999_600_000, "1.00 s"),
        (1_234_000_000_000, "1,234 s"),
        (-3_500, "-3.50 µs"),
        (None, "n/a"),
    ],
)
def test_durations_have_three_digits_in_the_unit_that_suits(ns, text):
    """A duration reads at a glance, and never as "1000 µs"."""
    assert fmt.duration(ns) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(0.4151, "41.5 %"), (0.0001, "<0.1 %"), (0.0, "0.0 %"), (1.0, "100.0 %"), (None, "n/a")],
)
def test_a_small_share_is_never_printed_as_zero(part, text):
    """0.0 % is said only of nothing at all."""
    assert fmt.share(part) == text


def test_what_is_missing_says_why():
    """A reader learns what to do to have the number."""
    assert fmt.share(None, "needs DCGM") == "n/a (needs DCGM)"
    assert fmt.duration(None, "no step marks") == "n/a (no step marks)"
    assert fmt.count(None) == "n/a"
    assert fmt.size(None) == "n/a"


@pytest.mark.parametrize(
    ("low", "high", "text"), [(0.191, 0.224, "19.1 to 22.4 %"), (0.2, 0.2, "20.0 %")]
)
def test_a_range_without_width_is_one_number(low, high, text):
    """Two bounds that read the same are printed once."""
    assert fmt.share_range(low, high) == text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], "ranks "),
        ([3], "rank 3"),
        ([0, 1, 2, 4, 5, 7], "ranks 0-2, 4-5, 7"),
        (range(0, 64, 2), "ranks 0, 2, 4, 6, 8, 10, … (32 ranks)"),
    ],
)
def test_ranks_are_written_as_runs(numbers, text):
    """Hundreds of ranks fit into a line."""
    assert fmt.rank_list(numbers) == text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(12, "12 B"), (1_500, "1.50 kB"), (21_000_000, "21.0 MB"), (10**15, "1,000 TB")],
)
def test_sizes_are_decimal(n_bytes, text):
    """Sizes use the powers of ten that disks and networks are sold in."""
    assert fmt.size(n_bytes) == text


@pytest.mark.parametrize(
    ("longest_ns", "ns", "text"),
    [
        (130_000_000, 52_040_000, "52.0"),
        (130_000_000, 20_000, "<0.1"),
        (130_000_000, 0, "0.0"),
        (5_000_000, 20_000, "0.020"),
        (500_000, 20_000, "20.0"),
        (60_000_000_000, 1_500_000_000, "1.50"),
    ],
)
def test_a_column_has_one_scale(longest_ns, ns, text):
    """Times in one column compare by eye, and none but nothing reads as zero."""
    assert fmt.Scale.fitting(longest_ns).text(ns) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("void gemm<128, (bool)1>(Params)", "gemm<128, (bool)1>"),
        (
            "at::native::(anonymous namespace)::softmax(float*)",
            "at::native::(anonymous namespace)::softmax",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("f(a)(b)", "f(a)"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("(odd)", "(odd)"),
        ("", ""),
        (")))", ")))"),
    ],
)
def test_a_kernel_is_named_without_its_arguments(name, text):
    """The part that tells kernels apart stays."""
    assert fmt.kernel_name(name) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "DataLoader next"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DataLoader next"),
        ("my_loader.__next__", "my_loader.__next__"),
    ],
)
def test_the_loader_has_a_short_name(span, text):
    """The commonest host span is said as people say it."""
    assert fmt.host_span(span) == text


@given(st.text())
def test_nothing_unsafe_reaches_a_terminal(text):
    """No control character, no lone surrogate, no turn of direction survives."""
    cleaned = fmt.clean(text)
    cleaned.encode("utf-8")
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066" for c in cleaned)


@given(st.text())
def test_ascii_is_ascii(text):
    """Whatever the trace holds, ASCII output is ASCII."""
    assert fmt.to_ascii(text).isascii()


def test_lists_read_as_sentences():
    """The last item is joined by a word."""
    assert [fmt.listed(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("gb_s", "text"),
    [(None, "n/a"), (0.0, "0.00"), (0.001, "<0.01"), (1.06, "1.06"), (29.94, "29.9")],
)
def test_bandwidths_have_three_digits_and_are_never_zero_by_rounding(gb_s, text):
    assert fmt.bandwidth(gb_s) == text


def test_rates_factors_and_whole_percentages():
    assert fmt.tflops(989.4e12) == "989.4 TFLOP/s"
    assert fmt.factor(1.286) == "1.29×"
    assert fmt.percent(0.227) == "23 %"
