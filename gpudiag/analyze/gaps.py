"""What the host was doing in the gaps: the longest ones, and all of them summed by cause."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.idle import CAUSE_BUCKETS
from gpudiag.analyze.intervals import innermost
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


def file_line_of_stack(stack: str) -> str | None:
    """Return the first frame of the user's own code in a recorded call stack, innermost first."""
    return next((found for part in stack.split(";") if (found := file_line(part.strip()))), None)


@dataclass(frozen=True, slots=True)
class GapContext:
    """For each gap, what was open on its launching thread halfway through; -1 is nothing."""

    host_span: I64  # -> strings
    frame: I64  # -> strings, the innermost frame of the user's code


def gap_context(rank: RankAnalysis, analysis: DeviceAnalysis) -> GapContext:
    """Look up the innermost annotation and user frame in the middle of every gap's A."""
    idle, host = analysis.idle, rank.host
    middle = (idle.starts + np.maximum(idle.enqueued, idle.starts + 1)) // 2
    at = middle + analysis.device.offset_ns
    spans = (host.category == HostCategory.ANNOTATION) | (host.category == HostCategory.OPERATOR)
    spans &= (host.kind == HostClass.OTHER) | (host.kind <= HostClass.INPUT)
    user = np.zeros(len(host.strings) + 1, dtype=bool)
    python = host.category == HostCategory.PYTHON
    for code in distinct(host.name[python]):
        user[code] = file_line(host.strings[code]) is not None
    frames = python & user[host.name]
    span = _names_at(host, spans, idle.thread, at)
    frame = _names_at(host, frames, idle.thread, at)
    return GapContext(span, _stack_where_no_frame(rank, analysis, frame))


def _stack_where_no_frame(rank: RankAnalysis, analysis: DeviceAnalysis, frame: I64) -> I64:
    """Use the recorded call stack of the operator that ended the gap (old traces)."""
    stacks = rank.trace.host.stack
    if not (stacks >= 0).any():
        return frame
    ended_by = analysis.idle.ended_by
    launch = np.where(ended_by >= 0, analysis.device.launch[ended_by], -1)
    operator = rank.host.operator_of(launch)
    stack = np.where(operator >= 0, stacks[rank.host.row[np.maximum(operator, 0)]], -1)
    return np.where(frame >= 0, frame, stack)


def _names_at(host: Host, mask: Mask, thread: I64, at: I64) -> I64:
    """Return the name code of the innermost masked span on each thread at each instant."""
    names = np.full(len(at), -1, dtype=np.int64)
    for one in distinct(thread[thread >= 0]):
        rows = np.flatnonzero(mask & (host.thread == one))
        asked = np.flatnonzero(thread == one)
        found = innermost(host.starts[rows], host.ends[rows], at[asked])
        hit = found >= 0
        names[asked[hit]] = host.name[rows[found[hit]]]
    return names


def longest_gaps(rank: RankAnalysis, analysis: DeviceAnalysis, context: GapContext) -> list[Gap]:
    """Return the longest gaps of a device, longest first."""
    idle = analysis.idle
    length = idle.ends - idle.starts
    strings = rank.trace.strings
    gaps = []
    for index in np.argsort(-length, kind="stable")[:LONGEST_GAPS].tolist():
        ended_by = int(idle.ended_by[index])
        gaps.append(
            Gap(
                rank=rank.rank,
                device=analysis.device.index,
                start_ns=int(idle.starts[index]) - analysis.window.start,
                dur_ns=int(length[index]),
                cause=CAUSE_BUCKETS[int(idle.charged[index].argmax())],
                host_span=_text(strings, int(context.host_span[index])),
                file_line=_file_line(strings, int(context.frame[index])),
                ended_by=strings[analysis.device.name[ended_by]] if ended_by >= 0 else None,
            )
        )
    return gaps


def gap_causes(rank: RankAnalysis, analysis: DeviceAnalysis, context: GapContext) -> list[GapCause]:
    """Sum every bucket of idle by what the host had open: span and file:line."""
    charged, strings = analysis.idle.charged, rank.trace.strings
    causes = []
    for cause, bucket in enumerate(CAUSE_BUCKETS):
        rows = np.flatnonzero(charged[:, cause])
        if not len(rows):
            continue
        pair = (context.host_span[rows] + 1) * (len(strings) + 1) + context.frame[rows] + 1
        ns = charged[rows, cause]
        for key, mine in _grouped(pair, ns):
            span, frame = (code - 1 for code in divmod(key, len(strings) + 1))
            causes.append(
                GapCause(
                    cause=bucket,
                    host_span=_text(strings, span),
                    file_line=_file_line(strings, frame),
                    count=len(mine),
                    total_ns=int(mine.sum()),
                    longest_ns=int(mine.max()),
                    ranks=[rank.rank],
                )
            )
    return causes


def _grouped(keys: I64, values: I64) -> Iterator[tuple[int, I64]]:
    """Yield each distinct key with its values."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    edges = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    yield from zip(keys[edges].tolist(), np.split(values, edges[1:]), strict=True)


def merge_causes(causes: list[GapCause]) -> list[GapCause]:
    """Add up equal causes over ranks and devices, the largest first."""
    groups: dict[tuple[str, str | None, str | None], list[GapCause]] = {}
    for cause in causes:
        groups.setdefault((cause.cause, cause.host_span, cause.file_line), []).append(cause)
    merged = [
        GapCause(
            cause=bucket,
            host_span=span,
            file_line=line,
            count=sum(one.count for one in group),
            total_ns=sum(one.total_ns for one in group),
            longest_ns=max(one.longest_ns for one in group),
            ranks=sorted({rank for one in group for rank in one.ranks}),
        )
        for (bucket, span, line), group in groups.items()
    ]
    return sorted(merged, key=lambda cause: (-cause.total_ns, cause.cause, cause.host_span or ""))


def _text(strings: list[str], code: int) -> str | None:
    return strings[code] if code >= 0 else None


def _file_line(strings: list[str], code: int) -> str | None:
    return file_line_of_stack(strings[code]) if code >= 0 else None
