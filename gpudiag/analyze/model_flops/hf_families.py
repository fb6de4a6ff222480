"""What a Hugging Face model_type says that no field of its config.json does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The fixed properties of an architecture.

    gated: three matrices in the MLP (SwiGLU, GeGLU), not two. Norms and biases are parameters
    without FLOPs; they are here so that N is exact.
    """

    gated: bool = True
    norm: Literal["rms", "layer", "none"] = "rms"
    norms_per_layer: int = 2
    head_norms: Literal["none", "head", "width"] = "none"  # on queries and keys
    biased: frozenset[str] = frozenset()  # of qkv, o, mlp; fields of the config may add
    tied: bool = False
    positions: Literal["none", "learned", "learned+2"] = "none"
    head_bias: bool = False  # of the logits' matrix
    window: Literal["all", "none", "alternate", "pattern", "switch"] = "none"
    embedding_norm: bool = False
    multi_query: bool = False  # one key-value head unless the config says otherwise
    sinks: bool = False  # a learned weight per head


_ALL = frozenset({"qkv", "o", "mlp"})
_GPT = Family(gated=False, norm="layer", biased=_ALL, tied=True, positions="learned")

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(window="all"),
    "mixtral": Family(window="all"),
    "qwen2": Family(biased=frozenset({"qkv"}), window="switch"),
    "qwen2_moe": Family(biased=frozenset({"qkv"}), window="switch"),
    "qwen3": Family(head_norms="head", window="switch"),
    "qwen3_moe": Family(head_norms="head", window="switch"),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True, norms_per_layer=4, window="alternate"),
    "gemma3_text": Family(tied=True, norms_per_layer=4, head_norms="head", window="pattern"),
    "phi3": Family(window="all"),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "gpt_oss": Family(biased=_ALL, window="alternate", sinks=True),
    "olmo": Family(norm="none"),
    "olmo2": Family(head_norms="width"),
    "granite": Family(tied=True),
    "smollm3": Family(tied=True),
    "cohere": Family(norms_per_layer=1, tied=True),
    "gpt2": _GPT,
    "gpt_neox": Family(gated=False, norm="layer", biased=_ALL),
    "gpt_bigcode": Family(
        gated=False, norm="layer", biased=_ALL, tied=True, positions="learned", multi_query=True
    ),
    "gptj": Family(
        gated=False,
        norm="layer",
        norms_per_layer=1,
        biased=frozenset({"mlp"}),
        head_bias=True,
    ),
    "opt": Family(gated=False, norm="layer", biased=_ALL, tied=True, positions="learned+2"),
    "bloom": Family(gated=False, norm="layer", biased=_ALL, tied=True, embedding_norm=True),
    "phi": Family(gated=False, norm="layer", norms_per_layer=1, biased=_ALL, head_bias=True),
    "starcoder2": Family(gated=False, norm="layer", biased=_ALL, tied=True, window="all"),
    "nemotron": Family(gated=False, norm="layer"),
}

# A model_type that isn't known, once the user has said whether its MLP is gated.
GENERIC = Family(window="all")
