"""Device records of the windows summed by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
        key = device.name[rows].astype(np.int64) * len(DeviceClass) + device.kind[rows]
        keys, inverse = np.unique(key, return_inverse=True)
        count = np.bincount(inverse, minlength=len(keys))
        ns = _sum_int(inverse, device.ends[rows] - device.starts[rows], len(keys))
        size = _sum_int(
            inverse, np.maximum(rank.trace.device.bytes[device.row[rows]], 0), len(keys)
        )
        for index, one in enumerate(keys.tolist()):
            pair = divmod(one, len(DeviceClass))
            old = sums.get(pair, (0, 0, 0))
            new = (int(count[index]), int(ns[index]), int(size[index]))
            sums[pair] = (old[0] + new[0], old[1] + new[1], old[2] + new[2])
    return sums


def _sum_int(group: np.ndarray, values: np.ndarray, groups: int) -> np.ndarray:
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, group, values)
    return total
