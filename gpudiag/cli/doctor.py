"""``gpudiag doctor``: what this machine lets gpudiag see, and what gpudiag knows of GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudiag import __version__
from gpudiag.cli import options, output
from gpudiag.config import load_config
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from gpudiag.hardware import Device
    from gpudiag.report.view import Report


def doctor(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GPU]...", help="With --gpus: all that is known of these."),
    ] = None,
    *,
    gpus: Annotated[
        bool, typer.Option("--gpus", help="List the GPUs whose peaks are known.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    color: options.Color = None,
    ascii_only: options.Ascii = False,
) -> None:
    """Say what gpudiag can use on this machine, or which GPUs it knows.

    \b
    Examples:
      gpudiag doctor
      gpudiag doctor --gpus
      gpudiag doctor --gpus h100-sxm
      gpudiag doctor --gpus --json | jq '.gpus[0]'

    Exit codes: 0 done, also where something is not here; 2 usage.
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    config = load_config(Path.cwd(), os.environ, {"color": color, "ascii": ascii_only or None})
    if names and not gpus:
        raise UsageError(f"doctor takes no {names[0]!r}", "", "Add --gpus to look a GPU up.")
    data, report = _gpus(names or [], as_json=as_json) if gpus else _machine(as_json=as_json)
    if report is None:
        output.write_stdout(_as_json(data))
        return
    from gpudiag.report.terminal import render  # noqa: PLC0415 - rich is slow to import

    output.write_stdout(render(report, output.style_of(config)))


def _machine(*, as_json: bool) -> tuple[dict[str, Any], Report | None]:
    from gpudiag.collect.environment import checks  # noqa: PLC0415 - only where it's needed
    from gpudiag.trace.inflate import FAST  # noqa: PLC0415 - the same

    gzip = "isal" if FAST else "the standard library's zlib (isal is four times as fast)"
    found = checks(f"JSON by msgspec, .gz by {gzip}")
    if as_json:
        return {"checks": found}, None
    from gpudiag.report.describe.doctor import doctor_report  # noqa: PLC0415 - the same

    return {}, doctor_report(found)


def _gpus(names: list[str], *, as_json: bool) -> tuple[dict[str, Any], Report | None]:
    from gpudiag.hardware import devices  # noqa: PLC0415 - only where it's needed

    rows = tuple(_named(name) for name in names) or devices()
    if as_json:
        return {"gpus": rows}, None
    from gpudiag.report.describe import hardware  # noqa: PLC0415 - the same

    return {}, hardware.details_report(rows) if names else hardware.hardware_report(rows)


def _named(name: str) -> Device:
    from gpudiag.hardware import Device, lookup_named  # noqa: PLC0415 - only where it's needed

    found = lookup_named(name)
    if isinstance(found, Device):
        return found
    near = ", ".join(row.key for row in found.candidates)
    raise UsageError(
        f"{name!r} is no GPU that is known: {found.reason}",
        f"Candidates: {near}." if near else "",
        "gpudiag doctor --gpus lists them all.",
    )


def _as_json(data: dict[str, Any]) -> bytes:
    import msgspec  # noqa: PLC0415 - only where it's needed

    plain = msgspec.to_builtins(data)
    for gpu in plain.get("gpus", ()):
        # What is assumed of a device belongs to the look-up of a name, not to the table.
        del gpu["assumed"]
    whole = {"schema_version": 1, "gpudiag_version": __version__, **plain}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"
