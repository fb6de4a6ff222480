"""``gpudiag run -- CMD``: run a training command unmodified, and see where its time goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpudiag.cli import output
from gpudiag.errors import UsageError


def run(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD [ARG]...", help="The command to run.")
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Keep the run here. [gpudiag-runs/…]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let -o use a folder in use.")] = False,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="One run of several nodes: the same on each of them."),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Run a training command as if gpudiag weren't there.

    \b
    Examples:
      gpudiag run -- torchrun --nproc-per-node 8 train.py
      gpudiag run -o runs/try1 -- python train.py --lr 1e-4

    Exit codes: the command's own; 2 usage, 125 gpudiag could not start it, 126 it is not
    executable, 127 it was not found.
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    from gpudiag.collect.launch.run import Wrapped  # noqa: PLC0415 - only where it's needed
    from gpudiag.collect.launch.run import run as run_wrapped  # noqa: PLC0415 - the same
    from gpudiag.collect.launch.supervise import end_as  # noqa: PLC0415 - the same

    if not command:
        raise UsageError(
            "No command is given", "", "Put it after --: gpudiag run -- python train.py"
        )
    wrapped = Wrapped(argv=tuple(command), out=out, run_id=run_id, force=force)
    ended, folder = run_wrapped(wrapped)
    if not quiet:
        output.say(f"gpudiag: this run is kept in {folder.path}")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    end_as(ended)
