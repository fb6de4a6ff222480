"""``gpudiag run -- CMD``: run a training command unmodified, and see where its time goes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from gpudiag.collect.injection import Profile

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[bB]?")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


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
    steps: Annotated[
        int, typer.Option("--profile-steps", metavar="N", min=1, help="Steps to trace.")
    ] = 6,
    skip: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Trace after N steps. [when they have settled]"),
    ] = None,
    every: Annotated[
        int, typer.Option(metavar="N", min=0, help="Trace again every N steps. [once]")
    ] = 0,
    profile: Annotated[
        bool, typer.Option("--profile/--no-profile", help="Trace steps, or record events only.")
    ] = True,
    ranks: Annotated[
        str, typer.Option("--profile-ranks", metavar="auto|all|0,1,...", help="Ranks to trace.")
    ] = "auto",
    budget: Annotated[
        str, typer.Option("--trace-budget", metavar="SIZE", help="Raw traces of the whole job.")
    ] = "4G",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Run a training command as if gpudiag weren't there, and say where its time went.

    \b
    Examples:
      gpudiag run -- torchrun --nproc-per-node 8 train.py
      gpudiag run -o runs/try1 -- python train.py --lr 1e-4

    Exit codes: the command's own; 2 usage, 125 gpudiag could not start it, 126 it is not
    executable, 127 it was not found.
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    from gpudiag.cli.verdict import Herald, say_verdict  # noqa: PLC0415 - only where it's needed
    from gpudiag.collect.injection import inject  # noqa: PLC0415 - the same
    from gpudiag.collect.launch.keep import compress_traces  # noqa: PLC0415 - the same
    from gpudiag.collect.launch.run import Wrapped  # noqa: PLC0415 - the same
    from gpudiag.collect.launch.run import run as run_wrapped  # noqa: PLC0415 - the same
    from gpudiag.collect.launch.supervise import end_as  # noqa: PLC0415 - the same

    if not command:
        raise UsageError(
            "No command is given", "", "Put it after --: gpudiag run -- python train.py"
        )
    chosen = _profile(
        steps=steps, skip=skip, every=every, profile=profile, ranks=ranks, budget=budget
    )
    wrapped = Wrapped(argv=tuple(command), out=out, run_id=run_id, force=force)
    herald = Herald(quiet)
    ended, folder = run_wrapped(
        wrapped, [lambda path, environment: inject(path, environment, chosen)], herald.look
    )
    herald.dismiss()
    if quiet:
        compress_traces(folder.path)
    else:
        say_verdict(folder, lambda: compress_traces(folder.path))
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    end_as(ended)


def _profile(
    *, steps: int, skip: int | None, every: int, profile: bool, ranks: str, budget: str
) -> Profile:
    from gpudiag.collect.injection import Profile  # noqa: PLC0415 - only where it's needed

    default = Profile()
    return Profile(
        profile=profile,
        skip=default.skip if skip is None else skip,
        settle=skip is None,
        active=steps,
        every=every,
        ranks=_ranks(ranks),
        trace_budget=_bytes(budget),
    )


def _ranks(text: str) -> str | tuple[int, ...]:
    if text in {"auto", "all"}:
        return text
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--profile-ranks can't be {text!r}", "", "Expected auto, all or 0,1,2.")
    return tuple(map(int, parts))


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * _UNITS[match[2].lower()] if match else 0
    if size <= 0:
        raise UsageError(f"--trace-budget can't be {text!r}", "", "Expected a size: 500M, 4G.")
    return int(size)
