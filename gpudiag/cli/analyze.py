"""``gpudiag analyze``: read traces, analyse them, say where the time went."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpudiag.cli import options, output
from gpudiag.cli.exit_codes import ExitCode
from gpudiag.config import Config, load_config, suggestion
from gpudiag.errors import GpudiagError, InputError, UsageError

if TYPE_CHECKING:
    from gpudiag.cli.session import Session
    from gpudiag.model.analysis import Analysis

SEVERITIES = ("info", "warning", "error")
_STDIN = "-"
# The reader's quality entry for files that it was given and could not read.
_UNREADABLE = frozenset({"inputs_unreadable", "event_log_damaged"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """How much is printed, and in what form."""

    as_json: bool
    brief: bool
    verbose: bool
    quiet: bool
    out: Path | None
    force: bool


def analyze(
    ctx: typer.Context,
    paths: options.Paths,
    *,
    as_json: options.AsJson = False,
    brief: options.Brief = False,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
    window: options.Window = None,
    peak_tflops: options.PeakTflops = None,
    dtype: options.Dtype = None,
    sm_clock_mhz: options.SmClock = None,
    processes: options.Processes = None,
    pipeline_schedule: options.PipelineSchedule = None,
    top: options.Top = None,
    fail_on: options.FailOn = None,
    partial_ok: options.PartialOk = False,
    out: options.Output = None,
    force: options.Force = False,
    color: options.Color = None,
    ascii_only: options.Ascii = False,
    debug: options.Debug = False,
) -> None:
    """Say where the GPU time of saved profiler traces went, and why.

    \b
    Examples:
      gpudiag analyze traces/
      gpudiag analyze a.json.gz b.json.gz
      gpudiag analyze traces/ --json
      gpudiag analyze run/ --fail-on error
      zcat t.json.gz | gpudiag analyze -

    Exit codes: 0 done, 1 --fail-on met, 2 usage or configuration, 3 nothing that can be analysed,
    4 part of the input unreadable, 130 interrupted.
    """  # noqa: D301 - \b tells typer not to re-wrap the examples
    session: Session = ctx.obj
    session.debug = session.debug or debug
    flags = {
        "window": window,
        "peak_tflops": peak_tflops,
        "dtype": dtype,
        "sm_clock_mhz": sm_clock_mhz,
        "processes": processes,
        "pipeline_schedule": pipeline_schedule,
        "top": top,
        "fail_on": tuple(fail_on) if fail_on else None,
        "partial_ok": partial_ok or None,
        "color": color,
        "ascii": ascii_only or None,
    }
    config = load_config(Path.cwd(), os.environ, flags)
    shown = _Shown(as_json=as_json, brief=brief, verbose=verbose, quiet=quiet, out=out, force=force)
    raise typer.Exit(_run(paths, config, shown))


def _run(paths: list[str], config: Config, shown: _Shown) -> int:
    wanted = config.names("fail_on")
    _check_usage(paths, wanted, shown)
    analysis = _analysis(paths, config, quiet=shown.quiet)
    _print(analysis, config, shown)
    lost = losses(analysis)
    for one in [] if shown.quiet else lost:
        output.say(f"gpudiag: {one}")
    if fail_on_met(analysis, wanted):
        return ExitCode.FAIL_ON_MET
    if not config.settings["partial_ok"].value and lost:
        return ExitCode.PARTIAL
    return ExitCode.DONE


def _check_usage(paths: list[str], fail_on: tuple[str, ...], shown: _Shown) -> None:
    """Refuse what can't work before the first byte is read."""
    if shown.as_json and shown.brief:
        raise UsageError("--json and --brief exclude each other", "", "Choose one of them.")
    if _STDIN in paths and output.is_tty(sys.stdin):
        raise UsageError(
            "Nothing is piped into standard input",
            "PATH is -, and standard input is a terminal.",
            "Pipe a trace in: zcat trace.json.gz | gpudiag analyze -",
        )
    if shown.out is not None and shown.out.exists() and not shown.force:
        raise UsageError(f"{shown.out} exists", "", "Choose another file, or add --force.")
    if shown.out is not None and any(_is_same(path, shown.out) for path in paths):
        raise UsageError(
            f"{shown.out} is the trace itself", "-o would overwrite it.", "Choose another file."
        )
    _check_fail_on(fail_on)


def _is_same(path: str, out: Path) -> bool:
    return path != _STDIN and os.path.realpath(path) == os.path.realpath(out)


def _check_fail_on(names: tuple[str, ...]) -> None:
    if not names:
        return
    from gpudiag.model.catalogue import CATALOGUE  # noqa: PLC0415 - only where it's needed

    known = [entry.id for entry in CATALOGUE.values() if entry.kind == "finding"]
    for name in names:
        if name not in SEVERITIES and name not in known:
            raise UsageError(
                f"--fail-on: there is no finding or severity {name!r}",
                f"Severities are {', '.join(SEVERITIES)}; findings: gpudiag explain",
                "Correct the name" + (suggestion(name, (*known, *SEVERITIES)) or "."),
            )


def _analysis(paths: list[str], config: Config, *, quiet: bool) -> Analysis:
    from gpudiag.analyze.rank import Options  # noqa: PLC0415 - numpy is slow to import
    from gpudiag.cli.progress import reading_progress  # noqa: PLC0415 - the same
    from gpudiag.engine.job import analyze_paths  # noqa: PLC0415 - the same

    chosen = Options(
        window=config.text("window"),
        extra_spans=config.extra_spans(),
        peak_tflops=config.decimal("peak_tflops"),
        dtype=config.text("dtype"),
        sm_clock_mhz=config.decimal("sm_clock_mhz"),
        pipeline_schedule=config.pipeline_schedule(),
    )
    with reading_progress(shown=output.is_tty(sys.stderr) and not quiet) as progress:
        analysis = analyze_paths(
            paths, chosen, processes=config.optional_number("processes"), progress=progress
        )
    _refuse_empty(analysis)
    return analysis


def _refuse_empty(analysis: Analysis) -> None:
    """Refuse an analysis without any window: there is nothing to say of it."""
    if any(rank.window_ns or rank.host_window_ns for rank in analysis.ranks):
        return
    why = "\n".join(entry.message for entry in analysis.quality if entry.severity != "info")
    fix = "Record a few whole steps with torch.profiler, or try another --window."
    raise InputError("The traces hold nothing that can be analysed", why, fix)


def _print(analysis: Analysis, config: Config, shown: _Shown) -> None:
    if shown.as_json or shown.out is not None:
        from gpudiag.report.json import to_json  # noqa: PLC0415 - only where it's needed

        data = to_json(analysis)
        if shown.out is not None:
            _write_file(shown.out, data)
        if shown.as_json:
            output.write_stdout(data)
            return
    output.write_stdout(_rendered(analysis, config, shown))


def _rendered(analysis: Analysis, config: Config, shown: _Shown) -> str:
    from gpudiag.report.describe import describe, describe_brief  # noqa: PLC0415 - rich is slow
    from gpudiag.report.terminal import render  # noqa: PLC0415 - the same

    style = output.style_of(config)
    if shown.brief:
        return render(describe_brief(analysis), style)
    return render(describe(analysis, top=config.number("top"), verbose=shown.verbose), style)


def _write_file(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise GpudiagError(f"{path} can't be written", f"{error.strerror}.") from error


def fail_on_met(analysis: Analysis, wanted: tuple[str, ...]) -> bool:
    """Return whether a finding was made that the caller wants to fail on."""
    severities = [SEVERITIES.index(name) for name in wanted if name in SEVERITIES]
    least = min(severities, default=len(SEVERITIES))
    return any(
        finding.id in wanted or SEVERITIES.index(finding.severity) >= least
        for finding in analysis.findings
    )


def losses(analysis: Analysis) -> list[str]:
    """Return what of the input could not be read: files that broke off, and unreadable ones.

    Something else that lies in a folder of traces, a README say, is no loss.
    """
    broken = [one for one in analysis.inputs if one.status == "partial"]
    told = {one.message for one in broken}
    unreadable = [
        one for one in analysis.quality if one.id in _UNREADABLE and one.message not in told
    ]
    return [f"{one.path}: partial: {one.message or 'no reason recorded'}" for one in broken] + [
        one.message for one in unreadable
    ]
