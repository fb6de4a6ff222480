"""Conventions in circulation: the same run, as each of them counts it.

Each is a small function from a workload to FLOPs per token; what it needs and lacks is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpudiag.analyze.model_flops import closed_forms
from gpudiag.analyze.model_flops.training import Count, Training, token_flops
from gpudiag.analyze.model_flops.workload import Workload

# Full recomputation by rule of thumb: a fourth pass beside forward and two of backward.
_BLIND_RECOMPUTE = 4 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PerToken:
    """FLOPs per token in one convention."""

    model: float
    hardware: float | None = None  # None: the convention has no word for recomputation
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCounted:
    """A convention that can't be worked out here, and why."""

    reason: str


Counted: TypeAlias = PerToken | NotCounted


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """A way to count, by the name under which results carry it."""

    id: str
    attention: str  # full, causal or none
    formula: str
    source: str
    count: Callable[[Workload], Counted]


def _exact(workload: Workload, count: Count) -> Counted:
    if workload.model is None:
        return NotCounted(reason="needs the model's shapes (--model)")
    training = workload.training
    flops = token_flops(workload.model, workload.lengths, training, count)
    remarks = []
    if training.lora_rank is not None:
        remarks.append("frozen weights 2 x, not 3 x")
    if training.frozen_layers:
        remarks.append(f"the first {training.frozen_layers} layers 1 x")
    return PerToken(model=flops.model, hardware=flops.hardware, remark=", ".join(remarks))


def gpudiag(workload: Workload) -> Counted:
    """Count every matrix product, attention in full, the logits; windows limit the keys."""
    return _exact(workload, Count())


def gpudiag_causal(workload: Workload) -> Counted:
    """Count the same with half of the attention square."""
    return _exact(workload, Count(attention="causal"))


def palm(workload: Workload) -> Counted:
    """Count 6 N + 12 L H Q T, N all (active) parameters; another forward where recomputed."""
    width = workload.numbers.width
    if width is None or not workload.lengths:
        return NotCounted(reason="needs layers, hidden size and sequence length")
    return _palm(workload, width * workload.seq, workload.numbers.active_params)


def palm_causal(workload: Workload) -> Counted:
    """Count 6 N + 6 L H Q T: PaLM's form with half of the attention square."""
    width = workload.numbers.width
    if width is None or not workload.lengths:
        return NotCounted(reason="needs layers, hidden size and sequence length")
    return _palm(workload, width * workload.seq / 2, workload.numbers.active_params)


def _palm(workload: Workload, area: float, params: float) -> PerToken:
    model = closed_forms.palm(params, area, 1)
    forward_again = {
        "none": 0.0,
        "selective": closed_forms.attention_term(area, 1) / 3,
        "full": model / 3,
        "full-early-stop": None,
    }[workload.training.recompute]
    return PerToken(model=model, hardware=None if forward_again is None else model + forward_again)


def six_n(workload: Workload) -> Counted:
    """Count 6 N, or 8 N with full recomputation: no attention."""
    params = workload.numbers.active_params
    executed = {"none": closed_forms.six_n(params), "full": closed_forms.eight_n(params)}
    return PerToken(
        model=closed_forms.six_n(params), hardware=executed.get(workload.training.recompute)
    )


def megatron(workload: Workload) -> Counted:
    """Count matrix products without routers and adapters, half of the attention square."""
    return _megatron(workload, workload.training, Count(attention="causal", router=False))


def megatron_full(workload: Workload) -> Counted:
    """Count the same with attention in full, windows ignored, and every weight as trained."""
    return _megatron(workload, Training(), Count(windows=False, router=False))


def _megatron(workload: Workload, training: Training, count: Count) -> Counted:
    done = replace(workload, training=replace(training, recompute="none"))
    found = _exact(done, replace(count, adapters=False))
    return found if isinstance(found, NotCounted) else replace(found, hardware=None)


def torchtitan(workload: Workload) -> Counted:
    """Count 6 (N - N_embedding) + 12 L H Q T; a tied embedding isn't taken off."""
    numbers = workload.numbers
    if None in {numbers.width, numbers.embedding_params, numbers.tied} or not workload.lengths:
        return NotCounted(reason="needs the model's shapes (--model)")
    embedding = 0 if numbers.tied else numbers.embedding_params
    flops = closed_forms.torchtitan(
        params=numbers.active_params,
        embedding=embedding or 0,
        width=numbers.width or 0,
        seq=workload.seq,
    )
    return PerToken(model=flops)


def nanogpt(workload: Workload) -> Counted:
    """Count 6 N + 12 L H Q T with N less learned positions; nanoGPT divides by an A100's 312."""
    numbers = workload.numbers
    if numbers.width is None or not workload.lengths:
        return NotCounted(reason="needs layers, hidden size and sequence length")
    params = numbers.params - numbers.position_params
    return PerToken(
        model=closed_forms.palm(params, numbers.width, workload.seq), remark=_all_experts(workload)
    )


def narayanan(workload: Workload) -> Counted:
    """Count 72 B L s h² (...), executed 96 B L s h² (...) with full recomputation."""
    shape = _gpt_shape(workload)
    if shape is None:
        return NotCounted(reason="needs layers, hidden size, vocabulary and sequence length")
    model = closed_forms.narayanan(**shape, recompute=False) / workload.seq
    executed = closed_forms.narayanan(**shape, recompute=True) / workload.seq
    hardware = {"none": model, "full": executed}.get(workload.training.recompute)
    return PerToken(model=model, hardware=hardware, remark="as if GPT: MLP of 4 h, no GQA")


def korthikanti(workload: Workload) -> Counted:
    """Count 72 B L s h² (...), executed with s/3h for s/6h with selective recomputation."""
    shape = _gpt_shape(workload)
    if shape is None:
        return NotCounted(reason="needs layers, hidden size, vocabulary and sequence length")
    model = closed_forms.korthikanti(**shape, recompute=False) / workload.seq
    executed = closed_forms.korthikanti(**shape, recompute=True) / workload.seq
    hardware = {"none": model, "selective": executed}.get(workload.training.recompute)
    return PerToken(model=model, hardware=hardware, remark="as if GPT: MLP of 4 h, no GQA")


def _gpt_shape(workload: Workload) -> dict[str, int] | None:
    numbers = workload.numbers
    layers, hidden, vocab = numbers.layers, numbers.hidden, numbers.vocab
    if layers is None or hidden is None or vocab is None or not workload.lengths:
        return None
    return {"batch": 1, "layers": layers, "hidden": hidden, "seq": workload.seq, "vocab": vocab}


def llm_foundry(workload: Workload) -> Counted:
    """Count 3 (2 N + 4 L d T), executed 4/3 of it where activations are checkpointed."""
    numbers = workload.numbers
    if numbers.layers is None or numbers.hidden is None or not workload.lengths:
        return NotCounted(reason="needs layers, hidden size and sequence length")
    model = closed_forms.llm_foundry(
        params=numbers.active_params,
        layers=numbers.layers,
        hidden=numbers.hidden,
        seq=workload.seq,
    )
    hardware = {"none": model, "full": model * _BLIND_RECOMPUTE}.get(workload.training.recompute)
    return PerToken(model=model, hardware=hardware)


def transformers(workload: Workload) -> Counted:
    """Count 6 N without embeddings: what the Trainer logs as total_flos, forward and backward."""
    numbers = workload.numbers
    if numbers.embedding_params is None:
        return NotCounted(reason="needs the model's shapes (--model)")
    params = numbers.params - numbers.embedding_params - numbers.position_params
    return PerToken(model=closed_forms.six_n(params), remark=_all_experts(workload))


def _all_experts(workload: Workload) -> str:
    return "counts all experts" if workload.numbers.is_mixture else ""


CONVENTIONS: dict[str, Convention] = {
    one.id: one
    for one in (
        Convention(
            id="gpudiag",
            attention="full",
            formula="3 x every matrix product, attention in full, logits",
            source="FlopCounterMode counts the same",
            count=gpudiag,
        ),
        Convention(
            id="gpudiag-causal",
            attention="causal",
            formula="3 x every matrix product, half of the attention square, logits",
            source="FlashAttention's benchmarks count attention so",
            count=gpudiag_causal,
        ),
        Convention(
            id="palm",
            attention="full",
            formula="6 N + 12 L H Q T",
            source="PaLM, arXiv 2204.02311, appendix B",
            count=palm,
        ),
        Convention(
            id="palm-causal",
            attention="causal",
            formula="6 N + 6 L H Q T",
            source="PaLM's form, half of the attention square",
            count=palm_causal,
        ),
        Convention(
            id="6n",
            attention="none",
            formula="6 N; 8 N with full recomputation",
            source="Kaplan et al., arXiv 2001.08361; Bekman, ml-engineering",
            count=six_n,
        ),
        Convention(
            id="megatron",
            attention="causal",
            formula="3 x matrix products without routers, half of the attention square, logits",
            source="Megatron-LM since commit 8873b55d6a (2025-03-06), Megatron-Bridge, NeMo",
            count=megatron,
        ),
        Convention(
            id="megatron-before-2025-03",
            attention="full",
            formula="3 x matrix products without routers, attention in full, logits",
            source="Megatron-LM before commit 8873b55d6a; NeMo's tables of 2024",
            count=megatron_full,
        ),
        Convention(
            id="torchtitan",
            attention="full",
            formula="6 (N - N_embedding) + 12 L H Q T",
            source="torchtitan",
            count=torchtitan,
        ),
        Convention(
            id="nanogpt",
            attention="full",
            formula="6 (N - N_position) + 12 L H Q T",
            source="nanoGPT",
            count=nanogpt,
        ),
        Convention(
            id="narayanan",
            attention="full",
            formula="72 B L s h² (1 + s/6h + V/12Lh); executed 96 B L s h² (1 + s/6h + V/16Lh)",
            source="Narayanan et al. 2021, arXiv 2104.04473",
            count=narayanan,
        ),
        Convention(
            id="korthikanti",
            attention="full",
            formula="72 B L s h² (1 + s/6h + V/12hL); executed s/3h for s/6h",
            source="Korthikanti et al. 2022, arXiv 2205.05198",
            count=korthikanti,
        ),
        Convention(
            id="llm-foundry",
            attention="full",
            formula="3 (2 N + 4 L d T); executed 4/3 of it",
            source="llm-foundry, Composer",
            count=llm_foundry,
        ),
        Convention(
            id="transformers",
            attention="none",
            formula="6 N without embeddings",
            source="transformers' Trainer, total_flos",
            count=transformers,
        ),
    )
}
