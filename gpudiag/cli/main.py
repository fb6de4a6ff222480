"""The command line's wiring: the group, its options, and the one place that catches errors."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from gpudiag import __version__
from gpudiag.cli import analyze, config, doctor, explain, mfu, run
from gpudiag.cli.exit_codes import ExitCode
from gpudiag.cli.output import say, write_stdout
from gpudiag.cli.session import Session
from gpudiag.errors import GpudiagError

app = typer.Typer(
    name="gpudiag",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What follows CMD is CMD's own, options too.
app.command(name="run", context_settings={"allow_interspersed_args": False})(run.run)
app.command(name="analyze")(analyze.analyze)
app.command(name="mfu")(mfu.mfu)
app.command(name="explain")(explain.explain)
app.command(name="doctor")(doctor.doctor)
app.add_typer(config.app, name="config")


def _print_version(*, asked: bool) -> None:
    if asked:
        write_stdout(f"gpudiag {__version__}\n")
        raise typer.Exit


@app.callback()
def group(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001 - acted upon by its callback
        bool,
        typer.Option(
            "--version",
            callback=lambda value: _print_version(asked=value),
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Say where every GPU-second of a PyTorch training run went.

    \b
    Examples:
      gpudiag analyze traces/
      gpudiag analyze trace.json.gz -v
      gpudiag mfu --help
      gpudiag explain input_stall
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    session: Session = ctx.obj
    session.debug = session.debug or debug


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    session = Session(debug=os.environ.get("GPUDIAG_DEBUG", "") not in {"", "0"})
    try:
        app(args=args, obj=session, prog_name="gpudiag")
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except GpudiagError as error:
        _show(error, debug=session.debug)
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:  # the reader of a help page has left
        raise SystemExit(ExitCode.DONE) from None
    except OSError as error:
        _show(GpudiagError("gpudiag could not go on", f"{error}."), debug=session.debug)
        raise SystemExit(1) from None
    except Exception as error:  # noqa: BLE001 - our own bug: no traceback unless asked for
        _show_bug(error, debug=session.debug)
        raise SystemExit(1) from None


def _show(error: GpudiagError, *, debug: bool) -> None:
    if debug:
        traceback.print_exc(file=sys.stderr)
    text = "\n".join(error.lines()) or type(error).__name__
    say("gpudiag: " + text.replace("\n", "\n  "))


def _show_bug(error: Exception, *, debug: bool) -> None:
    if debug:
        traceback.print_exc(file=sys.stderr)
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    hint = "please report it with this traceback" if debug else "run with --debug for a traceback"
    say(f"gpudiag: gpudiag has a bug: {said}\n  {hint}.")
