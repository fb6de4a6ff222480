"""FLOPs of a step by hand: context, frozen parts, LoRA, what is computed again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudiag.analyze.model_flops.context import mean_keys
from gpudiag.analyze.model_flops.shape import ROUTER, Core, Layer, Linear, Model
from gpudiag.analyze.model_flops.training import Count, Training, target_names, token_flops

# One matrix of attention, a router, and two of five experts: small enough to see through.
LAYER = Layer(
    linears=(
        Linear(name="q", inputs=10, outputs=10),
        Linear(name=ROUTER, inputs=10, outputs=5),
        Linear(name="up", inputs=10, outputs=40, active=2, stored=5),
        Linear(name="down", inputs=40, outputs=10, active=2, stored=5),
    ),
    core=Core(heads=2, qk_dim=5, v_dim=3),
)
MODEL = Model(title="small", hidden=10, vocab=100, layers=(LAYER,) * 4)
LINEAR = 2 * (100 + 50 + 2 * 400 + 2 * 400)
ATTENTION = 2 * 2 * (5 + 3) * 16
LOGITS = 2 * 10 * 100


def flops(training=Training(), count=Count(), model=MODEL):  # noqa: B008 - both are frozen
    return token_flops(model, (16,), training, count)


def test_forward_and_backward_are_three_times_forward():
    """Every product has two in backward."""
    found = flops()
    assert (found.linear, found.attention, found.logits) == (4 * LINEAR, 4 * ATTENTION, LOGITS)
    assert found.model == 3 * (4 * (LINEAR + ATTENTION) + LOGITS)
    assert found.hardware == found.model


@pytest.mark.parametrize(
    ("recompute", "again"),
    [
        ("none", 0),
        ("selective", 4 * ATTENTION),
        ("full", 4 * (LINEAR + ATTENTION)),
        ("full-early-stop", 4 * (LINEAR + ATTENTION - 2 * 2 * 400)),
    ],
)
def test_recomputation_is_hardware_flops_and_no_model_flops(recompute, again):
    """The logits are not in a checkpointed layer."""
    found = flops(Training(recompute=recompute))
    assert found.model == flops().model
    assert found.hardware == found.model + again


def test_a_router_may_be_left_out():
    """Megatron does."""
    assert flops().linear - flops(count=Count(router=False)).linear == 4 * 2 * 50


def test_lora_has_no_weight_gradient_of_the_base():
    """2 x linear and logits, 3 x attention, 3 x adapters of 2 r (inputs + outputs)."""
    found = flops(Training(lora_rank=4))
    adapters = 2 * 4 * ((10 + 10) + 2 * (10 + 40) + 2 * (40 + 10))
    assert found.adapters == 4 * adapters
    assert found.model == 4 * (2 * LINEAR + 3 * ATTENTION + 3 * adapters) + 2 * LOGITS


def test_lora_beside_some_matrices_only():
    """By name; routers have none unless named."""
    found = flops(Training(lora_rank=4, lora_targets=("q",)))
    assert found.adapters == 4 * 2 * 4 * (10 + 10)
    assert target_names(MODEL) == ("q", "up", "down")


def test_frozen_first_layers_only_go_forward():
    """And nothing of them is computed again."""
    found = flops(Training(frozen_layers=3, recompute="full"))
    assert found.model == 3 * (LINEAR + ATTENTION) + 3 * (LINEAR + ATTENTION) + 3 * LOGITS
    assert found.hardware - found.model == LINEAR + ATTENTION


@pytest.mark.parametrize(
    ("lengths", "attention", "window", "keys"),
    [
        ((8,), "full", None, 8),
        ((8,), "causal", None, 4),
        ((8,), "full", 3, 3),
        ((8,), "full", 20, 8),
        ((8,), "causal", 20, 4),
        ((8,), "causal", 3, (1 + 2 + 3 * 6) / 8),
        ((6, 2), "full", None, (36 + 4) / 8),
        ((6, 2), "causal", None, (18 + 2) / 8),
        ((6, 2), "full", 3, (18 + 4) / 8),
        ((4096,), "causal", 128, 128 - 128 * 127 / 8192),
    ],
)
def test_the_mean_number_of_visible_keys(lengths, attention, window, keys):
    """Counted one by one for the small ones."""
    assert mean_keys(lengths, attention, window) == keys


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
    st.none() | st.integers(1, 200),
)
def test_a_window_and_causality_only_take_keys_away(lengths, window):
    """And packing takes more away than the sequence as one would."""
    full = mean_keys(lengths, "full", window)
    assert mean_keys(lengths, "causal", window) <= full <= max(lengths)
    assert full <= mean_keys((sum(lengths),), "full", window)


@given(st.integers(1, 100), st.integers(1, 100))
def test_the_mean_of_a_causal_window_is_exact(length, window):
    """Token i of L sees min(i, W) keys; without a window the convention is L / 2."""
    exact = sum(min(i, window) for i in range(1, length + 1)) / length
    expected = exact if window < length else length / 2
    assert mean_keys((length,), "causal", window) == pytest.approx(expected)
