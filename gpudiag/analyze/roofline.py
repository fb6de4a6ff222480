"""What each kernel made of its device: FLOP/s, GB/s, and the percent of the nearer roof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpudiag.analyze.peak import NoPeak, Peak
from gpudiag.analyze.rank import RankAnalysis
from gpudiag.model import thresholds
from gpudiag.model.analysis import KernelRow


@dataclass(slots=True)
class _Work:
    """FLOPs and bytes of one kernel name, over the launches whose shapes tell them."""

    flops: int = 0
    flops_ns: int = 0
    ideal_s: float = 0.0  # time that the FLOPs take at the peak of their own dtype
    bytes: int = 0
    bytes_ns: int = 0


def with_roofline(
    rows: Sequence[KernelRow], ranks: Sequence[RankAnalysis], peak: Peak | NoPeak
) -> list[KernelRow]:
    """Add FLOP/s, GB/s and percent of peak to kernels whose operators recorded shapes."""
    work = _by_name(ranks, peak)
    return [_row(row, work[row.name], peak) if row.name in work else row for row in rows]


def _by_name(ranks: Sequence[RankAnalysis], peak: Peak | NoPeak) -> dict[str, _Work]:
    work: dict[str, _Work] = {}
    for analysis in (device for rank in ranks for device in rank.devices):
        for kernel in analysis.flops.kernels:
            one = work.setdefault(kernel.name, _Work())
            if kernel.flops is not None:
                one.flops += kernel.flops
                one.flops_ns += kernel.flops_ns
                if isinstance(peak, Peak):
                    one.ideal_s += kernel.flops / peak.of_dtype(kernel.dtype or peak.dtype)
            if kernel.bytes is not None:
                one.bytes += kernel.bytes
                one.bytes_ns += kernel.bytes_ns
    return work


def _row(row: KernelRow, work: _Work, peak: Peak | NoPeak) -> KernelRow:
    tflops = work.flops / work.flops_ns / 1e3 if work.flops and work.flops_ns else None
    gb_s = work.bytes / work.bytes_ns if work.bytes and work.bytes_ns else row.gb_s
    of_flops = work.ideal_s * 1e9 / work.flops_ns if work.flops_ns and work.ideal_s else None
    of_memory = _memory_frac(gb_s, peak)
    if of_memory is not None and of_memory > 1:  # partial or cached reads: no bandwidth of memory
        gb_s, of_memory = None, None
    best = max((frac for frac in (of_flops, of_memory) if frac is not None), default=None)
    return replace(
        row,
        flops=work.flops or None,
        bytes=work.bytes or row.bytes,
        tflops=tflops,
        gb_s=gb_s,
        pct_of_peak=100 * best if best is not None else None,
        bound=None if best is None else ("compute" if best == of_flops else "memory"),
        gain_ns=_gain(row.total_ns, best),
    )


def _memory_frac(gb_s: float | None, peak: Peak | NoPeak) -> float | None:
    if gb_s is None or isinstance(peak, NoPeak) or peak.gpu is None:
        return None
    return gb_s / peak.gpu.memory_gb_s if peak.gpu.memory_gb_s else None


def _gain(total_ns: int, frac: float | None) -> int | None:
    """Return the time that reaching 80 % of the roof would give back, ns."""
    if frac is None:
        return None
    return max(int(total_ns * (1 - frac / thresholds.REACHABLE_FRAC)), 0)
