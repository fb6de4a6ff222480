"""``gpudiag explain``: what findings, buckets and data-quality entries mean, what to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gpudiag.cli import output
from gpudiag.config import load_config, suggestion
from gpudiag.errors import UsageError


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="A finding, bucket or data-quality entry; none lists all."
        ),
    ] = None,
) -> None:
    """Explain a finding, a bucket or a data-quality entry: meaning, measurement, what to do.

    \b
    Examples:
      gpudiag explain
      gpudiag explain input_stall
      gpudiag explain idle.launch
      gpudiag explain few_periods
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    from gpudiag.model.catalogue import CATALOGUE  # noqa: PLC0415 - only where it's needed
    from gpudiag.model.quality import QUALITY  # noqa: PLC0415 - the same
    from gpudiag.report.describe.entries import (  # noqa: PLC0415 - the same
        entry_report,
        list_report,
        quality_report,
    )
    from gpudiag.report.terminal import render  # noqa: PLC0415 - rich is slow to import

    if name is None:
        report = list_report(CATALOGUE, QUALITY)
    elif name in CATALOGUE:
        report = entry_report(CATALOGUE[name], CATALOGUE)
    elif name in QUALITY:
        report = quality_report(name, QUALITY[name])
    else:
        raise UsageError(
            f"There is no finding, bucket or data-quality entry {name!r}",
            "Every one that gpudiag knows is listed by: gpudiag explain",
            "Correct the name" + (suggestion(name, (*CATALOGUE, *QUALITY)) or "."),
        )
    config = load_config(Path.cwd(), os.environ)
    style = output.style_of(config)
    output.write_stdout(render(report, style))
