"""What holds on every input, whatever stands in the trace (accounting.md 8)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyze.traces import Span, Work, annotation, call, job, trace
from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.model.tables import DeviceKind, HostCategory

KERNELS = ("ampere_sgemm_128x32_tn", "elementwise_kernel", "ncclDevKernel_AllReduce_Sum_f32")
COPIES = ("Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memcpy PtoP")
SPANS = (
    ("aten::mm", HostCategory.OPERATOR),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", HostCategory.ANNOTATION),
    ("cudaStreamSynchronize", HostCategory.RUNTIME),
    ("cudaMalloc", HostCategory.RUNTIME),
    ("torch.save", HostCategory.ANNOTATION),
    ("gc.collect", HostCategory.ANNOTATION),
    ("train.py(63): main", HostCategory.PYTHON),
    ("my_region", HostCategory.ANNOTATION),
)
TIMES = st.integers(0, 4_000)
LENGTHS = st.one_of(st.integers(0, 30), st.integers(0, 1_500))


@st.composite
def device_work(draw, correlation):
    start, length = draw(TIMES), draw(LENGTHS)
    stream = draw(st.sampled_from((7, 11, 20)))
    if draw(st.booleans()):
        return Work(
            start, start + length, draw(st.sampled_from(KERNELS)), launch=correlation, stream=stream
        )
    kind = draw(st.sampled_from((DeviceKind.MEMCPY, DeviceKind.MEMSET)))
    name = draw(st.sampled_from(COPIES)) if kind == DeviceKind.MEMCPY else "Memset (Device)"
    return Work(start, start + length, name, kind, stream=stream, launch=correlation)


@st.composite
def rows(draw):
    """Draw any host spans, launches and device records, with or without steps."""
    device = [draw(device_work(index + 1)) for index in range(draw(st.integers(1, 14)))]
    host = []
    for work in device:
        if draw(st.integers(0, 9)):
            start = draw(st.integers(0, int(work.start) + 20))
            thread = draw(st.sampled_from((1, 2)))
            host.append(call(start, start + draw(st.integers(0, 900)), work.launch, thread=thread))
    for _ in range(draw(st.integers(0, 10))):
        name, category = draw(st.sampled_from(SPANS))
        start = draw(TIMES)
        host.append(
            Span(start, start + draw(LENGTHS), name, category, draw(st.sampled_from((1, 2))))
        )
    host += [
        annotation(number * 900, number * 900 + 880, f"ProfilerStep#{number}")
        for number in range(draw(st.integers(0, 5)))
    ]
    return host, device


def outcome(*traces, window=None):
    """Return what must not change: windows, levels and buckets of every device and host."""
    analysis = analyze_job(job(*traces), Options(window=window))
    return [
        (r.device, r.window_ns, r.level1_ns, r.buckets_ns, r.host_buckets_ns)
        for r in analysis.ranks
    ]


@settings(max_examples=300, deadline=None)
@given(rows(), st.sampled_from((None, "steps", "device_span", "all")))
def test_leaves_sum_to_the_window_and_nothing_is_promised_twice(drawn, window):
    """Leaves and level 1 are the window, none negative; recoverable time is at most the window."""
    analysis = analyze_job(job(trace(*drawn)), Options(window=window))
    for result in analysis.ranks:
        if result.window_ns is not None:
            assert sum(result.buckets_ns.values()) == result.window_ns
            assert sum(result.level1_ns.values()) == result.window_ns
            assert min(result.buckets_ns.values()) > 0
            for level in ("compute", "comm", "copy", "idle"):
                leaves = (ns for name, ns in result.buckets_ns.items() if name.startswith(level))
                assert sum(leaves) == result.level1_ns[level]
            assert all(0 <= ns <= result.buckets_ns[b] for b, ns in result.unrecoverable_ns.items())
        if result.host_window_ns is not None:
            assert sum(result.host_buckets_ns.values()) == result.host_window_ns
    on_devices = sum(result.window_ns or 0 for result in analysis.ranks)
    total = on_devices or sum(result.host_window_ns or 0 for result in analysis.ranks)
    recoverable = [finding.recoverable_ns or 0 for finding in analysis.findings]
    assert min(recoverable, default=0) >= 0
    assert sum(recoverable) <= total
    gaps = sum(cause.total_ns for cause in analysis.gap_causes)
    assert gaps == sum(r.level1_ns["idle"] for r in analysis.ranks if r.level1_ns)


@settings(max_examples=100, deadline=None)
@given(rows(), st.integers(0, 2**32))
def test_the_order_of_events_in_the_file_does_not_matter(drawn, seed):
    """Shuffled rows give the same numbers."""
    host, device = drawn
    shuffler = random.Random(seed)
    shuffled = (shuffler.sample(host, len(host)), shuffler.sample(device, len(device)))
    assert outcome(trace(*shuffled)) == outcome(trace(host, device))


@settings(max_examples=100, deadline=None)
@given(rows(), st.integers(1, 10**9))
def test_shifting_all_clocks_of_a_rank_changes_nothing(drawn, shift):
    """A constant added to every time of a rank gives the same numbers."""
    host, device = drawn
    moved = (
        [replace(span, start=span.start + shift, end=span.end + shift) for span in host],
        [replace(work, start=work.start + shift, end=work.end + shift) for work in device],
    )
    # A 0/0 record means "no time" to a profiler, so it can't be shifted.
    if not any(work.start == 0 and work.end == 0 for work in device):
        assert outcome(trace(*moved)) == outcome(trace(host, device))


@settings(max_examples=100, deadline=None)
@given(rows())
def test_renaming_streams_in_their_order_changes_nothing(drawn):
    """Streams renumbered, their order kept, give the same numbers."""
    host, device = drawn
    renamed = [replace(work, stream=work.stream * 10 + 3) for work in device]
    assert outcome(trace(host, renamed)) == outcome(trace(host, device))


@settings(max_examples=60, deadline=None)
@given(rows(), rows())
def test_permuting_ranks_permutes_the_results(one, other):
    """Ranks handed in another order give the same numbers, in that order."""
    first, second = trace(*one), trace(*other)
    assert sorted(map(repr, outcome(first, second))) == sorted(map(repr, outcome(second, first)))


@settings(max_examples=100, deadline=None)
@given(rows(), TIMES, st.integers(1, 50), st.sampled_from(SPANS))
def test_a_thread_that_neither_launches_nor_steps_changes_nothing(drawn, start, length, span):
    """A host event on a bystander thread leaves the device's buckets alone."""
    host, device = drawn
    name, category = span
    bystander = Span(start, start + length, name, category, thread=99)
    window = None if any(one.name.startswith("ProfilerStep") for one in host) else "device_span"
    alone = outcome(trace(host, device), window=window)
    beside = outcome(trace([*host, bystander], device), window=window)
    assert [r[:4] for r in alone] == [r[:4] for r in beside]


@pytest.mark.parametrize("window", [None, "device_span", "all"])
def test_an_empty_host_still_gives_a_partition(window):
    """Device records alone are accounted for; their gaps are unknown."""
    device = [Work(0, 10), Work(30, 40)]
    ((_, window_ns, _, buckets, _),) = outcome(trace([], device), window=window)
    assert window_ns == 40_000
    assert buckets == {"compute.other": 20_000, "idle.unknown": 20_000}
