"""``gpudiag config show``: each setting and where it came from."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from gpudiag.cli import output
from gpudiag.config import KNOWN, Value, load_config, suggestion, unknown_variables, variable_name

app = typer.Typer(help="Show the settings in force.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Show the settings in force."""


@app.command()
def show() -> None:
    """Print each setting, its value and where it came from.

    A flag beats GPUDIAG_*, which beats gpudiag.toml or [tool.gpudiag] in the nearest
    pyproject.toml, which beats the default.
    """
    config = load_config(Path.cwd(), os.environ)
    rows = [(s.name, _shown(s.value), s.origin) for s in config.settings.values()]
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    lines = [f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}" for name, value, origin in rows]
    output.write_stdout("\n".join(lines) + "\n")
    known = [variable_name(name) for name in KNOWN]
    for variable in unknown_variables(os.environ):
        output.say(f"gpudiag: {variable} sets nothing" + suggestion(variable, known))


def _shown(value: Value) -> str:
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    return str(value)
