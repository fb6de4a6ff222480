"""Decoded events become columns: one pass per column and block, no Python object kept per row."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from gpudiag.model.tables import (
    INVALID_TIME,
    DeviceTable,
    HostTable,
    OperatorArgs,
)
from gpudiag.trace.arguments import CollectiveRows, ShapeRows, decode_each
from gpudiag.trace.categories import (
    FIRST_DEVICE,
    LAST_DEVICE,
    LAST_HOST,
    CategoryCodes,
    Row,
)
from gpudiag.trace.columns import Column, integer, integers
from gpudiag.trace.intern import NumberLabels, Strings, Threads, label
from gpudiag.trace.schema import (
    Complete,
    DeviceArgs,
    LaunchArgs,
    Metadata,
    NameArgs,
    OperatorArgsRow,
)
from gpudiag.trace.times import TIME_LIMIT_NS, ns_from_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gpudiag.model.tables import I8, I32, I64

_HOST = {"ts": "i8", "dur": "i8", "name": "i4", "category": "i1", "thread": "i4"}
_HOST |= {"correlation": "i8", "external": "i8", "stack": "i4"}
_DEVICE = {"ts": "i8", "dur": "i8", "name": "i4", "kind": "i1", "device": "i4", "stream": "i4"}
_DEVICE |= {"correlation": "i8", "external": "i8", "bytes": "i8", "graph": "i8"}
# Pids of the legacy (pre-Kineto) export, whose rows have no category.
_LEGACY_HOST, _LEGACY_DEVICE = "CPU functions", "CUDA functions"


class TableBuilder:
    """Collects the rows of one trace."""

    def __init__(self, *, shapes: bool = True) -> None:
        self.strings = Strings()
        self.threads = Threads()
        self._streams = NumberLabels(self.strings)
        self.categories = CategoryCodes()
        self.thread_names: dict[tuple[str, str], str] = {}
        self.spans: list[tuple[str, int, int]] = []  # name, start, duration
        self.events = 0
        self.rows = 0  # complete events
        self.legacy_rows = 0
        self.device_assumed = 0
        self._host = {k: Column(v) for k, v in _HOST.items()}
        self._device = {k: Column(v) for k, v in _DEVICE.items()}
        self._host_rows = 0
        self._device_rows = 0
        self.collectives = CollectiveRows(self.strings)
        self.shapes = ShapeRows(self.strings) if shapes else None

    def add(self, events: Sequence[object]) -> None:
        """Add the events of one block, in file order."""
        self.events += len(events)
        rows = [e for e in events if e.__class__ is Complete]
        if len(rows) < len(events):
            for event in [e for e in events if e.__class__ is Metadata]:
                self._name(event)
        if rows:
            self.rows += len(rows)
            self._add_rows(rows)

    def _add_rows(self, rows: list[Complete]) -> None:
        codes = self.categories
        kinds = np.array([codes[e.cat] for e in rows], np.int8)
        if (kinds == Row.UNCATEGORISED).any():
            self._place_uncategorised(rows, kinds)
        # over all rows at once: a numpy call costs more than a hundred rows
        times = ns_from_texts([e.ts for e in rows]), ns_from_texts([e.dur for e in rows])
        host = kinds <= LAST_HOST
        if host.all():
            self._add_host(rows, kinds, times)
            return
        self._add_host(*_pick(host, rows, kinds, times))
        device = (kinds >= FIRST_DEVICE) & (kinds <= LAST_DEVICE)
        if device.any():
            self._add_device(*_pick(device, rows, kinds, times))
        for i in np.flatnonzero(kinds == Row.SPAN).tolist():
            self.spans.append((label(rows[i].name), int(times[0][i]), int(times[1][i])))

    def _place_uncategorised(self, rows: list[Complete], kinds: I8) -> None:
        """Tell rows without a category by the process of the legacy export; else they are OTHER."""
        for i in np.flatnonzero(kinds == Row.UNCATEGORISED).tolist():
            pid = rows[i].pid
            self.legacy_rows += pid in (_LEGACY_DEVICE, _LEGACY_HOST)
            legacy_host = Row.OPERATOR if pid == _LEGACY_HOST else Row.OTHER
            kinds[i] = Row.KERNEL if pid == _LEGACY_DEVICE else legacy_host

    def _add_host(self, rows: list[Complete], kinds: I8, times: tuple[I64, I64]) -> None:
        if not rows:
            return
        out, strings, threads = self._host, self.strings, self.threads
        count = len(rows)
        out["ts"].add(times[0])
        out["dur"].add(times[1])
        out["name"].add(np.array([strings[e.name] for e in rows], np.int32))
        out["thread"].add(np.array([threads[e.pid, e.tid] for e in rows], np.int32))
        out["category"].add(kinds)
        columns = {k: np.full(count, -1, np.int64) for k in ("correlation", "external", "stack")}
        self._launch_args(rows, (kinds == Row.RUNTIME) | (kinds == Row.DRIVER), columns)
        self._operator_args(rows, kinds <= Row.ANNOTATION, columns)
        for key, column in columns.items():
            out[key].add(column)
        self._host_rows += count

    def _launch_args(
        self, rows: list[Complete], mask: npt.NDArray[np.bool_], out: dict[str, I64]
    ) -> None:
        if not mask.any():
            return
        args = decode_each([e.args for e in compress(rows, mask.tolist())], LaunchArgs)
        out["correlation"][mask] = integers([a.correlation for a in args])
        out["external"][mask] = _external(args)

    def _operator_args(
        self, rows: list[Complete], mask: npt.NDArray[np.bool_], out: dict[str, I64]
    ) -> None:
        if not mask.any():
            return
        raw = [e.args for e in compress(rows, mask.tolist())]
        args = decode_each(raw, OperatorArgsRow)
        out["external"][mask] = _external(args)
        at = np.flatnonzero(mask) + self._host_rows
        stacks = [a.stack for a in args]
        if any(stacks):
            strings = self.strings
            ids = [strings[s] if isinstance(s, str) else -1 for s in stacks]
            out["stack"][mask] = ids
        self.collectives.add(raw, [a.collective for a in args], at, on_device=False)
        if self.shapes is not None:
            self.shapes.add(args, at)

    def _add_device(self, rows: list[Complete], kinds: I8, times: tuple[I64, I64]) -> None:
        out, strings = self._device, self.strings
        raw = [e.args for e in rows]
        args = decode_each(raw, DeviceArgs)
        out["ts"].add(times[0])
        out["dur"].add(times[1])
        out["name"].add(np.array([strings[e.name] for e in rows], np.int32))
        out["kind"].add(kinds - FIRST_DEVICE)
        devices = [a.device for a in args]
        if set(map(type, devices)) != {int}:
            devices = [self._device_of(e, a) for e, a in zip(rows, args, strict=True)]
        out["device"].add(integers(devices))
        out["stream"].add(self._streams_of(rows, args))
        out["correlation"].add(integers([a.correlation for a in args]))
        out["external"].add(_external(args))
        out["bytes"].add(integers([a.bytes for a in args]))
        out["graph"].add(integers([a.graph for a in args]))
        at = np.arange(self._device_rows, self._device_rows + len(rows))
        self.collectives.add(raw, [a.collective for a in args], at, on_device=True)
        self._device_rows += len(rows)

    def _device_of(self, row: Complete, args: DeviceArgs) -> int:
        """Return args.device, else a P2P copy's own device, else the process, else device 0."""
        pid = row.tid if row.pid == _LEGACY_DEVICE else row.pid
        for value in (args.device, args.in_device, args.from_device, pid):
            index = integer(value)
            if index >= 0:
                return index
        self.device_assumed += 1
        return 0

    def _streams_of(self, rows: list[Complete], args: list[DeviceArgs]) -> I32:
        """Return the streams' labels, as string indices."""
        values = [a.stream for a in args]
        if set(map(type, values)) == {int}:
            known = self._streams
            return np.array([known[v] for v in values], np.int32)
        strings = self.strings
        return np.array([strings[_stream(e, a)] for e, a in zip(rows, args, strict=True)], np.int32)

    def _name(self, event: Metadata) -> None:
        if event.name != "thread_name":
            return
        name = decode_each([event.args], NameArgs)[0].name
        if isinstance(name, str):
            self.thread_names[label(event.pid), label(event.tid)] = name

    def shape_table(self) -> OperatorArgs:
        """Return the operators' shapes; empty where they weren't wanted."""
        return (self.shapes or ShapeRows(self.strings)).table()

    def host_table(self, base_ns: int) -> HostTable:
        """Return the host columns, times moved by ``base_ns``."""
        c = {k: v.join() for k, v in self._host.items()}
        return HostTable(
            ts_ns=shift(c["ts"], base_ns), dur_ns=c["dur"], name=c["name"], category=c["category"],
            thread=c["thread"], correlation=c["correlation"], external_id=c["external"],
            stack=c["stack"],
        )  # fmt: skip

    def device_table(self, base_ns: int) -> DeviceTable:
        """Return the device columns, times moved by ``base_ns``."""
        c = {k: v.join() for k, v in self._device.items()}
        return DeviceTable(
            ts_ns=shift(c["ts"], base_ns), dur_ns=c["dur"], name=c["name"], kind=c["kind"],
            device=c["device"], stream=c["stream"], correlation=c["correlation"],
            external_id=c["external"], bytes=c["bytes"], graph_id=c["graph"],
        )  # fmt: skip


def _pick(
    mask: npt.NDArray[np.bool_], rows: list[Complete], kinds: I8, times: tuple[I64, I64]
) -> tuple[list[Complete], I8, tuple[I64, I64]]:
    """Return the rows that the mask, shape (rows,), keeps."""
    kept = list(compress(rows, mask.tolist()))
    return kept, kinds[mask], (times[0][mask], times[1][mask])


def _external(args: Sequence[Any]) -> I64:
    """Return the external ids, under the present key or the one of 2021."""
    current = integers([a.external for a in args])
    if (current == -1).any():
        old = integers([a.old_external for a in args])
        return np.where(current == -1, old, current)
    return current


def _stream(row: Complete, args: DeviceArgs) -> str:
    """Return the stream's label: args.stream, else the queue of an XPU, else the row's thread."""
    for value in (args.stream, args.sycl_queue, args.level_zero_queue, args.queue):
        if value is not None:
            return label(value)
    return label(row.tid)


def shift(times: I64, base_ns: int) -> I64:
    """Add the base to times in place, unless unreadable or out of range afterwards."""
    if base_ns and len(times):
        bad = times == INVALID_TIME
        times += base_ns
        times[bad | (times > TIME_LIMIT_NS) | (times < -TIME_LIMIT_NS)] = INVALID_TIME
    return times
