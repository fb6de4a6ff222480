"""Runs a whole process and says what it cost; used by the benchmarks.

Figures come from wait4, so they cover interpreter start, imports and every child that the process
waited for. A run counts only if it exits 0 and prints its marker: a crash can't look fast.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Cost:
    """What one run of a process took."""

    wall_s: float
    cpu_s: float  # user + system
    rss_mb: float  # peak resident set, 10^6 bytes


def run(command: Sequence[str], marker: str) -> Cost:
    """Run a command to its end; fail unless it exits 0 and its output holds ``marker``."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text = out.read().decode(errors="replace")
        if process.returncode or marker not in text:
            tail = err.read().decode(errors="replace")[-2000:]
            raise SystemExit(
                f"{' '.join(command)[:300]}\nexit {process.returncode}, "
                f"marker {marker!r} {'seen' if marker in text else 'not seen'}\n{tail}"
            )
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure by itself."""
    return Cost(
        statistics.median(c.wall_s for c in costs),
        statistics.median(c.cpu_s for c in costs),
        statistics.median(c.rss_mb for c in costs),
    )
