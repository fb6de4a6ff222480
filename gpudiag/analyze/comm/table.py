"""The table of collectives, as a user of nccl-tests would expect it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from gpudiag.analyze.comm.job import Communication, last_counts
from gpudiag.analyze.comm.kinds import bus_factor
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.rank import RankAnalysis
from gpudiag.model.analysis import CollectiveRow

_Key = tuple[str, int, int | None, str | None]


def collective_table(found: Communication, ranks: Sequence[RankAnalysis]) -> list[CollectiveRow]:
    """Sum collectives by (op, group size, bytes, dtype), the most exposed first."""
    windows = {rank.rank: window for rank in ranks if (window := _window(rank))}
    groups: dict[_Key, list[int]] = defaultdict(list)
    for index, one in enumerate(found.matched):
        if any(
            rank in windows and windows[rank][0] <= record.start < windows[rank][1]
            for rank, record in one.records.items()
        ):
            groups[_key(one)].append(index)
    rows = [_row(found, key, indices, windows) for key, indices in groups.items()]
    return sorted(rows, key=lambda row: (-(row.exposed_ns or 0), row.op, row.bytes or 0))


def _window(rank: RankAnalysis) -> tuple[int, int] | None:
    window = rank.devices[0].window if rank.devices else rank.host_window
    return (window.start, window.end) if window else None


def _key(one: Matched) -> _Key:
    dtype = next((r.dtype for r in one.records.values() if r.dtype), None)
    return one.kind.value, one.size, one.bytes, dtype


def _row(
    found: Communication,
    key: _Key,
    indices: Sequence[int],
    windows: dict[int, tuple[int, int]],
) -> CollectiveRow:
    op, size, n_bytes, dtype = key
    chosen = set(indices)
    parts = [
        part for split in found.splits.values() for part in split.parts if part.collective in chosen
    ]
    wait = sum(part.wait_ns for part in parts)
    transfer = sum(part.transfer_ns for part in parts)
    total = sum(
        min(record.end, windows[rank][1]) - max(record.start, windows[rank][0])
        for index in indices
        for rank, record in found.matched[index].records.items()
        if rank in windows and record.start < windows[rank][1] and record.end > windows[rank][0]
    )
    return CollectiveRow(
        op=op,
        group_size=size,
        bytes=n_bytes,
        dtype=dtype,
        count=len(indices),
        wait_ns=wait,
        transfer_ns=transfer,
        exposed_ns=wait + transfer,
        hidden_ns=max(total - wait - transfer, 0),
        busbw_gb_s=_bus_bandwidth(found, indices),
        last_rank_counts=last_counts(found, indices),
    )


def _bus_bandwidth(found: Communication, indices: Sequence[int]) -> float | None:
    """Return the median of size x factor / (end - last arrival), GB/s (bytes per ns)."""
    rates = []
    for index in indices:
        one, arrived = found.matched[index], found.arrived.get(index)
        if arrived is None or not one.bytes:
            continue
        ends = [found.clocks.aligned(rank, r.end) for rank, r in one.records.items()]
        took = max(ends) - arrived.last
        if took > 0:
            rates.append(one.bytes * bus_factor(one.kind, one.size) / took)
    return median(rates) if rates else None
