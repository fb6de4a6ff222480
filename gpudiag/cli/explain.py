"""``gpudiag explain``: what a finding or a bucket means, how it's measured, what to do."""

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
        str | None, typer.Argument(metavar="[ID]", help="A finding or bucket; none lists all.")
    ] = None,
) -> None:
    """Explain a finding or a bucket: what it means, how it is measured, how to fix it.

    \b
    Examples:
      gpudiag explain               all findings and buckets
      gpudiag explain input_stall
      gpudiag explain idle.launch
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    from gpudiag.model.catalogue import CATALOGUE  # noqa: PLC0415 - only where it's needed
    from gpudiag.report.describe.entries import entry_report, list_report  # noqa: PLC0415 - same
    from gpudiag.report.terminal import render  # noqa: PLC0415 - rich is slow to import

    if name is not None and name not in CATALOGUE:
        raise UsageError(
            f"There is no finding or bucket {name!r}",
            "Every one that gpudiag knows is listed by: gpudiag explain",
            "Correct the name" + (suggestion(name, CATALOGUE) or "."),
        )
    config = load_config(Path.cwd(), os.environ)
    style = output.style_for(
        output.stdout_stream(),
        os.environ,
        color=config.text("color") or "auto",
        ascii_only=bool(config.settings["ascii"].value),
    )
    report = list_report(CATALOGUE) if name is None else entry_report(CATALOGUE[name])
    output.write_stdout(render(report, style))
