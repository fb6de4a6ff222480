"""The conventions side by side: by hand for two models, and what each needs and says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from model_flops.test_hf_config import GPT2, LLAMA3_8B, MIXTRAL

from gpudiag.analyze.model_flops.conventions import CONVENTIONS, NotCounted, PerToken
from gpudiag.analyze.model_flops.hf_config import read_config
from gpudiag.analyze.model_flops.training import Training
from gpudiag.analyze.model_flops.workload import Numbers, Workload, numbers_of

RECOMPUTED = Training(recompute="full")
LINEAR = 32 * (2 * 4096 * (2 * 4096 + 2 * 1024) + 6 * 4096 * 14336)
SQUARE = 32 * 4 * 4096 * 8192
LOGITS = 2 * 4096 * 128256
N = 8_030_261_248
EMBEDDING = 128256 * 4096


def of(config, seq, training=Training(), **options):  # noqa: B008 - frozen
    model = read_config(config, **options)
    return Workload(numbers=numbers_of(model), model=model, lengths=(seq,), training=training)


def per_token(name, workload):
    found = CONVENTIONS[name].count(workload)
    assert isinstance(found, PerToken), found
    return found


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("gpudiag", 3 * (LINEAR + SQUARE + LOGITS)),
        ("gpudiag-causal", 3 * (LINEAR + SQUARE / 2 + LOGITS)),
        ("palm", 6 * N + 3 * SQUARE),
        ("palm-causal", 6 * N + 1.5 * SQUARE),
        ("6n", 6 * N),
        ("megatron", 3 * (LINEAR + SQUARE / 2 + LOGITS)),
        ("megatron-before-2025-03", 3 * (LINEAR + SQUARE + LOGITS)),
        ("torchtitan", 6 * (N - EMBEDDING) + 3 * SQUARE),
        ("nanogpt", 6 * N + 3 * SQUARE),
        ("narayanan", 72 * 32 * 4096**2 * (1 + 8192 / 24576 + 128256 / (12 * 32 * 4096))),
        ("korthikanti", 72 * 32 * 4096**2 * (1 + 8192 / 24576 + 128256 / (12 * 32 * 4096))),
        ("llm-foundry", 3 * (2 * N + 4 * 32 * 4096 * 8192)),
        ("transformers", 6 * (N - EMBEDDING)),
    ],
)
def test_llama3_8b_in_every_convention(name, flops):
    """At 8,192 tokens: from 45 to 78 GFLOP a token for the same run."""
    found = per_token(name, of(LLAMA3_8B, 8192))
    assert found.model == pytest.approx(flops, rel=1e-12)


def test_every_convention_is_worked_out_by_hand_here():
    """A new one needs a line above."""
    [mark] = test_llama3_8b_in_every_convention.pytestmark
    assert [case[0] for case in mark.args[1]] == list(CONVENTIONS)


@pytest.mark.parametrize("one", CONVENTIONS.values(), ids=lambda one: one.id)
def test_a_convention_says_what_it_counts_and_whose_it_is(one):
    """Its name goes with every number."""
    assert one.attention in {"full", "causal", "none"}
    assert one.formula
    assert one.source
    assert one.count.__doc__


def test_who_halves_attention_reports_less_for_the_same_run():
    """The old and the new Megatron differ by half of the square: a ninth of this model at 8,192."""
    workload = of(LLAMA3_8B, 8192)
    old = per_token("megatron-before-2025-03", workload).model
    new = per_token("megatron", workload).model
    assert old - new == pytest.approx(1.5 * SQUARE)
    assert old / new == pytest.approx(1.125, abs=0.001)


def test_gpt2_learned_positions_and_tied_logits():
    """NanoGPT takes positions off N; torchtitan takes nothing off where the embedding is tied."""
    workload = of(GPT2, 1024)
    square = 12 * 4 * 768 * 1024
    assert per_token("nanogpt", workload).model == 6 * (124_439_808 - 1024 * 768) + 3 * square
    assert per_token("torchtitan", workload).model == 6 * 124_439_808 + 3 * square
    params = 124_439_808 - 1024 * 768 - 50257 * 768
    assert per_token("transformers", workload).model == 6 * params


def test_a_mixture_counts_its_active_experts_where_its_convention_does():
    """Those of the Trainer and nanoGPT take all, and are marked; routers divide the others."""
    workload = of(MIXTRAL, 4096)
    model = workload.model
    assert per_token("6n", workload).model == 6 * model.active_weights
    for name in ("transformers", "nanogpt"):
        assert per_token(name, workload).remark == "counts all experts"
    routers = 3 * 32 * 2 * 4096 * 8
    full, megatron = (per_token(n, workload).model for n in ("gpudiag", "megatron-before-2025-03"))
    assert full - megatron == routers


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("gpudiag", LINEAR + SQUARE),
        ("gpudiag-causal", LINEAR + SQUARE / 2),
        ("palm", (6 * N + 3 * SQUARE) / 3),
        ("6n", 2 * N),
        ("narayanan", 24 * 32 * 4096**2 * (1 + 8192 / 24576)),
        ("llm-foundry", 2 * N + 4 * 32 * 4096 * 8192),
        ("megatron", None),
        ("megatron-before-2025-03", None),
        ("torchtitan", None),
        ("nanogpt", None),
        ("transformers", None),
        ("korthikanti", None),
    ],
)
def test_full_recomputation_by_each_convention(name, again):
    """Layers once more, or a blind third, or no word of it."""
    found = per_token(name, of(LLAMA3_8B, 8192, RECOMPUTED))
    assert found.model == per_token(name, of(LLAMA3_8B, 8192)).model
    if again is None:
        assert found.hardware is None
    else:
        assert found.hardware - found.model == pytest.approx(again)


@pytest.mark.parametrize(("name", "squares"), [("gpudiag", 1), ("palm", 1), ("korthikanti", 3)])
def test_selective_recomputation_is_attention_once_more(name, squares):
    """Forward once; Korthikanti's s/3h for s/6h, as printed, is all three passes once more."""
    found = per_token(name, of(LLAMA3_8B, 8192, Training(recompute="selective")))
    assert found.hardware - found.model == pytest.approx(squares * SQUARE)


def test_bare_numbers_allow_the_closed_forms_only():
    """What else would be needed is said."""
    numbers = Numbers(params=7e9, active_params=7e9, layers=32, hidden=4096, width=2 * 32 * 4096)
    workload = Workload(numbers=numbers, lengths=(2048,))
    assert per_token("palm", workload).model == 6 * 7e9 + 12 * 32 * 4096 * 2048
    lacking = {
        name: found.reason
        for name, one in CONVENTIONS.items()
        if isinstance(found := one.count(workload), NotCounted)
    }
    assert "--model" in lacking["gpudiag"]
    assert "vocabulary" in lacking["korthikanti"]
    assert set(lacking) == {
        "gpudiag",
        "gpudiag-causal",
        "megatron",
        "megatron-before-2025-03",
        "torchtitan",
        "narayanan",
        "korthikanti",
        "transformers",
    }


def test_a_number_of_parameters_alone_gives_six_n_alone():
    """No attention without layers and length."""
    workload = Workload(numbers=Numbers(params=7e9, active_params=7e9))
    known = [n for n, one in CONVENTIONS.items() if isinstance(one.count(workload), PerToken)]
    assert known == ["6n"]


def test_frozen_weights_are_known_to_those_that_count_by_matrix():
    """6 N counts them all as trained; Megatron-Bridge leaves adapters out, gpudiag counts them."""
    full = of(LLAMA3_8B, 8192)
    lora = replace(full, training=Training(lora_rank=16))
    assert per_token("6n", lora).model == per_token("6n", full).model
    bridge = per_token("megatron", lora).model
    assert bridge == pytest.approx(2 * LINEAR + 2 * LOGITS + 1.5 * SQUARE)
    widths = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    adapters = 32 * 2 * 16 * widths
    assert per_token("gpudiag-causal", lora).model == pytest.approx(bridge + 3 * adapters)
