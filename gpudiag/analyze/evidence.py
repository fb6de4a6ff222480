"""The sentences that make a finding believable: how much, where, in which calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.comm.transfer import DEGRADED, taken_ns
from gpudiag.analyze.losses import parts_of
from gpudiag.analyze.names import HostClass
from gpudiag.model import format as fmt
from gpudiag.model import thresholds

if TYPE_CHECKING:
    from gpudiag.analyze.comm.job import Communication
    from gpudiag.analyze.comm.transfer import Part
    from gpudiag.analyze.losses import Loss, Scope
    from gpudiag.model.analysis import GapCause
    from gpudiag.model.entry import Entry

# Evidence names this many host spans, operators or kernels at most.
NAMED = 3
_SINGLE_PROCESS_LOADER = "_SingleProcessDataLoaderIter"


def how_much(scope: Scope, losses: list[Loss]) -> list[str]:
    """Say what was lost in all, what of it is others' waiting, and on which rank it is worst."""
    total = sum(loss.total for loss in losses)
    share = fmt.share(total / scope.window_ns)
    text = f"{total / 1e6:.3f} ms{_place(scope, losses)}, {share} of the window"
    if scope.periods:
        text += f"; {total / scope.periods / 1e6:.3f} ms a step over {_steps(scope)}"
    kept = total - sum(loss.recoverable for loss in losses)
    if kept > 0:
        text += f"; {kept / 1e6:.3f} ms of it would stay (host late, unsure, or the profiler's own)"
    return [text, *_waits(losses), *_worst(scope, losses)]


def _place(scope: Scope, losses: list[Loss]) -> str:
    if scope.on_host:
        return " of the training threads' time"
    pieces = sum(loss.count for loss in losses)
    return f" in {fmt.counted(pieces, 'gap')}" if pieces else ""


def _waits(losses: list[Loss]) -> list[str]:
    """Say who waits for whom."""
    return [
        f"{fmt.counted(len(loss.affected), 'rank')} ({fmt.ranks(loss.affected)}) wait "
        f"{loss.caused / len(loss.affected) / 1e6:.3f} ms each for rank {loss.rank}"
        for loss in sorted(losses, key=lambda loss: -loss.caused)[:NAMED]
        if loss.affected
    ]


def _worst(scope: Scope, losses: list[Loss]) -> list[str]:
    worst = max(losses, key=lambda loss: loss.lost / loss.window_ns)
    if len(scope.windows) == 1 or not worst.lost:
        return []
    own = fmt.share(worst.lost / worst.window_ns)
    return [f"worst on rank {worst.rank}: {own} of its own window"]


def _steps(scope: Scope) -> str:
    """Return the steps behind a number: ``4 steps``, or ``3 steps x 4 windows``."""
    periods = {window.periods for window in scope.windows}
    if len(scope.windows) == 1 or len(periods) > 1:
        return fmt.counted(scope.periods, "step")
    return f"{fmt.counted(periods.pop(), 'step')} × {len(scope.windows)}"


def where(entry: Entry, causes: list[GapCause]) -> list[str]:
    """Name what the host was in where most of it was lost."""
    mine = [cause for cause in causes if cause.cause in entry.buckets]
    return [
        f"{cause.host_span or cause.host_op or 'nothing open'}"
        + (f" at {cause.file_line}" if cause.file_line else "")
        + f": {cause.total_ns / 1e6:.3f} ms in {fmt.counted(cause.count, 'gap')}"
        + (f", longest {cause.longest_ns / 1e6:.3f} ms" if cause.count > 1 else "")
        for cause in mine[:NAMED]
    ]


def loads_itself(causes: list[GapCause]) -> bool:
    """Tell that the training thread loads the data itself: num_workers is 0."""
    mine = [cause for cause in causes if cause.cause == "idle.input" and cause.host_span]
    return bool(mine) and all(_SINGLE_PROCESS_LOADER in (cause.host_span or "") for cause in mine)


def long_launch_frac(scope: Scope) -> float:
    """Return the share of launch time that lies in gaps too long for short kernels to make."""
    launch = [device.idle.charged[:, HostClass.LAUNCH] for _, device in scope.devices]
    total = sum(int(one.sum()) for one in launch)
    long = sum(int(one[one >= thresholds.LONG_LAUNCH_GAP_NS].sum()) for one in launch)
    return long / total if total else 0.0


def sync_operators(scope: Scope) -> list[str]:
    """Name the operators that made the synchronise calls of the windows."""
    totals: dict[str, list[int]] = {}
    for rank, analysis in scope.devices:
        host, window, offset = rank.host, analysis.window, analysis.device.offset_ns
        calls = np.flatnonzero(host.kind == HostClass.SYNC)
        at = host.starts[calls] - offset
        calls = calls[(at >= window.start) & (at < window.end)]
        for call, operator in zip(calls.tolist(), host.operator_of(calls).tolist(), strict=True):
            name = host.strings[host.name[operator if operator >= 0 else call]]
            row = totals.setdefault(name, [0, 0])
            row[0] += 1
            row[1] += int(host.ends[call] - host.starts[call])
    ranked = sorted(totals.items(), key=lambda item: -item[1][1])[:NAMED]
    return [
        f"{name}: {fmt.counted(count, 'synchronise call')}, {ns / 1e6:.3f} ms inside "
        "(mostly the GPU working)"
        for name, (count, ns) in ranked
    ]


def transfer_evidence(finding: str, scope: Scope) -> list[str]:
    """Name the collectives that cost most, with the fit that they are held against."""
    if scope.found is None:
        return []
    parts = [part for rank in scope.ranks for part in parts_of(finding, scope, rank.rank)]
    sums: dict[tuple[str, int | None, int], list[Part]] = {}
    for part in parts:
        one = scope.found.matched[part.collective]
        sums.setdefault((one.kind.value, one.bytes, one.size), []).append(part)
    ordered = sorted(sums.items(), key=lambda item: -sum(taken_ns(finding, p) for p in item[1]))
    lines = [_collectives(finding, scope.found, key, mine) for key, mine in ordered[:NAMED]]
    if finding == DEGRADED:
        lines.append("no counters of links or GPUs are in these traces: the cause is not known")
    return lines


def _collectives(
    finding: str, found: Communication, key: tuple[str, int | None, int], parts: list[Part]
) -> str:
    kind, size, ranks = key
    chosen = sorted({part.collective for part in parts})
    total = sum(taken_ns(finding, part) for part in parts)
    alpha = found.transfer.alphas.get(chosen[0])
    best = found.transfer.references[chosen[0]]
    text = f"{len(chosen)} × {kind}, {(size or 0) / 1e6:.3f} MB over {ranks} ranks"
    text += f": {total / 1e6:.3f} ms on all ranks"
    if alpha:
        of = f"{alpha.samples} transfers of {alpha.sizes} sizes"
        text += f"; alpha {alpha.ns / 1000:.1f} us (fit of {of})"
    if math.isfinite(best.bus_gb_s):
        text += f"; best {best.bus_gb_s:.1f} GB/s on the bus (best decile of {best.samples})"
    if finding == DEGRADED:
        worst = max(parts, key=lambda part: part.times_expected or 0)
        text += f"; up to {worst.times_expected:.1f} times as long, on every rank"
        text += f", of {best.samples} alike"
    return text
