"""Event logs of wrapped runs: what the host of one process did, as JSON Lines.

``gpudiag run`` writes one per training process (docs/reference/event-log.md). Its spans become
annotations of the trace of the same process, so that the analysis sees a checkpoint or a loader's
wait where the profiler recorded none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec

from gpudiag.model.tables import Quality

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpudiag.trace.source import ByteSource

LOADER_WAIT = "enumerate(DataLoader)#__next__"
# Functions whose own names the table of host spans knows.
_SAVES = frozenset({"torch.save", "dcp.save", "dcp.async_save"})
# A time beyond this (the year 2116) is a damaged number; two such still fit 64 bits.
_Ns = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class Anchor(msgspec.Struct, frozen=True):
    """One instant on both clocks, ns."""

    mono_ns: _Ns
    wall_ns: _Ns


class _Line(msgspec.Struct, frozen=True):
    """The fields that are read of any line; what a kind doesn't have stays None."""

    k: str
    t: _Ns | None = None  # CLOCK_MONOTONIC, ns: the start of what took ``dur``
    dur: _Ns | None = None
    clock: Anchor | None = None
    pid: int | None = None
    rank: int | str | None = None
    host: str | None = None
    schema: int | None = None
    api: str | None = None
    gen: int | None = None
    what: str | None = None
    tokens: _Count | None = None
    samples: _Count | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What a host did for a while; absolute ns."""

    start_ns: int
    end_ns: int
    name: str


@dataclass(slots=True)
class Process:
    """What one process told; a process that was started again tells in the same file."""

    pid: str | None = None
    rank: int | None = None
    host: str | None = None
    schema: int | None = None
    clock: Anchor | None = None  # the last one read
    first_ns: int | None = None  # absolute; None: nothing could be placed
    last_ns: int | None = None
    spans: list[Span] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # of each step that told them
    samples: list[int] = field(default_factory=list)

    def add(self, line: _Line) -> bool:
        """Take a line in; return whether it holds what its kind must have."""
        self.clock = line.clock or self.clock
        self._see(self._wall(line.clock.mono_ns if line.clock else line.t))
        match line.k:
            case "proc" | "anchor":
                self._identify(line)
                return line.clock is not None
            case "dist":
                self.rank = _rank(line) if _rank(line) is not None else self.rank
                return self.rank is not None
            case "tokens":
                self.tokens += [line.tokens] if line.tokens else []
                self.samples += [line.samples] if line.samples else []
                return bool(line.tokens or line.samples)
        name = _name(line)
        return name is None or self._add_span(line, name)

    def _identify(self, line: _Line) -> None:
        if line.k == "proc":
            self.pid = None if line.pid is None else str(line.pid)
            self.rank, self.host, self.schema = _rank(line), line.host, line.schema

    def _add_span(self, line: _Line, name: str) -> bool:
        start = self._wall(line.t)
        if start is None or line.dur is None:
            return False
        # The first writers stamped collections at their end.
        start -= line.dur if line.k == "gc" and self.schema is None else 0
        self._see(start + line.dur)
        if line.dur:
            self.spans.append(Span(start, start + line.dur, name))
        return True

    def _wall(self, mono_ns: int | None) -> int | None:
        if mono_ns is None or self.clock is None:
            return None
        return mono_ns + self.clock.wall_ns - self.clock.mono_ns

    def _see(self, wall_ns: int | None) -> None:
        if wall_ns is not None:
            self.first_ns = wall_ns if self.first_ns is None else min(self.first_ns, wall_ns)
            self.last_ns = wall_ns if self.last_ns is None else max(self.last_ns, wall_ns)


@dataclass(frozen=True, slots=True)
class EventLog:
    """One file."""

    path: str
    processes: list[Process]
    lines: int
    damaged: int  # lines that can't be read, or lack what their kind must have
    bytes: int


def read_event_log(source: ByteSource) -> EventLog:
    """Read a log to its end; a line that can't be used is counted and left out."""
    decoder = msgspec.json.Decoder(_Line)
    processes = [Process()]
    lines = damaged = 0
    for text in _lines(source.blocks()):
        lines += 1
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            damaged += 1
            continue
        if line.k == "proc" and processes[-1] != Process():
            processes.append(Process())
        damaged += not processes[-1].add(line)
    return EventLog(source.path, processes, lines, damaged, source.text_bytes)


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest


def _rank(line: _Line) -> int | None:
    told = str(line.rank)
    return int(told) if told.isascii() and told.isdecimal() else None


def _name(line: _Line) -> str | None:
    """Return a name that the table of host spans knows; None for lines that are no such span."""
    names = {
        "ckpt": line.api if line.api in _SAVES else f"save_checkpoint ({line.api or 'unknown'})",
        "dl_wait": LOADER_WAIT,
        "gc": "gc.collect" if line.gen is None else f"gc.collect generation {line.gen}",
        "eval": "eval",
        "compile": f"torch.compile: compiling {line.what or ''}".rstrip(),
        "alloc": "allocator retry",
    }
    return names.get(line.k)


def damage_of(log: EventLog) -> Quality | None:
    """Return what was lost of a log; None where nothing was."""
    if not log.damaged:
        return None
    message = (
        f"{log.path}: {log.damaged} of {log.lines} lines of this event log can't be read, "
        "or lack a time, a duration or a clock"
    )
    return Quality("event_log_damaged", "warning", log.damaged, message)
