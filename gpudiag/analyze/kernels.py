"""Device records of the windows summed by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.grouping import group_by
from gpudiag.analyze.names import DEVICE_BUCKETS, DeviceClass
from gpudiag.model.analysis import KernelRow

if TYPE_CHECKING:
    from gpudiag.analyze.rank import RankAnalysis

TOP_KERNELS = 100


def kernel_table(ranks: list[RankAnalysis]) -> list[KernelRow]:
    """Sum count, time and bytes of each (name, class) over all ranks, the longest first.

    A record counts in the window that holds its start, with its whole duration.
    """
    totals: dict[tuple[str, int], list[int]] = {}
    for rank in ranks:
        for (code, kind), (count, ns, size) in _sums(rank).items():
            row = totals.setdefault((rank.trace.strings[code], kind), [0, 0, 0])
            row[0] += count
            row[1] += ns
            row[2] += size
    rows = [
        KernelRow(
            name=name,
            category=DEVICE_BUCKETS[DeviceClass(kind)],
            count=count,
            total_ns=ns,
            mean_ns=ns // count,
            bytes=size or None,
            gb_s=size / ns if size and ns else None,
        )
        for (name, kind), (count, ns, size) in totals.items()
    ]
    return sorted(rows, key=lambda row: (-row.total_ns, row.name))[:TOP_KERNELS]


def mean_durations(rank: RankAnalysis) -> dict[str, tuple[int, int]]:
    """Return name -> (count, mean ns) of the compute kernels in a rank's windows."""
    return {
        rank.trace.strings[code]: (count, ns // count)
        for (code, kind), (count, ns, _) in _sums(rank).items()
        if kind <= DeviceClass.OTHER
    }


def _sums(rank: RankAnalysis) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Return (name code, class) -> (count, ns, bytes) of one rank."""
    sums: dict[tuple[int, int], tuple[int, int, int]] = {}
    for analysis in rank.devices:
        device, window = analysis.device, analysis.window
        rows = np.flatnonzero((device.starts >= window.start) & (device.starts < window.end))
        groups = group_by([device.name[rows], device.kind[rows]])
        durations = groups.sums(device.ends[rows] - device.starts[rows])
        sizes = groups.sums(np.maximum(rank.trace.device.bytes[device.row[rows]], 0))
        for (code, kind), *new in zip(groups.keys, groups.count(), durations, sizes, strict=True):
            count, ns, size = sums.get((code, kind), (0, 0, 0))
            sums[code, kind] = (count + new[0], ns + new[1], size + new[2])
    return sums
