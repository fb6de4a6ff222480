"""MFU and HFU of simulated recomputation, against FLOPs that the simulator itself counted."""

from __future__ import annotations

import json

import pytest
from simulator import kernels, scenarios

from gpudiag.analyze.job import analyze_job
from gpudiag.trace import read_job

POINTS = 0.0005  # 0.05 percentage points
KINDS = ("none", "reentrant", "non_reentrant", "selective")


def simulate(tmp_path, **params):
    scenarios.build("recomputation", **params).write(tmp_path)
    analysis = analyze_job(read_job([str(path) for path in tmp_path.glob("rank*.json.gz")]))
    (truth,) = json.loads((tmp_path / "truth.json").read_text())["ranks"]
    return analysis, truth


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_mfu_and_hfu_are_within_a_twentieth_of_a_point(tmp_path, kind, layers, seed):
    """Model FLOPs, recomputed FLOPs and all of them, each over the peak and the window."""
    analysis, truth = simulate(tmp_path, kind=kind, layers=layers, seed=seed)
    (result,) = analysis.ranks
    budget = kernels.DENSE_PEAK * truth["window_ns"] / 1e9
    assert result.mfu == pytest.approx(truth["model_flops"] / budget, abs=POINTS)
    assert result.hfu == pytest.approx(truth["hw_flops"] / budget, abs=POINTS)
    shares = {term.id: term.share for term in result.waterfall}
    again = truth["recompute_flops"]
    assert shares.get("recompute", 0) == pytest.approx(again / budget, abs=POINTS)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    assert result.flops_coverage == 1


def test_each_kind_runs_again_what_it_should(tmp_path):
    """A whole block, all but its last product, or attention alone."""
    again = {}
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        again[kind] = simulate(folder, kind=kind)[1]["recompute_flops"]
    assert again["none"] == 0
    assert again["reentrant"] > again["non_reentrant"] > again["selective"] > 0
