"""How many keys a token sees on average: what attention's FLOPs are proportional to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

Attention: TypeAlias = Literal["full", "causal"]
ATTENTIONS: tuple[Attention, ...] = ("full", "causal")


def mean_keys(
    lengths: Sequence[int], attention: Attention = "full", window: int | None = None
) -> float:
    """Return the mean number of visible keys per token.

    For sequences of lengths L that are packed without seeing one another: sum(L x k(L)) / sum(L);
    one plain sequence is the case of one length. k(L), with a window W where there is one:

    full    min(L, W)
    causal  L / 2; with W < L the exact mean W - W (W - 1) / 2L (Megatron-Bridge)

    Causal counts half of the square, as Megatron-LM does since 2025-03, not (L + 1) / 2.
    """
    one = _full if attention == "full" else _causal
    return sum(length * one(length, window) for length in lengths) / sum(lengths)


def _full(length: int, window: int | None) -> float:
    return length if window is None else min(length, window)


def _causal(length: int, window: int | None) -> float:
    if window is None or window >= length:
        return length / 2
    return window - window * (window - 1) / (2 * length)
