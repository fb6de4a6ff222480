"""MIG instances: the peak by SMs, the bandwidth by memory."""

from __future__ import annotations

import pytest

from gpudiag.hardware import Ambiguous, Device, Hints, Unknown, lookup


@pytest.mark.parametrize(
    ("name", "sms", "of", "bf16", "memory_gb_s"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 14, 108, 312, 2039 / 8),
        ("NVIDIA A100-SXM4-80GB MIG 1g.20gb", 14, 108, 312, 2039 * 2 / 8),
        ("NVIDIA A100-SXM4-80GB MIG 7g.80gb", 98, 108, 312, 2039),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 108, 312, 1555 / 8),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", 14, 108, 312, 1555 / 2),
        ("H100 80GB HBM3 MIG 3g.40gb", 60, 132, 989.4, 3350 / 2),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", 26, 132, 989.4, 3350 / 4),
        ("NVIDIA H100 80GB HBM3 MIG 7g.80gb", 132, 132, 989.4, 3350),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 16, 132, 989.4, 3350 / 8),
        ("NVIDIA H200 MIG 3g.71gb", 60, 132, 989.4, 4800 / 2),
        ("NVIDIA A30 MIG 2g.12gb", 28, 56, 165, 933 / 2),
    ],
)
def test_an_instance_has_its_share_of_the_peak(name, sms, of, bf16, memory_gb_s):
    """SMs as nvidia-smi mig -lgip lists them: three slices of an H100 are 60 SMs, not 3/7."""
    found = lookup(name)
    assert isinstance(found, Device)
    assert found.sm_count == sms
    assert found.peak_tflops("bf16") == pytest.approx(bf16 * sms / of)
    assert found.memory_gb_s == pytest.approx(memory_gb_s)
    assert found.link_gb_s is None
    assert f"{sms} of {of} SMs" in found.assumed


def test_without_a_list_of_sms_the_share_goes_by_slices():
    """And says so."""
    found = lookup("NVIDIA B200 MIG 3g.90gb")
    assert isinstance(found, Device)
    assert found.peak_tflops("bf16") == pytest.approx(2250 * 3 / 7)
    assert "3 of 7 compute slices" in found.assumed


def test_the_sms_that_a_trace_counts_come_first():
    """A driver may deal them out otherwise."""
    found = lookup("NVIDIA B200 MIG 3g.90gb", Hints(sm_count=70))
    assert isinstance(found, Device)
    assert found.peak_tflops("bf16") == pytest.approx(2250 * 70 / 148)
    assert "as the trace counts them" in found.assumed


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-80GB MIG 8g.80gb",
        "NVIDIA A100-SXM4-80GB MIG 1g.100gb",
        "NVIDIA A100-SXM4-80GB MIG 0g.10gb",
        "NVIDIA A100-SXM4-80GB MIG 4c.3g.40gb",
        "NVIDIA L40S MIG 1g.10gb",
    ],
)
def test_an_instance_that_cannot_be_is_unknown(name):
    """More slices, or memory, than there are; or no MIG at all."""
    assert isinstance(lookup(name), Unknown)


def test_an_instance_of_a_shared_name_is_ambiguous():
    """A third of an unknown peak is unknown."""
    found = lookup("NVIDIA H100 MIG 3g.40gb", Hints(sm_count=60))
    assert isinstance(found, Ambiguous)
    assert found.name == "NVIDIA H100 MIG 3g.40gb"
