"""The heat map of waits, rank by step, with the rank that made the others wait."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.report.totals import device_totals, host_totals
from gpudiag.report.view import Column, Row, Table

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis

_MOST_STEPS = 12
_MOST_RANKS = 16

_Matrix = dict[int, list[int]]


def wait_map(analysis: Analysis) -> Table | None:
    """Return what each rank waited in each step, with who was last; None where waits are small."""
    matrix = {int(rank): waits for rank, waits in analysis.wait_matrix_ns.items() if waits}
    totals = device_totals(analysis) or host_totals(analysis)
    waited = sum(sum(waits) for waits in matrix.values())
    if totals is None or waited < thresholds.SMALL_FRAC * totals.window_ns:
        return None
    last = _last_counts(analysis)
    changes = bool(analysis.waits_shared)
    nobody = (analysis.unattributed_wait_ns or 0) > thresholds.MOSTLY_FRAC * waited
    ranks = _shown(matrix, last)
    return Table(
        title=f"waits for other ranks, {_scale(matrix).unit} a step",
        columns=(
            Column(title="rank"),
            Column(title="mean" if _steps(matrix) > 1 else "", align="right"),
            *(_step_column(i) for i in range(min(_steps(matrix), _MOST_STEPS))),
            Column(title="", drop=1, below=""),
        ),
        rows=tuple(_row(matrix, rank, last, blamed=not changes and not nobody) for rank in ranks),
        notes=(*_left_out(matrix, len(ranks)), *_who(analysis, matrix, last, changes=changes)),
    )


def _scale(matrix: _Matrix) -> fmt.Scale:
    return fmt.Scale.fitting(max(max(waits) for waits in matrix.values()))


def _steps(matrix: _Matrix) -> int:
    return max(len(waits) for waits in matrix.values())


def _row(matrix: _Matrix, rank: int, last: Counter[int], *, blamed: bool) -> Row:
    scale, waits = _scale(matrix), matrix[rank]
    shown = min(_steps(matrix), _MOST_STEPS)
    cells = [scale.text(ns) for ns in waits[:shown]]
    most = last[rank] == max(last.values(), default=0)
    return Row(
        cells=(
            str(rank),
            scale.text(sum(waits) / len(waits)) if _steps(matrix) > 1 else "",
            *cells,
            *[""] * (shown - len(cells)),
            f"◀ last in {last[rank]} of {sum(last.values())}" if last[rank] else "",
        ),
        tone="bad" if last[rank] and most and blamed else "plain",
    )


def _step_column(index: int) -> Column:
    """Return the column of one step; later ones go first where room is scarce."""
    drop = 2 + index if index else 0
    return Column(title=f"step {index + 1}", short=str(index + 1), align="right", drop=drop)


def _shown(matrix: _Matrix, last: Counter[int]) -> list[int]:
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


def _left_out(matrix: _Matrix, ranks: int) -> tuple[str, ...]:
    """Return what the map doesn't show."""
    steps = _steps(matrix)
    more = [f"steps 1 to {_MOST_STEPS} of {steps}"] if steps > _MOST_STEPS else []
    more += [f"{ranks} of {len(matrix)} ranks"] if ranks < len(matrix) else []
    return (f"{', '.join(more)}; all in --json",) if more else ()


def _who(
    analysis: Analysis, matrix: _Matrix, last: Counter[int], *, changes: bool
) -> tuple[str, ...]:
    """Return what being early would give, how sure the order is, and what nobody is charged."""
    notes = []
    if changes:
        notes.append("who is late changes from step to step: a limit that all share, not one rank")
    elif gain := _gain(analysis, _steps(matrix)):
        notes.append(gain)
    width = analysis.clock.half_width_ns
    if width is not None and last:
        matched = sum(row.count for row in analysis.collectives)
        order = f"of {fmt.counted(matched, 'collective')}, {sum(last.values())} show who was last"
        notes.append(f"{order}: clocks ±{fmt.duration(width)}, closer arrivals not resolvable")
    elif width is not None:
        notes.append(f"who was last is not resolvable: clocks ±{fmt.duration(width)}")
    if analysis.unattributed_wait_ns:
        nobody = analysis.unattributed_wait_ns / sum(sum(waits) for waits in matrix.values())
        notes.append(f"charged to nobody: {fmt.share(min(nobody, 1))} of these waits")
    return tuple(notes)


def _gain(analysis: Analysis, steps: int) -> str:
    """Return what the rank that others wait for most would give back, whatever makes it late."""
    gain: Counter[int] = Counter()
    for row in analysis.blame:
        gain[row.rank] += row.guaranteed_gain_ns
    late = max(gain, key=gain.__getitem__, default=None)
    if late is None or not gain[late]:
        return ""
    each = fmt.duration(gain[late] // steps)
    return f"at least {each} a step shorter if rank {late} came no later than the next-latest"
