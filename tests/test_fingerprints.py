"""A few of the jobs of tests/bench/fingerprints.py: each fault leads, on the rank that it hit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import fingerprints

FEW = [case for case in fingerprints.cases([1]) if case.ranks <= 8]


@pytest.mark.parametrize(
    "case", FEW, ids=lambda case: "+".join(i.name for i in case.injected) or case.name
)
def test_the_leading_finding_is_the_larger_fault(case):
    """Also with clocks a second apart; buckets and blame are the simulator's to 1.5 points."""
    outcome = fingerprints.run(case)
    assert outcome.found == case.expected
    assert outcome.culprit_right or not case.culprits
    assert outcome.variation_frac <= 0.015
    assert outcome.waits_frac <= 0.015
