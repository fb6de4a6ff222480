"""MFU, HFU and the waterfall that sums to one."""

from __future__ import annotations

import json

import pytest
import require
from simulator import scenarios

from analyze.traces import Work, job, trace
from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.rank import Options
from gpudiag.trace import read_job

H100_BF16 = 989.4e12


def analyze(*paths, **options):
    return analyze_job(read_job([str(path) for path in paths]), Options(**options))


def simulated(tmp_path, name, **options):
    scenarios.build(name).write(tmp_path)
    return analyze(*sorted(tmp_path.glob("rank*.gz")), **options)


@pytest.mark.parametrize("name", ["clean", "slow_loader", "ddp_slow_loader_rank", "two_devices"])
def test_the_waterfall_sums_to_one_for_each_rank_and_the_job(tmp_path, name):
    """MFU and everything between it and the peak add up, and the tensor part is its bucket."""
    analysis = simulated(tmp_path, name)
    for result in analysis.ranks:
        if result.waterfall is None:
            assert result.mfu is None
            continue
        shares = {term.id: term.share for term in result.waterfall}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
        of_tensor = ("mfu", "recompute", "extra_flops", "dtype", "kernel_residual")
        tensor = sum(shares[name] for name in of_tensor)
        assert tensor == pytest.approx(result.buckets_ns["compute.tensor"] / result.window_ns)
        assert shares["mfu"] == pytest.approx(result.mfu)
        assert result.mfu <= result.hfu <= 1
    if analysis.waterfall is not None:
        assert sum(term.share for term in analysis.waterfall) == pytest.approx(1, abs=1e-9)


def test_mfu_is_model_flops_over_peak_and_window(tmp_path):
    """The definition, with the numbers that stand beside it."""
    analysis = simulated(tmp_path, "clean")
    (result,) = analysis.ranks
    assert analysis.job.gpu_name == "NVIDIA H100 80GB HBM3"
    assert analysis.job.dtype == "bf16"
    assert analysis.job.peak_tflops * 1e12 == pytest.approx(H100_BF16, rel=1e-3)
    budget = analysis.job.peak_tflops * 1e12 * result.window_ns / 1e9
    assert result.mfu == pytest.approx(result.model_flops / budget)
    assert result.hfu == pytest.approx(result.hw_flops / budget)
    assert result.flops_coverage == 1
    assert analysis.headline.startswith(f"MFU {100 * result.mfu:.1f} %.")


def test_a_peak_given_by_hand_is_the_denominator(tmp_path):
    """Twice the peak is half the MFU, and the source says that it was given."""
    looked_up = simulated(tmp_path, "clean")
    given = simulated(tmp_path, "clean", peak_tflops=2 * looked_up.job.peak_tflops)
    assert given.job.mfu == pytest.approx(looked_up.job.mfu / 2)
    assert given.job.peak_source == "given by hand"


def test_a_mean_clock_below_the_peaks_own_is_a_term_of_its_own(tmp_path):
    """At 90 % of the clock behind the peak, a ninth of the ideal time is the clock's."""
    analysis = simulated(tmp_path, "clean", sm_clock_mhz=0.9 * 1830)
    shares = {term.id: term.share for term in analysis.waterfall}
    ideal = shares["mfu"] + shares["recompute"] + shares["extra_flops"] + shares["dtype"]
    assert shares["clock"] == pytest.approx(ideal / 9, rel=0.01)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)


def test_an_mfu_over_100_percent_is_an_error_and_leads(tmp_path):
    """A peak that the kernels beat is wrong, and is the first finding."""
    analysis = simulated(tmp_path, "clean", peak_tflops=100)
    assert analysis.job.mfu > 1
    assert (analysis.findings[0].id, analysis.findings[0].severity) == ("flops_over_peak", "error")


def test_without_shapes_there_is_no_mfu_and_the_reason_is_said():
    """No recorded shape: null, never zero."""
    device = [Work(0, 10, "ampere_sgemm_128x32_tn"), Work(20, 30)]
    analysis = analyze_job(job(trace([], device)), Options(window="device_span"))
    assert (analysis.job.mfu, analysis.ranks[0].mfu, analysis.waterfall) == (None, None, None)
    assert "mfu_unknown" in [entry.id for entry in analysis.quality]


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    ("case", "candidates"),
    [("C28_unknown_gpu.json", 0), ("C27_h100_plain_name.json", 2)],
)
def test_an_unknown_or_ambiguous_gpu_has_no_peak(case, candidates):
    """No fallback: no peak, and the devices that a short name may mean are listed."""
    path = require.SHARED / "cases" / "inputs" / case
    analysis = analyze(path)
    assert analysis.job.peak_tflops is None
    if analysis.ranks[0].hw_flops:
        (finding,) = (one for one in analysis.findings if one.id == "unknown_gpu")
        assert " ".join(finding.evidence).count("H100") >= candidates


SHARED_MFU = {
    # folder or file: lowest and highest MFU that is believable; None: no MFU, with a reason
    "kt-nanogpt-8rank-h100": (0.24, 0.27),
    "kt-tracelens-h100-qwen-bert/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": (0.05, 0.3),
    "kt-tracelens-mi300-ddp-rank0of8": (0.001, 0.05),
    "kt-ao-vit-bf16-vs-int8-a100/amg_example_trace.json.gz": (0.2, 0.6),
    "kt-ao-vit-bf16-vs-int8-a100/quant_PG509-210.json.gz": None,
    "kt-ao-vit-bf16-vs-int8-a100/bfloat16.json.gz": None,
    "kt-hta-sampled-2of128": None,
    "kt-hta-mi250-rocm62": None,
}


@pytest.mark.needs("shared")
@pytest.mark.parametrize("name", SHARED_MFU)
def test_real_traces_have_a_believable_mfu_or_a_reason_why_not(name):
    """Nothing above 100 %, coverage beside every number, a reason beside every missing one."""
    analysis = analyze(require.SHARED / "traces" / name)
    believable = SHARED_MFU[name]
    said = json.dumps([entry.message for entry in analysis.quality])
    if believable is None:
        assert analysis.job.mfu is None
        assert "no MFU" in said
        return
    assert believable[0] < analysis.job.mfu < believable[1]
    coverage = [result.flops_coverage for result in analysis.ranks]
    assert all(coverage)
    assert ("FLOPs are known for" in said) == (min(coverage) < 0.95)
    for row in analysis.kernels:
        assert row.pct_of_peak is None or 0 < row.pct_of_peak <= 110
