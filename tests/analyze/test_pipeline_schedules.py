"""Simulated schedules against their closed forms, and against each other."""

from __future__ import annotations

import pytest

from gpudiag.analyze.pipeline.schedules import (
    GPIPE,
    INTERLEAVED,
    ONE_F_ONE_B,
    ZB_H1,
    StageTimes,
    equalised,
    simulate,
)

F, B = 1_000, 2_000
EQUAL = StageTimes(F, B)


@pytest.mark.parametrize("microbatches", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B])
def test_equal_stages_idle_by_the_closed_form(schedule, stages, microbatches):
    """(p - 1)(F + B) on every stage: (p - 1)/(m + p - 1) of the wall time."""
    step = simulate(schedule, [EQUAL] * stages, microbatches)
    assert step.idle_ns == ((stages - 1) * (F + B),) * stages
    assert step.length_ns == (microbatches + stages - 1) * (F + B)


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 8, 3)])
def test_interleaving_divides_the_bubble_by_the_chunks(stages, microbatches, chunks):
    """(p - 1)(F + B) of a chunk, which is 1/v of a stage."""
    step = simulate(INTERLEAVED, [EQUAL] * stages, microbatches, chunks)
    assert step.idle_ns == ((stages - 1) * (F + B),) * stages
    assert step.length_ns == (microbatches * chunks + stages - 1) * (F + B)


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (8, 16)])
def test_zero_bubble_h1_fills_all_but_a_third(stages, microbatches):
    """(p - 1)(F + B - W), B and W each one half of the backward."""
    step = simulate(ZB_H1, [StageTimes(F, 2 * F)] * stages, microbatches)
    assert step.length_ns - microbatches * 3 * F == (stages - 1) * F
    assert max(step.idle_ns) == (stages - 1) * F


def test_a_slow_stage_makes_the_others_wait_for_each_micro_batch():
    """The step is as long as the slowest stage's work, and its fill and drain."""
    stages = [EQUAL, StageTimes(F, 2 * B), EQUAL, EQUAL]
    step = simulate(ONE_F_ONE_B, stages, 8)
    assert step.idle_ns[1] < step.idle_ns[0] == step.idle_ns[2] == step.idle_ns[3]
    assert step.length_ns >= 8 * stages[1].total_ns
    level = simulate(ONE_F_ONE_B, equalised(stages), 8)
    assert level.length_ns < step.length_ns
    assert sum(one.total_ns for one in equalised(stages)) == sum(one.total_ns for one in stages)


def test_interleaving_needs_micro_batches_in_groups_of_the_stages():
    """As Megatron does."""
    assert simulate(INTERLEAVED, [EQUAL] * 4, 6, 2) is None
