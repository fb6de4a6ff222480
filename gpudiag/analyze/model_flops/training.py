"""FLOPs of a token in training: forward, backward, what is frozen, what is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpudiag.analyze.model_flops.context import Attention, mean_keys
from gpudiag.analyze.model_flops.shape import ROUTER, Layer, Linear, Model

Recompute: TypeAlias = Literal["none", "selective", "full", "full-early-stop"]
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full", "full-early-stop")

# Backward of a matrix product: one product for the gradient of its input, one for its weight.
_INPUT_GRADIENT = 1
_WEIGHT_GRADIENT = 1
_TRAINED = 1 + _INPUT_GRADIENT + _WEIGHT_GRADIENT
_FROZEN_BASE = 1 + _INPUT_GRADIENT  # the gradient passes through a frozen weight
_FORWARD_ONLY = 1  # below the first trained layer no gradient flows


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What of the model is trained, and what backward computes again.

    recompute: selective is the attention proper (Korthikanti 2022); full is every layer, logits not
    included; full-early-stop is torch's checkpoint with use_reentrant=False, which stops before
    the layer's last matrix.
    """

    recompute: Recompute = "none"
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()  # names of matrices; none: all but routers
    frozen_layers: int = 0  # the first layers, with nothing trained below them


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFlops:
    """FLOPs per token: the forward pass by part, and the sums over a step."""

    linear: float
    attention: float
    logits: float
    adapters: float
    model: float  # forward and backward
    recomputed: float

    @property
    def hardware(self) -> float:
        """Return what is executed: the model's FLOPs and the recomputed ones."""
        return self.model + self.recomputed


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What of the architecture a convention counts."""

    attention: Attention = "full"
    windows: bool = True  # a sliding window limits the keys
    router: bool = True
    adapters: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _LayerFlops:
    linear: float
    attention: float
    adapters: float
    model: float
    recomputed: float


def token_flops(
    model: Model, lengths: Sequence[int], training: Training, count: Count
) -> TokenFlops:
    """Return the FLOPs per token: for each part, forward x (1 + its products in backward).

    trained            3 x linear + 3 x attention
    LoRA               2 x frozen linear + 3 x adapters + 3 x attention
    frozen first layer 1 x linear + 1 x attention
    logits             2 h V, x 3, or x 2 where LoRA freezes them; one more for each MTP layer
    """
    layers = (*model.layers, *model.mtp)
    parts = [
        _layer_flops(layer, index < training.frozen_layers, lengths, training, count)
        for index, layer in enumerate(layers)
    ]
    logits = 2 * model.hidden * model.vocab * (1 + len(model.mtp))
    factor = _TRAINED if training.lora_rank is None else _FROZEN_BASE
    return TokenFlops(
        linear=sum(part.linear for part in parts),
        attention=sum(part.attention for part in parts),
        logits=logits,
        adapters=sum(part.adapters for part in parts),
        model=sum(part.model for part in parts) + factor * logits,
        recomputed=sum(part.recomputed for part in parts),
    )


def _layer_flops(
    layer: Layer, frozen: bool, lengths: Sequence[int], training: Training, count: Count
) -> _LayerFlops:
    linears = [one for one in layer.linears if count.router or one.name != ROUTER]
    linear = sum(one.forward_flops for one in linears)
    window = layer.core.window if count.windows else None
    attention = 2 * layer.core.width * mean_keys(lengths, count.attention, window)
    if frozen:
        return _LayerFlops(
            linear=linear,
            attention=attention,
            adapters=0,
            model=_FORWARD_ONLY * (linear + attention),
            recomputed=0,
        )
    adapters = _adapter_flops(linears, training) if count.adapters else 0
    base = _TRAINED if training.lora_rank is None else _FROZEN_BASE
    return _LayerFlops(
        linear=linear,
        attention=attention,
        adapters=adapters,
        model=base * linear + _TRAINED * (adapters + attention),
        recomputed=_recomputed(linear + adapters, attention, linears[-1], training.recompute),
    )


def _recomputed(linear: float, attention: float, last: Linear, recompute: Recompute) -> float:
    """Return the forward FLOPs of a layer that backward does once more."""
    if recompute == "none":
        return 0
    if recompute == "selective":
        return attention
    return linear + attention - (last.forward_flops if recompute == "full-early-stop" else 0)


def _adapter_flops(linears: Sequence[Linear], training: Training) -> float:
    """Return the forward FLOPs of LoRA's two thin matrices beside each target.

    2 r (inputs + outputs) for each matrix that the token passes through.
    """
    if training.lora_rank is None:
        return 0
    return sum(
        2 * training.lora_rank * (one.inputs + one.outputs) * one.active
        for one in linears
        if (one.name in training.lora_targets if training.lora_targets else one.name != ROUTER)
    )


def target_names(model: Model) -> tuple[str, ...]:
    """Return the names of the matrices that adapters can be put beside."""
    names = [one.name for layer in model.layers for one in layer.linears if one.name != ROUTER]
    return tuple(dict.fromkeys(names))
