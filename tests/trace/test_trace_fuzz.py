"""Damage of any kind gives a trace or an error that says why, never a crash."""

from __future__ import annotations

import fuzz
import pytest

SEEDS = 1000
BATCH = 100


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_damaged_files_never_crash_the_reader(first):
    """Seeded truncations, flips, gaps and insertions; one in five also read in small blocks."""
    outcomes = {fuzz.run_one(seed) for seed in range(first, first + BATCH)}
    assert outcomes <= {"whole", "partial", "refused"}
    assert "partial" in outcomes
