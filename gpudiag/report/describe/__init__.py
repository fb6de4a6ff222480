"""From an analysis to what a report says: pure, and ignorant of terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.report.describe.buckets import device_table, host_table, top_rows
from gpudiag.report.describe.causes import gap_table, kernel_table
from gpudiag.report.describe.collectives import collective_table, ring_tree_table
from gpudiag.report.describe.context import context
from gpudiag.report.describe.efficiency import waterfall_table
from gpudiag.report.describe.findings import findings, next_steps
from gpudiag.report.describe.pipeline import pipeline_table
from gpudiag.report.describe.quality import quality
from gpudiag.report.describe.verbose import (
    file_table,
    host_rank_buckets,
    rank_buckets,
    rank_table,
)
from gpudiag.report.describe.waits import wait_map
from gpudiag.report.totals import window_refused
from gpudiag.report.view import Line, Lines, Report, Section

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis

BRIEF_LINES = 3


def describe(analysis: Analysis, *, top: int, verbose: bool = False) -> Report:
    """Return the whole report of an analysis; ``verbose`` adds every bucket, file and rank."""
    device = device_table(analysis, everything=verbose)
    sections: list[Section | None] = [
        device or _no_device(analysis),
        host_table(analysis) if verbose or device is None else None,
        waterfall_table(analysis, everything=verbose),
        pipeline_table(analysis),
        wait_map(analysis),
        gap_table(analysis, top),
        kernel_table(analysis, top),
        collective_table(analysis, top, asked=verbose),
        ring_tree_table(analysis, asked=verbose),
        findings(analysis),
    ]
    if verbose:
        sections += [
            rank_table(analysis),
            rank_buckets(analysis),
            host_rank_buckets(analysis),
            file_table(analysis),
        ]
    sections += [quality(analysis, everything=verbose), next_steps(analysis, verbose=verbose)]
    return Report(
        headline=fmt.clean(analysis.headline),
        context=context(analysis),
        sections=tuple(section for section in sections if section is not None),
    )


def describe_brief(analysis: Analysis) -> Report:
    """Return the sentence and the three largest buckets: for chats and scripts."""
    table = top_rows(analysis, BRIEF_LINES)
    sections = (table,) if table else ()
    return Report(headline=fmt.clean(analysis.headline), context="", sections=sections)


def _no_device(analysis: Analysis) -> Lines:
    """Return, in one line, why there is no table of the GPU's time."""
    text = "No GPU table: record with ProfilerActivity.CUDA to have one."
    if window_refused(analysis):
        text = "no window of the kind asked for; data quality says why. Try another --window."
    return Lines(title="", lines=(Line(text=text),))
