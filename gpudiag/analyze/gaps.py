"""What the host was doing in the gaps: the longest ones, and all of them summed by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.gap_context import file_line_of_stack
from gpudiag.analyze.grouping import group_by
from gpudiag.analyze.idle import BLOCKED, CAUSE_BUCKETS, IMBALANCE, LATENCY, SCHEDULE, Context
from gpudiag.analyze.names import HostClass
from gpudiag.model.analysis import Gap, GapCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis
    from gpudiag.model.tables import I64

LONGEST_GAPS = 50
_NOTHING = Context(*(np.zeros(0, dtype=np.int64),) * 3)


def longest_gaps(rank: RankAnalysis, analysis: DeviceAnalysis) -> list[Gap]:
    """Return the longest gaps of a device, longest first."""
    idle = analysis.idle
    strings = idle.texts
    length = idle.ends - idle.starts
    gaps = []
    for index in np.argsort(-length, kind="stable")[:LONGEST_GAPS].tolist():
        cause = int(idle.charged[index].argmax())
        span, frame, operator = _of_gap(analysis, index, cause)
        gaps.append(
            Gap(
                rank=rank.rank,
                device=analysis.device.index,
                start_ns=int(idle.starts[index]) - analysis.window.start,
                dur_ns=int(length[index]),
                cause=CAUSE_BUCKETS[cause],
                host_span=_text(strings, span),
                file_line=_file_line(strings, frame),
                ended_by=_text(strings, int(idle.ended_by_name[index])),
                host_op=_text(strings, operator),
            )
        )
    return gaps


def _of_gap(analysis: DeviceAnalysis, gap: int, cause: int) -> tuple[int, int, int]:
    """Return span, frame and operator of a gap's longest piece of one cause; -1 is nothing."""
    best, length = (-1, -1, -1), 0
    for charged in analysis.idle.pieces:
        if charged.cause != cause:
            continue
        context, lengths = charged.context or _NOTHING, charged.pieces.lengths
        first, last = np.searchsorted(charged.pieces.owner, [gap, gap + 1])
        for at in range(int(first), int(last)):
            if lengths[at] > length:
                length = int(lengths[at])
                best = int(context.span[at]), int(context.frame[at]), int(context.operator[at])
    return best


def gap_causes(rank: RankAnalysis, analysis: DeviceAnalysis) -> list[GapCause]:
    """Sum every bucket of idle by what the host had open: span, file:line, operator."""
    strings = analysis.idle.texts
    causes = [
        _of_device(rank, analysis, cause) for cause in (LATENCY, BLOCKED, SCHEDULE, IMBALANCE)
    ]
    for charged in analysis.idle.pieces:
        context = charged.context or _NOTHING
        groups, ns = (
            group_by([context.span, context.frame, context.operator]),
            charged.pieces.lengths,
        )
        causes += [
            GapCause(
                cause=CAUSE_BUCKETS[charged.cause],
                host_span=_text(strings, span),
                file_line=_file_line(strings, frame),
                count=count,
                total_ns=total,
                longest_ns=longest,
                ranks=[rank.rank],
                host_op=_text(strings, operator),
            )
            for (span, frame, operator), count, total, longest in zip(
                groups.keys, groups.count(), groups.sums(ns), groups.largest(ns), strict=True
            )
        ]
    unlinked = analysis.idle.charged[analysis.idle.unlinked, HostClass.NOTHING]
    causes.append(_summed(rank, "idle.unknown", unlinked))
    return [cause for cause in causes if cause.count]


def _of_device(rank: RankAnalysis, analysis: DeviceAnalysis, cause: int) -> GapCause:
    """Sum a cause in which the host had done its part."""
    ns = analysis.idle.charged[:, cause]
    return _summed(rank, CAUSE_BUCKETS[cause], ns[ns > 0])


def _summed(rank: RankAnalysis, bucket: str, ns: I64) -> GapCause:
    return GapCause(
        cause=bucket,
        host_span=None,
        file_line=None,
        count=len(ns),
        total_ns=int(ns.sum()),
        longest_ns=int(ns.max(initial=0)),
        ranks=[rank.rank],
    )


def merge_causes(causes: list[GapCause]) -> list[GapCause]:
    """Add up equal causes over ranks and devices, the largest first."""
    groups: dict[tuple[str | None, ...], list[GapCause]] = {}
    for cause in causes:
        key = (cause.cause, cause.host_span, cause.file_line, cause.host_op)
        groups.setdefault(key, []).append(cause)
    merged = [
        GapCause(
            cause=group[0].cause,
            host_span=group[0].host_span,
            file_line=group[0].file_line,
            host_op=group[0].host_op,
            count=sum(one.count for one in group),
            total_ns=sum(one.total_ns for one in group),
            longest_ns=max(one.longest_ns for one in group),
            ranks=sorted({rank for one in group for rank in one.ranks}),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda cause: (-cause.total_ns, cause.cause, cause.host_span or ""))


def _text(strings: Sequence[str], code: int) -> str | None:
    return strings[code] if code >= 0 else None


def _file_line(strings: Sequence[str], code: int) -> str | None:
    return file_line_of_stack(strings[code]) if code >= 0 else None
