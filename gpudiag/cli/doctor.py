"""``gpudiag doctor``: what gpudiag knows of GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudiag import __version__
from gpudiag.cli import options, output
from gpudiag.config import load_config

if TYPE_CHECKING:
    from gpudiag.hardware import Device


def doctor(
    *,
    gpus: Annotated[  # noqa: ARG001 - required: what else doctor can tell comes later
        bool, typer.Option("--gpus", help="List the GPUs whose peaks are known.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all that is known of them as JSON.")
    ] = False,
    color: options.Color = None,
    ascii_only: options.Ascii = False,
) -> None:
    """List the GPUs that gpudiag knows, with the dense peaks that MFU divides by.

    \b
    Examples:
      gpudiag doctor --gpus
      gpudiag doctor --gpus --json | jq '.gpus[] | select(.key == "h100-sxm")'
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    from gpudiag.hardware import devices  # noqa: PLC0415 - only where it's needed

    config = load_config(Path.cwd(), os.environ, {"color": color, "ascii": ascii_only or None})
    if as_json:
        output.write_stdout(_as_json(devices()))
        return
    from gpudiag.report.describe.hardware import hardware_report  # noqa: PLC0415 - the same
    from gpudiag.report.terminal import render  # noqa: PLC0415 - rich is slow to import

    output.write_stdout(render(hardware_report(devices()), output.style_of(config)))


def _as_json(gpus: tuple[Device, ...]) -> bytes:
    import msgspec  # noqa: PLC0415 - only where it's needed

    # What is assumed of a device belongs to the look-up of a name, not to the table.
    rows = [
        {key: value for key, value in msgspec.to_builtins(gpu).items() if key != "assumed"}
        for gpu in gpus
    ]
    data = {"schema_version": 1, "gpudiag_version": __version__, "gpus": rows}
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"
