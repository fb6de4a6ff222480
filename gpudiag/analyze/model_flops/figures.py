"""A workload and a throughput as figures: MFU, HFU, TFLOP/s per GPU, in every convention."""

from __future__ import annotations

from dataclasses import dataclass

from gpudiag import __version__
from gpudiag.analyze.model_flops.conventions import CONVENTIONS, Convention, NotCounted
from gpudiag.analyze.model_flops.over_peak import refuse_over_peak
from gpudiag.analyze.model_flops.training import Count, token_flops
from gpudiag.analyze.model_flops.utilization import tflops_per_gpu, utilization
from gpudiag.analyze.model_flops.workload import Workload
from gpudiag.errors import UsageError
from gpudiag.model.mfu import ConventionMfu, ModelMfu

# Tried in this order where none is asked for: as much as the numbers given allow.
_PREFERRED = ("gpudiag", "palm", "6n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How fast a job went, and on what."""

    tokens_per_s: float  # of the whole job
    gpus: int
    peak_tflops: float  # dense, of one GPU
    peak_source: str
    gpu_name: str | None = None
    dtype: str | None = None
    notes: tuple[str, ...] = ()  # on the GPU and its peak


def model_mfu(workload: Workload, run: Run, convention: str | None = None) -> ModelMfu:
    """Return a run's figures.

    Args:
        workload: the model and how it is trained.
        run: throughput, GPUs and their peak.
        convention: a key of CONVENTIONS; None takes gpudiag's own where the model's shapes are
            known, else PaLM's, else 6 N.

    Raises:
        UsageError: the convention needs what isn't known.
        GpudiagError: the result is above 100 %.
    """
    all_of_them = {one.id: _figures(one, workload, run) for one in CONVENTIONS.values()}
    chosen = _chosen(all_of_them, convention)
    refuse_over_peak(
        chosen, all_of_them, workload=workload, gpus=run.gpus, peak_tflops=run.peak_tflops
    )
    return ModelMfu(
        gpudiag_version=__version__,
        model=workload.model.title if workload.model else "a model of these numbers",
        numbers=_numbers(workload),
        forward_flops_per_token=_forward(workload, chosen),
        recompute=workload.training.recompute,
        tokens_per_s=run.tokens_per_s,
        gpus=run.gpus,
        gpu_name=run.gpu_name,
        dtype=run.dtype,
        peak_tflops=run.peak_tflops,
        peak_source=run.peak_source,
        chosen=chosen,
        conventions=tuple(all_of_them.values()),
        notes=(*run.notes, *_notes(workload)),
    )


def _figures(convention: Convention, workload: Workload, run: Run) -> ConventionMfu:
    counted = convention.count(workload)
    model = hardware = None
    remark = counted.reason if isinstance(counted, NotCounted) else counted.remark
    if not isinstance(counted, NotCounted):
        model, hardware = counted.model, counted.hardware
    rate, hw_rate = _rate(model, run), _rate(hardware, run)
    return ConventionMfu(
        id=convention.id,
        attention=convention.attention,
        formula=convention.formula,
        source=convention.source,
        flops_per_token=model,
        hw_flops_per_token=hardware,
        tflops_per_gpu=rate,
        hw_tflops_per_gpu=hw_rate,
        mfu=None if rate is None else utilization(rate, run.peak_tflops),
        hfu=None if hw_rate is None else utilization(hw_rate, run.peak_tflops),
        remark=remark,
    )


def _rate(per_token: float | None, run: Run) -> float | None:
    if per_token is None:
        return None
    return tflops_per_gpu(flops_per_token=per_token, tokens_per_s=run.tokens_per_s, gpus=run.gpus)


def _chosen(figures: dict[str, ConventionMfu], wanted: str | None) -> ConventionMfu:
    if wanted is None:
        return next(figures[name] for name in _PREFERRED if figures[name].mfu is not None)
    if figures[wanted].mfu is None:
        raise UsageError(
            f"The convention {wanted} can't be worked out here",
            f"It {figures[wanted].remark}.",
            "Give what it needs, or choose another --convention.",
        )
    return figures[wanted]


def _numbers(workload: Workload) -> dict[str, float]:
    numbers = workload.numbers
    layers, width = numbers.layers, numbers.width
    known = {
        "N": numbers.params,
        "N active": numbers.active_params if numbers.is_mixture else None,
        "L": layers,
        "H Q": width / (2 * layers) if width is not None and layers else None,
        "h": numbers.hidden,
        "V": numbers.vocab,
        "T": workload.seq or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _forward(workload: Workload, chosen: ConventionMfu) -> dict[str, float]:
    """Return a token's forward pass by part, as gpudiag's own conventions count it."""
    if workload.model is None or not chosen.id.startswith("gpudiag"):
        return {}
    count = Count(attention="causal" if chosen.attention == "causal" else "full")
    flops = token_flops(workload.model, workload.lengths, workload.training, count)
    parts = {
        "linear": flops.linear,
        "attention": flops.attention,
        "logits": flops.logits,
        "adapters": flops.adapters,
    }
    return {name: value for name, value in parts.items() if value}


def _notes(workload: Workload) -> tuple[str, ...]:
    notes = workload.model.notes if workload.model else ()
    training = workload.training
    if training.lora_rank is not None or training.frozen_layers:
        told = "Conventions of the form 6 N count every weight as trained, frozen ones too."
        notes = (*notes, told)
    return notes
