"""Names of devices: the whole name or none; what is shared or unknown gives no peak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudiag.hardware import Ambiguous, Device, Hints, Unknown, devices, lookup, lookup_named
from gpudiag.hardware.table import normalised, table

LISTED = [(name, row.key) for row in devices() for name in row.names]
GIB = 1024**3


@pytest.mark.parametrize(("name", "key"), LISTED)
def test_every_driver_name_is_its_own_row(name, key):
    """And no other's: the table could not even hold it twice."""
    found = lookup(name)
    assert isinstance(found, Device)
    assert found.key == key
    assert {k for n, k in LISTED if normalised(n) == normalised(name)} == {key}


@pytest.mark.parametrize(("name", "key"), LISTED)
def test_no_part_of_a_name_is_taken_for_a_device(name, key):
    """Every proper substring, prefixes and suffixes among them, unless it is a name itself."""
    for start in range(len(name)):
        for end in range(start + 1, len(name) + 1):
            part = name[start:end]
            found = lookup(part)
            if isinstance(found, Device):
                assert normalised(part) in {normalised(own) for own in found.names}, (part, key)


@given(st.sampled_from(LISTED), st.text(min_size=1, max_size=6), st.booleans())
def test_a_name_with_something_added_is_not_that_device(listed, extra, before):
    """Whatever is put in front of it or behind it."""
    name, key = listed
    longer = extra + name if before else name + extra
    found = lookup(longer)
    if isinstance(found, Device):
        assert normalised(longer) in {normalised(own) for own in found.names}
        assert normalised(longer) == normalised(name) or found.key != key


@given(st.text(max_size=40))
def test_any_text_is_answered(name):
    """Nonsense is unknown, never an error."""
    assert isinstance(lookup(name), (Device, Ambiguous, Unknown))


@pytest.mark.parametrize(("name", "key"), LISTED)
def test_case_white_space_and_the_vendor_do_not_matter(name, key):
    """As drivers before R470 left NVIDIA out."""
    bare = name.removeprefix("NVIDIA ").removeprefix("AMD ")
    for spelling in (name.upper(), name.lower(), f"  {name.replace(' ', '   ')} ", bare):
        assert lookup(spelling) == lookup(name), key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"),
        ("NVIDIA H20", "NVIDIA H200"),
        ("NVIDIA H200", "NVIDIA H200 NVL"),
        ("NVIDIA A10", "NVIDIA A10G"),
        ("NVIDIA A10", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA GB200", "NVIDIA B200"),
        ("NVIDIA GB300", "NVIDIA B300 SXM6 AC"),
        ("NVIDIA L4", "NVIDIA L40"),
        ("NVIDIA L40", "NVIDIA L40S"),
        ("AMD Instinct MI300X", "AMD Instinct MI325X"),
        ("AMD Instinct MI250", "AMD Instinct MI250X"),
    ],
)
def test_names_that_are_alike_are_different_devices(one, other):
    """The pairs that substring matching confuses; each has its own bf16 rate or its own memory."""
    first, second = lookup(one), lookup(other)
    assert isinstance(first, Device)
    assert isinstance(second, Device)
    assert first.key != second.key


def test_a_name_that_several_devices_share_lists_them():
    """Plain NVIDIA H100 is printed for the SXM and custom parts, and meant for all by people."""
    for name in ("NVIDIA H100", "H100", "nvidia h100"):
        found = lookup(name)
        assert isinstance(found, Ambiguous)
        keys = {row.key for row in found.candidates}
        assert keys == {"h100-sxm", "h100-sxm-96gb", "h100-pcie", "h100-nvl"}


def test_hints_narrow_a_shared_name_and_say_so():
    """132 SMs alone leave three; with 95 GiB it is the custom part, and the others are named."""
    sms = Hints(sm_count=132)
    found = lookup("NVIDIA H100", sms)
    assert isinstance(found, Ambiguous)
    assert {row.key for row in found.candidates} == {"h100-sxm", "h100-sxm-96gb", "h100-nvl"}
    found = lookup("NVIDIA H100", Hints(sm_count=132, memory_bytes=101_997_215_744))
    assert isinstance(found, Device)
    assert found.key == "h100-sxm-96gb"
    for word in ("132 SMs", "95.0 GiB", "h100-sxm,", "h100-pcie", "h100-nvl"):
        assert word in found.assumed


def test_hints_that_fit_nothing_leave_the_name_ambiguous():
    """One SM is no H100."""
    found = lookup("NVIDIA H100", Hints(sm_count=1))
    assert isinstance(found, Ambiguous)
    assert len(found.candidates) == 4


def test_hints_never_overrule_a_name():
    """An A100 stays one, whatever else is said of it."""
    found = lookup("NVIDIA A100-SXM4-80GB", Hints(sm_count=132, memory_bytes=96 * GIB))
    assert isinstance(found, Device)
    assert found.key == "a100-sxm4-80gb"


@pytest.mark.parametrize(
    "name", ["A100", "NVIDIA A100", "Tesla V100", "A800", "Instinct MI250X / MI250"]
)
def test_a_family_is_ambiguous(name):
    """What people say for short lists what it may be."""
    found = lookup(name)
    assert isinstance(found, Ambiguous)
    assert len(found.candidates) > 1


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("AMD Radeon Graphics", set()),
        ("NVIDIA PG509-210", set()),
        ("", set()),
        ("NVIDIA GeForce GTX 1080", set()),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", set()),
        ("NVIDIA A10-24Q", {"a10"}),
        ("NVIDIA B300", {"b300"}),
        ("NVIDIA B100", {"b100"}),
        ("Tesla V100-DGXS-32GB", {"v100-sxm2", "v100-pcie"}),
        (
            "GRID A100-10C",
            {"a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"},
        ),
    ],
)
def test_a_name_in_no_row_is_unknown(name, candidates):
    """Engineering and virtual names too; candidates are suggestions, never used."""
    found = lookup(name)
    assert isinstance(found, Unknown)
    assert {row.key for row in found.candidates} == candidates
    assert found.reason


def test_properties_suggest_what_a_generic_name_may_be():
    """An MI210 or one die of an MI250 both have 104 units and 64 GB."""
    found = lookup("AMD Radeon Graphics", Hints(sm_count=104, memory_bytes=68_702_699_520))
    assert isinstance(found, Unknown)
    assert {row.key for row in found.candidates} == {"mi210", "mi250-gcd"}


@pytest.mark.parametrize("row", devices(), ids=lambda row: row.key)
def test_people_may_also_use_the_key(row):
    """``--gpu h100-sxm`` and ``--gpu "H100 SXM"``; a trace's name is never looked up so."""
    for spelling in (row.key, row.key.upper(), row.key.replace("-", " ")):
        found = lookup_named(spelling)
        assert isinstance(found, Device)
        assert found.key == row.key


def test_a_person_who_says_h100_is_asked_which():
    """There is no row of that key, and no most likely one."""
    assert isinstance(lookup_named("H100"), Ambiguous)
    assert isinstance(lookup_named("H1000"), Unknown)


def test_shared_names_are_no_row_of_their_own():
    """A name can't be one device's and several's."""
    known = table()
    assert not known.shared.keys() & known.by_name.keys()
    assert all(key in known.by_key for keys in known.shared.values() for key in keys)
