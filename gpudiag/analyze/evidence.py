"""The sentences that make a finding believable: how much, where, in which calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.analyze.comm.evidence import waits_for
from gpudiag.analyze.names import HostClass
from gpudiag.model import format as fmt
from gpudiag.model import thresholds

if TYPE_CHECKING:
    from gpudiag.analyze.losses import Loss, Scope
    from gpudiag.model.analysis import GapCause
    from gpudiag.model.entry import Entry

# Evidence names this many host spans, operators or kernels at most.
NAMED = 3
# The host had done its part: what it was in then is no evidence.
ENQUEUED = frozenset({"idle.launch_latency", "idle.device_blocked"})
# Why part of a loss can't come back, in most findings.
STAYS = "host late, unsure, or the profiler's own"
_SINGLE_PROCESS_LOADER = "_SingleProcessDataLoaderIter"


def how_much(scope: Scope, losses: list[Loss], stays: str) -> list[str]:
    """Say what was lost in all, what of it is others' waiting, and on which rank it is worst."""
    total, own = sum(loss.total for loss in losses), sum(loss.lost for loss in losses)
    text = fmt.duration(total) + (_place(scope, losses) if own == total else "")
    text += f", {fmt.share(total / scope.window_ns)} of the window"
    if scope.periods:
        member = (" and rank" if scope.on_host else " and GPU") if len(scope.windows) > 1 else ""
        each = fmt.duration(total // scope.periods)
        text += f": {each} per step{member}, mean of {_steps(scope)}"
    if 0 < own < total:
        text += f"; {fmt.duration(own)}{_place(scope, losses)}, {fmt.duration(total - own)} as "
        text += "waits of other ranks"
    kept = total - sum(loss.recoverable for loss in losses)
    if kept > 0:
        text += f"; {fmt.duration(kept)} of it would stay ({stays})"
    return [text, *waits_for(scope, losses), *_worst(scope, losses)]


def _place(scope: Scope, losses: list[Loss]) -> str:
    if scope.on_host:
        return " of the training threads' time"
    pieces = sum(loss.count for loss in losses)
    return f" in {fmt.counted(pieces, 'gap')}" if pieces else ""


def _worst(scope: Scope, losses: list[Loss]) -> list[str]:
    worst = max(losses, key=lambda loss: loss.lost / loss.window_ns)
    if len(scope.windows) == 1 or not worst.lost:
        return []
    own = fmt.share(worst.lost / worst.window_ns)
    return [f"worst on rank {worst.rank}: {own} of its own window"]


def _steps(scope: Scope) -> str:
    """Return the steps behind a mean: ``4 steps``, or ``3 steps × 4 GPUs``."""
    periods = {window.periods for window in scope.windows}
    if len(scope.windows) == 1 or len(periods) > 1:
        return fmt.counted(scope.periods, "step")
    member = "rank" if scope.on_host else "GPU"
    return fmt.times(periods.pop(), scope.periods, "step", len(scope.windows), member)


def where(entry: Entry, causes: list[GapCause]) -> list[str]:
    """Name what the host was in where most of it was lost."""
    mine = [
        cause for cause in causes if cause.cause in entry.buckets and cause.cause not in ENQUEUED
    ]
    return [
        f"{cause.host_span or cause.host_op or 'nothing open'}"
        + (f" at {cause.file_line}" if cause.file_line else "")
        + f": {fmt.duration(cause.total_ns)} in {fmt.counted(cause.count, 'gap')}"
        + (f", longest {fmt.duration(cause.longest_ns)}" if cause.count > 1 else "")
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
    for _, analysis in scope.devices:
        for name, (count, ns) in analysis.syncs.items():
            row = totals.setdefault(name, [0, 0])
            row[0] += count
            row[1] += ns
    ranked = sorted(totals.items(), key=lambda item: -item[1][1])[:NAMED]
    return [
        f"{name}: {fmt.counted(count, 'synchronise call')}, {fmt.duration(ns)} inside "
        "(mostly the GPU working)"
        for name, (count, ns) in ranked
    ]
