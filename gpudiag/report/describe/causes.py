"""The evidence tables: what the host did while the device had nothing, and what the device ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.report.totals import Totals, device_totals
from gpudiag.report.view import DECORATION, Column, Row, Table

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, GapCause, KernelRow

# Idle time in which the host had done its part: whatever it did then is no cause.
_ENQUEUED = frozenset({"idle.launch_latency", "idle.device_blocked"})


def gap_table(analysis: Analysis, top: int) -> Table | None:
    """Return the causes of idle time, the largest first, with what the host was doing."""
    totals = device_totals(analysis)
    if totals is None or not analysis.gap_causes:
        return None
    causes = sorted(analysis.gap_causes, key=lambda cause: -cause.total_ns)
    notable = [cause for cause in causes if totals.share(cause.total_ns) >= thresholds.TINY_FRAC]
    if not notable:
        return None
    rows = [
        Row(
            cells=(
                cause.cause,
                fmt.share(totals.share(cause.total_ns)),
                fmt.count(cause.count),
                fmt.duration(cause.longest_ns),
                host_in(cause) or _nowhere(cause),
                fmt.clean(cause.file_line) if cause.file_line else "",
                fmt.ranks(cause.ranks),
            )
        )
        for cause in notable[:top]
    ]
    return Table(
        title="gaps by cause",
        columns=(
            Column(title="cause", cut="middle"),
            Column(title="share", align="right"),
            Column(title="pieces", align="right", drop=2),
            Column(title="longest", align="right", drop=1),
            Column(
                title="the host was in",
                short="host was in",
                drop=6,
                below="host:",
                min_width=16,
                cut="middle",
            ),
            Column(title="at", drop=7, below="at", min_width=8, cut="path"),
            Column(title="ranks", drop=DECORATION),
        ),
        rows=tuple(rows),
        notes=_left_out(len(notable), top, "cause"),
    )


def host_in(cause: GapCause) -> str:
    """Return what the host was in: the annotation, else the operator or call; "" for neither."""
    if cause.host_span:
        return fmt.host_span(cause.host_span)
    return fmt.clean(cause.host_op) if cause.host_op else ""


def _nowhere(cause: GapCause) -> str:
    return "already enqueued" if cause.cause in _ENQUEUED else "nothing recorded"


def kernel_table(analysis: Analysis, top: int) -> Table | None:
    """Return the kernels with the most time."""
    totals = device_totals(analysis)
    if totals is None or not analysis.kernels:
        return None
    kernels = sorted(analysis.kernels, key=lambda kernel: -kernel.total_ns)
    shown = kernels[:top]
    names = fmt.kernel_names([kernel.name for kernel in shown])
    rows = [
        Row(
            cells=(
                name,
                kernel.category,
                fmt.count(kernel.count),
                fmt.duration(kernel.mean_ns),
                fmt.duration(kernel.total_ns),
                fmt.share(totals.share(kernel.total_ns)),
                *_roof(kernel),
            )
        )
        for name, kernel in zip(names, shown, strict=True)
    ]
    return Table(
        title="kernels by time",
        columns=(
            Column(title="kernel", min_width=36, cut="distinct"),
            Column(title="kind", drop=4),
            Column(title="count", align="right", drop=3),
            Column(title="mean", align="right", drop=2),
            Column(title="total", align="right", drop=1),
            Column(title="of window", align="right"),
            Column(title="rate", align="right", drop=DECORATION),
            Column(title="of its roof", short="of roof", align="right", drop=5),
        ),
        rows=tuple(rows),
        notes=(*_left_out(len(kernels), top, "kernel"), *_overlap_note(analysis, totals)),
    )


def _roof(kernel: KernelRow) -> tuple[str, str]:
    """Return a kernel's rate against its nearer roof, and the percent of it; "" if not known."""
    if kernel.bound == "memory" and kernel.gb_s is not None:
        rate = f"{kernel.gb_s:,.0f} GB/s"
    else:
        rate = f"{kernel.tflops:,.1f} TFLOP/s" if kernel.tflops is not None else ""
    reached = f"{kernel.pct_of_peak:.0f} %" if kernel.pct_of_peak is not None else ""
    return rate, reached


def _overlap_note(analysis: Analysis, totals: Totals) -> tuple[str, ...]:
    """Return a warning where the kernels' times add up to more than the window."""
    if sum(kernel.total_ns for kernel in analysis.kernels) <= totals.window_ns:
        return ()
    return ("kernels that ran at the same time count each: the shares add up to over 100 %",)


def _left_out(total: int, shown: int, noun: str) -> tuple[str, ...]:
    more = total - shown
    return (f"{fmt.counted(more, noun)} more: --top {total}",) if more > 0 else ()
