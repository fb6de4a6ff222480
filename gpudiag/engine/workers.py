"""Processes that read and sum up one rank each; they end with us, however we end."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from gpudiag.engine.pack import unpack
from gpudiag.engine.summary import summarise
from gpudiag.errors import GpudiagError

_PR_SET_PDEATHSIG = 1


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it does, even by SIGKILL (Linux)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


class Workers:
    """A pool of processes."""

    def __init__(self, pool: ProcessPoolExecutor, count: int) -> None:
        self._pool, self._count = pool, count

    def summaries(
        self, paths: Sequence[str], *rest: object, done: Callable[[str], None]
    ) -> Iterator[Any]:
        """Yield what each file comes to, in order; ``done`` is told each as it is finished.

        Raises:
            GpudiagError: a process was killed.
        """
        waiting = [self._submitted(path, rest, done) for path in paths]
        try:
            for future in waiting:
                yield unpack(future.result())
        except BrokenProcessPool as error:
            raise GpudiagError(
                "A process that read a trace was killed",
                f"Probably out of memory: {self._count} read at once.",
                "Read fewer at a time: --processes 1.",
            ) from error

    def _submitted(
        self, path: str, rest: Iterable[object], done: Callable[[str], None]
    ) -> Future[bytes]:
        future = self._pool.submit(summarise, path, *rest)  # type: ignore[arg-type]
        future.add_done_callback(lambda _future: done(path))
        return future


@contextmanager
def workers(count: int) -> Iterator[Workers]:
    """Provide processes; what is still running at the end, or on Ctrl-C, is killed."""
    pool = ProcessPoolExecutor(
        count, mp_context=get_context("spawn"), initializer=_start, initargs=(os.getpid(),)
    )
    try:
        yield Workers(pool, count)
    except GpudiagError:  # the job is refused, or the pool has ended by itself
        raise
    except BaseException:
        for process in list((pool._processes or {}).values()):  # noqa: SLF001 - no public way
            process.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
