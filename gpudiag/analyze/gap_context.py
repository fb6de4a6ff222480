"""What was open on a host thread in the gaps that it explains: names, lines, operators."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.host import is_call
from gpudiag.analyze.idle import Charged, Context, IdleSplit
from gpudiag.analyze.intervals import Nest
from gpudiag.analyze.libraries import LIBRARIES
from gpudiag.analyze.names import HostClass, distinct
from gpudiag.model.tables import HostCategory

if TYPE_CHECKING:
    from gpudiag.analyze.device import Device
    from gpudiag.analyze.host import Host
    from gpudiag.model.tables import I64, Mask, Trace

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


def explained(trace: Trace, host: Host, device: Device, idle: IdleSplit) -> IdleSplit:
    """Return a device's gaps with what was open in each of their pieces, and what ended them.

    From then on neither the trace nor the host is needed to say why the device was idle.
    """
    lookup = _Lookup(trace, host, device, idle)
    found = [lookup.of(charged) for charged in idle.pieces]
    ended = np.full(len(idle.ended_by), -1, dtype=np.int64)
    ends = idle.ended_by >= 0
    ended[ends] = device.name[idle.ended_by[ends]]
    columns = [codes for one in found for codes in (one.span, one.frame, one.operator)]
    used = np.unique(np.concatenate([*columns, ended, np.array([-1])]))[1:]

    def placed(codes: I64) -> I64:
        return np.where(codes >= 0, np.searchsorted(used, codes), -1)

    pieces = tuple(
        replace(charged, context=Context(placed(one.span), placed(one.frame), placed(one.operator)))
        for charged, one in zip(idle.pieces, found, strict=True)
    )
    texts = tuple(trace.strings[code] for code in used.tolist())
    none = np.zeros(0, dtype=np.int64)
    return replace(idle, pieces=pieces, texts=texts, ended_by_name=placed(ended), ended_by=none)


class _Lookup:
    """Looks up what a device's gaps were charged to; holds the masks of one rank's host rows."""

    def __init__(self, trace: Trace, host: Host, device: Device, idle: IdleSplit) -> None:
        self._trace, self._host, self._device, self._idle = trace, host, device, idle
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
        at = (pieces.starts + pieces.ends) // 2 + self._device.offset_ns
        span = self._spans.at(charged.thread, at)
        own = self._own_frames.at(charged.thread, at)
        frame = np.where(own >= 0, own, self._library_frames.at(charged.thread, at))
        operator = self._operators.at(charged.thread, at)
        frame = self._stack_where_no_frame(pieces.owner, frame)
        return Context(span, frame, np.where(span >= 0, -1, operator))

    def _stack_where_no_frame(self, rows: I64, frame: I64) -> I64:
        """Use the recorded call stack of the operator that ended the gap (old traces)."""
        stacks = self._trace.host.stack
        if not (stacks >= 0).any():
            return frame
        host, ended_by = self._host, self._idle.ended_by[rows]
        launch = np.where(ended_by >= 0, self._device.launch[ended_by], -1)
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
