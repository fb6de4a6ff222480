"""What an analysis tells of a job's throughput: tokens and time of a step, GPUs, dtype, peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, RankResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What traces say; None is "they don't", and a remark says why or how it was taken."""

    tokens_per_step: int | None  # of the whole job
    sequence: int | None
    step_ns: int | None  # median
    gpus: int | None
    gpu_name: str | None
    dtype: str | None
    peak_tflops: float | None
    peak_source: str | None
    remarks: tuple[str, ...]
    no_tokens: str = ""  # why tokens_per_step is None


def measured(analysis: Analysis) -> Measured:
    """Return what an analysis tells of a job's throughput, with how it was taken."""
    job = analysis.job
    tokens, remark = _tokens(analysis)
    lengths = {one.sequence_length for one in _with_tokens(analysis)}
    steps = sum(one.periods for one in analysis.ranks) or sum(
        len(one.host_steps_ns) for one in analysis.ranks
    )
    remarks = [remark] if tokens is not None else []
    if job.step_ns_p50 is not None:
        remarks.append(f"The step's time is the median of {steps} recorded ones.")
    return Measured(
        tokens_per_step=tokens,
        sequence=lengths.pop() if len(lengths) == 1 else None,
        step_ns=job.step_ns_p50,
        gpus=_gpus(analysis),
        gpu_name=job.gpu_name,
        dtype=job.dtype,
        peak_tflops=job.peak_tflops,
        peak_source=job.peak_source,
        remarks=tuple(remarks),
        no_tokens="" if tokens is not None else remark,
    )


def _with_tokens(analysis: Analysis) -> list[RankResult]:
    return [one for one in analysis.ranks if one.tokens_per_step is not None]


def _tokens(analysis: Analysis) -> tuple[int | None, str]:
    """Return the whole job's tokens per step, with how they were taken, or why they can't be."""
    told = {one.rank: one.tokens_per_step for one in _with_tokens(analysis)}
    counts = [tokens for tokens in told.values() if tokens is not None]
    if not counts or len(told) < len(analysis.job.ranks):
        silent = [rank for rank in analysis.job.ranks if rank not in told]
        named = ", ".join(map(str, silent[:8]))
        return None, f"no embedding with recorded shapes, and no event, tells those of rank {named}"
    sizes = analysis.job.parallelism
    shared = [name for name in ("tp", "pp", "cp") if (getattr(sizes, name) or 1) > 1]
    if shared:
        return None, f"ranks share tokens ({', '.join(shared)}), which the shapes can't tell apart"
    ranks = analysis.job.world_size or len(counts)
    total = round(sum(counts) * ranks / len(counts))
    each = f"{min(counts):,}" if len(set(counts)) == 1 else f"{min(counts):,} to {max(counts):,}"
    taken = f"Tokens per step: {each} of a rank, from its embedding's shapes or its run's events"
    if ranks == 1:
        return total, taken + "."
    missing = f", {len(counts)} of them seen" if ranks > len(counts) else ""
    return total, f"{taken}, times {ranks} ranks{missing}, each with data of its own."


def _gpus(analysis: Analysis) -> int | None:
    """Return all GPUs of the job: the world's ranks, times the devices that each rank uses."""
    devices = [one for one in analysis.ranks if one.device is not None]
    ranks = len(analysis.job.ranks)
    world = analysis.job.world_size or ranks
    return world * len(devices) // ranks if devices and len(devices) % ranks == 0 else world
