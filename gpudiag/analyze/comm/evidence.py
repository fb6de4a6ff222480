"""Why a finding about communication is believed: who waits for whom, what is sent, what is slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from gpudiag.analyze.comm.causes import IMBALANCE, SLOW_GPU
from gpudiag.analyze.comm.job import last_counts
from gpudiag.analyze.comm.table import in_windows
from gpudiag.analyze.comm.transfer import DEGRADED, taken_ns
from gpudiag.analyze.kernels import mean_durations
from gpudiag.analyze.losses import PARTS_OF_TRANSFER, parts_of
from gpudiag.model import format as fmt
from gpudiag.model import thresholds

if TYPE_CHECKING:
    from gpudiag.analyze.comm.job import Communication
    from gpudiag.analyze.comm.transfer import Part
    from gpudiag.analyze.losses import Loss, Scope
    from gpudiag.analyze.rank import RankAnalysis

# Kinds of collectives, kernels and pairs of ranks that are named at most.
_NAMED = 3
EXPOSED = "comm_exposed"


def waits_for(scope: Scope, losses: Sequence[Loss]) -> list[str]:
    """Say who waits for whom, and how often the clocks show that the culprit came last."""
    total = sum(loss.total for loss in losses)
    ordered = sorted((one for one in losses if one.affected), key=lambda loss: -loss.caused)
    told = [one for one in ordered[:_NAMED] if one.caused >= thresholds.RARE_FRAC * total]
    lines = [_waits(scope, loss) for loss in told]
    if told and scope.found:
        lines.append(_order(scope, scope.found, [one.rank for one in told]))
    return lines


def _waits(scope: Scope, loss: Loss) -> str:
    each = loss.caused / len(loss.affected)
    steps = scope.periods / len(scope.windows)
    several = len(loss.affected) > 1
    text = f"{fmt.rank_list(loss.affected)} wait{'' if several else 's'} "
    text += f"{fmt.duration(round(each / steps))} a step" if steps else fmt.duration(round(each))
    return f"{text}{' each' if several else ''} for rank {loss.rank}"


def _order(scope: Scope, found: Communication, culprits: Sequence[int]) -> str:
    """Return how often they were last among the windows' collectives, where that is sure."""
    width = fmt.duration(max(one.half_width_ns for one in found.clocks.of_rank.values()))
    counts = last_counts(found, in_windows(found, scope.ranks))
    known = sum(counts.values())
    if not known:
        return f"who came last is not resolvable: the clocks are ±{width}"
    last = [f"rank {rank} in {counts.get(str(rank), 0)}" for rank in culprits]
    of = fmt.counted(known, "collective")
    return f"came last: {fmt.listed(last)} of {of} whose order the clocks (±{width}) show"


def compute_evidence(finding: str, culprits: Sequence[int], scope: Scope) -> list[str]:
    """Compare the culprit's kernels with the peers': more time, and whether by speed or amount."""
    if finding not in (SLOW_GPU, IMBALANCE) or not culprits:
        return []
    means = {one.rank: mean_durations(one) for one in scope.ranks if one.devices}
    mine = means.pop(culprits[0], {})
    if not mine or not means:
        return []
    own = sum(count * mean for count, mean in mine.values())
    theirs = median(sum(c * m for c, m in peer.values()) for peer in means.values())
    text = f"compute kernels take {fmt.duration(own)} on rank {culprits[0]}, "
    lines = [text + f"{fmt.duration(round(theirs))} on the median of its peers"]
    pairs = _compared(mine, list(means.values()))
    alike = [(name, a, b) for name, a, b in pairs if a[0] == b[0]]
    compared = sum(a[0] * a[1] for _, a, _ in alike)
    expected = sum(b[0] * b[1] for _, _, b in alike)
    if expected:
        part, ratio = fmt.percent(compared / own), fmt.factor(compared / expected)
        lines.append(
            f"kernels of equal name and count ({part} of its time) take {ratio} the peers'"
        )
    worst = sorted(pairs, key=lambda pair: pair[2][0] * pair[2][1] - pair[1][0] * pair[1][1])
    return lines + [
        f"{fmt.kernel_name(name)}: {fmt.counted(a[0], 'call')} of {fmt.duration(a[1])}, "
        f"peers {fmt.count(b[0])} of {fmt.duration(b[1])}"
        for name, a, b in worst[:_NAMED]
        if a[0] * a[1] > b[0] * b[1]
    ]


_Calls = tuple[int, int]  # count, mean ns


def _compared(
    mine: dict[str, _Calls], peers: Sequence[dict[str, _Calls]]
) -> list[tuple[str, _Calls, _Calls]]:
    """Return each kernel's calls on one rank beside the median of those peers that run it."""
    pairs = []
    for name, calls in mine.items():
        others = [peer[name] for peer in peers if name in peer]
        if others:
            usual = (round(median(c for c, _ in others)), round(median(m for _, m in others)))
            pairs.append((name, calls, usual))
    return pairs


def transfer_evidence(finding: str, scope: Scope) -> list[str]:
    """Name the collectives that cost most, with the fit that they are held against."""
    if scope.found is None or finding not in (*PARTS_OF_TRANSFER, EXPOSED):
        return []
    sums: dict[tuple[str, int | None, int], list[Part]] = {}
    for rank in scope.ranks:
        for part in _parts(finding, scope, rank):
            one = scope.found.matched[part.collective]
            sums.setdefault((one.kind.value, one.bytes, one.size), []).append(part)
    ordered = sorted(sums.items(), key=lambda item: -sum(_taken(finding, p) for p in item[1]))
    lines = [_collectives(finding, scope, scope.found, *item) for item in ordered[:_NAMED]]
    if finding == DEGRADED:
        lines.append("no counters of links or GPUs are in these traces: the cause is not known")
    return lines


def _parts(finding: str, scope: Scope, rank: RankAnalysis) -> Sequence[Part]:
    if finding != EXPOSED:
        return parts_of(finding, scope, rank.rank)
    return scope.found.transfer.parts.get(rank.rank, ()) if scope.found else ()


def _taken(finding: str, part: Part) -> int:
    return part.transfer_ns if finding == EXPOSED else taken_ns(finding, part)


def _collectives(
    finding: str,
    scope: Scope,
    found: Communication,
    key: tuple[str, int | None, int],
    parts: Sequence[Part],
) -> str:
    kind, size, ranks = key
    chosen = sorted({part.collective for part in parts})
    total = sum(_taken(finding, part) for part in parts)
    alpha = found.transfer.alphas.get(chosen[0])
    best = found.transfer.references.get(chosen[0])
    of_size = f" of {fmt.size(size)}" if size else ""
    text = f"{len(chosen)} × {kind}{of_size} over {fmt.counted(ranks, 'rank')}: "
    text += f"{fmt.duration(total)} exposed on all ranks"
    if scope.periods:
        text += f", {fmt.duration(total // scope.periods)} per step and GPU"
    if alpha:
        of = f"{alpha.samples} transfers of {fmt.counted(alpha.sizes, 'size')}"
        text += f"; alpha {fmt.duration(alpha.ns)} (fit of {of})"
    if best and math.isfinite(best.bus_gb_s):
        rate = f"best {fmt.bandwidth(best.bus_gb_s)} GB/s on the bus"
        text += f"; {rate} (best decile of {best.samples})"
    if finding == DEGRADED and best:
        worst = max(part.times_expected or 0 for part in parts)
        text += f"; up to {fmt.factor(worst)} as long, on every rank, of {best.samples} alike"
    return text
