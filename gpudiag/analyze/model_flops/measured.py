"""What an analysis tells of a job's throughput: tokens and time of a step, GPUs, dtype, peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis


_SOURCES = {"embedding": "the shapes of its embedding", "events": "its run's event log"}
_LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What traces say; None is "they don't", and a remark says how it was taken."""

    tokens_per_step: int | None  # of the whole job
    samples_per_step: int | None  # the same in sequences
    sequence: int | None
    vocabulary: int | None  # rows of the embedding whose lookups were counted
    step_ns: int | None  # median
    gpus: int | None
    gpu_name: str | None
    dtype: str | None
    peak_tflops: float | None
    peak_source: str | None
    tokens_from: str  # how they were taken, or why they can't be
    step_from: str
    gpus_from: str
    conflicts: tuple[str, ...]


def measured(analysis: Analysis) -> Measured:
    """Return what an analysis tells of a job's throughput, with how it was taken."""
    job = analysis.job
    told = [one.tokens for one in analysis.ranks if one.tokens is not None]
    tokens, tokens_from = _tokens(analysis)
    samples, samples_from = _samples(analysis) if tokens is None else (None, "")
    lengths = {one.sequence for one in told}
    vocabularies = {one.vocabulary for one in told if one.source == "embedding"}
    gpus, gpus_from = _gpus(analysis)
    steps = sum(one.periods for one in analysis.ranks) or sum(
        len(one.host_steps_ns) for one in analysis.ranks
    )
    return Measured(
        tokens_per_step=tokens,
        samples_per_step=samples,
        sequence=lengths.pop() if len(lengths) == 1 else None,
        vocabulary=vocabularies.pop() if len(vocabularies) == 1 else None,
        step_ns=job.step_ns_p50,
        gpus=gpus,
        gpu_name=job.gpu_name,
        dtype=job.dtype,
        peak_tflops=job.peak_tflops,
        peak_source=job.peak_source,
        tokens_from=samples_from if samples is not None else tokens_from,
        step_from=f"The step's time is the median of {steps} traced ones, which the profiler makes "
        "a little longer.",
        gpus_from=gpus_from,
        conflicts=_conflicts(analysis),
    )


def _tokens(analysis: Analysis) -> tuple[int | None, str]:
    """Return the whole job's tokens per step, with how they were taken, or why they can't be."""
    told = {one.rank: one.tokens for one in analysis.ranks if one.tokens is not None}
    reasons = {one.why_not: rank for rank, one in told.items() if one.why_not}
    if reasons:
        reason, rank = next(iter(reasons.items()))
        return None, f"rank {rank} {reason}"
    counts = {rank: one.per_step for rank, one in told.items() if one.per_step is not None}
    silent = [rank for rank in analysis.job.ranks if rank not in counts]
    if silent:
        named = ", ".join(map(str, silent[:_LISTED])) + (", ..." if len(silent) > _LISTED else "")
        return None, f"no embedding with recorded shapes, and no event, tells those of rank {named}"
    sources = sorted({_SOURCES[told[rank].source] for rank in counts})
    return _of_all(analysis, list(counts.values()), "Tokens", " or ".join(sources))


def _samples(analysis: Analysis) -> tuple[int | None, str]:
    """Return the whole job's sequences per step, as its events tell them."""
    told = {one.rank: one.tokens and one.tokens.samples_per_step for one in analysis.ranks}
    counts = [count for count in told.values() if count]
    if len(counts) < len(told) or not counts:
        return None, ""
    return _of_all(analysis, counts, "Sequences", _SOURCES["events"])


def _of_all(
    analysis: Analysis, counts: list[int], what: str, source: str
) -> tuple[int | None, str]:
    """Return the sum over all ranks of the world, where each is known to read data of its own."""
    shared = _shared(analysis)
    if shared:
        return None, shared
    ranks = analysis.job.world_size or len(counts)
    total = round(sum(counts) * ranks / len(counts))
    each = f"{min(counts):,}" if len(set(counts)) == 1 else f"{min(counts):,} to {max(counts):,}"
    taken = f"{what} per step: {each} of a rank, from {source}"
    if ranks == 1:
        return total, taken + "."
    seen = f", {len(counts)} of them seen" if ranks > len(counts) else ""
    return total, f"{taken}, times {ranks} ranks{seen}, each with data of its own."


def _shared(analysis: Analysis) -> str | None:
    """Return why ranks can't be added up; None where no two read the same."""
    sizes = analysis.job.parallelism
    world = analysis.job.world_size or len(analysis.job.ranks)
    shared = [name for name in ("tp", "pp", "cp") if (getattr(sizes, name) or 1) > 1]
    if shared:
        return f"ranks share tokens ({', '.join(shared)}), which the shapes can't tell apart"
    own = all(one.tokens and one.tokens.own_data for one in analysis.ranks)
    if world == 1 or own or sizes.dp == world:
        return None
    return (
        f"nothing recorded says that each of the {world} ranks reads data of its own "
        "(a data-parallel group of all, or DDP or FSDP over all)"
    )


def _conflicts(analysis: Analysis) -> tuple[str, ...]:
    """Return where a rank's shapes and its run's events differ."""
    return tuple(
        f"Rank {one.rank}: its embedding's shapes tell {one.tokens.per_step:,} tokens a step and "
        f"are used, its run's events {one.tokens.told_per_step:,}."
        for one in analysis.ranks
        if one.tokens and one.tokens.told_per_step and one.tokens.per_step
    )[:_LISTED]


def _gpus(analysis: Analysis) -> tuple[int | None, str]:
    """Return all GPUs of the job: the world's ranks, times the devices that each rank uses."""
    devices = [one for one in analysis.ranks if one.device is not None]
    ranks = len(analysis.job.ranks)
    world = analysis.job.world_size
    each = len(devices) // ranks if devices and len(devices) % ranks == 0 else 1
    if world is None:
        return (
            ranks * each,
            f"GPUs: {ranks * each}, those of the traces: no world size is recorded.",
        )
    times = f", times {each} GPUs of a rank" if each > 1 else ""
    return world * each, f"GPUs: {world * each}, from the recorded world size{times}."
