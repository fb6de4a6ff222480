"""What the ranks do to each other: the heat map of waits, the collectives."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.report.totals import device_totals, host_totals
from gpudiag.report.view import DECORATION, Column, Row, Table

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis

# Waits below this share of the windows make no map.
_NOTABLE_SHARE = 0.02
_MOST_STEPS = 12
_MOST_RANKS = 16


def wait_map(analysis: Analysis) -> Table | None:
    """Return what each rank waited in each step, with who was last; None where waits are small."""
    matrix = {int(rank): waits for rank, waits in analysis.wait_matrix_ns.items() if waits}
    totals = device_totals(analysis) or host_totals(analysis)
    waited = sum(sum(waits) for waits in matrix.values())
    if totals is None or waited < _NOTABLE_SHARE * totals.window_ns:
        return None
    steps = min(max(len(waits) for waits in matrix.values()), _MOST_STEPS)
    scale = fmt.Scale.fitting(max(max(waits) for waits in matrix.values()))
    last = _last_counts(analysis)
    matched = sum(last.values())
    ranks = _shown(matrix, last)
    rows = [
        Row(
            cells=(
                str(rank),
                *(scale.text(ns) for ns in matrix[rank][:steps]),
                f"◀ last in {last[rank]} of {matched}" if last[rank] else "",
            ),
            tone="bad" if last[rank] and last[rank] == max(last.values()) else "plain",
        )
        for rank in ranks
    ]
    return Table(
        title=f"waits for other ranks, {scale.unit} a step",
        columns=(
            Column(title="rank"),
            *(_step_column(i) for i in range(steps)),
            Column(title="", drop=1, below=""),
        ),
        rows=tuple(rows),
        notes=_notes(analysis, len(matrix) - len(ranks)),
    )


def _step_column(index: int) -> Column:
    """Return the column of one step; later ones go first where room is scarce."""
    drop = 2 + index if index else 0
    return Column(title=f"step {index + 1}", short=str(index + 1), align="right", drop=drop)


def _shown(matrix: dict[int, list[int]], last: Counter[int]) -> list[int]:
    """Return the ranks to show: all of a few, else those that were last and the longest waiting."""
    if len(matrix) <= _MOST_RANKS:
        return sorted(matrix)
    ordered = sorted(matrix, key=lambda rank: (-last[rank], -sum(matrix[rank])))
    return sorted(ordered[:_MOST_RANKS])


def _last_counts(analysis: Analysis) -> Counter[int]:
    counts: Counter[int] = Counter()
    for row in analysis.collectives:
        counts.update({int(rank): n for rank, n in row.last_rank_counts.items()})
    return counts


def _notes(analysis: Analysis, hidden: int) -> tuple[str, ...]:
    notes = []
    if hidden:
        notes.append(f"{fmt.counted(hidden, 'rank')} more in --json")
    gain: Counter[int] = Counter()
    for row in analysis.blame:
        gain[row.rank] += row.guaranteed_gain_ns
    late = max(gain, key=gain.__getitem__, default=None)
    steps = max((len(waits) for waits in analysis.wait_matrix_ns.values()), default=0)
    if late is not None and gain[late] and steps:
        each = fmt.duration(gain[late] // steps)
        notes.append(f"gain at least {each} a step if rank {late} were as early as the next-latest")
    counted = "last counts only where the clocks can tell (±" if analysis.clock.aligned else ""
    if counted and analysis.clock.half_width_ns is not None:
        notes.append(f"{counted}{fmt.duration(analysis.clock.half_width_ns)})")
    if analysis.unattributed_wait_ns:
        nobody = fmt.duration(analysis.unattributed_wait_ns)
        notes.append(f"charged to nobody: {nobody} of all waits")
    return tuple(notes)


def collective_table(analysis: Analysis, top: int) -> Table | None:
    """Return the collectives of the windows, the most exposed first, as nccl-tests names them."""
    rows = [
        Row(
            cells=(
                row.op,
                row.role or "",
                fmt.count(row.group_size),
                fmt.size(row.bytes, "not recorded"),
                fmt.count(row.count),
                f"{row.busbw_gb_s:.1f}" if row.busbw_gb_s is not None else "n/a",
                fmt.duration(row.wait_ns),
                fmt.duration(row.transfer_ns),
                fmt.duration(row.hidden_ns),
            )
        )
        for row in analysis.collectives[:top]
    ]
    if not rows:
        return None
    more = len(analysis.collectives) - len(rows)
    return Table(
        title="collectives, summed over ranks",
        columns=(
            Column(title="op"),
            Column(title="role", drop=DECORATION),
            Column(title="ranks", align="right", drop=4),
            Column(title="size", align="right"),
            Column(title="count", align="right", drop=3),
            Column(title="busbw GB/s", short="GB/s", align="right", drop=5),
            Column(title="wait", align="right", drop=1),
            Column(title="transfer", align="right", drop=1),
            Column(title="hidden", align="right", drop=6),
        ),
        rows=tuple(rows),
        notes=(f"{fmt.counted(more, 'kind')} more: --top {len(analysis.collectives)}",)
        if more > 0
        else (),
    )
