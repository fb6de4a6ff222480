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

from gpudiag.report.format import clean

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

    def update(self, path: str, bytes_done: int, bytes_total: int | None) -> None:
        """Record how far the reading of a file is."""
        if path not in self._tasks:
            self._tasks[path] = self._progress.add_task(clean(Path(path).name or path))
        self._progress.update(self._tasks[path], completed=bytes_done, total=bytes_total)
        if not self._started and time.monotonic() - self._began > _PATIENCE_SECONDS:
            self._progress.start()
            self._started = True


@contextmanager
def reading_progress(*, shown: bool) -> Iterator[Callable[[str, int, int | None], None]]:
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
