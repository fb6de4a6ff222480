"""Event logs of wrapped runs: what the host of one process did, as JSON Lines.

``gpudiag run`` writes one per training process (docs/reference/event-log.md). Its spans become
annotations of the trace of the same process, so that the analysis sees a checkpoint or a loader's
wait where the profiler recorded none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from gpudiag.model.tables import HostCategory, HostTable, Quality, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpudiag.trace.source import ByteSource

LOADER_WAIT = "enumerate(DataLoader)#__next__"
_STEP = "ProfilerStep#"
_SAVES = re.compile(r"\b(torch\.save|dcp\.(async_)?save|(async_)?save\w*)\b")


class Anchor(msgspec.Struct, frozen=True):
    """One instant on both clocks, ns."""

    mono_ns: int
    wall_ns: int


class _Line(msgspec.Struct, frozen=True):
    """The fields that are read of any line; what a kind doesn't have stays None."""

    k: str
    t: int | None = None  # CLOCK_MONOTONIC, ns: the start of what took ``dur``
    dur: int | None = None
    clock: Anchor | None = None
    pid: int | None = None
    rank: int | str | None = None
    host: str | None = None
    world: int | None = None
    schema: int | None = None
    api: str | None = None
    gen: int | None = None
    what: str | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What a host did for a while; absolute ns."""

    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True, slots=True)
class EventLog:
    """The log of one process."""

    path: str
    rank: int | None
    host: str | None
    pid: str | None
    spans: tuple[Span, ...]
    tokens: tuple[int, ...]  # of each step that told them
    lines: int
    damaged: int  # lines that aren't what they should be
    bytes: int


def read_event_log(source: ByteSource) -> EventLog:
    """Read a log to its end; a line that can't be read is counted and left out."""
    decoder = msgspec.json.Decoder(_Line)
    lines: list[_Line] = []
    count = 0
    for text in _lines(source.blocks()):
        count += 1
        try:
            lines.append(decoder.decode(text))
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            continue
    first = lines[0] if lines else _Line(k="")
    told = [line.rank for line in lines if line.k == "dist"] + [first.rank]
    return EventLog(
        path=source.path,
        rank=next((int(r) for r in told if r is not None and str(r).isdecimal()), None),
        host=first.host,
        pid=None if first.pid is None else str(first.pid),
        spans=tuple(_spans(lines)),
        tokens=tuple(x.tokens for x in lines if x.k == "tokens" and (x.tokens or 0) > 0),  # type: ignore[misc]
        lines=count,
        damaged=count - len(lines),
        bytes=source.text_bytes,
    )


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest


def _spans(lines: list[_Line]) -> Iterator[Span]:
    """Yield the spans on the wall clock; each line is placed by the last anchor before it."""
    clock = None
    before_schema_1 = not lines or lines[0].schema is None
    for line in lines:
        clock = line.clock or clock
        name = _name(line)
        if name is None or clock is None or line.t is None or not line.dur or line.dur < 0:
            continue
        # The first writers stamped collections at their end.
        start = line.t - line.dur if line.k == "gc" and before_schema_1 else line.t
        start += clock.wall_ns - clock.mono_ns
        yield Span(start, start + line.dur, name)


def _name(line: _Line) -> str | None:
    """Return a name that the table of host spans knows; None for lines that are no such span."""
    match line.k:
        case "ckpt":
            api = line.api or "save_checkpoint"
            return api if _SAVES.search(api) else f"save_checkpoint ({api})"
        case "dl_wait":
            return LOADER_WAIT
        case "gc":
            return "gc.collect" if line.gen is None else f"gc.collect generation {line.gen}"
        case "eval":
            return "eval"
        case "compile":
            return f"torch.compile: compiling {line.what or ''}".rstrip()
        case _:
            return None


def with_events(trace: Trace, log: EventLog, start_ns: int, end_ns: int) -> Trace:
    """Return a trace with the log's spans between two instants as annotations of its step thread.

    Args:
        trace: the trace of the same process.
        log: its events.
        start_ns: start of the trace, absolute; what lies before it was not traced.
        end_ns: its end.
    """
    spans = [s for s in log.spans if s.start_ns < end_ns and s.end_ns > start_ns]
    thread = _step_thread(trace, log.pid)
    if not spans or thread is None:
        return trace
    strings = list(trace.strings)
    codes = {name: len(strings) + i for i, name in enumerate(dict.fromkeys(s.name for s in spans))}
    host, count = trace.host, len(spans)
    none = np.full(count, -1, dtype=np.int64)
    added = {
        "ts_ns": np.array([s.start_ns for s in spans]),
        "dur_ns": np.array([s.end_ns - s.start_ns for s in spans]),
        "name": np.array([codes[s.name] for s in spans]),
        "category": np.full(count, HostCategory.ANNOTATION),
        "thread": np.full(count, thread),
        **dict.fromkeys(("correlation", "external_id", "stack"), none),
    }
    columns = {
        name: np.concatenate((column := getattr(host, name), more.astype(column.dtype)))
        for name, more in added.items()
    }
    return replace(trace, strings=[*strings, *codes], host=HostTable(**columns))


def _step_thread(trace: Trace, pid: str | None) -> int | None:
    """Return the thread that runs the steps, else the process's main thread."""
    steps = [code for code, text in enumerate(trace.strings) if text.startswith(_STEP)]
    rows = np.flatnonzero(np.isin(trace.host.name, steps))
    if len(rows):
        return int(np.bincount(trace.host.thread[rows]).argmax())
    return next((i for i, one in enumerate(trace.threads) if one.tid == pid), None)


def damage_of(log: EventLog) -> Quality | None:
    """Return what was lost of a log; None where nothing was."""
    if not log.damaged:
        return None
    message = f"{log.path}: {log.damaged} of {log.lines} lines of this event log can't be read"
    return Quality("event_log_damaged", "warning", log.damaged, message)
