"""What stands between the peak and MFU: the waterfall, and the line that says what MFU is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.report.view import DECORATION, Column, Row, Table

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, WaterfallTerm

_WORDS = {
    "mfu": "MFU: the model's FLOPs",
    "recompute": "activation recomputation",
    "extra_flops": "other FLOPs, not the model's",
    "dtype": "kernels of another dtype",
    "clock": "clock below the peak's",
    "kernel_residual": "tensor kernels below peak",
    "compute.other": "other kernels",
    "comm.wait": "waiting for late ranks",
    "comm.transfer": "exposed transfers",
    "comm.unsplit": "exposed communication",
    "pipeline.schedule": "pipeline bubble",
    "pipeline.imbalance": "waiting for slow stages",
}
_TENSOR_TERMS = ("recompute", "extra_flops", "dtype", "clock", "kernel_residual", "compute.other")


def waterfall_table(analysis: Analysis, *, everything: bool = False) -> Table | None:
    """Return the shares of peak x time from 100 % down to MFU; None where MFU isn't known."""
    terms = analysis.waterfall
    if not terms:
        return None
    shown = [t for t in _ordered(terms) if everything or abs(t.share) >= thresholds.REST_FRAC]
    rest = sum(t.share for t in terms if t.id != "mfu" and t not in shown)
    left = 1.0
    rows = [Row(cells=("peak", fmt.share(1.0), "", ""), tone="strong", bar_frac=1.0)]
    for term in shown:
        left -= term.share
        rows.append(_row(_WORDS.get(term.id, term.id), term.share, left))
    if rest:
        left -= rest
        rows.append(_row("rest", rest, left))
    mfu = next((term.share for term in terms if term.id == "mfu"), 0.0)
    rows.append(
        Row(cells=(_WORDS["mfu"], fmt.share(mfu), "", ""), tone="good", bar_frac=max(mfu, 0.0))
    )
    return Table(
        title="from peak to MFU",
        columns=(
            Column(title="share of peak × time", cut="middle"),
            Column(title="share", align="right"),
            Column(title="left", align="right", drop=1),
            Column(title="", bar=True, drop=DECORATION + 1),
        ),
        rows=tuple(rows),
        notes=_notes(analysis),
    )


def _row(words: str, share: float, left: float) -> Row:
    sign = "" if share < 0 else "−"  # noqa: RUF001 - the minus sign is meant
    return Row(cells=(words, f"{sign}{fmt.share(abs(share))}", fmt.share(max(left, 0.0)), ""),
               bar_frac=max(left, 0.0))  # fmt: skip


def _ordered(terms: list[WaterfallTerm]) -> list[WaterfallTerm]:
    """Return what the device does first, then what keeps it from doing it, the largest first."""
    by_id = {term.id: term for term in terms if term.id != "mfu"}
    first = [by_id.pop(name) for name in _TENSOR_TERMS if name in by_id]
    return [term for term in first if term.share] + sorted(
        by_id.values(), key=lambda term: (-term.share, term.id)
    )


def _notes(analysis: Analysis) -> tuple[str, ...]:
    job = analysis.job
    notes = [f"MFU {fmt.share(job.mfu)}, HFU {fmt.share(job.hfu)}; {job.flops_convention}"]
    if job.peak_tflops is not None:
        notes.append(
            f"peak {job.peak_tflops:,.1f} TFLOP/s a GPU: {fmt.clean(job.peak_source or '')}"
        )
    covered = [r.flops_coverage for r in analysis.ranks if r.flops_coverage is not None]
    if covered:
        least = fmt.share(min(covered))
        notes.append(f"FLOPs known for {least} of tensor kernel time, or more, on each rank")
    return tuple(notes)
