"""The figures: consistent among themselves, and those of the sources that were collected."""

from __future__ import annotations

import json
import re

import pytest
import require

from gpudiag.hardware import Device, devices, lookup

BOTH_PEAKS = 0.005  # published peaks are rounded to three digits or more


@pytest.mark.parametrize("row", devices(), ids=lambda row: row.key)
def test_a_row_has_a_source_and_a_date(row):
    """A figure that nobody can look up is worth nothing."""
    assert len(row.source) > 10
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.date)
    assert row.confidence in {"high", "medium", "low"}
    assert row.dense_tflops
    assert all(peak > 0 for peak in row.dense_tflops.values())


@pytest.mark.parametrize("row", devices(), ids=lambda row: row.key)
def test_peaks_are_dense(row):
    """Half of what is printed with sparsity, where that is known (fp4 of Blackwell Ultra isn't)."""
    for dtype, sparse in row.sparse_tflops.items():
        if dtype == "fp4":
            continue
        dense = row.dense_tflops[dtype]
        assert dense < sparse
        assert sparse / dense == pytest.approx(2, rel=0.03) or (row.key, dtype) in {
            ("b300", "int8"),  # printed as 2 POP/s for eight and as 0.15 for one
            ("gb300", "int8"),
        }


@pytest.mark.parametrize("row", devices(), ids=lambda row: row.key)
def test_narrower_types_are_at_least_as_fast(row):
    """bf16 is as fast as fp16, fp8 at least as fast as that."""
    peaks = row.dense_tflops
    if "bf16" in peaks:
        assert peaks["bf16"] == peaks["fp16"]
        assert peaks["bf16"] >= peaks["fp32"]
        assert peaks.get("fp8", peaks["bf16"]) >= peaks["bf16"]
    assert peaks["fp16"] > peaks.get("tf32", 0)


@pytest.mark.parametrize("row", [r for r in devices() if r.arch == "sm90" and r.peak_clock_mhz])
def test_the_clock_behind_the_peak_gives_the_peak(row):
    """SMs x 4096 FLOPs per clock and SM x clock, on Hopper; at the highest clock it'd be more."""
    assert row.sm_count * 4096 * row.peak_clock_mhz / 1e6 == pytest.approx(
        row.dense_tflops["bf16"], rel=BOTH_PEAKS
    )
    assert row.peak_clock_mhz <= row.max_clock_mhz


def facts():
    path = require.SHARED / "facts" / "gpu_peaks.json"
    return json.loads(path.read_text())["entries"] if path.exists() else [None]


@pytest.mark.needs("shared")
@pytest.mark.parametrize("fact", facts(), ids=lambda fact: fact["key"] if fact else "none")
def test_every_device_that_was_researched_is_in_the_table(fact):
    """Under each of its names, with its peaks, SMs and clocks."""
    for name in fact["device_names"]:
        if name == "NVIDIA H100" or " / " in name or "unconfirmed" in name:
            assert not isinstance(lookup(name), Device)
            continue
        row = lookup(name)
        assert isinstance(row, Device)
        if name == "AMD Instinct MI250":  # 104 units, where the MI250X has 110: a row of its own
            assert row.key == "mi250-gcd"
            continue
        assert dict(row.dense_tflops) == fact["dense_tflops"]
        assert row.sm_count == fact["sm_or_cu"]
        assert row.max_clock_mhz == fact["boost_mhz"]
        behind = fact["tensor_mhz_behind_published_peak"] or fact["boost_mhz"]
        assert row.peak_clock_mhz == behind
    assert any(row.key == fact["key"] for row in devices())


@pytest.mark.needs("shared")
def test_names_that_real_traces_hold_are_told_right(shared):
    """The two inputs of the collected cases that turn on a device's name."""
    cases = shared / "cases" / "inputs"
    plain = json.loads((cases / "C27_h100_plain_name.json").read_text())["deviceProperties"][0]
    assert not isinstance(lookup(plain["name"]), Device)
    known = json.loads((cases / "C28_unknown_gpu.json").read_text())["deviceProperties"][0]
    row = lookup(known["name"])  # unknown to the tool that fell back to 312 and printed 563 %
    assert isinstance(row, Device)
    assert row.peak_tflops("bf16") == pytest.approx(2309.6)
