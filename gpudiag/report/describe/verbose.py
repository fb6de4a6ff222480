"""The tables of ``-v``: which file became which rank, and each rank's own partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.report.totals import host_results, with_window
from gpudiag.report.view import Column, Line, Lines, Row, Table, Tone

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, Input, RankResult

_NS_PER_MS = 1_000_000
_STATES = ("compute", "comm", "copy", "idle")
_STATUS_TONES: dict[str, Tone] = {"ok": "plain", "partial": "warn", "skipped": "dim"}


def file_table(analysis: Analysis) -> Table:
    """Return each input file with what was made of it."""
    return Table(
        title="files",
        columns=(
            Column(title="file", min_width=24, cut="path"),
            Column(title="format", drop=3),
            Column(title="rank", align="right"),
            Column(title="host", drop=2, min_width=8),
            Column(title="pid", drop=5),
            Column(title="events", align="right", drop=4),
            Column(title="size", align="right", drop=4),
            Column(title="status"),
            Column(title="message", drop=7, below="", cut="whole"),
        ),
        rows=tuple(_file_row(one) for one in analysis.inputs),
    )


def _file_row(one: Input) -> Row:
    read = one.status != "skipped"
    return Row(
        cells=(
            fmt.clean(one.path),
            one.format or "not known",
            "" if one.rank is None else str(one.rank),
            fmt.clean(one.host or ""),
            fmt.clean(one.pid or ""),
            fmt.count(one.events) if read else "",
            fmt.size(one.bytes) if read else "",
            one.status,
            fmt.clean(one.message or ""),
        ),
        tone=_STATUS_TONES.get(one.status, "plain"),
    )


def rank_table(analysis: Analysis) -> Table | None:
    """Return each rank's devices with their window and level 1; the host's where none has any."""
    if not analysis.ranks:
        return None
    if not with_window(analysis):
        return _host_rank_table(analysis)
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


def _host_rank_table(analysis: Analysis) -> Table | None:
    """Return each rank's training thread with its window and where most of its time went."""
    results = host_results(analysis)
    if not results:
        return None
    return Table(
        title="ranks",
        columns=(
            Column(title="rank", align="right"),
            Column(title="host window", align="right"),
            Column(title="basis", drop=2),
            Column(title="steps", align="right", drop=1),
            Column(title="ms/step", align="right"),
            Column(title="most in", drop=3, below="most in"),
        ),
        rows=tuple(_host_rank_row(result) for result in results),
    )


def _host_rank_row(result: RankResult) -> Row:
    window_ns, steps = result.host_window_ns or 1, len(result.host_steps_ns)
    buckets = result.host_buckets_ns or {}
    name = max(buckets, key=lambda n: buckets[n], default="")
    return Row(
        cells=(
            str(result.rank),
            fmt.duration(window_ns),
            result.host_window_basis or "",
            fmt.count(steps),
            f"{window_ns / steps / _NS_PER_MS:,.1f}" if steps else "n/a",
            f"{name} {fmt.share(buckets[name] / window_ns)}" if name else "",
        )
    )


def rank_buckets(analysis: Analysis) -> Lines | None:
    """Return every bucket of every device, the largest first; None where the job is one device."""
    results = [result for result in with_window(analysis) if result.buckets_ns]
    if len(results) < 2:  # noqa: PLR2004 - one device is the job's own table
        return None
    lines = [
        Line(
            label=f"rank {one.rank}, GPU {one.device}",
            text=_shares(one.buckets_ns or {}, one.window_ns or 1, one.periods),
            indent=2,
        )
        for one in results
    ]
    return Lines(title="shares of each rank's window", lines=tuple(lines))


def host_rank_buckets(analysis: Analysis) -> Lines | None:
    """Return what every rank's training thread did; None where the job is one rank."""
    results = host_results(analysis)
    if len(results) < 2:  # noqa: PLR2004 - one rank is the job's own table
        return None
    lines = [
        Line(
            label=f"rank {one.rank}",
            text=_shares(
                one.host_buckets_ns or {}, one.host_window_ns or 1, len(one.host_steps_ns)
            ),
            indent=2,
        )
        for one in results
    ]
    return Lines(title="host shares of each rank", lines=tuple(lines))


def _shares(buckets: dict[str, int], window_ns: int, steps: int) -> str:
    """Return the buckets with their shares, and the time per step of those that can be seen."""
    ordered = sorted(buckets.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{name} {fmt.share(ns / window_ns)}" + _per_step(ns, window_ns, steps)
        for name, ns in ordered
        if ns
    )


def _per_step(ns: int, window_ns: int, steps: int) -> str:
    if not steps or ns / window_ns < thresholds.TINY_FRAC:
        return ""
    return f" ({fmt.duration(round(ns / steps))}/step)"
