"""What ``gpudiag run`` says of a run: once when its traced window closes, again at the end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpudiag.cli import output
from gpudiag.errors import GpudiagError

if TYPE_CHECKING:
    from types import FrameType

    from gpudiag.collect.launch.rundir import RunFolder

# The files of a window are all there when nothing has changed in them for so many looks.
_SETTLED_LOOKS = 3
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Enough(BaseException):
    """A signal came while the verdict was being worked out."""


@dataclass(slots=True)
class Herald:
    """Announces the verdict while the command still runs, from a process beside it."""

    quiet: bool
    _before: frozenset[tuple[str, int]] = frozenset()
    _looks: int = 0
    _process: subprocess.Popen[bytes] | None = None

    def look(self, run: RunFolder) -> None:
        """Start the verdict once, when every rank that trains has left its trace."""
        if self.quiet or self._process is not None:
            return
        folder = run.path / "traces"
        now = frozenset((one.name, one.stat().st_size) for one in folder.iterdir())
        ranks = len(list((run.path / "events").iterdir()))
        whole = [name for name, _ in now if name.endswith(".json")]
        if now != self._before or len(whole) < max(ranks, 1) or len(whole) < len(now):
            self._before, self._looks = now, 0
            return
        self._looks += 1
        if self._looks >= _SETTLED_LOOKS:
            command = [sys.executable, "-m", "gpudiag", "analyze", "--brief", str(run.path)]
            output.say("gpudiag: the traced steps are in; the run goes on")
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
            )

    def dismiss(self) -> None:
        """End what is still being worked out: the last word comes now."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def say_verdict(run: RunFolder, finish: Callable[[], None]) -> None:
    """Say what was seen of a whole run, then ``finish``; a signal ends either at once.

    Whatever goes wrong is said in a line; the command's own end is not changed by it.
    """
    try:
        with _stoppable():
            output.say(f"gpudiag: {_verdict(run.path)}")
            finish()
    except (_Enough, BrokenPipeError):
        pass
    output.say(f"gpudiag: this run is kept in {run.path}: gpudiag analyze {run.path}")


def _verdict(folder: Path) -> str:
    from gpudiag.analyze.rank import Options  # noqa: PLC0415 - numpy is slow to import
    from gpudiag.engine.job import analyze_paths  # noqa: PLC0415 - the same
    from gpudiag.report.describe import describe_brief  # noqa: PLC0415 - the same
    from gpudiag.report.terminal import Style, render  # noqa: PLC0415 - the same

    if not any((folder / "events").iterdir()):
        return (
            "no process of this command trained with torch where gpudiag could see it "
            "(ssh, sudo, docker run and -S hide it)"
        )
    if not any((folder / "traces").iterdir()):
        return "no step was traced: the run was too short, or --no-profile was given"
    try:
        analysis = analyze_paths([str(folder)], Options())
    except GpudiagError as error:
        return f"no verdict: {' '.join(error.lines())}"
    return render(describe_brief(analysis), Style(width=output.stderr_width())).rstrip()


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let signals end what is done here, and nothing else."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _Enough

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        for number, handler in before.items():
            signal.signal(number, handler)
