"""Formulas in circulation, each as its authors wrote it; FLOPs of forward and backward.

N parameters, L layers, h hidden size, V vocabulary, T tokens a sequence, B sequences a step;
``width`` is the sum over layers of heads x (query dimension + value dimension), which is 2 L h
where heads x head dimension is the hidden size.
"""

from __future__ import annotations

# Forward, the gradient of the input, the gradient of the weight; a multiplication and an addition.
_PER_WEIGHT = 6
# One more forward pass: full recomputation.
_PER_WEIGHT_RECOMPUTED = 8


def six_n(params: float) -> float:
    """Return 6 N per token: no attention (Kaplan et al. 2020, arXiv 2001.08361)."""
    return _PER_WEIGHT * params


def eight_n(params: float) -> float:
    """Return 8 N per token: 6 N and a recomputed forward pass (Bekman's rule, ml-engineering)."""
    return _PER_WEIGHT_RECOMPUTED * params


def attention_term(width: float, seq: float) -> float:
    """Return 12 L H Q T per token, written 6 x width x T: both products, times three."""
    return _PER_WEIGHT * width * seq


def palm(params: float, width: float, seq: float) -> float:
    """Return 6 N + 12 L H Q T per token: full attention (PaLM, arXiv 2204.02311, appendix B)."""
    return six_n(params) + attention_term(width, seq)


def narayanan(
    *, batch: float, layers: int, hidden: int, seq: int, vocab: int, recompute: bool = True
) -> float:
    """Return the FLOPs of a step by Narayanan et al. 2021 (arXiv 2104.04473).

    With full recomputation 96 B s L h² (1 + s/6h + V/16Lh), which is what they printed;
    without it 72 B s L h² (1 + s/6h + V/12Lh). Full attention, an MLP of 4 h, no GQA.
    """
    times = 4 if recompute else 3
    inner = 1 + seq / (6 * hidden) + vocab / (4 * times * layers * hidden)
    return 24 * times * batch * seq * layers * hidden**2 * inner


def korthikanti(
    *, batch: float, layers: int, hidden: int, seq: int, vocab: int, recompute: bool = False
) -> float:
    """Return the FLOPs of a step by Korthikanti et al. 2022 (arXiv 2205.05198).

    Model 72 B L s h² (1 + s/6h + V/12hL); executed with selective recomputation s/3h for s/6h.
    """
    attention = seq / ((3 if recompute else 6) * hidden)
    inner = 1 + attention + vocab / (12 * hidden * layers)
    return 72 * batch * layers * seq * hidden**2 * inner


def llm_foundry(*, params: float, layers: int, hidden: int, seq: int) -> float:
    """Return 3 x (2 N + 4 L d T) per token: all parameters, full attention (llm-foundry)."""
    return 3 * (2 * params + 4 * layers * hidden * seq)


def torchtitan(*, params: float, embedding: float, width: float, seq: float) -> float:
    """Return 6 (N - N_embedding) + 6 L H (qk + v) T per token: full attention (torchtitan)."""
    return _PER_WEIGHT * (params - embedding) + attention_term(width, seq)


def training_seconds(
    *, tokens: float, params: float, gpus: int, tflops_per_gpu: float, recompute: bool = True
) -> float:
    """Return 8 T P / (n X), or 6 T P / (n X) without recomputation (Narayanan et al. 2021)."""
    per_token = eight_n(params) if recompute else six_n(params)
    return tokens * per_token / (gpus * tflops_per_gpu * 1e12)
