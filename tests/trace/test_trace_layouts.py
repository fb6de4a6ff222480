"""Every age and vendor of Kineto gives the same kind of table."""

from __future__ import annotations

import json

import pytest
from trace_tables import columns, decoded, kernel, read, span, tables, trace_of

from gpudiag.model.tables import NOT_RECORDED, DeviceKind, HostCategory

HOST_CATEGORIES = [
    ("cpu_op", HostCategory.OPERATOR),
    ("Operator", HostCategory.OPERATOR),
    ("user_annotation", HostCategory.ANNOTATION),
    ("cuda_runtime", HostCategory.RUNTIME),
    ("Runtime", HostCategory.RUNTIME),
    ("cuda_driver", HostCategory.DRIVER),
    ("xpu_runtime", HostCategory.RUNTIME),
    ("xpu_driver", HostCategory.DRIVER),
    ("mtia_runtime", HostCategory.RUNTIME),
    ("privateuse1_runtime", HostCategory.RUNTIME),
    ("privateuse1_driver", HostCategory.DRIVER),
    ("python_function", HostCategory.PYTHON),
    ("overhead", HostCategory.OVERHEAD),
    ("glow_runtime", HostCategory.OTHER),
    ("something_new", HostCategory.OTHER),
]
DEVICE_CATEGORIES = [
    ("kernel", DeviceKind.KERNEL),
    ("Kernel", DeviceKind.KERNEL),
    ("gpu_memcpy", DeviceKind.MEMCPY),
    ("Memcpy", DeviceKind.MEMCPY),
    ("gpu_memset", DeviceKind.MEMSET),
    ("Memset", DeviceKind.MEMSET),
]
NEITHER = [
    "gpu_user_annotation", "gpu_user_Annotation", "cuda_sync", "cuda_event", "xpu_sync",
    "cuda_profiler_range", "collective_comm", "mtia_ccp_events", "hardware_counters",
]  # fmt: skip


@pytest.mark.parametrize(("category", "expected"), HOST_CATEGORIES)
def test_host_categories_of_all_ages(category, expected):
    """A host category, old or new, gives a host row of its kind, even with a stream in its args."""
    trace = read(trace_of(span(category, "a", 1, 2, args={"stream": 7, "device": 0})))
    assert trace.host.category.tolist() == [expected]
    assert len(trace.device) == 0


@pytest.mark.parametrize(("category", "expected"), DEVICE_CATEGORIES)
def test_device_categories_of_all_ages(category, expected):
    """A device category gives device activity, even without any args."""
    trace = read(trace_of(span(category, "a", 1, 2, pid=3, tid="stream 7")))
    assert trace.device.kind.tolist() == [expected]
    assert trace.device.device.tolist() == [3]
    assert decoded(trace, trace.device.stream) == ["stream 7"]
    assert len(trace.host) == 0


@pytest.mark.parametrize("category", NEITHER)
def test_projections_and_syncs_are_never_activity(category):
    """Rows on a GPU's process that are no kernel, copy or memset are left out."""
    event = span(category, "Stream Sync", 1, 2, pid=0, tid=7, args={"stream": 7, "device": 0})
    trace = read(trace_of(kernel(), event))
    assert (len(trace.host), len(trace.device), trace.events) == (0, 1, 2)


def test_profiler_overhead_on_a_gpu_process_is_host_overhead():
    """Buffer flushes with pid -1 are overhead, not device activity."""
    trace = read(trace_of(span("overhead", "Buffer Flush", 1, 2, pid=-1, tid=0)))
    assert trace.host.category.tolist() == [HostCategory.OVERHEAD]
    assert trace.threads[0].pid == "-1"


def test_names_are_kept_as_recorded():
    """Names that look like annotations keep their recorded category: analysis tells them apart."""
    names = ["ProfilerStep#1", "enumerate(DataLoader)#_Iter.__next__", "## forward ##"]
    trace = read(trace_of(*(span("Operator", n, 1, 2) for n in names)))
    assert decoded(trace, trace.host.name) == names
    assert set(trace.host.category.tolist()) == {HostCategory.OPERATOR}


def test_device_row_of_cuda():
    """A copy's columns: device, stream, ids and bytes."""
    args = {"device": 2, "stream": 7, "correlation": 11, "External id": 5, "bytes": 4096}
    event = span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 3, 4, pid=2, tid=7, args=args)
    graph = kernel(device=2, stream=13, **{"graph id": 4, "graph node id": 9})
    trace = read(trace_of(event, graph))
    assert columns(trace, trace.device) == {
        "ts_ns": [3000, 10000],
        "dur_ns": [4000, 5000],
        "name": ["Memcpy HtoD (Pageable -> Device)", "gemm"],
        "kind": [1, 0],
        "device": [2, 2],
        "stream": ["7", "13"],
        "correlation": [11, 1],
        "external_id": [5, -1],
        "bytes": [4096, -1],
        "graph_id": [-1, 4],
    }


def test_peer_copies_use_their_own_device():
    """P2P copies have no ``device``: the device they ran on counts, then the process."""
    p2p = {"fromDevice": 1, "inDevice": 2, "toDevice": 3}
    rows = [span("gpu_memcpy", "P2P", 1, 2, pid=9, args=p2p)]
    rows += [span("gpu_memcpy", "P2P", 1, 2, pid=9, args={"fromDevice": 1})]
    rows += [span("gpu_memcpy", "P2P", 1, 2, pid=9)]
    assert read(trace_of(*rows)).device.device.tolist() == [2, 1, 9]


def test_xpu_queues_stand_for_streams():
    """XPU kernels lack a stream: the SYCL queue, else the Level Zero queue, else the thread."""
    args = [{"sycl queue": 2}, {"l0 queue": "0x5"}, {"queue": 1}, {}]
    rows = [span("kernel", "k", 1, 2, pid=0, tid=44, args=a) for a in args]
    trace = read(trace_of(*rows, span("xpu_runtime", "urEnqueueKernelLaunch", 1, 2)))
    assert decoded(trace, trace.device.stream) == ["2", "0x5", "1", "44"]
    assert trace.info.vendor == "xpu"


def test_rocm_rows():
    """HIP calls with pointer streams and sizes as strings; stream 0 is a normal stream."""
    call = {"stream": "0x0", "correlation": 3, "cid": 1, "size": "64"}
    trace = read(
        trace_of(
            span("cuda_runtime", "hipLaunchKernel", 1, 2, args=call),
            kernel("Cijk_Ailk", stream=0, correlation=3),
            span("gpu_memset", "Memset", 5, 1, args={"device": 0, "stream": 0, "bytes": "128"}),
        )
    )
    assert trace.info.vendor == "rocm"
    assert decoded(trace, trace.device.stream) == ["0", "0"]
    assert trace.device.bytes.tolist() == [-1, 128]
    assert trace.host.correlation.tolist() == [3]


def test_mtia_says_that_it_has_no_device_activity():
    """MTIA traces hold runtime calls and no kernels: said, not shown as an idle device."""
    events = [span("mtia_runtime", "enqueue", 1, 2), span("mtia_ccp_events", "x", 1, 2)]
    trace = read(trace_of(*events))
    assert trace.info.vendor == "mtia"
    assert [q.id for q in trace.quality] == ["device_not_recorded"]


def test_vendor_is_unknown_for_a_trace_without_device():
    """CPU-only traces have no vendor."""
    assert read(trace_of(span("cpu_op", "a", 1, 2))).info.vendor is None


def test_the_trace_of_2021():
    """Old names, string threads, lower-case external id, call stacks, whole microseconds."""
    args = {"External id": 4, "Input dims": [[2, 3]], "Input type": ["float"], "Call stack": "a;b"}
    trace = read(
        trace_of(
            span("Operator", "aten::mm", 1, 2, pid="9", tid="12", args=args),
            span("Runtime", "cudaLaunchKernel", 1, 2, args={"correlation": 3, "external id": 4}),
            span("Kernel", "volta", 5, 0, pid=0, tid="stream 7",
                 args={"device": 0, "stream": 7, "correlation": 3, "external id": 4}),
        )
    )  # fmt: skip
    assert decoded(trace, trace.host.stack) == ["a;b", None]
    assert trace.host.external_id.tolist() == [4, 4]
    assert trace.device.external_id.tolist() == [4]
    assert [(t.pid, t.tid) for t in trace.threads] == [("9", "12"), ("100", "100")]
    assert decoded(trace, trace.operator_args.input_dims) == ["[[2,3]]"]


def test_the_legacy_list():
    """The export before Kineto: a list, no categories, processes named after devices."""
    rows = [
        {"name": "add", "ph": "X", "ts": 1.524, "dur": 134.49, "tid": 1, "pid": "CPU functions"},
        {"name": "add", "ph": "s", "ts": 1.5, "tid": 1, "pid": "CPU functions", "id": 0},
        {"name": "add", "ph": "X", "ts": 2.957, "dur": 134.176, "tid": 1, "pid": "CUDA functions"},
    ]
    trace = read(rows)
    assert trace.host.category.tolist() == [HostCategory.OPERATOR]
    assert (trace.device.ts_ns.tolist(), trace.device.device.tolist()) == ([2957], [1])
    assert trace.info.vendor == "cuda"


def test_ids_beyond_int64_keep_their_identity():
    """Ids of any size are accepted, and equal ids stay equal."""
    big = 2**64 + 5
    trace = read(
        trace_of(
            span("cuda_runtime", "l", 1, 2, args={"correlation": 2**64 - 2}),
            kernel(correlation=2**64 - 2, **{"Comms Id": 18446744073709551615123}),
            kernel(correlation=big, bytes=10**40),
        )
    )
    assert trace.host.correlation.tolist() == [trace.device.correlation[0]] == [-2]
    assert trace.device.correlation.tolist()[1] == 5


def test_ids_of_other_types():
    """Ids as text or whole floats are read; what is no integer is not recorded."""
    values = ["12", 3.0, 2.5, None, True, [1], "x", "1" * 5000]
    rows = [span("cuda_runtime", "l", 1, 2, args={"correlation": v}) for v in values]
    n = NOT_RECORDED
    assert read(trace_of(*rows)).host.correlation.tolist() == [12, 3, n, n, n, n, n, n]


@pytest.mark.parametrize("args", [None, [], "text", 5, {}, {"correlation": None}])
def test_args_that_are_no_object_count_as_absent(args):
    """Odd args cost the row nothing but its args."""
    trace = read(trace_of(span("kernel", "k", 1, 2, pid=1, args=args), kernel(correlation=8)))
    assert trace.device.correlation.tolist() == [-1, 8]
    assert not trace.quality


def test_collectives_on_kernels_and_on_record_param_comms():
    """Collective metadata keeps its row, on both sides, in all spellings."""
    now = {
        "Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 20,
        "Group size": 2, "dtype": "Float", "Process Group Name": "1", "Seq": 7,
        "Process Group Description": "dp", "Process Group Ranks": "[0, 1, ..., ...]",
        "Src Rank": 0, "Dst Rank": 1,
    }  # fmt: skip
    old = {"Collective name": "allreduce", "Group size": 4, "Process Group ID": 3}
    trace = read(
        trace_of(
            span("cpu_op", "aten::mm", 1, 1, args={"External id": 1}),
            span("cpu_op", "record_param_comms", 1, 2, args=old),
            kernel(),
            kernel("ncclDevKernel", **now),
        )
    )
    assert columns(trace, trace.collectives) == {
        "on_device": [False, True], "row": [1, 1],
        "op": ["allreduce", "_allgather_base"], "group": ["3", "1"],
        "group_description": [None, "dp"], "group_ranks": [None, "[0, 1, ..., ...]"],
        "group_size": [4, 2], "seq": [-1, 7], "in_elements": [-1, 10], "out_elements": [-1, 20],
        "dtype": [None, "Float"], "src_rank": [-1, 0], "dst_rank": [-1, 1],
    }  # fmt: skip


def test_shapes_are_kept_for_the_rows_that_have_them():
    """Shapes are sparse and compact, whatever the white space; autograd links come along."""
    args = {
        "Input Dims": [[4, 8], []],
        "Input type": ["c10::Half", ""],
        "Concrete Inputs": ["", "1"],
    }
    back = {"Sequence number": 12, "Fwd thread id": 1}
    rows = [span("cpu_op", "x", 1, 1), span("cpu_op", "mm", 1, 1, args=args)]
    rows += [span("cpu_op", "mmBackward", 1, 1, args=back)]
    rows += [span("cpu_op", "triton", 1, 1, args={"kernel_flop": 99, "Input Dims": "[[4, 8]]"})]
    for text in (json.dumps(trace_of(*rows), indent=3), json.dumps(trace_of(*rows))):
        trace = read(text)
        assert columns(trace, trace.operator_args) == {
            "row": [1, 2, 3],
            "input_dims": ["[[4,8],[]]", None, "[[4,8]]"],
            "input_types": ['["c10::Half",""]', None, None],
            "concrete_inputs": ['["","1"]', None, None],
            "sequence_number": [-1, 12, -1],
            "forward_thread": [-1, 1, -1],
            "kernel_flops": [-1, -1, 99],
        }
    assert len(read(text, shapes=False).operator_args) == 0


def test_metadata_is_read_before_and_after_the_events():
    """All metadata, on either side; a bracket in a string is just a character."""
    metadata = {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85, "numSms": 132,
                              "computeMajor": 9, "computeMinor": 0, "warpSize": 32}],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": "[0, 1, 2]"},
            {"pg_name": "1", "ranks": "[0, 1, ..., ...]"}, {"pg_name": 2, "ranks": [4, 5]}]},
        "host_name": "node7", "trace_id": "ABC", "record_shapes": 1, "with_stack": 0,
        "traceName": "/home/a],[Strategy]}{.json",
    }  # fmt: skip
    events = trace_of(kernel(), span("cpu_op", "a", 1, 2))
    first, last = read(metadata | events), read(events | metadata)
    assert tables(first) == tables(last)
    info = last.info
    assert (info.rank, info.world_size, info.backend) == (3, 8, "nccl")
    assert (info.host, info.pid, info.vendor, info.trace_id) == ("node7", "100", "cuda", "ABC")
    assert (info.record_shapes, info.with_stack, info.profile_memory) == (True, False, None)
    assert (info.devices[0].name, info.devices[0].compute_capability) == ("NVIDIA H100", "9.0")
    assert [g.ranks for g in info.groups] == [(0, 1, 2), None, (4, 5)]


def test_a_key_named_trace_events_elsewhere_is_not_the_events():
    """Only the outermost object's key counts, not one in a string or a nested object."""
    odd = {"note": '"traceEvents": [', "nested": {"traceEvents": [{"ph": "X"}]}}
    assert len(read(odd | trace_of(kernel())).device) == 1


def test_the_profilers_own_span_and_thread_names():
    """The "Trace" row gives the recorded span; metadata rows name threads."""
    rows = [
        {"ph": "M", "name": "thread_name", "pid": 100, "tid": 100, "args": {"name": "main"}},
        {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "python"}},
        span("cpu_op", "a", 5, 1),
        span("Trace", "PyTorch Profiler (0)", 2.5, 100, pid="Spans", tid="PyTorch Profiler"),
        {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 102, "s": "g"},
    ]
    trace = read(trace_of(*rows, baseTimeNanoseconds=10**18))
    assert trace.threads[0].name == "main"
    assert (trace.info.span_start_ns, trace.info.span_end_ns) == (10**18 + 2500, 10**18 + 102500)


def test_every_phase_of_the_format_is_accepted():
    """Flows, counters, instants and begin/end rows are counted and skipped."""
    phases = "BEiICbnestfSTpFPNODvVRc()MX"
    rows = [
        {"ph": p, "name": "a", "cat": "ac2g", "pid": 1, "tid": 2, "ts": 1, "id": 9} for p in phases
    ]
    trace = read(trace_of(kernel(), *rows))
    assert (trace.events, len(trace.device), trace.partial) == (1 + len(phases), 1, False)


def test_the_empty_event_at_the_end_is_ignored():
    """Some writers end with ``{}``; so may objects without a phase."""
    trace = read(trace_of(kernel(), {}, {"name": "no phase"}, kernel(), {}))
    assert (len(trace.device), trace.quality, trace.partial) == (2, (), False)
