"""A progress bar per file, on a terminal's stderr, for work that takes over a second."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from gpudiag.model.format import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATIENCE_SECONDS = 1.0


class _Bars:
    """The bars of the files that are being read; nothing is drawn in the first second."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._began = time.monotonic()
        self._started = False

    def update(self, path: str, bytes_done: int) -> None:
        """Record how many of a file's own bytes, compressed or not, have been read."""
        if path not in self._tasks:
            name = clean(Path(path).name or path)
            self._tasks[path] = self._progress.add_task(name, total=_size(path))
        self._progress.update(self._tasks[path], completed=bytes_done)
        if not self._started and time.monotonic() - self._began > _PATIENCE_SECONDS:
            self._progress.start()
            self._started = True


def _size(path: str) -> int | None:
    """Return a file's size; None for stdin and whatever has none."""
    try:
        return Path(path).stat().st_size or None
    except OSError:
        return None


@contextmanager
def reading_progress(*, shown: bool) -> Iterator[Callable[[str, int], None]]:
    """Provide the callback that the reader reports to."""
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not shown,
    )
    try:
        yield _Bars(progress).update
    finally:
        progress.stop()
