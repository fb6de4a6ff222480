"""Which rank, process and time a trace belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpudiag.model.tables import INVALID_TIME, without_rows

if TYPE_CHECKING:
    from gpudiag.model.tables import Trace

_RANK_IN_NAME = (
    re.compile(r"rank[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"worker[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE),
)
# tensorboard_trace_handler: <host>_<pid>.<time>.pt.trace.json
_WORKER_NAME = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json(\.gz)?$")


@dataclass(frozen=True, slots=True)
class Member:
    """One trace, and what tells it from the others."""

    path: str
    trace: Trace
    rank: int | None
    rank_source: str
    host: str | None
    pid: str | None
    start_ns: int
    end_ns: int
    tokens: tuple[int, ...] = ()  # of each step, from the event log of the same process
    samples: tuple[int, ...] = ()  # the same, in sequences

    def without_rows(self) -> Member:
        """Return the same with a trace that has kept only what it says of itself."""
        return replace(self, trace=without_rows(self.trace))


def identify(path: str, trace: Trace) -> Member:
    """Tell a trace's rank and process, from its content first, then from its name."""
    worker = _WORKER_NAME.match(Path(path).name)
    rank, source = trace.info.rank, "distributedInfo"
    if rank is None:
        rank, source = rank_in_name(path), "file name"
    start, end = recorded_span(trace)
    return Member(
        path=path,
        trace=trace,
        rank=rank,
        rank_source=source,
        host=trace.info.host or (worker["host"] if worker else None),
        pid=trace.info.pid,
        start_ns=start,
        end_ns=end,
    )


def rank_in_name(path: str) -> int | None:
    """Return the rank that the file's name, else its folder's, gives: ``rank-0``, ``rank_0``."""
    parts = Path(path).parts
    for name in reversed(parts[-2:]):
        for pattern in _RANK_IN_NAME:
            matches = pattern.findall(name)
            if matches:
                return int(matches[-1])
    return None


def recorded_span(trace: Trace) -> tuple[int, int]:
    """Return first start and last start of the rows; (0, 0) where there are none."""
    first, last = [], []
    for times in (trace.host.ts_ns, trace.device.ts_ns):
        valid = times[times != INVALID_TIME]
        # 0/0 records of the device stand at the trace's zero; they say nothing of its time
        valid = valid[valid != trace.info.base_time_ns]
        if len(valid):
            first.append(int(np.min(valid)))
            last.append(int(np.max(valid)))
    return (min(first), max(last)) if first else (0, 0)
