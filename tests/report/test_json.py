"""The JSON form: schema version 1, valid whatever the analysis holds."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from report.sample_analysis import CASES, analysis, damaged, rank_result

from gpudiag.report.json import to_json

# docs: product.md's schema; keys may be added, none may go.
TOP_KEYS = (
    "schema_version gpudiag_version inputs job clock ranks job_buckets_ns job_host_buckets_ns "
    "collectives kernels gaps wait_matrix_ns pipeline telemetry waterfall blame "
    "unattributed_wait_ns findings quality"
)
KEYS = {
    "inputs": "path format rank host pid device events bytes status message",
    "ranks": (
        "rank device window_ns window_basis periods step_ns_p50 host_device_offset_ns level1_ns "
        "buckets_ns host_window_ns host_buckets_ns steps_ns comm_by_role_ns waterfall model_flops "
        "hw_flops mfu hfu flops_convention flops_coverage"
    ),
    "kernels": "name category count total_ns mean_ns flops bytes tflops gb_s pct_of_peak",
    "gaps": "rank start_ns dur_ns cause host_span file_line ended_by",
    "findings": (
        "id severity share recoverable_ns_per_step confidence ranks affected title evidence advice"
    ),
    "quality": "id severity count message",
}


def parsed(one):
    return json.loads(to_json(one), parse_constant=pytest.fail)


@pytest.mark.parametrize("case", CASES)
def test_every_key_of_the_schema_is_there(case):
    """Scripts that read schema version 1 find what it promises, in its order."""
    data = parsed(CASES[case]())
    assert [key for key in data if key in TOP_KEYS.split()] == TOP_KEYS.split()
    assert data["schema_version"] == 1
    for section, keys in KEYS.items():
        for row in data[section]:
            assert set(keys.split()) <= set(row), section


def test_job_and_clock_have_their_keys():
    """The same for the two sections that are no lists."""
    data = parsed(analysis(2))
    job = "world_size ranks missing_ranks gpu_name dtype peak_tflops peak_source parallelism"
    assert set(f"{job} mfu hfu flops_convention step_ns_p50".split()) <= set(data["job"])
    assert list(data["job"]["parallelism"]) == ["dp", "tp", "pp", "ep", "cp"]
    assert set(data["clock"]) == {"aligned", "offsets_ns", "half_width_ns", "drift_ppm"}


def test_what_is_not_known_is_null_and_zero_buckets_are_absent():
    """Null is never a zero, and a zero never fills the file."""
    one = replace(analysis(1), ranks=[rank_result(0, buckets_ns={"idle.gc": 0, "idle.input": 5})])
    data = parsed(one)
    assert data["job"]["mfu"] is None
    assert data["ranks"][0]["buckets_ns"] == {"idle.input": 5}


def test_no_number_that_json_lacks_is_written():
    """NaN and infinity become null; numpy's numbers become numbers."""
    one = analysis(1)
    odd = replace(one.findings[0], share=float("nan"), recoverable_ns_per_step=np.int64(7))
    data = parsed(replace(one, findings=[odd]))
    assert data["findings"][0]["share"] is None
    assert data["findings"][0]["recoverable_ns_per_step"] == 7


def test_text_from_hell_is_still_utf8_json():
    """Lone surrogates and control characters do not break the file."""
    assert parsed(damaged())["kernels"][0]["name"].startswith("\x1b[31mred")


def test_an_unknown_object_is_our_bug():
    """Only numbers that know their Python form are taken."""
    with pytest.raises(TypeError, match="no JSON for slice"):
        to_json(replace(analysis(1), pipeline={"p": slice(1)}))
