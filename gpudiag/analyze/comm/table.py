"""The table of collectives, as a user of nccl-tests would expect it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from gpudiag.analyze.comm.job import Communication, last_counts
from gpudiag.analyze.comm.kinds import Kind, bus_factor
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.intervals import as_pieces, intersect, union
from gpudiag.analyze.rank import RankAnalysis
from gpudiag.model.analysis import CollectiveRow

_Key = tuple[str, int, int | None, str | None, str | None]


def collective_table(found: Communication, ranks: Sequence[RankAnalysis]) -> list[CollectiveRow]:
    """Sum collectives by (op, group size, bytes, dtype, role), the most exposed first."""
    windows = _windows(ranks)
    groups: dict[_Key, list[int]] = defaultdict(list)
    for index in in_windows(found, ranks):
        groups[_key(found, found.matched[index])].append(index)
    rows = [_row(found, key, indices, windows) for key, indices in groups.items()]
    return sorted(rows, key=lambda row: (-(row.exposed_ns or 0), row.op, row.bytes or 0))


def in_windows(found: Communication, ranks: Sequence[RankAnalysis]) -> list[int]:
    """Return the matched collectives that start in the window of one of their ranks."""
    windows = _windows(ranks)
    return [
        index
        for index, one in enumerate(found.matched)
        if any(
            rank in windows and windows[rank][0] <= record.start < windows[rank][1]
            for rank, record in one.records.items()
        )
    ]


def _windows(ranks: Sequence[RankAnalysis]) -> dict[int, tuple[int, int]]:
    return {rank.rank: window for rank in ranks if (window := _window(rank))}


def _window(rank: RankAnalysis) -> tuple[int, int] | None:
    window = rank.devices[0].window if rank.devices else rank.host_window
    return (window.start, window.end) if window else None


def _key(found: Communication, one: Matched) -> _Key:
    dtype = next((r.dtype for r in one.records.values() if r.dtype), None)
    role = found.roles.get(one.group) if one.group else None
    return one.kind.value, one.size, one.bytes, dtype, role.name if role else None


def _row(
    found: Communication,
    key: _Key,
    indices: Sequence[int],
    windows: dict[int, tuple[int, int]],
) -> CollectiveRow:
    op, size, n_bytes, dtype, role = key
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
    unsplit = sum(_unsplit_ns(found, indices, rank) for rank in found.splits)
    pipeline = sum(part.pipeline_ns for part in parts)
    exposed = wait + transfer + unsplit + pipeline
    bus = _bus_bandwidth(found, indices)
    factor = bus_factor(Kind(op), size)
    costs = (None, None, None) if unsplit else _costs(found, chosen)
    return CollectiveRow(
        op=op,
        role=role,
        role_inferred=role is not None,
        group_size=size,
        bytes=n_bytes,
        dtype=dtype,
        count=len(indices),
        wait_ns=wait,
        wait_unresolved_ns=_unresolved_ns(found, chosen),
        transfer_ns=transfer,
        unsplit_ns=unsplit,
        exposed_ns=exposed,
        pipeline_ns=pipeline,
        hidden_ns=max(total - exposed, 0),
        latency_ns=costs[0],
        bandwidth_ns=costs[1],
        degraded_ns=costs[2],
        algbw_gb_s=bus / factor if bus and factor else None,
        busbw_gb_s=bus,
        best_busbw_gb_s=_best_bandwidth(found, indices),
        alpha_us=_alpha_us(found, indices),
        last_rank_counts=last_counts(found, indices),
    )


def _unresolved_ns(found: Communication, chosen: set[int]) -> int:
    """Return the waits that are shorter than the clocks of both ranks can tell, ns."""
    unresolved = 0
    for rank, split in found.splits.items():
        for part in split.parts:
            if part.collective in chosen and part.wait_ns:
                arrived = found.arrived[part.collective]
                start = found.matched[part.collective].records[rank].start
                waited = arrived.last - found.clocks.aligned(rank, start)
                sure = found.clocks.half_width(rank) + found.clocks.half_width(arrived.last_rank)
                unresolved += part.wait_ns if waited < sure else 0
    return unresolved


def _unsplit_ns(found: Communication, indices: Sequence[int], rank: int) -> int:
    """Return a rank's exposed time in collectives whose arrivals can't be compared, ns."""
    records = [
        record
        for index in indices
        if index not in found.arrived and (record := found.matched[index].records.get(rank))
    ]
    starts = np.array([record.start for record in records], dtype=np.int64)
    ends = np.array([record.end for record in records], dtype=np.int64)
    spans = union(starts, ends)
    return int(intersect(as_pieces(spans), found.splits[rank].unsplit).lengths.sum())


def _costs(found: Communication, chosen: set[int]) -> tuple[int | None, int | None, int | None]:
    """Return latency, bandwidth and degraded, ns; None if unknown for one of the collectives."""
    parts = [
        part for mine in found.transfer.parts.values() for part in mine if part.collective in chosen
    ]
    return (
        _sum(part.latency_ns for part in parts),
        _sum(part.bandwidth_ns for part in parts),
        _sum(part.degraded_ns for part in parts),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(ns for ns in known if ns is not None)


def _best_bandwidth(found: Communication, indices: Sequence[int]) -> float | None:
    references = found.transfer.references
    rates = [references[index].bus_gb_s for index in indices if index in references]
    best = median(rates) if rates else math.inf
    return best if math.isfinite(best) else None


def _alpha_us(found: Communication, indices: Sequence[int]) -> float | None:
    alphas = found.transfer.alphas
    known = [alphas[index].ns / 1000 for index in indices if index in alphas]
    return median(known) if known else None


def _bus_bandwidth(found: Communication, indices: Sequence[int]) -> float | None:
    """Return the median of size x factor / (last end - last arrival), GB/s (bytes per ns)."""
    took = found.transfer.took_ns
    rates = [
        size * bus_factor(one.kind, one.size) / took[index]
        for index in indices
        if index in took and (size := (one := found.matched[index]).bytes)
    ]
    return median(rates) if rates else None
