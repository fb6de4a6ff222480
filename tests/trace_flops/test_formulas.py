"""FLOPs of single calls, counted by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudiag.analyze.trace_flops.attention import UNKNOWN_LENGTHS, Mask
from gpudiag.analyze.trace_flops.call import Call, parse_call
from gpudiag.analyze.trace_flops.formulas import Flops, Kind, Unknown, flops_of, kind_of

BF16, F32 = "c10::BFloat16", "float"


def call(name, *dims, concrete=(), types=None, dtype=BF16) -> Call:
    """Build a call; scalars follow the tensors, with empty shapes, as in a trace."""
    scalars = [str(one) for one in concrete]
    shapes = [list(one) for one in dims] + [[] for _ in scalars]
    if types is None:
        types = [dtype if one else "" for one in dims]
    return Call(
        name,
        tuple(tuple(map(freeze, one)) for one in shapes),
        ("",) * len(dims) + tuple(scalars),
        tuple(types) + ("Scalar",) * len(scalars),
    )


def freeze(one):
    return tuple(map(freeze, one)) if isinstance(one, list) else one


def known(one: Call, **kwargs) -> Flops:
    found = flops_of(one, **kwargs)
    assert isinstance(found, Flops), found
    return found


M, K, N, B, G = 3, 5, 7, 4, 2
MATMULS = [
    ("aten::mm", [(M, K), (K, N)], 2 * M * K * N),
    ("aten::mm", [(M, K), (K, N), (M, N)], 2 * M * K * N),  # out= variant, as Inductor calls it
    ("aten::_int_mm", [(M, K), (K, N)], 2 * M * K * N),
    ("aten::_scaled_mm", [(M, K), (K, N), (), ()], 2 * M * K * N),
    ("aten::_scaled_mm_v2", [(M, K), (K, N)], 2 * M * K * N),
    ("aten::addmm", [(N,), (M, K), (K, N)], 2 * M * K * N),
    ("aten::addmm_", [(M, N), (M, K), (K, N)], 2 * M * K * N),
    ("aten::_addmm_activation", [(N,), (M, K), (K, N)], 2 * M * K * N),
    ("aten::bmm", [(B, M, K), (B, K, N)], 2 * B * M * K * N),
    ("aten::baddbmm", [(B, M, N), (B, M, K), (B, K, N)], 2 * B * M * K * N),
    ("aten::addbmm", [(M, N), (B, M, K), (B, K, N)], 2 * B * M * K * N),
    ("aten::_grouped_mm", [(M, K), (G, K, N), (G,)], 2 * M * K * N),
    ("aten::_grouped_mm", [(M, K), (K, N), (G,)], 2 * M * K * N),
    ("aten::_grouped_mm", [(G, M, K), (G, K, N)], 2 * G * M * K * N),
    ("aten::_grouped_mm", [(G, M, K), (K, N), (G,)], 2 * M * K * N),
    ("aten::_scaled_grouped_mm", [(M, K), (G, K, N)], 2 * M * K * N),
    ("aten::_scaled_grouped_mm_v2", [(M, K), (G, K, N)], 2 * M * K * N),
    ("aten::_weight_int8pack_mm", [(M, K), (N, K), (N,)], 2 * M * K * N),
    ("aten::_weight_int4pack_mm", [(M, 64), (2, 4, 32, 4)], 2 * M * 64 * 16),
    ("aten::mv", [(M, K), (K,)], 2 * M * K),
    ("aten::addmv_", [(M,), (M, K), (K,)], 2 * M * K),
    ("aten::dot", [(K,), (K,)], 2 * K),
    ("aten::matmul", [(B, 1, M, K), (G, K, N)], 2 * B * G * M * K * N),
    ("aten::matmul", [(K,), (K, N)], 2 * K * N),
    ("aten::linear", [(B, M, K), (N, K), (N,)], 2 * B * M * K * N),
    ("aten::mkldnn_linear", [(B, M, K), (N, K), (N,)], 2 * B * M * K * N),
    ("mkldnn::_linear_pointwise", [(M, K), (N, K)], 2 * M * K * N),
    ("aten::mkldnn_linear_backward_input", [(), (M, N), (N, K)], 2 * M * K * N),
    ("aten::mkldnn_linear_backward_weights", [(M, N), (M, K), (N, K)], 2 * M * K * N),
]


@pytest.mark.parametrize(("name", "dims", "flops"), MATMULS)
def test_a_product_counts_two_per_multiply_add(name, dims, flops):
    found = known(call(name, *dims))
    assert (found.model, found.executed, found.visible_executed) == (flops,) * 3


def test_linear_backward_counts_what_its_mask_asks_for():
    for mask, times in (("[True, True, True]", 2), ("[False, True, False]", 1)):
        one = call("aten::linear_backward", (M, K), (M, N), (N, K), concrete=[mask])
        assert known(one).model == times * 2 * M * K * N


def test_two_fp4_values_share_a_byte_of_the_shape():
    one = call("aten::_scaled_mm", (M, K), (K, N), types=["c10::Float4_e2m1fn_x2"] * 2)
    assert known(one).model == 2 * M * (2 * K) * N
    assert known(one).dtype == "fp4"


@pytest.mark.parametrize(
    ("recorded", "label"),
    [
        ("c10::BFloat16", "bf16"),
        ("c10::Half", "fp16"),
        ("float", "fp32"),
        ("double", "fp64"),
        ("c10::Float8_e4m3fn", "fp8"),
        ("c10::Float8_e5m2", "fp8"),
        ("signed char", "int8"),
        ("struct NotYetInvented", None),
    ],
)
def test_the_type_is_that_of_the_operands(recorded, label):
    assert known(call("aten::mm", (M, K), (K, N), dtype=recorded)).dtype == label
    bias_first = call("aten::addmm", (N,), (M, K), (K, N), types=["float", recorded, recorded])
    assert known(bias_first).dtype == label


def test_bytes_are_operands_and_result_once():
    assert known(call("aten::mm", (M, K), (K, N))).bytes == 2 * (M * K + K * N + M * N)
    biased = known(call("aten::addmm", (N,), (M, K), (K, N)))
    assert biased.bytes == 2 * (N + M * K + K * N + M * N)
    unknown = call("aten::mm", (M, K), (K, N), types=["?", "?"])
    assert known(unknown).bytes is None


SPD = ["[1, 1]", "[0, 0]", "[1, 1]"]  # stride, padding, dilation


def conv(name, x, w, *scalars, bias=()):
    return call(name, x, w, bias, concrete=scalars)


CONVOLUTIONS = [
    # 3x3 over 8x8 without padding: 6x6 outputs
    (
        conv("aten::convolution", (2, 4, 8, 8), (6, 4, 3, 3), *SPD, "False", "[0, 0]", "1"),
        2 * 2 * 36 * 6 * 4 * 9,
    ),
    # groups: weight[1] is C_in / groups already
    (
        conv("aten::convolution", (2, 4, 8, 8), (6, 2, 3, 3), *SPD, "False", "[0, 0]", "2"),
        2 * 2 * 36 * 6 * 2 * 9,
    ),
    # stride 2, padding 1, dilation 2: (8 + 2 - 2*2 - 1)//2 + 1 = 3
    (
        conv(
            "aten::_convolution",
            *((1, 4, 8, 8), (6, 4, 3, 3)),
            *(
                "[2, 2]",
                "[1, 1]",
                "[2, 2]",
                "False",
                "[0, 0]",
                "1",
                "False",
                "True",
                "True",
                "True",
            ),
        ),
        2 * 9 * 6 * 4 * 9,
    ),
    # transposed: every input value meets the whole weight
    (
        conv("aten::convolution", (2, 4, 8, 8), (4, 6, 3, 3), *SPD, "True", "[0, 0]", "1"),
        2 * 2 * 64 * 4 * 6 * 9,
    ),
    (conv("aten::conv_transpose2d", (1, 4, 8, 8), (4, 6, 2, 2), "[2, 2]"), 2 * 64 * 4 * 6 * 4),
    (conv("aten::cudnn_convolution_transpose", (1, 4, 8, 8), (4, 6, 2, 2)), 2 * 64 * 4 * 6 * 4),
    # the backends' order: padding, stride, dilation; here (8 + 2 - 3)//2 + 1 = 4
    (
        call(
            "aten::cudnn_convolution",
            *((1, 4, 8, 8), (6, 4, 3, 3)),
            concrete=["[1, 1]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"],
        ),
        2 * 16 * 6 * 4 * 9,
    ),
    (
        conv("aten::miopen_convolution", (1, 4, 8, 8), (6, 4, 3, 3), "[1, 1]", "[2, 2]", "[1, 1]"),
        2 * 16 * 6 * 4 * 9,
    ),
    (
        conv("aten::mkldnn_convolution", (1, 4, 8, 8), (6, 4, 3, 3), "[1, 1]", "[2, 2]", "[1, 1]"),
        2 * 16 * 6 * 4 * 9,
    ),
    (
        call(
            "aten::_slow_conv2d_forward",
            *((1, 4, 8, 8), (6, 4, 3, 3)),
            concrete=["[3, 3]", "", "[2, 2]", "[1, 1]"],
        ),
        2 * 16 * 6 * 4 * 9,
    ),
    # 1-D and 3-D
    (conv("aten::conv1d", (2, 4, 8), (6, 4, 3), "[1]", "[0]", "[1]", "1"), 2 * 2 * 6 * 6 * 4 * 3),
    (
        conv("aten::conv3d", (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), "[1, 1, 1]", "[0]", "[1]"),
        2 * 27 * 3 * 2 * 8,
    ),
    # padding by name
    (conv("aten::conv2d", (1, 4, 8, 8), (6, 4, 3, 3), "[1]", "same", "[1]"), 2 * 64 * 6 * 4 * 9),
    (conv("aten::conv2d", (1, 4, 8, 8), (6, 4, 4, 4), "[1]", "same", "[1]"), 2 * 64 * 6 * 4 * 16),
    (conv("aten::conv2d", (1, 4, 8, 8), (6, 4, 3, 3), "[1]", "valid", "[1]"), 2 * 36 * 6 * 4 * 9),
    # without a batch dimension
    (conv("aten::conv2d", (4, 8, 8), (6, 4, 3, 3), *SPD), 2 * 36 * 6 * 4 * 9),
]


@pytest.mark.parametrize(("one", "flops"), CONVOLUTIONS, ids=lambda one: getattr(one, "name", ""))
def test_a_convolution_counts_its_outputs_times_its_weight(one, flops):
    assert known(one).model == flops


def backward(mask, weight=(6, 4, 3, 3), transposed="False", grad=(2, 6, 6, 6)):
    tail = ["[6]", *SPD, transposed, "[0, 0]", "1", mask]
    return call("aten::convolution_backward", grad, (2, 4, 8, 8), weight, concrete=tail)


ONE_WAY = 2 * 2 * 36 * 6 * 4 * 9


@pytest.mark.parametrize(
    ("one", "flops"),
    [
        (backward("[True, True, True]"), 2 * ONE_WAY),
        (backward("[False, True, True]"), ONE_WAY),  # the first layer's input needs no gradient
        (backward("[True, False, False]"), ONE_WAY),
        (backward("[False, False, True]"), 0),
        # groups = 4: torch.utils.flop_counter counts the weight's gradient 4 times here
        (
            backward("[True, True, False]", weight=(8, 1, 3, 3), grad=(2, 8, 6, 6)),
            2 * 2 * 2 * 36 * 8 * 9,
        ),
        (
            backward("[True, True, False]", (4, 6, 3, 3), "True", (2, 6, 10, 10)),
            2 * 2 * 2 * 64 * 4 * 6 * 9,
        ),
    ],
)
def test_a_convolutions_backward_counts_the_forward_per_gradient(one, flops):
    assert known(one).model == flops


def test_a_convolution_without_scalars_takes_the_output_of_its_backward():
    one = call("aten::cudnn_convolution", (2, 4, 8, 8), (6, 4, 3, 3))
    assert isinstance(flops_of(one), Unknown)
    outputs = {((2, 4, 8, 8), (6, 4, 3, 3)): (6, 6)}
    assert known(one, outputs=outputs).model == ONE_WAY


def test_a_backward_without_its_mask_is_counted_per_half():
    one = call("aten::cudnn_convolution_backward", (2, 4, 8, 8), (2, 6, 6, 6), (6, 4, 3, 3))
    assert (known(one).model, known(one).per_half) == (ONE_WAY, True)


# b, h, s, d of queries; 2 s_k (d + d_v) = 64 per pair of batch, head and query
Q = (2, 4, 8, 16)
PAIRS = 2 * 4 * 8 * 8
FORWARD = PAIRS * 2 * (16 + 16)
VISIBLE = 2 * 4 * 36 * 2 * (16 + 16)  # 8 * 9 / 2 pairs per head
BACKWARD_VISIBLE_EXECUTED = 2 * 4 * 36 * 2 * (3 * 16 + 2 * 16)
Q_FLASH = (2, 8, 4, 16)

ATTENTION = [
    ("aten::scaled_dot_product_attention", Q, ["", "0.", "{}", "", "False"]),
    ("aten::_scaled_dot_product_flash_attention", Q, ["0.", "{}", "False", "0.25"]),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", Q, ["0.", "{}", "", ""]),
    ("aten::_scaled_dot_product_efficient_attention", Q, ["", "True", "0.", "{}", ""]),
    ("aten::_scaled_dot_product_cudnn_attention", Q, ["", "True", "0.", "{}", "False", ""]),
    (
        "aten::_scaled_dot_product_fused_attention_overrideable",
        Q,
        ["", "0.", "{}", "False", ""],
    ),
    ("aten::_flash_attention_forward", Q_FLASH, ["", "", "8", "8", "0.", "{}", "False"]),
    (
        "flash_attn::_flash_attn_forward",
        Q_FLASH,
        ["0.", "0.25", "{}", "-1", "-1", "0.", "", "False"],
    ),
    (
        "flash_attn_3::fwd",
        Q_FLASH,
        [*([""] * 21), "0.25", "{}", "-1", "-1", "0", "0.", "True", "", "1", "", "0"],
    ),
    ("xformers_flash::flash_fwd", Q_FLASH, ["", "", "", "8", "8", "0.", "0.25", "{}", "-1", "-1"]),
]


@pytest.mark.parametrize(("name", "q", "scalars"), ATTENTION, ids=[one[0] for one in ATTENTION])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_every_pair_and_beside_it_the_visible_ones(name, q, scalars, causal):
    one = call(name, q, q, q, concrete=[s.format(causal) for s in scalars])
    found = known(one)
    assert found.model == found.executed == FORWARD
    assert found.visible_model == found.visible_executed == (VISIBLE if causal else FORWARD)
    assert found.bytes == 4 * 2 * 2 * 4 * 8 * 16  # q, k, v and the output, two bytes each
    assert kind_of(name) == Kind.ATTENTION


BACKWARDS = [
    ("aten::_scaled_dot_product_flash_attention_backward", Q, ["", "", "8", "8", "0.", "{}"]),
    ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", Q, ["0.", "{}"]),
    (
        "aten::_scaled_dot_product_efficient_attention_backward",
        Q,
        ["", "", "", "0.", "[True, True, True, False]", "{}"],
    ),
    (
        "aten::_scaled_dot_product_cudnn_attention_backward",
        Q,
        ["", "", "", "", "", "8", "8", "0.", "{}"],
    ),
    (
        "aten::_scaled_dot_product_fused_attention_overrideable_backward",
        Q,
        ["[True, True, True, False]", "", "", "8", "8", "0.", "{}", "", ""],
    ),
    (
        "aten::_flash_attention_backward",
        Q_FLASH,
        ["", "", "8", "8", "0.", "{}", "", "", "", "", ""],
    ),
    (
        "flash_attn::_flash_attn_backward",
        Q_FLASH,
        ["0.", "0.25", "{}", "-1", "-1", "0.", "", "False", ""],
    ),
]


@pytest.mark.parametrize(("name", "q", "scalars"), BACKWARDS, ids=[one[0] for one in BACKWARDS])
@pytest.mark.parametrize("causal", [False, True])
def test_attentions_backward_is_twice_the_forward_and_runs_two_and_a_half(name, q, scalars, causal):
    one = call(name, q, q, q, q, q, (2, 4, 8), concrete=[s.format(causal) for s in scalars])
    found = known(one)
    assert (found.model, found.executed) == (2 * FORWARD, FORWARD * 5 // 2)
    visible = BACKWARD_VISIBLE_EXECUTED if causal else FORWARD * 5 // 2
    assert found.visible_executed == visible
    assert kind_of(name) == Kind.ATTENTION_BACKWARD


def test_efficient_attentions_mask_type_tells_causality():
    for mask, flops in (("0", FORWARD), ("1", VISIBLE), ("2", VISIBLE)):
        tail = ["", "", "", "", "", "0.", mask, "True", "", "", ""]
        one = call("aten::_efficient_attention_forward", Q_FLASH, Q_FLASH, Q_FLASH, concrete=tail)
        assert known(one).visible_executed == flops


def test_fewer_key_heads_and_another_value_width_count_right():
    one = call(
        "aten::_scaled_dot_product_flash_attention",
        *((1, 8, 5, 16), (1, 2, 9, 16), (1, 2, 9, 4)),
        concrete=["0.", "False", "False"],
    )
    assert known(one).model == 2 * 8 * 5 * 9 * (16 + 4)


def test_a_window_is_part_of_the_model_and_causality_cuts_it():
    tail = ["", "", "64", "64", "0.", "True", "False", "", "7", "0"]
    q = (1, 64, 2, 16)
    found = known(call("aten::_flash_attention_forward", q, q, q, concrete=tail))
    assert found.model == 2 * 64 * 8 * 2 * 32  # 8 keys per query
    assert found.visible_model == 2 * (64 * 8 - 28) * 2 * 32  # the first 7 see 1..7


def varlen(total, offsets, longest, name="flash_attn::_flash_attn_varlen_forward"):
    q = (total, 4, 16)
    types = [BF16] * 3 + ["int"] * 2
    scalars = [str(longest), str(longest), "0.", "0.25", "True", "-1", "-1", "0."]
    return call(name, q, q, q, (offsets,), (offsets,), concrete=scalars, types=types)


def test_packed_sequences_of_unknown_lengths_are_not_counted_but_bounded():
    found = flops_of(varlen(100, 5, 50))
    assert found == Unknown(UNKNOWN_LENGTHS, 2 * 4 * 100 * 50 * 32)


def test_packed_sequences_that_can_only_be_equal_or_one_are_counted():
    equal = known(varlen(100, 5, 25))
    assert equal.model == 4 * 4 * 25 * 25 * 2 * 32
    assert equal.visible_model == 4 * 4 * (25 * 26 // 2) * 2 * 32
    assert known(varlen(100, 2, 100)).model == 4 * 100 * 100 * 2 * 32


def test_inductors_own_count_comes_first():
    one = call("triton_tem_fused_mm_7", (8, 4), (4, 2), (8, 2))
    assert known(one, recorded_flops=128).model == 128
    assert flops_of(one) == Unknown("Inductor template without kernel_flop")


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (Call("aten::mm", (), (), ()), "no shapes recorded"),
        (call("aten::mm", (M, K), (K + 1, N)), "don't fit"),
        (call("aten::linear", (2048, 512), (2048, 160, 300)), "don't fit"),
        (call("aten::bmm", (M, K), (K, N)), "argument 0"),
        (conv("aten::convolution", (2, 4, 8, 8), (6, 4, 3, 3)), "not recorded"),
        (call("aten::_scaled_dot_product_flash_attention", Q, Q), "argument 2"),
        (call("aten::relu", Q), "no formula"),
    ],
)
def test_what_shapes_do_not_tell_is_unknown_with_a_reason(one, reason):
    found = flops_of(one)
    assert isinstance(found, Unknown)
    assert reason in found.reason


@pytest.mark.parametrize(
    "name",
    [
        *("aten::relu", "aten::einsum", "ncclDevKernel", "triton_poi_fused_mm_0", "FlashAttnFunc"),
        *("flash_attn::_flash_attn_with_kvcache_forward", "fbgemm::permute", "nanogpt::mm"),
    ],
)
def test_other_names_have_no_formula(name):
    assert kind_of(name) == Kind.NONE


@pytest.mark.parametrize("text", ["", "{}", "[[2,", '"x"', "null", '[["a"],[2]]'])
def test_text_that_is_no_list_of_shapes_is_a_call_without_any(text):
    found = flops_of(parse_call("aten::mm", text, text, text))
    assert isinstance(found, Unknown)


def test_shapes_suffice_where_scalars_and_types_are_no_text():
    found = flops_of(parse_call("aten::mm", *["[[2,3],[3,4]]"] * 3))
    assert (found.model, found.bytes, found.dtype) == (2 * 2 * 3 * 4, None, None)


NAMES = sorted(
    {*(one[0] for one in MATMULS + ATTENTION + BACKWARDS), *(one.name for one, _ in CONVOLUTIONS)}
)
shapes = st.lists(st.integers(-3, 2**40) | st.lists(st.integers(0, 9), max_size=2), max_size=5)
scalars = st.sampled_from(["", "True", "[0]", "[1, 1]", "[-2, 0]", "same", "7", "[True]", "x"])


@given(st.sampled_from(NAMES), st.lists(shapes | st.integers(), max_size=8), st.lists(scalars))
def test_no_argument_makes_a_formula_fail(name, dims, concrete):
    types = [BF16] * len(dims)
    one = parse_call(name, json.dumps(dims), json.dumps(concrete), json.dumps(types))
    found = flops_of(one)
    assert isinstance(found, Unknown) or found.model >= 0


def brute_force(mask, queries, keys):
    right = 0 if mask.causal else mask.right
    return sum(
        (right is None or j <= i + keys - queries + right)
        and (mask.left is None or j >= i + keys - queries - mask.left)
        for i in range(queries)
        for j in range(keys)
    )


sizes = st.integers(1, 12)
windows = st.none() | st.integers(0, 14)


@given(sizes, sizes, st.booleans(), windows, windows)
def test_visible_pairs_are_those_of_the_mask(queries, keys, causal, left, right):
    mask = Mask(causal, left, right)
    assert mask.pairs(queries, keys, full=0) == brute_force(mask, queries, keys)


@given(sizes, sizes, st.booleans(), windows, windows)
def test_the_full_convention_never_counts_fewer_than_are_visible(
    queries, keys, causal, left, right
):
    mask = Mask(causal, left, right)
    assert mask.pairs(queries, keys, full=1) >= mask.pairs(queries, keys, full=0)
