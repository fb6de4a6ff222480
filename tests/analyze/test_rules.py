"""Each rule of the accounting on the smallest trace that shows it."""

from __future__ import annotations

import pytest

from analyze.traces import US, Span, Work, annotation, call, job, trace
from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.model.tables import DeviceKind, HostCategory

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
GEMM = "ampere_sgemm_128x32_tn"


def buckets(host, device, window="device_span", **options):
    """Return the first device's buckets in us."""
    (result,) = analyze_job(job(trace(host, device)), Options(window=window, **options)).ranks
    return {name: ns / US for name, ns in result.buckets_ns.items()}


def steps(*starts, length=90):
    return [annotation(at, at + length, f"ProfilerStep#{i}") for i, at in enumerate(starts)]


def stepping(*starts):
    """Return steps on the host, each of which launches one kernel 10 us later."""
    host = steps(*starts)
    device = []
    for number, at in enumerate(starts):
        host.append(call(at + 2, at + 4, number + 1))
        device.append(Work(at + 10, at + 60, launch=number + 1))
    return host, device


@pytest.mark.parametrize(
    ("starts", "basis", "periods", "window_us"),
    [
        ((0, 100, 200, 300, 400), "steps", 3, 300),
        ((0, 100, 200), "steps", 1, 100),
        ((0, 100), "steps_skewed", 1, 100),
        ((0,), "device_span", 0, 50),
    ],
)
def test_the_window_is_full_steps_without_the_first(starts, basis, periods, window_us):
    """Three steps give one period, two a skewed one, one the span of the device's activity."""
    (result,) = analyze_job(job(trace(*stepping(*starts)))).ranks
    assert (result.window_basis, result.periods) == (basis, periods)
    assert result.window_ns == window_us * US


def test_a_forced_window_over_all_steps_clips_the_device_to_them():
    """``all`` runs from the start of the first step span to the end of the last."""
    (result,) = analyze_job(job(trace(*stepping(0, 100))), Options(window="all")).ranks
    assert result.window_ns == 190 * US
    assert result.level1_ns["compute"] == 100 * US


def test_ranks_use_the_steps_that_all_of_them_recorded():
    """A step that one rank lacks is in nobody's window."""
    whole, cut = trace(*stepping(0, 100, 200, 300)), trace(*stepping(0, 100, 200))
    analysis = analyze_job(job(whole, cut))
    assert [result.periods for result in analysis.ranks] == [1, 1]


def test_work_launched_from_another_thread_counts_for_the_step():
    """The step's device start is what any thread of the process launched inside its span."""
    host = [*steps(0, 100, 200)]
    host += [call(at + 5, at + 7, i + 1, thread=2) for i, at in enumerate((0, 100, 200))]
    device = [Work(at + 20, at + 40, launch=i + 1) for i, at in enumerate((0, 100, 200))]
    (result,) = analyze_job(job(trace(host, device))).ranks
    assert result.window_ns == 100 * US


def test_without_device_records_there_is_no_window_and_no_busy_share():
    """A host-only trace says so, and its host view is the answer."""
    analysis = analyze_job(job(trace([*steps(0, 100, 200), Span(110, 150, "aten::mm")], [])))
    (result,) = analysis.ranks
    assert (result.window_ns, result.level1_ns, result.buckets_ns) == (None, None, None)
    assert result.host_buckets_ns == {"host.op": 40 * US, "host.other": 60 * US}
    assert "device_activity_not_recorded" in [entry.id for entry in analysis.quality]
    assert "not recorded" in analysis.headline
    assert "GPU time" not in analysis.headline


def test_compute_comes_before_comm_before_copy():
    """An instant with several kinds of activity belongs to the first of them."""
    device = [
        Work(0, 10, GEMM),
        Work(5, 30, "ncclDevKernel_AllReduce_Sum_f32", stream=20),
        Work(8, 40, "Memcpy HtoD (Pinned -> Device)", DeviceKind.MEMCPY, stream=11),
        Work(20, 25),
    ]
    assert buckets([], device) == {
        "compute.tensor": 10,
        "compute.other": 5,
        "comm.unsplit": 15,
        "copy.h2d_pinned": 10,
    }


def test_a_copy_inside_a_collective_is_communication():
    """A copy engine operation launched inside an nccl annotation is comm, not copy."""
    host = [annotation(0, 10, "nccl:all_gather"), call(2, 4, 1, "cudaMemcpyAsync")]
    device = [Work(5, 25, "Memcpy PtoP", DeviceKind.MEMCPY, launch=1)]
    assert buckets(host, device) == {"comm.unsplit": 20}


GAP = [Work(0, 10, launch=1), Work(60, 70, launch=2)]


@pytest.mark.parametrize(
    ("host", "idle"),
    [
        ([annotation(5, 50, LOADER)], {"idle.input": 40, "idle.unknown": 2}),
        ([Span(5, 50, "aten::mm")], {"idle.launch": 42, "idle.unknown": 2}),
        (
            [Span(5, 50, "train.py(63): main", HostCategory.PYTHON)],
            {"idle.host_other": 40, "idle.unknown": 2},
        ),
        (
            [annotation(5, 52, "save_checkpoint"), annotation(5, 52, "gc.collect")],
            {"idle.checkpoint": 42},
        ),
        ([annotation(5, 52, "validation"), annotation(5, 52, LOADER)], {"idle.eval": 42}),
        ([call(5, 52, -1, "cudaMalloc"), Span(5, 52, "aten::empty")], {"idle.allocator": 42}),
        (
            [call(20, 22, -1, "cudaStreamBeginCapture"), call(30, 32, -1, "cudaStreamEndCapture")],
            {"idle.compile": 12, "idle.unknown": 30},
        ),
        ([], {"idle.unknown": 42}),
    ],
)
def test_the_time_before_a_launch_goes_to_what_the_thread_was_doing(host, idle):
    """First match wins: checkpoint, eval, compile, allocator, gc, input, ..., launch, other."""
    launches = [call(0, 2, 1), call(52, 54, 2)]
    got = buckets([*launches, *host], GAP)
    got = {name: us for name, us in got.items() if name.startswith("idle.")}
    # The launch call itself takes 2 us, and the kernel starts 6 us after it returned.
    assert got == {"idle.launch": 2, "idle.launch_latency": 6} | idle


@pytest.mark.parametrize(
    ("returned", "name"), [(51, "idle.launch_latency"), (49, "idle.device_blocked")]
)
def test_enqueued_but_not_started_is_latency_up_to_10_us(returned, name):
    """After the launch returned, up to 10 us is launch latency, more is a blocked device."""
    host = [call(0, 2, 1), call(returned - 1, returned, 2)]
    assert buckets(host, GAP)[name] == 60 - returned


def test_where_the_launching_thread_has_nothing_open_the_step_thread_explains():
    """Autograd's thread waits for the step thread, which waits for data."""
    host = [call(0, 2, 1, thread=2), call(52, 54, 2, thread=2), annotation(5, 50, LOADER)]
    host += [annotation(0, 1, "ProfilerStep#0")]
    assert buckets(host, GAP)["idle.input"] == 40


def test_a_sync_costs_its_idle_time_and_a_shadow_no_longer_than_itself():
    """The call's own wait for the GPU is free; what follows is charged up to the call's length."""
    host = [call(0, 2, 1), call(4, 16, -1, "cudaStreamSynchronize"), call(52, 54, 2)]
    host += [Span(16, 54, "aten::mm")]
    # The call lasts 12 us, of which 6 are idle; 12 more are its shadow.
    got = buckets(host, GAP)
    assert got["idle.host_sync"] == 6 + 12
    assert got["idle.launch"] == 54 - 16 - 12


def test_a_shadow_ends_when_the_queue_has_recovered():
    """A compute kernel that starts 50 us after its launch returned ends the shadow."""
    host = [
        call(0, 2, 1),
        call(4, 304, -1, "cudaStreamSynchronize"),
        call(306, 308, 2),
        call(309, 311, 3),
        call(500, 502, 4),
        Span(304, 502, "aten::mm"),
    ]
    device = [
        Work(0, 300, launch=1),
        Work(310, 380, launch=2),
        Work(381, 400, launch=3),  # lead 70 us: recovered
        Work(505, 510, launch=4),
    ]
    got = buckets(host, device)
    assert got["idle.host_sync"] == (304 - 300) + (308 - 304)
    assert got["idle.launch"] == 502 - 400


def test_a_blocking_copy_holds_the_host():
    """A memcpy call that returns after its copy's end explains the time until then."""
    host = [call(0, 2, 1), call(3, 40, 2, "cudaMemcpy"), call(52, 54, 3)]
    device = [
        Work(0, 10, launch=1),
        Work(20, 38, "Memcpy DtoH (Device -> Pageable)", DeviceKind.MEMCPY, launch=2),
        Work(60, 70, launch=3),
    ]
    got = buckets(host, device)
    # Until the copy starts the call is already in it, and from the copy's end to its return.
    assert got["idle.blocking_copy"] == 10 + 2


def test_device_times_are_shifted_where_they_meet_host_times():
    """The earliest start before its launch gives the offset; gaps are split on one clock."""
    host = [call(100, 102, 1), call(152, 154, 2), annotation(105, 150, LOADER)]
    device = [Work(80, 110, launch=1), Work(160, 170, launch=2)]
    (result,) = analyze_job(job(trace(host, device)), Options(window="device_span")).ranks
    assert result.host_device_offset_ns == 20 * US
    # The gap [110, 160) is [130, 180) on the host's clock.
    assert result.buckets_ns["idle.input"] == 20 * US


def test_a_gap_whose_launch_is_not_recorded_is_unknown():
    """Nothing is guessed of a gap that ends with an unlinked record."""
    got = buckets([annotation(0, 100, LOADER), call(0, 2, 1)], [GAP[0], Work(60, 70)])
    assert got["idle.unknown"] == 50


def test_broken_device_records_are_dropped_and_counted():
    """0/0, negative and over-long records leave, and the quality says how many."""
    device = [*GAP, Work(0, 0), Work(30, 20), Work(20, 20 + 7.4e9)]
    host = [call(0, 2, 1), call(52, 54, 2)]
    analysis = analyze_job(job(trace(host, device)), Options(window="device_span"))
    (entry,) = (one for one in analysis.quality if one.id == "invalid_device_records")
    assert entry.count == 3
    assert analysis.ranks[0].window_ns == 70 * US


def test_a_kernel_that_runs_over_the_next_on_its_stream_is_clipped():
    """More than 1 us over the next start on the same stream is a writer's fault."""
    device = [Work(0, 100), Work(40, 50), Work(60, 61)]
    analysis = analyze_job(job(trace([], device)), Options(window="device_span"))
    assert analysis.ranks[0].level1_ns["idle"] == 10 * US
    assert "stream_overrun" in [entry.id for entry in analysis.quality]


def test_spans_over_95_percent_of_a_step_tell_nothing_unless_the_table_knows_them():
    """A wrapper around the whole step explains no gap; a loader as long as the step does."""
    host, device = stepping(0, 100, 200, 300)
    wrapped = [annotation(at, at + 89, "train_step") for at in (0, 100, 200, 300)]
    assert "idle.host_other" not in buckets([*host, *wrapped], device, window=None)
    loading = [annotation(at + 62, at + 150, LOADER) for at in (0, 100, 200)]
    assert buckets([*host, *loading], device, window=None)["idle.input"] > 0


def test_launches_without_device_records_are_no_idle_finding():
    """Where a step lost records, its gaps are not blamed on the host."""
    host, device = stepping(0, 1000, 2000, 3000)
    host += [Span(at + 60, at + 1000, "aten::mm") for at in (0, 1000, 2000)]
    host += [call(1000 + at, 1001 + at, 100 + at) for at in range(20, 60)]
    findings = analyze_job(job(trace(host, device))).findings
    assert [finding.id for finding in findings] == ["records_missing"]


def test_exposed_time_in_which_the_host_was_late_anyway_is_not_recoverable():
    """Until the next kernel's launch returned, a faster copy would have changed nothing."""
    host = [call(0, 2, 1), call(3, 5, 2, "cudaMemcpyAsync"), call(28, 30, 3)]
    device = [
        Work(0, 10, launch=1),
        Work(10, 50, "Memcpy HtoD (Pinned -> Device)", DeviceKind.MEMCPY, stream=9, launch=2),
        Work(50, 60, launch=3),
    ]
    (result,) = analyze_job(job(trace(host, device)), Options(window="device_span")).ranks
    assert result.buckets_ns["copy.h2d_pinned"] == 40 * US
    assert result.unrecoverable_ns["copy.h2d_pinned"] == 20 * US


def test_each_device_of_a_process_has_a_window_of_its_own():
    """Two devices in one file are two partitions."""
    device = [Work(0, 10), Work(20, 30), Work(0, 40, device=1)]
    results = analyze_job(job(trace([], device)), Options(window="device_span")).ranks
    assert [(r.device, r.window_ns) for r in results] == [(0, 30 * US), (1, 40 * US)]


def test_gaps_of_one_length_with_work_enqueued_are_a_shared_gpu():
    """Five gaps of 0.5 ms or more within 10 % are time slices of another process."""
    host, device = [], []
    for i in range(8):
        host.append(call(i * 20, i * 20 + 2, i + 1))
        device.append(Work(1000 + i * 2000, 1000 + i * 2000 + 1200, launch=i + 1))
    findings = analyze_job(job(trace(host, device)), Options(window="device_span")).findings
    assert findings[0].id == "gpu_shared"
    assert findings[0].confidence == "low"


def test_a_users_span_names_reach_the_accounting():
    """A pattern from the configuration turns an annotation into a checkpoint."""
    host = [call(0, 2, 1), call(52, 54, 2), annotation(5, 50, "flush_shards")]
    extra = {"checkpoint": ("flush_shards",)}
    assert buckets(host, GAP, extra_spans=extra)["idle.checkpoint"] == 40


def test_a_thread_woken_just_before_its_collective_ends_was_blocked_on_it():
    """The span of a gloo collective may outlive the wake-up of the thread that waited for it."""
    host = [
        *(annotation(at * 1000, at * 1000 + 990, f"ProfilerStep#{at}") for at in range(3)),
        Span(1000, 1100, "aten::mm"),
        annotation(1050, 1800, "gloo:all_reduce", thread=9),
        Span(1790, 1900, "aten::add_"),
    ]
    (result,) = analyze_job(job(trace(host, []))).ranks
    assert result.host_buckets_ns["host.collective"] == 690 * US


def test_a_collective_still_under_way_did_not_hold_the_thread():
    """Python between two operators is no wait for a collective that ends long after."""
    host = [
        *(annotation(at * 10_000, at * 10_000 + 9_900, f"ProfilerStep#{at}") for at in range(3)),
        Span(10_000, 11_000, "aten::mm"),
        annotation(10_500, 19_000, "gloo:all_reduce", thread=9),
        Span(12_000, 19_500, "aten::add_"),
    ]
    (result,) = analyze_job(job(trace(host, []))).ranks
    assert "host.collective" not in result.host_buckets_ns


def test_what_the_host_was_in_is_told_per_cause_and_by_operator_without_annotation():
    """A loader's gap names the loader, the launch after it names its operator."""
    host = [call(0, 2, 1), call(52, 54, 2), annotation(5, 30, LOADER), Span(31, 55, "aten::slow")]
    causes = analyze_job(job(trace(host, GAP)), Options(window="device_span")).gap_causes
    told = {cause.cause: (cause.host_span, cause.host_op) for cause in causes}
    assert told["idle.input"] == (LOADER, None)
    assert told["idle.launch"] == (None, "aten::slow")
    assert told["idle.launch_latency"] == (None, None)


def test_a_rank_far_above_the_threshold_is_named_though_the_job_is_below_it():
    """One late rank of eight is a finding, graded by what it loses itself."""
    late, device = stepping(0, 1000, 2000, 3000)
    late += [annotation(at + 62, at + 600, LOADER) for at in (0, 1000, 2000)]
    ranks = [trace(late, device), *(trace(*stepping(0, 1000, 2000, 3000)) for _ in range(31))]
    finding = analyze_job(job(*ranks)).findings[0]
    assert (finding.id, finding.ranks, finding.severity) == ("input_stall", [0], "error")
    assert finding.share < 0.02
