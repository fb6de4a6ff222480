"""Hugging Face config.json: parameters and FLOPs as transformers and torch count them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpudiag.analyze.model_flops.hf_config import read_config
from gpudiag.analyze.model_flops.hf_families import FAMILIES
from gpudiag.analyze.model_flops.training import Count, Training, token_flops
from gpudiag.errors import UsageError

RECORDED = json.loads((Path(__file__).parent / "counts.json").read_text())
MODELS = RECORDED["models"]

LLAMA3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "n_positions": 1024,
    "vocab_size": 50257,
}
MIXTRAL = LLAMA3_8B | {
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("kind", MODELS)
def test_parameters_are_counted_to_the_last_one(kind):
    """Against transformers' own modules; a key that transformers leaves out is its default."""
    assert read_config(MODELS[kind]["config"]).weights == MODELS[kind]["params"]


@pytest.mark.parametrize("kind", MODELS)
def test_a_forward_pass_is_counted_to_the_last_flop(kind):
    """Against torch's FlopCounterMode, which knows no windows, and no layers of MTP."""
    model = read_config(MODELS[kind]["config"], mtp=0)
    seq = RECORDED["seq"]
    flops = token_flops(model, (seq,), Training(), Count(windows=False))
    assert (flops.linear + flops.attention + flops.logits) * seq == MODELS[kind]["forward_flops"]


def test_every_family_is_recorded():
    """None of them rests on memory."""
    assert set(MODELS) == set(FAMILIES)


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (LLAMA3_8B, 8_030_261_248),
        (GPT2, 124_439_808),
        (MIXTRAL, 46_702_792_704),
        (QWEN3_MOE, 30_532_122_624),
    ],
)
def test_models_have_the_parameters_that_they_are_known_by(config, params):
    """The counts on the models' own pages."""
    assert read_config(config).weights == params


def test_llama3_8b_by_hand():
    """QKV and output 2 x (4096 x 6144 + 4096²), MLP 6 x 4096 x 14336, scores 4 x 4096 T."""
    layer = 2 * (4096 * (4096 + 2 * 1024) + 4096 * 4096) + 6 * 4096 * 14336
    flops = token_flops(read_config(LLAMA3_8B), (8192,), Training(), Count())
    assert flops.linear == 32 * layer
    assert flops.attention == 32 * 4 * 4096 * 8192
    assert flops.logits == 2 * 4096 * 128256
    assert flops.model == 3 * (flops.linear + flops.attention + flops.logits)


def test_only_the_chosen_experts_are_counted():
    """Two of eight, and the router; all eight are parameters."""
    model = read_config(MIXTRAL)
    expert = 3 * 4096 * 14336
    assert model.weights - model.active_weights == 32 * 6 * expert
    [up] = [one for one in model.layers[0].linears if one.name == "up"]
    assert (up.active, up.stored) == (2, 8)


def windows_of(config):
    return [layer.core.window for layer in read_config(config).layers]


def test_windows_by_the_ways_of_saying_them():
    """In layer_types, or by the model_type's rule."""
    small = LLAMA3_8B | {"num_hidden_layers": 6, "sliding_window": 64}
    every = small | {"model_type": "mistral"}
    assert windows_of(every) == [64] * 6
    assert windows_of(every | {"sliding_window": None}) == [None] * 6
    assert windows_of(small) == [None] * 6
    assert windows_of(small | {"model_type": "gemma2"}) == [64, None] * 3
    assert windows_of(small | {"model_type": "gemma3_text"}) == [64] * 5 + [None]
    switch = small | {"model_type": "qwen2", "max_window_layers": 4}
    assert windows_of(switch) == [None] * 6
    assert windows_of(switch | {"use_sliding_window": True}) == [None] * 4 + [64] * 2
    kinds = ["full_attention"] * 5 + ["sliding_attention"]
    assert windows_of(small | {"layer_types": kinds}) == [None] * 5 + [64]


def test_the_language_model_of_several_parts_is_counted_and_said():
    """A vision tower is not, and the result says so."""
    model = read_config({"model_type": "gemma3", "text_config": LLAMA3_8B, "vision_config": {}})
    assert model.weights == read_config(LLAMA3_8B).weights
    assert "gemma3" in model.notes[0]


def test_layers_that_predict_further_tokens_are_counted_and_said():
    """One more layer, a projection of 2 h to h, and once more the logits."""
    without = read_config(LLAMA3_8B | {"num_nextn_predict_layers": 1}, mtp=0)
    model = read_config(LLAMA3_8B | {"num_nextn_predict_layers": 1})
    assert len(model.mtp) == 1
    assert model.weights == without.weights
    assert "--mtp 0" in model.notes[0]
    more = token_flops(model, (1,), Training(), Count())
    less = token_flops(without, (1,), Training(), Count())
    assert more.logits == 2 * less.logits
    assert more.linear - less.linear == less.linear / 32 + 2 * 8192 * 4096


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "llama"}, ["hidden_size", "n_embd", "num_hidden_layers", "vocab_size"]),
        (
            {k: v for k, v in LLAMA3_8B.items() if k != "intermediate_size"},
            ["intermediate_size (MLP width"],
        ),
        (
            {k: v for k, v in MIXTRAL.items() if k != "num_experts_per_tok"},
            ["num_experts_per_tok"],
        ),
        (LLAMA3_8B | {"model_type": "gemma2"}, ["sliding_window"]),
        (LLAMA3_8B | {"model_type": "novel"}, ["'novel'", "gate", "--mlp gated"]),
        ({"model_type": "novel", "hidden_size": 8}, ["'novel'", "num_hidden_layers", "vocab_size"]),
        ({"vocab_size": 8}, ["no model_type", "hidden_size"]),
        (LLAMA3_8B | {"hidden_size": "4096"}, ["hidden_size", "'4096'", "whole number"]),
        (LLAMA3_8B | {"num_hidden_layers": -1}, ["num_hidden_layers", "-1"]),
        (LLAMA3_8B | {"hidden_size": True}, ["hidden_size", "True"]),
        ({"model_type": "t5", "is_encoder_decoder": True}, ["t5", "encoder", "--params"]),
        ({"model_type": "mamba", "state_size": 16}, ["mamba", "state-space", "--params"]),
        (
            LLAMA3_8B | {"layer_types": ["linear_attention"] * 32},
            ["'linear_attention'", "full_attention"],
        ),
        (LLAMA3_8B | {"layer_types": ["full_attention"]}, ["layer_types", "1", "32"]),
    ],
)
def test_what_cannot_be_counted_says_which_field_is_missing_or_wrong(config, words):
    """Never a guess."""
    with pytest.raises(UsageError) as caught:
        read_config(config)
    text = "\n".join(caught.value.lines())
    for word in words:
        assert word in text


def test_an_unknown_model_type_is_counted_once_the_gate_is_known():
    """As llama with its own fields; a plain MLP has two matrices."""
    novel = LLAMA3_8B | {"model_type": "novel"}
    gated = read_config(novel, "gated")
    plain = read_config(novel, "plain")
    assert gated.weights == 8_030_261_248
    assert gated.weights - plain.weights == 32 * 4096 * 14336
