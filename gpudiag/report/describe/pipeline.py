"""The pipeline: what each stage takes for a micro-batch, and what it waits for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.report.view import Column, Row, Table

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, PipelineResult, StageRow

_SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "interleaved 1F1B"}
# Stages beyond these are left to --json.
_MOST_STAGES = 16


def pipeline_table(analysis: Analysis) -> Table | None:
    """Return the stages; None where no pipeline was found."""
    found = analysis.pipeline
    if found is None:
        return None
    steps = {r.rank: r.periods or len(r.host_steps_ns) for r in analysis.ranks}
    scale = fmt.Scale.fitting(max(row.forward_ns + row.backward_ns for row in found.stages))
    rows = [_row(found, row, scale, steps.get(row.rank, 0)) for row in found.stages[:_MOST_STAGES]]
    return Table(
        title=f"pipeline: {_what(found)}",
        columns=(
            Column(title="stage"),
            Column(title="rank", align="right"),
            Column(title=f"forward, {scale.unit}", short="F", align="right"),
            Column(title=f"backward, {scale.unit}", short="B", align="right"),
            Column(title="bubble/step", align="right"),
            Column(title="imbalance/step", short="imbal./step", align="right"),
            Column(title="", below=""),
        ),
        rows=tuple(rows),
        notes=_notes(found),
    )


def _what(found: PipelineResult) -> str:
    parts = [fmt.counted(found.p, "stage")]
    if found.chunks > 1:
        parts.append(f"{found.chunks} chunks each")
    parts.append(f"{fmt.count(found.m)} micro-batches")
    name = _SCHEDULES.get(found.schedule, found.schedule.upper())
    parts.append(f"{name} ({found.schedule_basis})")
    return ", ".join(parts)


def _row(found: PipelineResult, row: StageRow, scale: fmt.Scale, steps: int) -> Row:
    slow = row.rank == found.slow_rank
    mark = ""
    if slow and found.lighten_ns is not None:
        mark = f"◀ lighten by {fmt.duration(found.lighten_ns)} a micro-batch"
    return Row(
        cells=(
            str(row.stage),
            str(row.rank),
            scale.text(row.forward_ns),
            scale.text(row.backward_ns),
            fmt.duration(row.schedule_ns // steps) if steps else "",
            fmt.duration(row.imbalance_ns // steps) if steps else "",
            mark,
        ),
        tone="bad" if slow else "plain",
    )


def _notes(found: PipelineResult) -> tuple[str, ...]:
    wall, useful = fmt.share(found.structural_share), fmt.share(found.structural_share_of_useful)
    notes = [f"bubble of equal stages: {wall} of wall time, {useful} of useful time"]
    samples = min(row.samples for row in found.stages)
    notes.append(f"forward, backward: of one micro-batch in one chunk, median of {samples} or more")
    if found.gain_ns_per_step and found.slow_stage is not None:
        gain = fmt.duration(found.gain_ns_per_step)
        notes.append(f"equal stages would save {gain} a step ({fmt.share(found.imbalance_share)})")
    if found.pipelines > 1:
        notes.append(f"{found.pipelines} pipelines side by side; counts are of the first")
    more = len(found.stages) - _MOST_STAGES
    if more > 0:
        notes.append(f"{fmt.counted(more, 'stage')} more in --json")
    return tuple(notes)
