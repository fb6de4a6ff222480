"""Traces as pandas tables, for notebooks: ``gpudiag.load("traces/").kernels()``.

Built on demand from the columns; docs/how-to/notebook.md lists every column. Times are integer
nanoseconds (dtype ``Int64``: ``<NA>`` is "not recorded"); names are categoricals.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from gpudiag.analyze.job import analyze_job, common_steps
from gpudiag.analyze.names import step_number
from gpudiag.analyze.rank import Options, prepare, step_numbers
from gpudiag.analyze.window import device_window, host_window
from gpudiag.config import WINDOWS, suggestion
from gpudiag.errors import UsageError
from gpudiag.model.tables import INVALID_TIME, NOT_RECORDED, DeviceKind, HostCategory
from gpudiag.trace.job import read_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from gpudiag.analyze.rank import PreparedRank
    from gpudiag.analyze.window import Window
    from gpudiag.model.analysis import Analysis
    from gpudiag.model.job import JobTraces, RankTrace
    from gpudiag.model.tables import Trace

    Mask: TypeAlias = npt.NDArray[np.bool_]
    Rows: TypeAlias = npt.NDArray[np.intp]
    Ints: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.int32]

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


def load(paths: Paths, *, window: str | None = None) -> Traces:
    """Return the traces in files, folders or globs, all ranks together, as tables.

    Args:
        paths: one path or several, as ``gpudiag analyze`` takes them.
        window: ``steps``, ``device_span`` or ``all`` forces the window of ``analysis()``,
            ``buckets()`` and of the tables with ``window=True``; by default steps, where there
            are any.

    Raises:
        UsageError: there is no such window.
        InputError: a path can't be read, or holds no trace.
    """
    if window is not None and window not in WINDOWS:
        raise UsageError(
            f"window: there is no window {window!r}",
            f"Windows are {', '.join(WINDOWS)}.",
            "Correct the name" + (suggestion(window, WINDOWS) or "."),
        )
    one = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return Traces(read_job([os.fspath(path) for path in one]), Options(window=window))


@dataclass(frozen=True, slots=True)
class _Rank:
    """One rank, and which rows of its tables are wanted."""

    source: RankTrace
    device: Mask
    host: Mask


class Traces:
    """The traces of one job: a table per kind of record, and the analysis.

    A table holds all that is recorded; with ``window=True``, what starts inside the window that
    the analysis accounts for: the device's own for kernels and copies, the training thread's for
    what is recorded on the host. Nothing is left where there is no such window.
    """

    def __init__(self, job: JobTraces, options: Options) -> None:
        self.job = job
        self._options = options

    def __repr__(self) -> str:
        ranks = ", ".join(str(one.rank) for one in self.job.ranks)
        return f"<gpudiag.Traces of ranks {ranks}>"

    def kernels(self, *, window: bool = False) -> pd.DataFrame:
        """Return one row per kernel that ran on a device."""
        return self._concat(_kernels, window=window)

    def copies(self, *, window: bool = False) -> pd.DataFrame:
        """Return one row per memcpy and memset."""
        return self._concat(_copies, window=window)

    def operators(self, *, window: bool = False) -> pd.DataFrame:
        """Return one row per framework operator."""
        return self._concat(lambda rank: _host(rank, HostCategory.OPERATOR), window=window)

    def annotations(self, *, window: bool = False) -> pd.DataFrame:
        """Return one row per annotation: record_function spans, profiler steps, loader calls."""
        return self._concat(lambda rank: _host(rank, HostCategory.ANNOTATION), window=window)

    def runtime_calls(self, *, window: bool = False) -> pd.DataFrame:
        """Return one row per call of the CUDA, HIP or XPU runtime and driver."""
        wanted = (HostCategory.RUNTIME, HostCategory.DRIVER)
        return self._concat(lambda rank: _host(rank, *wanted), window=window)

    def collectives(self, *, window: bool = False) -> pd.DataFrame:
        """Return one row per record that carries a collective's metadata."""
        return self._concat(_collectives, window=window)

    def steps(self, *, window: bool = False) -> pd.DataFrame:
        """Return one row per profiler step on the host."""
        return self._concat(_steps, window=window)

    def analysis(self) -> Analysis:
        """Return the analysis that ``gpudiag analyze`` prints."""
        return self._analysis

    def buckets(self) -> pd.DataFrame:
        """Return where each device's and each training thread's time went."""
        return _buckets(self._analysis)

    @cached_property
    def _analysis(self) -> Analysis:
        return analyze_job(self.job, self._options)

    @cached_property
    def _inside(self) -> list[_Rank]:
        """Return each rank with the rows that start inside its windows."""
        prepared = [prepare(rank, self._options) for rank in self.job.ranks]
        numbers, _ = common_steps([step_numbers(one) for one in prepared])
        return [_within(one, numbers, self._options.window) for one in prepared]

    def _concat(self, table: Callable[[_Rank], pd.DataFrame], *, window: bool) -> pd.DataFrame:
        """Return the table of every rank under one another, with one set of categories."""
        ranks = self._inside if window else [_whole(rank) for rank in self.job.ranks]
        frames = [table(rank) for rank in ranks]
        for column in frames[0].columns[frames[0].dtypes == "category"]:
            union = pd.api.types.union_categoricals([f[column] for f in frames]).categories
            for frame in frames:
                frame[column] = frame[column].cat.set_categories(union)
        return pd.concat(frames, ignore_index=True)


def _whole(rank: RankTrace) -> _Rank:
    trace = rank.trace
    return _Rank(rank, np.ones(len(trace.device), dtype=bool), np.ones(len(trace.host), dtype=bool))


def _within(prepared: PreparedRank, numbers: set[int] | None, forced: str | None) -> _Rank:
    """Mask the rows that start inside the windows that the analysis accounts for."""
    source, host = prepared.source, prepared.host
    table = source.trace.device
    device = np.zeros(len(table), dtype=bool)
    for one in prepared.devices:
        window = device_window(one, host, numbers, forced)
        device |= (table.device == one.index) & _starts(table.ts_ns, window)
    view = host_window(host, numbers, forced) if len(host) else None
    return _Rank(source, device, _starts(source.trace.host.ts_ns, view))


def _starts(times: Ints, window: Window | None) -> Mask:
    if window is None:
        return np.zeros(len(times), dtype=bool)
    inside: Mask = (times >= window.start) & (times < window.end)
    return inside


def _kernels(rank: _Rank) -> pd.DataFrame:
    return _device(rank, rank.source.trace.device.kind == DeviceKind.KERNEL).drop(columns="bytes")


def _copies(rank: _Rank) -> pd.DataFrame:
    return _device(rank, rank.source.trace.device.kind != DeviceKind.KERNEL).drop(
        columns="graph_id"
    )


def _device(rank: _Rank, mask: Mask) -> pd.DataFrame:
    trace = rank.source.trace
    table, rows = trace.device, np.flatnonzero(mask & rank.device)
    return pd.DataFrame(
        {
            "rank": _same(rank.source.rank, rows),
            "name": _names(trace, table.name[rows]),
            "start_ns": _ints(table.ts_ns[rows], INVALID_TIME),
            "dur_ns": _ints(table.dur_ns[rows], INVALID_TIME),
            "device": _ints(table.device[rows]),
            "stream": _names(trace, table.stream[rows]),
            "bytes": _ints(table.bytes[rows]),
            "correlation": _ints(table.correlation[rows]),
            "external_id": _ints(table.external_id[rows]),
            "graph_id": _ints(table.graph_id[rows]),
        }
    )


def _host(rank: _Rank, *categories: HostCategory) -> pd.DataFrame:
    trace, table = rank.source.trace, rank.source.trace.host
    mask = np.isin(table.category, [int(one) for one in categories])
    rows = np.flatnonzero(mask & rank.host)
    return pd.DataFrame(
        {
            "rank": _same(rank.source.rank, rows),
            "name": _names(trace, table.name[rows]),
            "start_ns": _ints(table.ts_ns[rows], INVALID_TIME),
            "dur_ns": _ints(table.dur_ns[rows], INVALID_TIME),
            "pid": _coded(table.thread[rows], [thread.pid for thread in trace.threads]),
            "tid": _coded(table.thread[rows], [thread.tid for thread in trace.threads]),
            "correlation": _ints(table.correlation[rows]),
            "external_id": _ints(table.external_id[rows]),
        }
    )


def _collectives(rank: _Rank) -> pd.DataFrame:
    trace, table = rank.source.trace, rank.source.trace.collectives
    # A row of the device table for kernels, else of the host table.
    on_device = table.on_device
    start_ns, dur_ns, wanted = (
        np.where(on_device, _at(device, table.row, on_device), _at(host, table.row, ~on_device))
        for device, host in (
            (trace.device.ts_ns, trace.host.ts_ns),
            (trace.device.dur_ns, trace.host.dur_ns),
            (rank.device, rank.host),
        )
    )
    rows = np.flatnonzero(wanted)
    return pd.DataFrame(
        {
            "rank": _same(rank.source.rank, rows),
            "op": _names(trace, table.op[rows]),
            "on_device": on_device[rows],
            "start_ns": _ints(start_ns[rows], INVALID_TIME),
            "dur_ns": _ints(dur_ns[rows], INVALID_TIME),
            "group": _names(trace, table.group[rows]),
            "group_description": _names(trace, table.group_description[rows]),
            "group_ranks": _names(trace, table.group_ranks[rows]),
            "group_size": _ints(table.group_size[rows]),
            "seq": _ints(table.seq[rows]),
            "dtype": _names(trace, table.dtype[rows]),
            "in_elements": _ints(table.in_elements[rows]),
            "out_elements": _ints(table.out_elements[rows]),
            "src_rank": _ints(table.src_rank[rows]),
            "dst_rank": _ints(table.dst_rank[rows]),
        }
    )


def _at(column: Ints | Mask, rows: Ints, valid: Mask) -> Ints:
    """Return a column's values at rows, 0 where a row belongs to the other table."""
    values = np.zeros(len(rows), dtype=np.int64)
    values[valid] = column[rows[valid]]
    return values


def _steps(rank: _Rank) -> pd.DataFrame:
    trace, table = rank.source.trace, rank.source.trace.host
    numbers = {
        index: number
        for index, text in enumerate(trace.strings)
        if (number := step_number(text)) is not None
    }
    mask = np.isin(table.name, list(numbers)) & (table.category == HostCategory.ANNOTATION)
    rows = np.flatnonzero(mask & rank.host)
    frame = pd.DataFrame(
        {
            "rank": _same(rank.source.rank, rows),
            "step": pd.array([numbers[int(name)] for name in table.name[rows]], dtype="Int64"),
            "start_ns": _ints(table.ts_ns[rows], INVALID_TIME),
            "dur_ns": _ints(table.dur_ns[rows], INVALID_TIME),
        }
    )
    return frame.sort_values("start_ns", ignore_index=True)


def _buckets(analysis: Analysis) -> pd.DataFrame:
    rows = [
        (result.rank, result.device, view, bucket, ns, ns / window)
        for result in analysis.ranks
        for view, buckets, window in (
            ("device", result.buckets_ns, result.window_ns),
            ("host", result.host_buckets_ns, result.host_window_ns),
        )
        if buckets and window
        for bucket, ns in buckets.items()
        if ns
    ]
    columns = ["rank", "device", "view", "bucket", "ns", "share"]
    frame = pd.DataFrame(rows, columns=columns)
    # The training thread is the rank's, whatever device stands beside it.
    frame.loc[frame["view"] == "host", "device"] = None
    return frame.astype(
        {"rank": "Int64", "device": "Int64", "view": "category", "bucket": "category"}
        | {"ns": "Int64", "share": "float64"}
    )


def _same(rank: int, rows: Rows | Ints) -> pd.api.extensions.ExtensionArray:
    return pd.array(np.full(len(rows), rank), dtype="Int64")


def _ints(values: Ints, missing: int = NOT_RECORDED) -> pd.api.extensions.ExtensionArray:
    """Return a column of integers in which ``missing`` is <NA>."""
    wide = values.astype(np.int64)
    return pd.arrays.IntegerArray(wide, wide == missing)


def _names(trace: Trace, codes: Ints) -> pd.Categorical[str]:
    """Return a column of names from indices into the trace's strings; -1 is "no string"."""
    used = np.unique(codes[codes >= 0])
    local = np.where(codes >= 0, np.searchsorted(used, codes), -1)
    return _merged([trace.strings[int(code)] for code in used], local)


def _coded(codes: Ints, labels: list[str]) -> pd.Categorical[str]:
    return _merged(labels, codes)


def _merged(labels: list[str], codes: Ints | Rows) -> pd.Categorical[str]:
    """Return a categorical whose categories are distinct, as pandas asks."""
    categories = sorted(set(labels))
    position = {label: index for index, label in enumerate(categories)}
    lookup = np.array([*(position[label] for label in labels), NOT_RECORDED], dtype=np.int64)
    return pd.Categorical.from_codes(
        lookup[np.maximum(codes, -1)], categories=pd.Index(categories, dtype="str")
    )
