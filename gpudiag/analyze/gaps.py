"""What the host was doing in the gaps: the longest ones, and all of them summed by cause."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.grouping import group_by
from gpudiag.analyze.host import is_call
from gpudiag.analyze.idle import BLOCKED, CAUSE_BUCKETS, IMBALANCE, LATENCY, SCHEDULE, Charged
from gpudiag.analyze.intervals import Nest
from gpudiag.analyze.libraries import LIBRARIES
from gpudiag.analyze.names import HostClass, distinct
from gpudiag.model.analysis import Gap, GapCause
from gpudiag.model.tables import HostCategory

if TYPE_CHECKING:
    from gpudiag.analyze.host import Host
    from gpudiag.analyze.rank import DeviceAnalysis, RankAnalysis
    from gpudiag.model.tables import I64, Mask

LONGEST_GAPS = 50

_FRAME = re.compile(r"^(?P<path>[^<>]+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|lib/python3?[\d.]*|torch)/|^torch/")
_STDLIB = frozenset(sys.stdlib_module_names)


def file_line(frame: str) -> str | None:
    """Return ``file.py:63`` of a frame such as ``train.py(63): main`` in the user's own code."""
    match = _FRAME.match(frame)
    if not match or _LIBRARY.search(match["path"]):
        return None
    top = match["path"].lstrip("/").split("/")[0].removesuffix(".py")
    if top in _STDLIB:
        return None
    return f"{match['path']}:{match['line']}"


def is_library(line: str) -> bool:
    """Tell a ``file.py:63`` of a package that users install rather than write."""
    return line.lstrip("/").split("/")[0] in LIBRARIES


def file_line_of_stack(stack: str) -> str | None:
    """Return the user's own innermost frame of a recorded call stack, else the innermost."""
    lines = [line for part in stack.split(";") if (line := file_line(part.strip()))]
    return next((line for line in lines if not is_library(line)), lines[0] if lines else None)


@dataclass(frozen=True, slots=True)
class Context:
    """What was open on the explaining thread in each piece; -1 is nothing."""

    span: I64  # -> strings: the innermost annotation
    frame: I64  # -> strings: the innermost frame of the user's code, or a recorded call stack
    operator: I64  # -> strings: the innermost operator or runtime call, where no annotation is open


class GapContexts:
    """Looks up what a device's gaps were charged to; holds the masks of one rank's host rows."""

    def __init__(self, rank: RankAnalysis, analysis: DeviceAnalysis) -> None:
        host = rank.host
        self._rank, self._analysis = rank, analysis
        operator = host.category == HostCategory.OPERATOR
        spans = (host.category == HostCategory.ANNOTATION) | operator
        spans &= (host.kind == HostClass.OTHER) | (host.kind <= HostClass.INPUT)
        operators = (operator | is_call(host.category)) & (host.kind != HostClass.NOTHING) & ~spans
        own, library = _frames(host)
        self._spans = _Names(host, spans)
        self._operators = _Names(host, operators)
        self._own_frames, self._library_frames = _Names(host, own), _Names(host, library)

    def of(self, charged: Charged) -> Context:
        """Return what was open on the explaining thread in the middle of each piece."""
        pieces = charged.pieces
        at = (pieces.starts + pieces.ends) // 2 + self._analysis.device.offset_ns
        span = self._spans.at(charged.thread, at)
        own = self._own_frames.at(charged.thread, at)
        frame = np.where(own >= 0, own, self._library_frames.at(charged.thread, at))
        operator = self._operators.at(charged.thread, at)
        frame = self._stack_where_no_frame(pieces.owner, frame)
        return Context(span, frame, np.where(span >= 0, -1, operator))

    def _stack_where_no_frame(self, rows: I64, frame: I64) -> I64:
        """Use the recorded call stack of the operator that ended the gap (old traces)."""
        stacks = self._rank.trace.host.stack
        if not (stacks >= 0).any():
            return frame
        host, ended_by = self._rank.host, self._analysis.idle.ended_by[rows]
        launch = np.where(ended_by >= 0, self._analysis.device.launch[ended_by], -1)
        operator = host.operator_of(launch)
        stack = np.where(operator >= 0, stacks[host.row[np.maximum(operator, 0)]], -1)
        return np.where(frame >= 0, frame, stack)


def _frames(host: Host) -> tuple[Mask, Mask]:
    """Mask the Python frames of the user's own code, and those of known libraries."""
    python = host.category == HostCategory.PYTHON
    own = np.zeros(len(host.strings) + 1, dtype=bool)
    library = np.zeros(len(host.strings) + 1, dtype=bool)
    for code in distinct(host.name[python]):
        line = file_line(host.strings[code])
        if line is not None:
            (library if is_library(line) else own)[code] = True
    return python & own[host.name], python & library[host.name]


class _Names:
    """Names of the innermost of some host rows, by thread and instant."""

    def __init__(self, host: Host, mask: Mask) -> None:
        self._host, self._mask = host, mask
        self._nests: dict[int, tuple[I64, Nest]] = {}

    def at(self, thread: int, at: I64) -> I64:
        """Return the name code of the innermost row of a thread at each instant; -1: none."""
        rows, nest = self._nest(thread)
        found = nest.innermost(at)
        names = np.full(len(at), -1, dtype=np.int64)
        names[found >= 0] = self._host.name[rows[found[found >= 0]]]
        return names

    def _nest(self, thread: int) -> tuple[I64, Nest]:
        if thread not in self._nests:
            host = self._host
            rows = np.flatnonzero(self._mask & (host.thread == thread))
            self._nests[thread] = rows, Nest(host.starts[rows], host.ends[rows])
        return self._nests[thread]


def longest_gaps(rank: RankAnalysis, analysis: DeviceAnalysis, contexts: GapContexts) -> list[Gap]:
    """Return the longest gaps of a device, longest first."""
    idle, strings = analysis.idle, rank.trace.strings
    length = idle.ends - idle.starts
    gaps = []
    for index in np.argsort(-length, kind="stable")[:LONGEST_GAPS].tolist():
        cause = int(idle.charged[index].argmax())
        span, frame, operator = _of_gap(analysis, contexts, index, cause)
        ended_by = int(idle.ended_by[index])
        gaps.append(
            Gap(
                rank=rank.rank,
                device=analysis.device.index,
                start_ns=int(idle.starts[index]) - analysis.window.start,
                dur_ns=int(length[index]),
                cause=CAUSE_BUCKETS[cause],
                host_span=_text(strings, span),
                file_line=_file_line(strings, frame),
                ended_by=strings[analysis.device.name[ended_by]] if ended_by >= 0 else None,
                host_op=_text(strings, operator),
            )
        )
    return gaps


def _of_gap(
    analysis: DeviceAnalysis, contexts: GapContexts, gap: int, cause: int
) -> tuple[int, int, int]:
    """Return span, frame and operator of a gap's longest piece of one cause; -1 is nothing."""
    best, length = None, 0
    for charged in analysis.idle.pieces:
        if charged.cause != cause:
            continue
        first, last = np.searchsorted(charged.pieces.owner, [gap, gap + 1])
        for at in range(int(first), int(last)):
            piece = charged.pieces.part(at)
            if piece.lengths[0] > length:
                best, length = Charged(cause, charged.thread, piece), int(piece.lengths[0])
    if best is None:
        return -1, -1, -1
    context = contexts.of(best)
    return int(context.span[0]), int(context.frame[0]), int(context.operator[0])


def gap_causes(
    rank: RankAnalysis, analysis: DeviceAnalysis, contexts: GapContexts
) -> list[GapCause]:
    """Sum every bucket of idle by what the host had open: span, file:line, operator."""
    strings = rank.trace.strings
    causes = [
        _of_device(rank, analysis, cause) for cause in (LATENCY, BLOCKED, SCHEDULE, IMBALANCE)
    ]
    for charged in analysis.idle.pieces:
        context = contexts.of(charged)
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


def _text(strings: list[str], code: int) -> str | None:
    return strings[code] if code >= 0 else None


def _file_line(strings: list[str], code: int) -> str | None:
    return file_line_of_stack(strings[code]) if code >= 0 else None
