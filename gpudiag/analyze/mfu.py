"""MFU and HFU of a window, and the waterfall from peak down to MFU, which sums to one.

With P the dense peak of the job's dtype, T the window, F FLOPs of kernels that start in it::

    MFU = F_model / (P T)      HFU = F_executed / (P T)
    1 = MFU + recompute + extra + dtype + clock + residual + every bucket but compute.tensor, / T
        '------- these partition compute.tensor -------'

``dtype`` is what kernels of another type than the job's cost or (negative) save; ``clock`` what a
mean SM clock below the one behind the published peak costs, where that mean is known; the residual
is what tensor kernels took beyond that. Source: accounting.md 7, fingerprints 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.analyze.peak import Peak
from gpudiag.analyze.rank import DeviceAnalysis
from gpudiag.analyze.trace_flops.results import WindowFlops
from gpudiag.model.analysis import WaterfallTerm

TENSOR = "compute.tensor"
CONVENTION = "counted from operator shapes; full attention; embeddings and elementwise work 0"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What one device made of its peak; shares are of peak x window."""

    mfu: float
    hfu: float
    terms: tuple[WaterfallTerm, ...]


def efficiency(analysis: DeviceAnalysis, peak: Peak, clock_mhz: float | None = None) -> Efficiency:
    """Return MFU, HFU and the waterfall of one device's window.

    Args:
        analysis: the window, accounted for, with what its kernels computed.
        peak: the denominator.
        clock_mhz: mean SM clock while tensor kernels ran; None leaves it in the residual.
    """
    window_ns = analysis.window.length
    budget = peak.flops_per_s * window_ns / 1e9
    totals = analysis.flops.full
    leaves = analysis.leaves_ns()
    tensor = leaves.pop(TENSOR, 0) / window_ns
    parts = {
        "mfu": totals.model_flops / budget,
        "recompute": totals.recompute_flops / budget,
        "extra_flops": totals.extra_flops / budget,
        "dtype": _dtype_cost(analysis.flops, peak) * 1e9 / window_ns,
    }
    slowed = _slowdown(peak, clock_mhz)
    if slowed is not None:
        parts["clock"] = sum(parts.values()) * slowed
    spent = sum(parts.values())
    if spent > tensor:  # more than the peak allows: over-counted, or a wrong peak
        parts = {name: share * tensor / spent for name, share in parts.items()}
    parts["kernel_residual"] = max(tensor - spent, 0.0)
    shares = parts | {name: ns / window_ns for name, ns in leaves.items()}
    return Efficiency(
        mfu=totals.model_flops / budget,
        hfu=totals.hw_flops / budget,
        terms=tuple(WaterfallTerm(id=name, share=share) for name, share in shares.items()),
    )


def _slowdown(peak: Peak, clock_mhz: float | None) -> float | None:
    """Return by how much longer work takes at a mean clock than at that behind the peak."""
    if clock_mhz is None or peak.gpu is None:
        return None
    nominal = peak.gpu.peak_clock_mhz or peak.gpu.max_clock_mhz
    return nominal / clock_mhz - 1 if nominal else None


def _dtype_cost(flops: WindowFlops, peak: Peak) -> float:
    """Return what kernels of other types need beyond the job's peak, s; may be negative."""
    return sum(
        one.full.hw_flops * (1 / peak.of_dtype(one.dtype) - 1 / peak.flops_per_s)
        for one in flops.by_dtype
    )


def mean_waterfall(
    parts: Sequence[tuple[int, Sequence[WaterfallTerm]]],
) -> list[WaterfallTerm] | None:
    """Weigh waterfalls by their windows, ns; None if any device has none."""
    total = sum(window for window, _ in parts)
    if not total:
        return None
    shares: dict[str, float] = {}
    for window, terms in parts:
        for term in terms:
            shares[term.id] = shares.get(term.id, 0.0) + term.share * window / total
    return [WaterfallTerm(id=name, share=share) for name, share in shares.items()]
