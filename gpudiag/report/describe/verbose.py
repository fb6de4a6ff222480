"""The tables of ``-v``: which file became which rank, and each rank's own partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.report import format as fmt
from gpudiag.report.view import Column, Line, Lines, Row, Table, Tone

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, Input, RankResult

_STATES = ("compute", "comm", "copy", "idle")
_STATUS_TONES: dict[str, Tone] = {"ok": "plain", "partial": "warn", "skipped": "bad"}


def file_table(analysis: Analysis) -> Table:
    """Return each input file with what was made of it."""
    return Table(
        title="files",
        columns=(
            Column(title="file", min_width=14, cut="start"),
            Column(title="format", drop=3),
            Column(title="rank", align="right"),
            Column(title="host", drop=2, min_width=8),
            Column(title="pid", drop=5),
            Column(title="events", align="right", drop=4),
            Column(title="size", align="right", drop=4),
            Column(title="status"),
            Column(title="message", drop=1, min_width=12),
        ),
        rows=tuple(_file_row(one) for one in analysis.inputs),
    )


def _file_row(one: Input) -> Row:
    return Row(
        cells=(
            fmt.clean(one.path),
            one.format or "not known",
            "" if one.rank is None else str(one.rank),
            fmt.clean(one.host or ""),
            fmt.clean(one.pid or ""),
            fmt.count(one.events),
            fmt.size(one.bytes),
            one.status,
            fmt.clean(one.message or ""),
        ),
        tone=_STATUS_TONES.get(one.status, "plain"),
    )


def rank_table(analysis: Analysis) -> Table | None:
    """Return each rank's devices with their window and level 1."""
    if not analysis.ranks:
        return None
    return Table(
        title="ranks",
        columns=(
            Column(title="rank", align="right"),
            Column(title="GPU", align="right", drop=2),
            Column(title="window", align="right", drop=1),
            Column(title="basis", drop=4),
            Column(title="periods", align="right", drop=3),
            *(Column(title=state, align="right") for state in _STATES),
            Column(title="largest loss", drop=5, min_width=14),
            Column(title="clock", align="right", drop=6),
        ),
        rows=tuple(_rank_row(result) for result in analysis.ranks),
    )


def _rank_row(result: RankResult) -> Row:
    if not result.window_ns:
        states = ("n/a",) * len(_STATES)
        window, basis, loss = "n/a", "device activity not recorded", ""
    else:
        level1 = result.level1_ns or {}
        states = tuple(fmt.share(level1.get(s, 0) / result.window_ns) for s in _STATES)
        window, basis = fmt.duration(result.window_ns), result.window_basis or ""
        loss = _largest_loss(result)
    offset = result.host_device_offset_ns
    cells = (
        str(result.rank),
        "n/a" if result.device is None else str(result.device),
        window,
        basis,
        fmt.count(result.periods),
        *states,
        loss,
        fmt.duration(offset) if offset is not None else "n/a",
    )
    return Row(cells=cells)


def _largest_loss(result: RankResult) -> str:
    losses = {n: ns for n, ns in (result.buckets_ns or {}).items() if not n.startswith("compute.")}
    if not losses or not result.window_ns:
        return ""
    name = max(losses, key=lambda n: losses[n])
    return f"{name} {fmt.share(losses[name] / result.window_ns)}"


def rank_buckets(analysis: Analysis) -> Lines | None:
    """Return every bucket of every device, the largest first; None where the job is one device."""
    results = [result for result in analysis.ranks if result.window_ns and result.buckets_ns]
    if len(results) < 2:  # noqa: PLR2004 - one device is the job's own table
        return None
    lines = [
        Line(label=f"rank {result.rank}, GPU {result.device}", text=_shares(result), indent=2)
        for result in results
    ]
    return Lines(title="shares of each rank's window", lines=tuple(lines))


def _shares(result: RankResult) -> str:
    window_ns = result.window_ns or 1
    buckets = sorted((result.buckets_ns or {}).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {fmt.share(ns / window_ns)}" for name, ns in buckets)
