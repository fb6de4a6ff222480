"""The terminal report: what it says, and that it fits wherever it is shown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.sample_analysis import (
    CASES,
    LOADER,
    MS,
    across_ranks,
    analysis,
    damaged,
    input_stall,
    rank_result,
    without_device,
)
from report.snapshots import same_as_snapshot
from rich.cells import cell_len

from gpudiag.model.analysis import BlameRow
from gpudiag.model.tables import Quality
from gpudiag.report.describe import describe, describe_brief
from gpudiag.report.terminal import Style, render
from gpudiag.report.terminal.cut import shorten, shorten_all
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


@pytest.mark.parametrize("width", [40, 80, 140])
def test_collectives_show_what_nccl_tests_does_and_the_wait_beside_it(width):
    """Size and wait at any width, bandwidth there or below, the parts where there is room."""
    text = shown(across_ranks(), width, verbose=True)
    words = text.split()
    assert {"all_reduce", "101", "350", "exposed", "n/r", "unsplit"} <= set(words)
    assert "not resolvable" in " ".join(words)
    assert "roles are inferred" in " ".join(words)
    assert ("degraded" in words) == (width == 140)


def test_ring_and_tree_stand_where_latency_is_found_or_asked_for():
    """The fastest protocol of each size, and the alpha that was measured beside it."""
    one = across_ranks()
    without = replace(one, findings=one.findings[:1])
    assert "all_reduce, ring" in shown(one)
    assert "measured alpha: all_reduce 23.4 µs" in shown(one)
    assert "all_reduce, ring" not in shown(without)
    assert "all_reduce, ring" in shown(without, verbose=True)
    assert "120.0" in shown(one)  # LL at 64 ranks, not Simple's 448


@pytest.mark.parametrize("shared", [False, True])
def test_a_culprit_that_changes_from_step_to_step_is_a_shared_limit(shared):
    """A gain is promised only where it is always the same rank."""
    text = " ".join(shown(replace(across_ranks(), waits_shared=shared)).split())
    assert ("changes from step to step" in text) == shared
    assert ("ms a step shorter if rank 3" in text) != shared


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
    assert " 0.0 %" not in text
    assert "host.input" in text
    assert "where the GPU time went" not in text


def test_without_device_records_that_is_said_in_one_line():
    """The sentence, and one line of what to do; not a table's worth, nor three times."""
    quality = [Quality("device_activity_not_recorded", "warning", 1, "no device record")]
    one = replace(without_device(), quality=quality)
    text = shown(one)
    assert text.lower().count("not recorded") == 1
    assert text.split("\n\n")[2] == "No GPU table: record with ProfilerActivity.CUDA to have one."
    assert "device_activity_not_recorded" in shown(one, verbose=True)
    launches = replace(quality[0], message="rank 0: device activity not recorded (9 launch calls)")
    assert "9 launch calls" in shown(replace(one, quality=[launches]))


def test_verbose_shows_each_rank_s_host():
    """Per rank, what the training thread did, in shares and time per step."""
    text = shown(analysis(2), verbose=True)
    said = "rank 1  host.input 46.2 % (60.0 ms/step), host.op 46.2 % (60.0 ms/step), host.other"
    assert said in text.split("host shares of each rank")[1]
    assert "host shares of each rank" not in shown(analysis(1), verbose=True)


def test_ranks_without_any_device_are_shown_by_their_host():
    """A table of "n/a" helps nobody."""
    table = shown(without_device(), verbose=True).split("\nranks\n")[1].split("\n\n")[0]
    assert table.splitlines()[1].split() == "0 650 ms steps 5 130.0 host.input 46.2 %".split()  # noqa: SIM905
    assert "n/a" not in table


def test_ranks_without_a_device_are_named_beside_those_with_one():
    """Mixed jobs: the table is of the devices there are, the rest is said."""
    bare = without_device().ranks[1]
    mixed = replace(analysis(1), ranks=[rank_result(0), bare])
    text = " ".join(shown(mixed, verbose=True).split())
    assert "device activity not recorded on rank 1" in text
    assert "sum = window, to the ns: 5 periods on 1 GPU" in text


def test_steps_are_counted_per_rank():
    """Five steps of two ranks aren't ten steps."""
    assert "5 host steps × 2 ranks, 130 ms each" in shown(without_device())
    assert "5 periods × 8 GPUs" in shown(analysis(8))
    uneven = replace(analysis(2), ranks=[rank_result(0), rank_result(1, periods=4)])
    assert "9 periods on 2 GPUs" in shown(uneven)


def test_utilization_is_kernel_time_without_copies():
    """300 ms of compute and 20 ms of communication in 650 ms; the 10 ms of copies don't count."""
    assert 'nvidia-smi shows about 49.2 % "utilization"' in shown(analysis(1))


@pytest.mark.parametrize(
    ("cause", "host_span", "host_op", "said"),
    [
        ("idle.launch", "my_span", None, "my_span"),
        ("idle.launch", None, "aten::split_with_sizes", "aten::split_with_sizes"),
        ("idle.allocator", None, "cudaFree", "cudaFree"),
        ("idle.unknown", None, None, "nothing recorded"),
        ("idle.launch_latency", None, None, "already enqueued"),
    ],
)
def test_a_gap_names_the_annotation_else_the_operator(cause, host_span, host_op, said):
    """What the host was in, as well as it is known."""
    one = analysis(1)
    changed = replace(one.gap_causes[0], cause=cause, host_span=host_span, host_op=host_op)
    assert said in shown(replace(one, gap_causes=[changed]), 120).split("gaps by cause")[1]


def test_a_wait_is_charged_to_whom_it_was_for():
    """Not to the ranks that waited; the finding that names the cause is named beside it."""
    blamed = BlameRow(
        rank=3,
        host="dgx-018",
        cause="idle.input",
        host_span=LOADER,
        wait_ns=19 * MS,
        affected=[0],
        ambiguous_ns=0,
        guaranteed_gain_ns=MS,
    )
    one = analysis(1)
    buckets = dict(one.job_buckets_ns)
    buckets["comm.wait"] = buckets.pop("comm.unsplit")
    one = replace(one, job_buckets_ns=buckets, findings=[input_stall([3])])
    text = shown(replace(one, blame=[blamed]), 120)
    (row,) = [line.split() for line in text.splitlines() if "comm.wait" in line]
    assert row[-5:] == ["rank", "3,", "idle.input", "◀", "input_stall"]
    small = replace(blamed, wait_ns=9 * MS)
    assert "rank 3, idle.input" not in shown(replace(one, blame=[small]), 120)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_two_places_stay_two_on_narrow_terminals(width):
    """Causes that differ only in file and line are never shown as the same."""
    one = analysis(1)
    places = ("data/loading/corpus.py:31", "data/loading/corpus.py:58")
    causes = [replace(one.gap_causes[0], file_line=place) for place in places]
    table = shown(replace(one, gap_causes=causes), width).split("gaps by cause")[1]
    table = table.split("kernels by time")[0]
    assert table.count("corpus.py:31") == table.count("corpus.py:58") == 1
    assert table.count("DataLoader next") == 2


@pytest.mark.parametrize("width", range(60, 140, 10))
def test_all_tables_have_bars_or_none_has(width):
    """A table without bars beside one with them would look like a difference in the data."""
    text = shown(analysis(1), width, verbose=True)
    device, host = text.split("where the host's time went")
    assert ("█" in device) == ("█" in host.split("gaps by cause")[0])


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_kernels_that_differ_in_the_middle_stay_different(width):
    """The layout of the operands is all that tells these apart."""
    one = analysis(1)
    kernels = [
        replace(
            one.kernels[0],
            name=f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize128x128x64_warpgroupsize"
            "1x1x1_execute_segment_k_off_kernel__5x_cublas",
        )
        for layout in ("nn", "nt", "tn")
    ]
    table = shown(replace(one, kernels=kernels), width).split("kernels by time")[1]
    names = [line.split()[0] for line in table.splitlines()[1:4]]
    assert len(set(names)) == 3
    assert ["_nn_" in names[0], "_nt_" in names[1], "_tn_" in names[2]] == [True] * 3


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


@given(
    st.text(),
    st.integers(1, 60),
    st.sampled_from(["start", "middle", "end", "path", "distinct", "whole"]),
)
def test_shortened_text_fits(text, width, cut):
    """Whatever the text (wide characters too), at most ``width`` cells remain."""
    assert cell_len(shorten(text, width, cut, "…")) <= max(width, 1)


@given(st.lists(st.text(alphabet="ab_/", min_size=20, max_size=60), unique=True, max_size=6))
def test_cut_texts_of_a_column_stay_different(texts):
    """As long as they differ in a stretch that fits: here within the first 20 of 24 cells."""
    named = [f"{'x' * 40}{text[:12]}{'y' * 40}" for text in texts]
    short = shorten_all(named, 40, "distinct", "…")
    assert len(set(short)) == len(set(named))
    assert all(cell_len(text) <= 40 for text in short)


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (20, "a/data/corpus.py:31"),
        (18, "…/corpus.py:31"),
        (14, "…/corpus.py:31"),
        (10, "…pus.py:31"),
    ],
)
def test_paths_lose_whole_folders_from_the_left(width, text):
    """The file and the line are what one looks for."""
    assert shorten("a/data/corpus.py:31", width, "path", "…") == text


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
    entries = [
        Quality("no_device", "warning", 2, "no device", rank, rank % 8) for rank in range(64)
    ]
    text = shown(replace(analysis(2), quality=entries))
    assert "warning  no_device: ranks 0-63: no device\n" in text


def test_what_is_said_a_little_differently_of_ranks_is_one_line_unless_asked_for():
    """Counts that differ by rank: the ranks, one example, and in full with -v."""
    entries = [Quality("overrun", "warning", r, f"{r + 5} records", r) for r in range(8)]
    one = replace(analysis(2), quality=entries)
    text = " ".join(shown(one).split())
    assert "overrun: on ranks 0-7, such as rank 0: 5 records (-v says each)" in text
    assert shown(one, verbose=True).count("overrun") == 8


def test_only_files_meant_as_traces_are_missed():
    """An answer.json or a README beside traces is no fault of the data; -v has the reason."""
    one = analysis(1)
    reason = "a JSON file without traceEvents, which is nothing that could be analysed here"
    answer = replace(one.inputs[0], path="a/answer.json", format="json", status="skipped")
    answer = replace(answer, message=reason, events=None, bytes=None)
    empty = replace(answer, path="a/rank1.json", format="empty", message="an empty file")
    assert "data quality" not in shown(replace(one, inputs=[*one.inputs, answer], quality=[]))
    text = shown(replace(one, inputs=[*one.inputs, empty]))
    assert "skipped  a/rank1.json: an empty file" in text
    verbose = shown(replace(one, inputs=[*one.inputs, answer]), 60, verbose=True)
    assert reason in " ".join(verbose.split())


def test_a_bucket_is_charged_only_to_what_fills_most_of_it():
    """The largest of many small spans is not who is to blame."""
    one = analysis(1)
    small = replace(one.gap_causes[0], total_ns=9 * MS)
    table = shown(replace(one, gap_causes=[small]), 120).split("gaps by cause")[0]
    assert "DataLoader" not in table
    assert "DataLoader" in shown(one, 120).split("gaps by cause")[0]
