"""The collectives of one rank: on a device its communication kernels, else its host spans."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from gpudiag.analyze.comm.kinds import (
    POINT_TO_POINT,
    Kind,
    is_waiting_only,
    item_bytes,
    kind_of,
    message_elements,
)
from gpudiag.analyze.device import Device
from gpudiag.analyze.host import Host
from gpudiag.analyze.names import is_collective_span, is_host_collective
from gpudiag.analyze.window import step_of
from gpudiag.model.tables import CollectiveTable, Trace

_CUT = "..."  # ranks of more than 30 are recorded as "[0, 1, ..., ...]"
_PEERS = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A process group as all of its members can name it.

    ``ranks`` where the list is recorded whole, else the name; ``index`` tells apart groups of the
    same ranks and description, in the order of their names.
    """

    ranks: tuple[int, ...] | None
    name: str | None
    description: str | None
    size: int | None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One collective as one rank took part in it; times in ns on the rank's own clock."""

    kind: Kind
    group: GroupKey | None
    start: int
    end: int
    stream: int
    seq: int | None
    step: int | None  # number of the ProfilerStep that holds its launch
    elements: tuple[int, int] | None  # in, out
    dtype: str | None
    bytes: int | None
    peer: int | None  # send and recv
    launched: int  # when its launch call began: launch order


def device_records(trace: Trace, host: Host, device: Device) -> list[Record]:
    """Return the communication kernels of a device whose launch is recorded, in launch order."""
    rows = np.flatnonzero(device.is_comm & (device.launch >= 0))
    if not len(rows):
        return []
    described = _Described(trace, host)
    launch = device.launch[rows]
    launched = host.starts[launch]
    records = []
    for row, at, step, span, entry in zip(
        rows.tolist(),
        launched.tolist(),
        _step_numbers(host, launched),
        _innermost_span(trace, host, launch),
        described.entries_around(launch),
        strict=True,
    ):
        what = described.of_kernel(int(device.row[row]), entry, span)
        start, end = int(device.starts[row]), int(device.ends[row])
        stream = int(device.stream[row])
        records.append(replace(what, start=start, end=end, stream=stream, step=step, launched=at))
    return sorted(records, key=lambda one: (one.launched, one.start, one.stream))


def host_records(trace: Trace, host: Host) -> list[Record]:
    """Return the collectives that host threads carried out (gloo, mpi), in order of their start."""
    rows = np.flatnonzero(host.named(is_host_collective))
    described = _Described(trace, host)
    step = _step_numbers(host, host.starts[rows])
    calls = _calls_before(host, rows)
    records = []
    for row, number, call in zip(rows.tolist(), step, calls, strict=True):
        what = described.of_span(row, call)
        start = int(host.starts[row])
        if what.kind == Kind.SEND and call >= 0:
            # The data is on its way from the call on; its span may open only when that returns.
            start = int(host.starts[call])
        end = int(host.ends[row])
        records.append(replace(what, start=start, end=end, step=number, launched=start))
    return sorted(records, key=lambda one: (one.start, one.kind.value))


def _step_numbers(host: Host, at: np.ndarray) -> list[int | None]:
    if not host.steps:
        return [None] * len(at)
    numbers = [step.number for step in host.steps]
    return [numbers[index] if index >= 0 else None for index in step_of(host.steps, at).tolist()]


def _innermost_span(trace: Trace, host: Host, calls: np.ndarray) -> list[str | None]:
    """Return the name of the innermost ``nccl:*`` or ``c10d::*`` span around each launch."""
    spans = np.flatnonzero(host.named(_names_a_collective))
    inner = host.enclosing(spans, calls)
    return [trace.strings[host.name[row]] if row >= 0 else None for row in inner.tolist()]


def _names_a_collective(name: str) -> bool:
    return is_collective_span(name) and name != "record_param_comms"


def _calls_before(host: Host, rows: np.ndarray) -> list[int]:
    """Return for each host collective the ``c10d::*`` call of the same kind that issued it."""
    calls = np.flatnonzero(host.named(lambda name: name.startswith("c10d::")))
    found = []
    for row in rows.tolist():
        kind = kind_of(host.strings[host.name[row]])
        before = calls[: np.searchsorted(host.starts[calls], host.starts[row], side="right")]
        same = (int(c) for c in before[::-1][:8] if kind_of(host.strings[host.name[c]]) == kind)
        found.append(next(same, -1))
    return found


class _Described:
    """Looks up what is recorded of a collective beside its times."""

    def __init__(self, trace: Trace, host: Host) -> None:
        self._trace = trace
        self._host = host
        table = trace.collectives
        self._by_kernel = _index(table, on_device=True)
        self._by_host_row = _index(table, on_device=False)
        self._groups = _group_keys(trace)
        self._args = {int(row): i for i, row in enumerate(trace.operator_args.row)}
        self._comms = self._param_comms()

    def _param_comms(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows in Host of record_param_comms that name a collective, and their table entry."""
        position = np.full(len(self._trace.host) + 1, -1, dtype=np.int64)
        for row, entry in self._by_host_row.items():
            name = self._text(int(self._trace.collectives.op[entry]))
            if name is not None and not is_waiting_only(name):
                position[row] = entry
        entries = position[self._host.row]
        rows = np.flatnonzero(entries >= 0)
        return rows, entries[rows]

    def of_kernel(self, kernel: int, around: int, span: str | None) -> Record:
        """Describe a kernel: by its arguments, record_param_comms, its span, its own name."""
        entry = self._by_kernel.get(kernel, around)
        if entry >= 0:
            return self._from_entry(entry)
        name = span or self._trace.strings[self._trace.device.name[kernel]]
        return _bare(kind_of(name))

    def entries_around(self, calls: np.ndarray) -> list[int]:
        """Return the table entry of the innermost record_param_comms around each call, or -1."""
        rows, entries = self._comms
        inner = self._host.enclosing(rows, calls)
        entry_of = dict(zip(rows.tolist(), entries.tolist(), strict=True))
        return [entry_of.get(row, -1) for row in inner.tolist()]

    def _from_entry(self, entry: int) -> Record:
        table = self._trace.collectives
        kind = kind_of(self._text(int(table.op[entry])) or "")
        counts = int(table.in_elements[entry]), int(table.out_elements[entry])
        dtype = self._text(int(table.dtype[entry]))
        elements = message_elements(kind, *counts)
        width = item_bytes(dtype) if dtype else None
        peers = int(table.src_rank[entry]), int(table.dst_rank[entry])
        return replace(
            _bare(kind),
            group=self._groups.get(entry),
            seq=int(table.seq[entry]) if table.seq[entry] >= 0 else None,
            elements=counts if max(counts) >= 0 else None,
            dtype=dtype,
            bytes=elements * width if elements is not None and width else None,
            peer=_peer(kind, peers),
        )

    def of_span(self, row: int, call: int) -> Record:
        """Describe a host collective: shape and type from its own arguments, peer from its call."""
        record = _bare(kind_of(self._host.strings[self._host.name[row]]))
        args = self._trace.operator_args
        index = self._args.get(int(self._host.row[row]))
        if index is not None:
            dims = self._text(int(args.input_dims[index])) or ""
            dtype = (self._text(int(args.input_types[index])) or "").strip('[]" ').split('"')[0]
            elements = _product(dims)
            width = item_bytes(dtype.replace("long int", "long").replace("unsigned char", "byte"))
            size = elements * width if elements is not None and width else None
            counts = (elements, elements) if elements is not None else None
            record = replace(record, elements=counts, dtype=dtype or None, bytes=size)
        if record.kind in POINT_TO_POINT:
            record = replace(record, peer=self._peer_of_call(call))
        return record

    def _peer_of_call(self, call: int) -> int | None:
        """Return the peer of a ``c10d::send`` or ``recv_``: its third argument."""
        index = self._args.get(int(self._host.row[call])) if call >= 0 else None
        if index is None:
            return None
        concrete = self._text(int(self._trace.operator_args.concrete_inputs[index])) or ""
        values = [part.strip(' "') for part in concrete.strip("[]").split(",")]
        return int(values[2]) if len(values) > 2 and _PEERS.fullmatch(values[2]) else None  # noqa: PLR2004 - position in the schema

    def _text(self, code: int) -> str | None:
        return self._trace.strings[code] if code >= 0 else None


def _bare(kind: Kind) -> Record:
    return Record(kind, None, 0, 0, 0, None, None, None, None, None, None, 0)


def _peer(kind: Kind, peers: tuple[int, int]) -> int | None:
    source, target = peers
    peer = target if kind == Kind.SEND else source if kind == Kind.RECV else max(peers)
    return peer if peer >= 0 and kind in POINT_TO_POINT else None


def _product(dims: str) -> int | None:
    """Return the elements of the first tensor of a recorded ``Input Dims``; None if none."""
    first = re.search(r"\[([\d,\s]+)\]", dims)
    if not first:
        return None
    return int(np.prod([int(n) for n in first.group(1).split(",") if n.strip()], dtype=np.int64))


def _index(table: CollectiveTable, *, on_device: bool) -> dict[int, int]:
    rows = np.flatnonzero(table.on_device == on_device)
    return {int(table.row[entry]): int(entry) for entry in rows}


def _group_keys(trace: Trace) -> dict[int, GroupKey]:
    """Return the group key of every entry of the collective table that names a group."""
    table = trace.collectives
    known = {group.name: group for group in trace.info.groups}
    plain: dict[tuple[str | None, str | None, str | None, int], GroupKey] = {}
    keys: dict[int, GroupKey] = {}
    for entry in range(len(table)):
        codes = (table.group[entry], table.group_description[entry], table.group_ranks[entry])
        name, description, ranks = (trace.strings[c] if c >= 0 else None for c in codes)
        size = int(table.group_size[entry])
        what = (name, description, ranks, size)
        if what not in plain:
            group = known.get(name or "")
            members = _ranks(ranks) or (group.ranks if group else None)
            kept = None if members else name
            plain[what] = GroupKey(members, kept, description, size if size > 0 else None)
        keys[entry] = plain[what]
    return _told_apart(plain, keys, trace)


def _told_apart(
    plain: dict[tuple[str | None, str | None, str | None, int], GroupKey],
    keys: dict[int, GroupKey],
    trace: Trace,
) -> dict[int, GroupKey]:
    """Number groups that differ only in their name, in the order of the names."""
    names: dict[GroupKey, set[str]] = {}
    for (name, _, _, _), key in plain.items():
        names.setdefault(key, set()).add(name or "")
    order = {key: sorted(found, key=lambda n: (len(n), n)) for key, found in names.items()}
    table = trace.collectives
    told = {}
    for entry, key in keys.items():
        name = trace.strings[table.group[entry]] if table.group[entry] >= 0 else ""
        told[entry] = replace(key, index=order[key].index(name))
    return told


def _ranks(text: str | None) -> tuple[int, ...] | None:
    """Return the ranks of a recorded list; None if empty or cut short."""
    if not text or _CUT in text:
        return None
    return tuple(int(number) for number in _PEERS.findall(text)) or None
