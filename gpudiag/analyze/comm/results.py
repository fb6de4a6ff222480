"""Clocks, waits and blame as the results that reports and `--json` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpudiag.analyze.comm.job import Communication
from gpudiag.analyze.comm.kinds import Kind
from gpudiag.analyze.comm.ringtree import ring_tree_rows
from gpudiag.analyze.rank import RankAnalysis
from gpudiag.analyze.window import Window
from gpudiag.model.analysis import BlameRow, Clock, GapCause, RingTreeRow


def clock_of(found: Communication | None) -> Clock:
    """Return how the ranks' clocks were aligned; not at all where nothing was matched."""
    if found is None:
        return Clock()
    clocks = found.clocks.of_rank
    return Clock(
        aligned=not found.clocks.unreached,
        offsets_ns={str(rank): clock.offset_ns for rank, clock in sorted(clocks.items())},
        half_width_ns=max(clock.half_width_ns for clock in clocks.values()),
        drift_ppm=max((clock.drift_ppm for clock in clocks.values()), key=abs),
    )


def wait_matrix_of(
    found: Communication | None, ranks: Sequence[RankAnalysis]
) -> dict[str, list[int]]:
    """Return for each rank its wait in every step of its window, ns."""
    if found is None:
        return {}
    windows = {
        rank.rank: window
        for rank in ranks
        if (window := rank.devices[0].window if rank.devices else rank.host_window)
    }
    return {str(rank): waits for rank, waits in _wait_matrix(found, windows).items()}


def _wait_matrix(found: Communication, windows: Mapping[int, Window]) -> dict[int, list[int]]:
    matrix = {}
    for rank, split in found.splits.items():
        edges = np.array(windows[rank].edges if rank in windows else (), dtype=np.int64)
        if len(edges) < 2:  # noqa: PLR2004 - no step
            continue
        step = np.searchsorted(edges, split.waits.starts, side="right") - 1
        waits = np.zeros(len(edges) - 1, dtype=np.int64)
        inside = (step >= 0) & (step < len(waits))
        np.add.at(waits, step[inside], split.waits.lengths[inside])
        matrix[rank] = waits.tolist()
    return matrix


def blame_rows(
    found: Communication | None, ranks: Sequence[RankAnalysis], causes: Sequence[GapCause]
) -> list[BlameRow]:
    """Return what each rank is charged for each cause, the longest waits first.

    The gain that is guaranteed when a rank is no longer late is dealt out over its causes.
    """
    if found is None:
        return []
    hosts = {rank.rank: rank.host_name for rank in ranks}
    of_rank: dict[int, int] = {}
    for (rank, _), charge in found.blame.charges.items():
        of_rank[rank] = of_rank.get(rank, 0) + charge.wait_ns
    rows = [
        BlameRow(
            rank=rank,
            host=hosts.get(rank),
            cause=cause,
            host_span=_span(rank, cause, causes),
            wait_ns=charge.wait_ns,
            affected=sorted(charge.affected or ()),
            ambiguous_ns=charge.ambiguous_ns,
            guaranteed_gain_ns=found.blame.gain_ns.get(rank, 0) * charge.wait_ns // of_rank[rank],
        )
        for (rank, cause), charge in found.blame.charges.items()
        if charge.wait_ns
    ]
    return sorted(rows, key=lambda row: (-row.wait_ns, row.rank, row.cause))


def _span(rank: int, cause: str, causes: Sequence[GapCause]) -> str | None:
    """Return what the culprit's host was in most, in gaps of that cause."""
    mine = (one for one in causes if one.cause == cause and rank in one.ranks)
    return next((one.host_span for one in mine), None)


def ring_and_tree(
    found: Communication | None, ranks: Sequence[RankAnalysis], world_size: int | None
) -> list[RingTreeRow]:
    """Return the alphas of the kinds that run over the whole job; none where nodes are unknown."""
    if found is None or world_size is None or not all(rank.devices for rank in ranks):
        return []
    hosts = {rank.host_name for rank in ranks}
    if None in hosts or len(ranks) != world_size or world_size % len(hosts):
        return []
    used = {one.kind for one in found.matched if one.size == world_size}
    kinds = [kind for kind in Kind if kind in used]
    return ring_tree_rows(kinds, world_size, len(hosts), "host names in the traces")
