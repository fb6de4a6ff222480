"""Figures that others published, worked out again: 87 examples and llm-foundry's 216 rows."""

from __future__ import annotations

import pytest
from model_flops.published import examples, foundry_rows, golden, value_of

from gpudiag.analyze.model_flops import closed_forms
from gpudiag.analyze.model_flops.utilization import tflops_per_gpu, utilization

pytestmark = pytest.mark.needs("shared")

REPRODUCING = [name for name, one in examples().items() if one["reproduces"]] or ["none"]
DISCREPANT = [name for name, one in examples().items() if not one["reproduces"]] or ["none"]
ROWS = list(foundry_rows()) or ["none"]
# Printed with two digits; throughput, too, is rounded.
MFU_POINTS, HFU_POINTS = 0.02, 0.03
ROUNDING = 1e-4  # the file keeps four decimals of what was worked out for it


@pytest.mark.parametrize("name", REPRODUCING)
def test_a_published_figure_is_reproduced(name):
    """Within the tolerance that the example itself states."""
    example = examples()[name]
    found = value_of(example)
    assert abs(found - example["published"]) <= example["tolerance"] + 1e-9 * abs(found)


@pytest.mark.parametrize("name", DISCREPANT)
def test_a_figure_that_does_not_reproduce_stays_a_discrepancy(name):
    """The published value is wrong or rests on something unsaid; ours is what the formula gives."""
    example = examples()[name]
    found = value_of(example)
    assert found == pytest.approx(example["reproduced"], abs=ROUNDING)
    assert abs(found - example["published"]) > example["tolerance"]


@pytest.mark.parametrize("name", [*REPRODUCING, *DISCREPANT])
def test_the_value_agrees_with_the_independent_calculation(name):
    """Beside the file that was made by other code."""
    example = examples()[name]
    assert value_of(example) == pytest.approx(example["reproduced"], rel=3e-4)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_llm_foundry_is_reproduced(name):
    """MFU and HFU: all parameters, full attention, 4/3 where activations are checkpointed."""
    row = foundry_rows()[name]
    per_token = closed_forms.llm_foundry(
        params=row["n_params"], layers=row["n_layers"], hidden=row["d_model"], seq=row["seq"]
    )
    rate = tflops_per_gpu(
        flops_per_token=per_token, tokens_per_s=row["tokens_per_s"], gpus=row["gpus"]
    )
    mfu = 100 * utilization(rate, row["peak_tflops"])
    hfu = mfu * (4 / 3 if row["act_ckpt"] else 1)
    assert mfu == pytest.approx(row["mfu"], abs=MFU_POINTS)
    assert hfu == pytest.approx(row["hfu"], abs=HFU_POINTS)


def test_none_of_them_is_left_out():
    """The file's own counts."""
    known = golden()
    assert len(REPRODUCING) == known["reproduced"] == 84
    assert len(REPRODUCING) + len(DISCREPANT) == known["count"] == 87
    assert len(ROWS) == known["llm_foundry"]["rows_total"] == 216
