"""Which kernels get which FLOPs, on hand-made traces of devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_flops.small_trace import BF16, GEMM, SmallTrace

from gpudiag.analyze.trace_flops.results import FlopTotals, Phase
from gpudiag.analyze.trace_flops.uncounted import NOT_RECORDED

MM = 2 * 64 * 32 * 16
DIMS = [[64, 16], [16, 32]]
CONV = ["[1, 1]", "[0, 0]", "[1, 1]"]


@pytest.fixture
def trace() -> SmallTrace:
    return SmallTrace()


def test_an_operators_flops_go_to_the_kernel_that_it_launched(trace, tmp_path):
    trace.mm(0, 64, 32, 16)
    found = trace.count(tmp_path)
    assert found.full == found.visible == FlopTotals(model_flops=MM)
    (kernel,) = found.kernels
    assert (kernel.name, kernel.dtype, kernel.flops, kernel.flops_ns) == (GEMM, "bf16", MM, 10_000)
    assert kernel.bytes == 2 * (64 * 16 + 16 * 32 + 64 * 32)
    assert (found.flops_coverage_frac, found.dominant_dtype, found.uncounted) == (1.0, "bf16", ())


@pytest.mark.parametrize(("external", "flops"), [(77, MM), (78, 0), (1, 0)])
def test_without_a_launch_record_the_external_id_tells_the_operator(
    trace, tmp_path, external, flops
):
    trace.operator("aten::mm", 0, 50, dims=DIMS, **{"External id": 77})
    trace.operator("aten::mm", 100, 50, dims=DIMS, **{"External id": 1})
    trace.kernel(GEMM, 10, 10, launched=False, **{"External id": external})  # correlation 1
    assert trace.count(tmp_path).full.hw_flops == flops


def test_an_operator_without_a_kernel_did_not_run(trace, tmp_path):
    trace.mm(0, 64, 32, 16)
    trace.mm(100, 64, 32, 16, kernels=())
    assert trace.count(tmp_path).full.hw_flops == MM


def test_a_kernel_of_no_duration_did_no_work(trace, tmp_path):
    trace.mm(0, 64, 32, 16)
    trace.mm(100, 64, 32, 16, each=0)
    assert trace.count(tmp_path).full.hw_flops == MM


def test_several_kernels_share_an_operators_flops_by_time_and_sum_to_them(trace, tmp_path):
    trace.mm(0, 63, 31, 17, kernels=(GEMM, "splitKreduce_kernel", "splitKreduce_kernel"), each=7)
    found = trace.count(tmp_path)
    flops = 2 * 63 * 31 * 17
    assert found.full.hw_flops == flops
    assert sum(one.flops for one in found.kernels) == flops
    assert found.operators[0].count == 1
    assert found.operators[0].time_ns == 21_000
    assert found.known_kernels == found.tensor_kernels == 3


def test_a_kernel_counts_in_the_window_that_holds_its_start(trace, tmp_path):
    trace.mm(0, 64, 32, 16, kernels=(GEMM, GEMM))  # at 10 and 20
    trace.mm(100, 64, 32, 16)  # at 110
    whole = trace.count(tmp_path).full.hw_flops
    parts = [
        trace.count(tmp_path, *edges).full.hw_flops for edges in ((0, 15), (15, 110), (110, 200))
    ]
    assert parts == [MM // 2, MM // 2, MM]
    assert sum(parts) == whole


def test_wrappers_and_copies_of_an_operator_count_once(trace, tmp_path):
    trace.operator("aten::linear", 0, 80, dims=[[64, 16], [32, 16]])
    trace.operator("aten::matmul", 1, 78, dims=DIMS)
    trace.operator("aten::mm", 2, 76, dims=DIMS)
    trace.operator("PythonDispatchMode", 3, 74, dims=DIMS)
    trace.mm(4, 64, 32, 16)
    found = trace.count(tmp_path)
    assert found.full.hw_flops == MM
    assert found.operators[0].count == 1


def test_a_composite_counts_where_nothing_inside_it_does(trace, tmp_path):
    trace.operator("aten::linear", 0, 80, dims=[[64, 16], [32, 16]])
    trace.kernel(GEMM, 10, 10)
    assert trace.count(tmp_path).full.hw_flops == MM


def test_a_kernel_of_a_wrapper_of_a_counted_operator_is_no_gap_in_coverage(trace, tmp_path):
    dims = [[1, 4, 8, 8], [6, 4, 3, 3]]
    trace.operator("aten::_convolution", 0, 90, dims=dims, concrete=["", *CONV, "False"])
    trace.operator("aten::cudnn_convolution", 1, 40, dims=dims, concrete=["[0]", "[1]", "[1]"])
    trace.kernel("implicit_convolve_sgemm", 10, 10)
    trace.kernel("conv_bias_kernel", 50, 10)
    found = trace.count(tmp_path)
    assert found.full.hw_flops == 2 * 36 * 6 * 4 * 9
    assert found.flops_coverage_frac == 1


@pytest.mark.parametrize("mask", [None, "[True, True, False]"])
def test_halves_of_an_old_backward_convolution_count_what_ran(trace, tmp_path, mask):
    tensors = [[1, 4, 8, 8], [1, 6, 6, 6], [6, 4, 3, 3]]
    scalars = [] if mask is None else ["[0, 0]", "[1, 1]", "[1, 1]", "1", mask]
    trace.operator("aten::cudnn_convolution_backward", 0, 90, dims=tensors, concrete=scalars)
    halves = ("input", "weight") if mask else ("weight",)
    for index, half in enumerate(halves):
        at = 10 + 30 * index
        name = f"aten::cudnn_convolution_backward_{half}"
        trace.operator(name, at, 20, dims=[[], tensors[1], tensors[2]])
        trace.kernel(f"cudnn_{half}_dgrad_kernel", at + 1, 10)
    assert trace.count(tmp_path).full.hw_flops == len(halves) * 2 * 36 * 6 * 4 * 9


def test_a_backward_convolution_that_shows_no_halves_is_taken_for_both(trace, tmp_path):
    tensors = [[1, 6, 6, 6], [1, 4, 8, 8], [6, 4, 3, 3]]
    trace.operator("aten::convolution_backward", 0, 90, dims=tensors)
    trace.kernel("cudnn_dgrad_kernel", 10, 10)
    assert trace.count(tmp_path).full.hw_flops == 2 * 2 * 36 * 6 * 4 * 9


def test_an_old_forward_without_scalars_learns_its_output_from_the_backward(trace, tmp_path):
    trace.operator("aten::cudnn_convolution", 0, 50, dims=[[1, 4, 8, 8], [6, 4, 3, 3]])
    trace.kernel("implicit_convolve_sgemm", 10, 10)
    tensors = [[1, 4, 8, 8], [1, 6, 4, 4], [6, 4, 3, 3]]  # a stride of 2, which nothing tells
    trace.operator("aten::cudnn_convolution_backward", 100, 50, dims=tensors)
    assert trace.count(tmp_path).full.hw_flops == 2 * 16 * 6 * 4 * 9
    other = [[1, 4, 8, 8], [1, 6, 6, 6], [6, 4, 3, 3]]  # another stride: now it can't be told
    trace.operator("aten::cudnn_convolution_backward", 200, 50, dims=other)
    assert trace.count(tmp_path).full.hw_flops == 0


def test_inductors_own_count_is_taken_for_a_template(trace, tmp_path):
    trace.operator("triton_tem_fused_mm_0", 0, 50, dims=DIMS, kernel_flop=4242)
    trace.kernel("triton_tem_fused_mm_0", 10, 10)
    assert trace.count(tmp_path).full.hw_flops == 4242


# --- phases, with the backward on its own thread as on CUDA

NODE = "autograd::engine::evaluate_function: "
BACKWARD_THREAD = 2


def backward_node(trace, ts, dur, name="MmBackward0", number=5):
    about = {"Sequence number": number, "Fwd thread id": 1, "tid": BACKWARD_THREAD}
    trace.operator(NODE + name, ts, dur, **about)
    trace.operator(name, ts + 1, dur - 2, **about)


def test_forward_backward_recompute_and_optimizer_are_told_apart(trace, tmp_path):
    trace.mm(0, 64, 32, 16, **{"Sequence number": 5})
    backward_node(trace, 100, 300)
    trace.mm(110, 64, 32, 16, tid=BACKWARD_THREAD, **{"Sequence number": 6})  # run again
    trace.mm(200, 64, 32, 16, tid=BACKWARD_THREAD)
    trace.mm(300, 64, 32, 16, tid=BACKWARD_THREAD)
    trace.annotation("Optimizer.step#Muon.step", 500, 100)
    trace.mm(510, 64, 32, 16)
    found = trace.count(tmp_path)
    assert found.full == FlopTotals(3 * MM, MM, 0, MM)
    assert (found.full.extra_flops, found.full.hw_flops) == (MM, 5 * MM)
    assert {one.phase: one.count for one in found.operators} == {
        Phase.FORWARD: 1,
        Phase.BACKWARD: 2,
        Phase.RECOMPUTE: 1,
        Phase.OPTIMIZER: 1,
    }


def test_a_backward_nested_in_a_recomputation_is_backward(trace, tmp_path):
    backward_node(trace, 100, 400, "CheckpointFunctionBackward")
    trace.operator("aten::linear", 105, 80, tid=BACKWARD_THREAD, **{"Sequence number": 6})
    trace.mm(110, 64, 32, 16, tid=BACKWARD_THREAD)  # numbered by what holds it
    backward_node(trace, 200, 200)
    trace.mm(210, 64, 32, 16, tid=BACKWARD_THREAD)
    trace.mm(300, 64, 32, 16, tid=BACKWARD_THREAD)
    assert trace.count(tmp_path).full == FlopTotals(2 * MM, MM)


def test_a_forward_inside_the_optimizers_step_is_a_closures(trace, tmp_path):
    trace.annotation("Optimizer.step#LBFGS.step", 0, 100)
    trace.mm(10, 64, 32, 16, **{"Sequence number": 5})
    assert trace.count(tmp_path).full == FlopTotals(MM)


def test_a_node_that_is_differentiated_itself_is_ambiguous(trace, tmp_path):
    backward_node(trace, 100, 200)
    trace.mm(110, 64, 32, 16, tid=BACKWARD_THREAD, **{"Sequence number": 6})
    found = trace.count(tmp_path)
    assert (found.full.model_flops, found.ambiguous_flops) == (MM, MM)


@pytest.mark.parametrize(("times", "recompute"), [(2, 0), (3, 1), (4, 2), (1, 0)])
def test_a_compiled_backward_beyond_twice_its_forward_is_recomputation(
    trace, tmp_path, times, recompute
):
    trace.operator("CompiledFunction", 0, 90, **{"Sequence number": 5, "Fwd thread id": 0})
    trace.mm(10, 64, 32, 16)
    backward_node(trace, 100, 100 * times, "CompiledFunctionBackward")
    for index in range(times):
        trace.mm(110 + 100 * index, 64, 32, 16, tid=BACKWARD_THREAD)
    found = trace.count(tmp_path).full
    # Spread over the operators, each rounded to a whole number.
    assert found.recompute_flops == pytest.approx(recompute * MM, abs=times)
    assert found.hw_flops == (1 + times) * MM


def test_an_attention_forward_in_a_compiled_backward_is_recomputation(trace, tmp_path):
    backward_node(trace, 100, 100, "CompiledFunctionBackward")
    q = [1, 2, 8, 16]
    name = "aten::_scaled_dot_product_flash_attention"
    trace.operator(name, 110, 50, dims=[q] * 3, concrete=["0.", "True"], tid=BACKWARD_THREAD)
    trace.kernel("flash_fwd_kernel", 120, 10, tid=BACKWARD_THREAD)
    found = trace.count(tmp_path)
    assert found.full == FlopTotals(0, 2 * 2 * 64 * 32)
    assert found.visible == FlopTotals(0, 2 * 2 * 36 * 32)


# --- operand types


@pytest.mark.parametrize(
    ("kernel", "label"),
    [
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("cutlass_80_simt_sgemm_128x32", "fp32"),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4", "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128", "tf32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128", "fp32"),
        ("nvjet_sss_128x64_gemm", "fp32_or_tf32"),
    ],
)
def test_the_kernel_tells_whether_a_float_product_ran_as_tf32(trace, tmp_path, kernel, label):
    trace.mm(0, 64, 32, 16, kernels=(kernel,), dtype="float")
    assert trace.count(tmp_path).dominant_dtype == label


def test_flops_are_kept_by_operand_type(trace, tmp_path):
    trace.mm(0, 64, 32, 16)
    trace.operator("aten::_scaled_mm", 100, 50, dims=DIMS, dtype="c10::Float8_e4m3fn")
    trace.kernel("nvjet_qqtst_gemm", 110, 30)
    trace.operator("aten::_int_mm", 200, 50, dims=[[64, 16], [16, 16]], dtype="signed char")
    trace.kernel("i8816gemm_kernel", 210, 10)
    found = trace.count(tmp_path)
    assert {one.dtype: (one.full.hw_flops, one.time_ns) for one in found.by_dtype} == {
        "bf16": (MM, 10_000),
        "fp8": (MM, 30_000),
        "int8": (MM // 2, 10_000),
    }


# --- what is not counted, and why


def test_each_uncounted_kernel_is_named_with_its_reason(trace, tmp_path):
    trace.mm(0, 64, 32, 16)
    trace.kernel("gemm_before", 100, 10, launched=False)
    trace.kernel("gemm_in_graph", 200, 10, api="cudaGraphLaunch")
    trace.kernel("gemm_alone", 300, 10)
    trace.operator("aten::mm", 400, 50)
    trace.kernel("gemm_without_shapes", 410, 10)
    trace.operator("mylib::fused_moe", 500, 50, dims=DIMS)
    trace.kernel("gemm_of_unknown_operator", 510, 10)
    found = trace.count(tmp_path)
    assert {one.name: (one.operator, one.reason.split(":")[0]) for one in found.uncounted} == {
        "gemm_before": (None, "its launch is not recorded (before the recording began)"),
        "gemm_in_graph": (None, "graph replay"),
        "gemm_alone": (None, "launched outside any recorded operator"),
        "gemm_without_shapes": ("aten::mm", "no shapes recorded"),
        "gemm_of_unknown_operator": ("mylib::fused_moe", "no formula for this operator"),
    }
    assert found.flops_coverage_frac == pytest.approx(1 / 6)
    assert (found.tensor_kernels, found.known_kernels) == (6, 1)


def test_packed_attention_is_uncounted_with_a_bound_over_its_kernels(trace, tmp_path):
    q, offsets = [100, 4, 16], [5]
    trace.operator(
        *("flash_attn::_flash_attn_varlen_forward", 0, 50),
        **{
            "Input Dims": [q, q, q, offsets, offsets, [], [], [], [], [], [], []],
            "Input type": [BF16] * 3 + ["int"] * 2 + ["Scalar"] * 7,
            "Concrete Inputs": [""] * 5 + ["50", "50", "0.", "0.25", "False", "-1", "-1"],
        },
    )
    trace.kernel("flash_fwd_kernel", 10, 30)
    trace.kernel("flash_fwd_combine_kernel", 40, 10)
    found = trace.count(tmp_path)
    assert found.full.hw_flops == 0
    bounds = {one.name: one.bound_flops for one in found.uncounted}
    whole = 2 * 4 * 100 * 50 * 32
    assert bounds == {
        "flash_fwd_kernel": whole * 3 // 4,
        "flash_fwd_combine_kernel": whole // 4,
    }


def test_no_tensor_kernel_means_no_coverage_rather_than_all_or_nothing(trace, tmp_path):
    trace.operator("aten::relu", 0, 50, dims=[[64, 16]])
    trace.kernel("vectorized_elementwise_kernel", 10, 10)
    found = trace.count(tmp_path)
    assert found.flops_coverage_frac is None
    assert found.dominant_dtype is None
    (kernel,) = found.kernels
    assert (kernel.flops, kernel.bytes, kernel.is_tensor) == (None, 2 * 2 * 64 * 16, False)


@pytest.mark.parametrize(
    ("name", "dims", "size"),
    [
        ("aten::add", [[64, 16], [16]], 2 * (64 * 16 + 16 + 64 * 16)),
        ("aten::add_", [[64, 16], [64, 16]], 2 * 3 * 64 * 16),
        ("aten::copy_", [[64, 16], [64, 16]], 2 * 2 * 64 * 16),
        ("aten::zero_", [[64, 16]], 2 * 64 * 16),
        ("aten::sum", [[64, 16]], 2 * 64 * 16),
        ("triton_poi_fused_add_0", [[64, 16], [64, 16], [64, 16]], 2 * 3 * 64 * 16),
        ("triton_poi_fused_embedding_0", [[50_000, 16], [64, 16]], None),
        ("aten::index_select", [[50_000, 16], [64]], None),
    ],
)
def test_memory_bound_operators_move_each_tensor_once(trace, tmp_path, name, dims, size):
    trace.operator(name, 0, 50, dims=dims)
    trace.kernel("vectorized_elementwise_kernel", 10, 10)
    assert trace.count(tmp_path).kernels[0].bytes == size


def test_each_device_counts_its_own_kernels(trace, tmp_path):
    trace.mm(0, 64, 32, 16)
    trace.operator("aten::mm", 100, 50, dims=DIMS)
    for device in (0, 1):
        trace.kernel(GEMM, 110, 10, device=device)
    first, second = trace.count_all(tmp_path)
    assert (first.device, first.full.hw_flops) == (0, MM + MM // 2)
    assert (second.device, second.full.hw_flops) == (1, MM // 2)


def test_a_trace_of_kernels_alone_counts_nothing_and_says_why(trace, tmp_path):
    trace.kernel(GEMM, 10, 10, launched=False)
    found = trace.count(tmp_path)
    assert (found.full.hw_flops, found.flops_coverage_frac) == (0, 0.0)
    assert [one.reason for one in found.uncounted] == [NOT_RECORDED]


def test_a_window_without_kernels_is_empty(trace, tmp_path):
    trace.mm(0, 64, 32, 16)
    found = trace.count(tmp_path, 5_000, 6_000)
    assert (found.full, found.tensor_kernels, found.kernels) == (FlopTotals(), 0, ())
    assert found.flops_coverage_frac is None


@given(st.randoms())
def test_the_order_of_events_and_the_names_of_threads_change_nothing(tmp_path_factory, random):
    trace = SmallTrace()
    trace.mm(0, 64, 32, 16, kernels=(GEMM, "splitKreduce_kernel"), **{"Sequence number": 5})
    backward_node(trace, 100, 300)
    trace.operator("aten::linear", 105, 60, tid=BACKWARD_THREAD, **{"Sequence number": 6})
    trace.mm(110, 64, 32, 16, tid=BACKWARD_THREAD)
    trace.mm(200, 64, 32, 16, tid=BACKWARD_THREAD)
    folder = tmp_path_factory.mktemp("order")
    expected = trace.count(folder)
    random.shuffle(trace.events)
    for event in trace.events:
        if event["cat"] != "kernel":
            event["tid"] += 1000
    assert trace.count(folder) == expected
