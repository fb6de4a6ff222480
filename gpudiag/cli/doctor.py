"""``gpudiag doctor``: what gpudiag knows of GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gpudiag.cli import options, output
from gpudiag.config import load_config


def doctor(
    *,
    gpus: Annotated[  # noqa: ARG001 - required: what else doctor can tell comes later
        bool, typer.Option("--gpus", help="List the GPUs whose peaks are known.")
    ],
    color: options.Color = None,
    ascii_only: options.Ascii = False,
) -> None:
    """List the GPUs that gpudiag knows, with the dense peaks that MFU divides by.

    \b
    Example:
      gpudiag doctor --gpus
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    from gpudiag.hardware import devices  # noqa: PLC0415 - only where it's needed
    from gpudiag.report.describe.hardware import hardware_report  # noqa: PLC0415 - the same
    from gpudiag.report.terminal import render  # noqa: PLC0415 - rich is slow to import

    config = load_config(Path.cwd(), os.environ, {"color": color, "ascii": ascii_only or None})
    output.write_stdout(render(hardware_report(devices()), output.style_of(config)))
