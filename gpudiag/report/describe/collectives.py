"""The collectives as a user of nccl-tests knows them, and ring against tree for their latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.report.totals import Totals, device_totals, host_totals
from gpudiag.report.view import DECORATION, Column, Row, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudiag.model.analysis import Analysis, CollectiveRow, RingTreeRow

# Findings whose evidence is this table.
_SHOWN_BY = frozenset({"comm_exposed", "collective_bandwidth", "link_degraded"})
_LATENCY = "collective_latency"
_NOT_RESOLVABLE = "n/r"
_UNSPLIT = "unsplit"


def collective_table(analysis: Analysis, top: int, *, asked: bool) -> Table | None:
    """Return the collectives, the most exposed first; None if unasked and no finding is on them."""
    totals = device_totals(analysis) or host_totals(analysis)
    wanted = asked or any(one.id in _SHOWN_BY | {_LATENCY} for one in analysis.findings)
    if totals is None or not analysis.collectives or not wanted:
        return None
    rows = analysis.collectives[:top]
    scale = fmt.Scale.fitting(max(totals.each_ns(row.exposed_ns) for row in rows))
    member = "GPU" if device_totals(analysis) else "rank"
    per = f"{scale.unit}/step·{member}" if totals.per_step else f"{scale.unit}/{member}"
    return Table(
        title=f"collectives, {per}",
        columns=_columns(),
        rows=tuple(_row(row, totals, scale) for row in rows),
        notes=_notes(analysis, rows),
    )


def _columns() -> tuple[Column, ...]:
    return (
        Column(title="op", cut="middle", min_width=8),
        Column(title="role", drop=2, below="role"),
        Column(title="ranks", align="right", drop=5, below="ranks"),
        Column(title="size", align="right"),
        Column(title="count", align="right", drop=4, below="count"),
        Column(title="algbw", drop=DECORATION + 1, align="right"),
        Column(title="busbw", drop=3, below="busbw", align="right"),
        Column(title="best", drop=DECORATION + 2, align="right"),
        Column(title="wait", align="right"),
        Column(title="exposed", short="exp.", align="right"),
        Column(title="hidden", drop=1, below="hidden", align="right"),
        Column(title="latency", drop=DECORATION + 5, align="right"),
        Column(title="bandwidth", drop=DECORATION + 4, align="right"),
        Column(title="degraded", drop=DECORATION + 6, align="right"),
        Column(title="alpha", drop=DECORATION + 3, align="right"),
    )


def _row(row: CollectiveRow, totals: Totals, scale: fmt.Scale) -> Row:
    def time(ns: int | None) -> str:
        return "" if ns is None else scale.text(totals.each_ns(ns))

    return Row(
        cells=(
            row.op,
            row.role or "",
            fmt.count(row.group_size),
            fmt.size(row.bytes),
            fmt.count(row.count),
            fmt.bandwidth(row.algbw_gb_s),
            fmt.bandwidth(row.busbw_gb_s),
            "" if row.best_busbw_gb_s is None else fmt.bandwidth(row.best_busbw_gb_s),
            _wait(row, time(row.wait_ns)),
            time(row.exposed_ns),
            time(row.hidden_ns),
            time(row.latency_ns),
            time(row.bandwidth_ns),
            time(row.degraded_ns),
            "" if row.alpha_us is None else fmt.duration(round(1000 * row.alpha_us)),
        )
    )


def _wait(row: CollectiveRow, text: str) -> str:
    """Return the wait, or why it can't be told from transfer."""
    if row.unsplit_ns > row.wait_ns:
        return _UNSPLIT
    if row.wait_unresolved_ns > thresholds.MOSTLY_FRAC * row.wait_ns:
        return _NOT_RESOLVABLE
    return text


def _notes(analysis: Analysis, rows: Sequence[CollectiveRow]) -> tuple[str, ...]:
    """Return what the columns mean where that isn't plain, and what is left out."""
    notes = ["exposed: wait and transfer with no compute beside; hidden: under compute"]
    if device_totals(analysis) is None:
        notes = ["exposed: the training thread is inside; hidden: it is not"]
    if any(row.busbw_gb_s is not None for row in rows):
        notes.append("algbw, busbw: GB/s as in nccl-tests, median; best: best decile of a size")
    if any(row.pipeline_ns for row in rows):
        notes.append("exposed holds waits that are the pipeline's own too; wait doesn't")
    if any(row.role_inferred for row in rows):
        notes.append("roles are inferred from names, sizes and order: traces record none")
    waits = {_wait(row, "") for row in rows}
    if _NOT_RESOLVABLE in waits and analysis.clock.half_width_ns is not None:
        width = fmt.duration(analysis.clock.half_width_ns)
        notes.append(f"{_NOT_RESOLVABLE}: wait not resolvable, clocks ±{width}; it is in exposed")
    if _UNSPLIT in waits:
        notes.append(f"{_UNSPLIT}: waiting can't be told from transfer; exposed is both")
    more = len(analysis.collectives) - len(rows)
    if more > 0:
        kinds = fmt.counted(more, "kind")
        notes.append(f"{kinds} more: --top {len(analysis.collectives)}")
    return tuple(notes)


def ring_tree_table(analysis: Analysis, *, asked: bool) -> Table | None:
    """Return what NCCL expects a message of no bytes to cost, here and in larger jobs."""
    wanted = asked or any(one.id == _LATENCY for one in analysis.findings)
    fastest = _fastest(analysis.ring_tree)
    if not wanted or not fastest:
        return None
    sizes = sorted({(row.ranks, row.nodes) for row in fastest})
    rows = []
    for op in dict.fromkeys(row.op for row in fastest):
        of_op = {(row.ranks, row.nodes): row for row in fastest if row.op == op}
        rows.append(_alphas(f"{op}, ring", [of_op[size].ring_alpha_us for size in sizes]))
        trees = [of_op[size].tree_alpha_us for size in sizes]
        if any(tree is not None for tree in trees):
            rows.append(_alphas(f"{op}, tree", trees))
    return Table(
        title="expected latency of one collective, µs",
        columns=(
            Column(title="algorithm"),
            *(
                Column(
                    title=f"{fmt.counted(ranks, 'rank')} / {fmt.counted(nodes, 'node')}",
                    short=f"{ranks}/{nodes}",
                    align="right",
                    drop=index,
                )
                for index, (ranks, nodes) in enumerate(sizes)
            ),
        ),
        rows=tuple(rows),
        notes=_ring_tree_notes(analysis, fastest[0]),
    )


def _fastest(rows: Sequence[RingTreeRow]) -> list[RingTreeRow]:
    """Return for each op and size the row of the protocol with the lowest ring latency."""
    best: dict[tuple[str, int, int], RingTreeRow] = {}
    for row in rows:
        key = (row.op, row.ranks, row.nodes)
        if key not in best or row.ring_alpha_us < best[key].ring_alpha_us:
            best[key] = row
    return list(best.values())


def _alphas(title: str, alphas: Sequence[float | None]) -> Row:
    return Row(cells=(title, *("n/a" if one is None else f"{one:.1f}" for one in alphas)))


def _ring_tree_notes(analysis: Analysis, row: RingTreeRow) -> tuple[str, ...]:
    """Return where the figures come from, and what was measured."""
    notes = [f"NCCL's own constants, protocol {row.protocol}; nodes: {row.nodes_basis}"]
    measured = {
        one.op: one.alpha_us
        for one in analysis.collectives
        if one.alpha_us is not None and one.group_size == row.ranks
    }
    if measured:
        alphas = [f"{op} {fmt.duration(round(1000 * us))}" for op, us in measured.items()]
        notes.append(f"measured alpha: {fmt.listed(alphas)}")
    return tuple(notes)
