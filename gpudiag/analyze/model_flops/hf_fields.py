"""Fields of a Hugging Face config.json by meaning: each under all the names it goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpudiag.errors import UsageError

NAMES: dict[str, tuple[str, ...]] = {
    "hidden size": ("hidden_size", "n_embd", "d_model", "dim"),
    "number of layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "attention heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "key-value heads": ("num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads"),
    "head dimension": ("head_dim",),
    "MLP width": ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"),
    "vocabulary size": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts per token": ("num_experts_per_tok", "experts_per_token", "num_experts_per_token"),
    "expert width": ("moe_intermediate_size", "intermediate_size"),
    "learned positions": ("n_positions", "max_position_embeddings", "n_ctx"),
}


# Sizes without which there is no model, and sizes that no model has.
_LEAST = {
    "hidden size": 1,
    "number of layers": 1,
    "attention heads": 1,
    "key-value heads": 1,
    "vocabulary size": 1,
}
_MANY_LAYERS = 10_000
_MOST = dict.fromkeys((*NAMES["number of layers"], "num_nextn_predict_layers"), _MANY_LAYERS)
_LARGEST = 10**9


@dataclass(slots=True)
class Fields:
    """A config's values, and a list of those that were wanted and are not there."""

    data: Mapping[str, Any]
    missing: list[str] = field(default_factory=list)

    def optional(self, meaning: str) -> int | None:
        """Return a size under the first of its names that is there and not null, or None."""
        for name in NAMES[meaning]:
            value = self.data.get(name)
            if value is not None:
                return _size(name, value, least=_LEAST.get(meaning, 0))
        return None

    def size(self, meaning: str, default: int | None = None) -> int:
        """Return a size; one that is missing without a default is remembered, and 1 for now."""
        value = self.optional(meaning)
        if value is not None:
            return value
        if default is not None:
            return default
        first, *others = NAMES[meaning]
        self.missing.append(f"{first} ({meaning}{''.join(f', or {one}' for one in others)})")
        return 1

    def number(self, name: str, default: int = 0) -> int:
        """Return a size that goes by one name only."""
        value = self.data.get(name)
        return default if value is None else _size(name, value)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a switch."""
        value = self.data.get(name)
        return default if value is None else bool(value)

    def check(self, title: str) -> None:
        """Refuse to go on where a size was missing."""
        if self.missing:
            raise UsageError(
                f"The model's configuration ({title}) lacks {_listed(self.missing)}",
                "Without them its FLOPs can't be counted.",
                "Add the fields, or give --params, --layers, --hidden and --seq instead of it.",
            )


def _size(name: str, value: Any, least: int = 0) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= _MOST.get(name, _LARGEST):
        raise UsageError(
            f"The field {name} of the model's configuration can't be {repr(value)[:40]}",
            "",
            f"Expected a whole number from {least} to {_MOST.get(name, _LARGEST):,}.",
        )
    return int(value)


def _listed(items: list[str]) -> str:
    return "; ".join(items)
