"""One wrapped run from start to end: folder, environment, child, signals, farewell."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudiag.collect.launch.command import find_program, start
from gpudiag.collect.launch.rundir import RunFolder, open_run
from gpudiag.collect.launch.supervise import BLOCKED, Ended, Supervisor
from gpudiag.collect.launch.witness import call_witness

# Prepares a run's folder; returns what is to change in the command's environment.
Prepare = Callable[[Path, Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """What a user asked to run, and where to keep what is seen of it."""

    argv: tuple[str, ...]
    out: Path | None = None
    run_id: str | None = None
    force: bool = False


def run(
    wrapped: Wrapped,
    prepare: Sequence[Prepare] = (),
    each_second: Callable[[RunFolder], None] = lambda _run: None,
) -> tuple[Ended, RunFolder]:
    """Run a command to its end; return how it ended, and the folder.

    Args:
        wrapped: the command.
        prepare: what is done in the folder before the command starts.
        each_second: called about once a second while the command runs.

    Raises:
        LaunchError: the command could not be started.
        UsageError: the folder is in use.
    """
    environment = dict(os.environ)
    program = find_program(wrapped.argv[0], environment)
    folder = open_run(wrapped.argv, environment, wrapped.out, wrapped.run_id, force=wrapped.force)
    for step in prepare:
        environment.update(step(folder.path, environment))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    child = start(program, wrapped.argv, environment, list(mask))
    witness = call_witness(BLOCKED - {signal.SIGCHLD})
    try:
        folder.started(child)
        ended = Supervisor(child, witness, lambda: each_second(folder)).wait()
    finally:
        witness.dismiss()
    folder.ended(ended)
    return ended, folder
