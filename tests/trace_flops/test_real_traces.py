"""Real traces: nothing above the device's dense peak, coverage as measured, reasons named."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
import require

from gpudiag.analyze.device import build_devices
from gpudiag.analyze.host import build_host
from gpudiag.analyze.trace_flops.attention import UNKNOWN_LENGTHS
from gpudiag.analyze.trace_flops.count import count_flops
from gpudiag.analyze.trace_flops.results import Phase
from gpudiag.analyze.trace_flops.uncounted import GRAPH, NO_FORMULA, NOT_RECORDED
from gpudiag.analyze.window import device_window
from gpudiag.trace import read_trace

if TYPE_CHECKING:
    from gpudiag.analyze.trace_flops.results import WindowFlops

pytestmark = pytest.mark.needs("shared")

NO_SHAPES = "no shapes recorded"

# Dense TFLOP/s by operand type, as the data sheets print them.
H100 = {"bf16": 989.4, "fp8": 1978.9, "tf32": 494.7, "fp32": 66.9}
A100 = {"bf16": 312.0, "tf32": 156.0, "fp32": 19.5, "fp32_or_tf32": 156.0}
MI300X = {"bf16": 1307.4}
B200 = {"bf16": 2250.0}
MI250X = {"fp32": 47.9, "fp32_or_tf32": 47.9}

NANOGPT = "kt-nanogpt-8rank-h100/*-{}-chrome*"
VIT = "kt-ao-vit-bf16-vs-int8-a100"
# trace, peaks, coverage, the reasons for what is not counted
TRACES = [
    *((NANOGPT.format(f"rank{r}"), H100, 0.812, {UNKNOWN_LENGTHS}) for r in range(8)),
    ("kt-tracelens-h100-qwen-bert/Qwen*", H100, 0.696, {NOT_RECORDED}),
    ("kt-tracelens-h100-qwen-bert/gaunernst*", H100, 1.0, set()),
    ("kt-tracelens-mi300-vision/google*", MI300X, 1.0, set()),
    ("kt-tracelens-mi300-vision/facebook*", MI300X, 1.0, set()),
    ("kt-tracelens-mi300-vision/Falconsai*", MI300X, 1.0, set()),
    ("kt-tracelens-mi300-ddp-rank0of8/*.gz", MI300X, 1.0, set()),
    ("kt-tracelens-small-mi300/trace*", MI300X, 1.0, set()),
    ("kt-tracelens-small-mi300/norm*", MI300X, None, set()),
    ("kt-tracelens-b200-rank0of8/*.gz", B200, 0.12, {NO_FORMULA}),
    ("kt-tracelens-sglang-mi300/*_decode*", MI300X, 0.0, {GRAPH}),
    ("kt-tracelens-sglang-mi300/*_prefill*", MI300X, 0.954, {NO_FORMULA}),
    (f"{VIT}/bfloat16.json.gz", A100, 0.0, {GRAPH}),
    (f"{VIT}/bfloat16_first*", A100, 0.0, {GRAPH}),
    (f"{VIT}/quant.json.gz", A100, 0.0, {GRAPH}),
    (f"{VIT}/quant_PG*", A100, 0.0, {GRAPH}),
    (f"{VIT}/amg*", A100, 0.72, {GRAPH, "Inductor template without kernel_flop"}),
    ("kt-switchtransformer-a100pcie/trace.json", A100, 1.0, set()),
    ("kt-qa-tutorial-h100-two-windows/dcb*21105859*", H100, 1.0, set()),
    ("kt-hta-mi250-rocm62/*.gz", MI250X, 1.0, set()),
    ("kt-hta-ns-timestamps-v100/*.gz", {}, 0.0, {NO_SHAPES}),
    ("kt-hta-ncclmeta-a100-rank0of2/*.gz", A100, 0.0, {NO_SHAPES}),
    ("kt-megatron-tp2-v100-2rank/*1375*", {}, 0.0, {NO_SHAPES}),
]
WITH_FLOPS = [one for one in TRACES if one[2]]


@cache
def counted(pattern: str) -> WindowFlops:
    (path,) = (require.SHARED / "traces").glob(pattern)
    trace = read_trace(str(path))
    host = build_host(trace)
    devices, _ = build_devices(trace, host)
    windows = [(device, device_window(device, host)) for device in devices]
    (found,) = count_flops(trace, host, windows)
    return found


@pytest.mark.parametrize(("pattern", "peaks"), [one[:2] for one in WITH_FLOPS])
def test_no_operator_and_no_type_ran_above_the_dense_peak(pattern, peaks):
    found = counted(pattern)
    for one in found.by_dtype:
        assert one.visible.hw_flops <= peaks[one.dtype] * 1000 * one.time_ns
    for one in found.operators:
        assert one.visible_flops <= peaks[one.dtype] * 1000 * one.time_ns, one


@pytest.mark.parametrize(("pattern", "coverage"), [(one[0], one[2]) for one in TRACES])
def test_coverage_is_as_measured(pattern, coverage):
    found = counted(pattern).flops_coverage_frac
    # Loose by what other kernels' classes may move; exact where all or nothing is known.
    slack = 0 if coverage in {0.0, 1.0} else 0.03
    assert found == (None if coverage is None else pytest.approx(coverage, abs=slack))


@pytest.mark.parametrize(("pattern", "reasons"), [(one[0], one[3]) for one in TRACES])
def test_every_uncounted_kernel_is_named_with_a_reason(pattern, reasons):
    found = counted(pattern)
    assert all(one.name and one.reason for one in found.uncounted)
    assert reasons <= {one.reason for one in found.uncounted}
    lost = sum(one.time_ns for one in found.uncounted)
    assert lost == found.tensor_ns - found.known_ns
    main = max(found.uncounted, key=lambda one: one.time_ns, default=None)
    assert (main.reason if main else None) in (reasons or {None})


@pytest.mark.parametrize("pattern", [one[0] for one in TRACES])
def test_the_tables_sum_to_the_totals(pattern):
    found = counted(pattern)
    assert sum(one.full.hw_flops for one in found.by_dtype) == found.full.hw_flops
    assert sum(one.full_flops for one in found.operators) == found.full.hw_flops
    assert sum(one.visible_flops for one in found.operators) == found.visible.hw_flops
    assert sum(one.flops or 0 for one in found.kernels) == found.visible.hw_flops
    tensor = [one for one in found.kernels if one.is_tensor]
    assert sum(one.time_ns for one in tensor) == found.tensor_ns
    assert found.visible.hw_flops <= found.full.hw_flops


def test_nanogpt_counts_its_two_layers_of_products_by_hand():
    """Rank 0, two periods: 16384 tokens of width 768 through what the trace shows of the model."""
    found = counted(NANOGPT.format("rank0"))
    tokens, width, vocabulary, steps = 16_384, 768, 50_304, 2
    head = 2 * tokens * width * vocabulary
    in_fp8 = next(one for one in found.by_dtype if one.dtype == "fp8")
    assert in_fp8.full.model_flops == steps * 3 * head  # logits, and both their gradients
    up = 2 * tokens * width * 3072
    products = [one for one in found.operators if one.dims.startswith("[[16384,768],[768,3072]")]
    by_phase = {one.phase: one.full_flops for one in products}
    assert by_phase == {Phase.FORWARD: steps * 11 * up, Phase.BACKWARD: steps * 11 * up}
    assert found.dominant_dtype == "bf16"


def test_nanogpts_orthogonalisation_is_the_optimizers():
    found = counted(NANOGPT.format("rank0"))
    inside = [one for one in found.operators if one.phase == Phase.OPTIMIZER]
    assert {one.name for one in inside} == {"aten::bmm", "aten::baddbmm"}
    assert found.full.optimizer_flops == sum(one.full_flops for one in inside) > 0
    assert found.full.extra_flops == found.full.optimizer_flops


def test_nanogpts_packed_attention_is_bounded_well_below_the_rest():
    found = counted(NANOGPT.format("rank0"))
    bounds = [one.bound_flops for one in found.uncounted if one.reason == UNKNOWN_LENGTHS]
    assert None not in bounds
    assert 0 < sum(bounds) < 0.05 * found.full.hw_flops


def test_activation_checkpointing_is_seen_on_rocm():
    found = counted("kt-tracelens-mi300-ddp-rank0of8/*.gz").full
    # A third of forward and backward is the forward; nearly all of it is run again.
    assert 0.3 < found.recompute_flops / found.model_flops < 1 / 3
    assert found.extra_flops == 0


def test_a_whole_resnet50_of_2021_counts_without_scalars():
    """ResNet-50 at 224: 4.09 GMAC forward (torchvision), 32 images, gradients twice that."""
    found = counted("kt-kineto2021-w0-vs-w4-v100/worker0.1623212756351*")
    steps = 4
    images = 32 * steps
    first_input_gradient = 2 * 64 * 3 * 49 * 112 * 112  # the image needs none
    a_step = 3 * 2 * 4_089_184_256 - first_input_gradient
    assert found.full.hw_flops == pytest.approx(images * a_step, rel=0.001)
    assert found.flops_coverage_frac == 1


def test_causal_attention_halves_what_is_visible():
    found = counted("kt-tracelens-h100-qwen-bert/Qwen*")
    (flash,) = (one for one in found.operators if one.name == "aten::_flash_attention_forward")
    queries = 559
    assert flash.full_flops == 24 * 4 * 16 * 16 * queries**2 * 64
    assert flash.visible_flops * 2 * queries == flash.full_flops * (queries + 1)
