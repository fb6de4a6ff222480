"""The terminal report: what it says, and that it fits wherever it is shown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.sample_analysis import CASES, MS, analysis, damaged, rank_result, without_device
from report.snapshots import same_as_snapshot
from rich.cells import cell_len

from gpudiag.model.tables import Quality
from gpudiag.report.describe import describe, describe_brief
from gpudiag.report.terminal import Style, render
from gpudiag.report.terminal.table import shorten
from gpudiag.report.terminal.wrap import wrap


def shown(one, width=100, *, verbose=False, top=5, **style):
    return render(describe(one, top=top, verbose=verbose), Style(width=width, **style))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("case", CASES)
def test_reports_are_as_they_were(case, width):
    """A change of what people see is seen in review."""
    same_as_snapshot(f"{case}-{width}.txt", shown(CASES[case](), width))


@pytest.mark.parametrize("case", CASES)
def test_other_forms_are_as_they_were(case):
    """The same for -v, --brief, --ascii and colour."""
    one = CASES[case]()
    same_as_snapshot(f"{case}-verbose.txt", shown(one, verbose=True))
    same_as_snapshot(f"{case}-brief.txt", render(describe_brief(one), Style(width=80)))
    same_as_snapshot(f"{case}-ascii.txt", shown(one, ascii=True))


@given(
    case=st.sampled_from(sorted(CASES)),
    width=st.integers(40, 200),
    verbose=st.booleans(),
    ascii_only=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_no_line_is_wider_than_the_terminal(case, width, verbose, ascii_only):
    """Every width from 40 up is kept, in cells, whatever names the trace holds."""
    text = shown(CASES[case](), width, verbose=verbose, ascii=ascii_only)
    assert max(cell_len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [40, 80])
def test_the_sentence_comes_first_and_whole(case, width):
    """Narrow terminals drop columns, never the sentence."""
    one = CASES[case]()
    said = " ".join(shown(one, width).split("\n\n")[0].split())
    assert said == one.headline.replace("\x1b", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_buckets_shares_sum_and_findings_survive_narrow_terminals(width):
    """What is dropped is never a bucket, its share, or that the sum is the window."""
    words = shown(analysis(8), width).split()
    assert {"idle.input", "40.8", "100.0", "input_stall"} <= set(words)
    assert "sum = window, to the ns" in " ".join(words)


def test_a_sum_that_misses_the_window_is_called_a_bug():
    """The claim "to the ns" is checked, not printed."""
    one = analysis(1)
    wrong = replace(one, job_buckets_ns=one.job_buckets_ns | {"idle.unknown": 7})
    assert "sum ≠ window by +7 ns" in shown(wrong)


@pytest.mark.parametrize("case", CASES)
def test_ascii_output_is_ascii(case):
    """Terminals without Unicode see every word and number."""
    assert shown(CASES[case](), verbose=True, ascii=True).isascii()


@pytest.mark.parametrize("case", CASES)
def test_colour_only_repeats_what_words_say(case):
    """Without its colours the coloured report is the plain one."""
    one = CASES[case]()
    colored = shown(one, color=True)
    assert "\x1b[" in colored
    assert _without_colors(colored) == shown(one)


def _without_colors(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_trace_cannot_write_to_the_terminal():
    """Escape sequences in names from the trace are shown, not sent."""
    text = shown(damaged(), verbose=True)
    assert "\x1b" not in text
    assert "\x07" not in text
    text.encode("utf-8")


def test_without_device_records_nothing_is_called_zero():
    """A trace of the host alone says so, and shows what the host did."""
    text = shown(without_device())
    assert "device activity not recorded" in text
    assert " 0.0 %" not in text
    assert "host.input" in text


def test_ranks_without_a_device_are_named_beside_those_with_one():
    """Mixed jobs: the table is of the devices there are, the rest is said."""
    bare = without_device().ranks[1]
    mixed = replace(analysis(1), ranks=[rank_result(0), bare])
    text = " ".join(shown(mixed, verbose=True).split())
    assert "device activity not recorded on rank 1" in text
    assert "sum = window, to the ns: 5 periods on 1 GPU" in text


def test_a_bucket_on_some_ranks_only_names_them():
    """A loss of one rank isn't read as a loss of all."""
    other = dict(rank_result(1).buckets_ns)
    other["idle.launch"] += other.pop("idle.input")
    one = replace(analysis(2), ranks=[rank_result(0), rank_result(1, buckets_ns=other)])
    assert "rank 0 only" in shown(one, 140)


def test_launch_bound_time_is_a_range_where_the_profiler_costs_some():
    """8 ms of 130 less the profiler's 2: 4.6 to 6.2 %."""
    assert "idle.launch is 4.6 to 6.2 %" in shown(analysis(1))
    exact = replace(analysis(1), ranks=[rank_result(0, unrecoverable_ns={})])
    assert "idle.launch is" not in shown(exact)


def test_few_periods_lower_the_confidence_in_words():
    """Under three periods, "low confidence" stands beside the window."""
    one = replace(analysis(1), ranks=[rank_result(0, periods=1, window_ns=130 * MS)])
    assert "few: low confidence" in shown(one)
    assert "low confidence" not in shown(analysis(1))


def test_small_buckets_are_one_row_unless_asked_for():
    """The table stays short; -v has every bucket; both sum to the window."""
    one = analysis(1)
    buckets = dict(one.job_buckets_ns)
    for name in ("idle.gc", "idle.eval"):
        buckets[name] = MS
        buckets["idle.input"] -= MS
    one = replace(one, job_buckets_ns=buckets)
    assert "rest (2 buckets)" in shown(one)
    assert "idle.gc" not in shown(one)
    assert "idle.gc" in shown(one, verbose=True)
    assert "to the ns" in shown(one)


def test_top_limits_the_evidence_and_says_how_much_is_left():
    """--top N shows N rows and how to see the others."""
    text = shown(analysis(1), top=1)
    assert "1 kernel more: --top 2" in text
    assert "1 cause more: --top 2" in text


def test_brief_is_the_sentence_and_three_lines():
    """Short enough for a chat."""
    text = render(describe_brief(analysis(8)), Style(width=100))
    assert len(text.splitlines()) == 1 + 1 + 3


@given(st.text(), st.integers(1, 60), st.sampled_from(["start", "middle", "end"]))
def test_shortened_text_fits(text, width, cut):
    """Whatever the text (wide characters too), at most ``width`` cells remain."""
    assert cell_len(shorten(text, width, cut, "…")) <= max(width, 1)


@given(st.text(alphabet="ab 1é学", max_size=80), st.integers(4, 40))
def test_wrapping_loses_no_word(text, width):
    """Every character but spaces survives, and every line fits."""
    lines = wrap(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_len(line) <= width for line in lines)


def test_a_number_stays_with_its_unit():
    """No line starts with a lonely "ms" or "%"."""
    assert wrap("a window of 650 ms or 40.8 % of it", 15) == [
        "a window of",
        "650 ms or",
        "40.8 % of it",
    ]


def test_the_same_said_of_many_ranks_is_said_once():
    """Data quality of 64 ranks doesn't fill the screen."""
    entries = [Quality("no_device", "warning", 2, f"rank {rank}: no device") for rank in range(64)]
    text = shown(replace(analysis(1), quality=entries))
    assert "no_device (128): ranks 0-63: no device" in text


def test_many_notes_of_one_kind_are_cut_unless_asked_for():
    """What differs by rank is told once, and in full with -v."""
    entries = [Quality("few_periods", "warning", 2, f"rank {r}: device {r}: 2") for r in range(8)]
    one = replace(analysis(1), quality=entries)
    assert "few_periods: 7 more, with -v" in shown(one)
    assert shown(one, verbose=True).count("few_periods") == 8


def test_a_bucket_is_charged_only_to_what_fills_most_of_it():
    """The largest of many small spans is not who is to blame."""
    one = analysis(1)
    small = replace(one.gap_causes[0], total_ns=9 * MS)
    table = shown(replace(one, gap_causes=[small]), 120).split("gaps by cause")[0]
    assert "DataLoader" not in table
    assert "DataLoader" in shown(one, 120).split("gaps by cause")[0]
