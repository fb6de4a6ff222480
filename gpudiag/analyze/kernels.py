"""Device records of the windows summed by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpudiag.analyze.grouping import group_by
from gpudiag.analyze.names import DEVICE_BUCKETS, DeviceClass
from gpudiag.model.analysis import KernelRow

if TYPE_CHECKING:
    from gpudiag.analyze.device import Device
    from gpudiag.analyze.rank import RankAnalysis
    from gpudiag.analyze.window import Window
    from gpudiag.model.tables import Trace

TOP_KERNELS = 100

# (name, DeviceClass) -> (count, ns, bytes)
KernelSums: TypeAlias = dict[tuple[str, int], tuple[int, int, int]]


def kernel_table(ranks: list[RankAnalysis]) -> list[KernelRow]:
    """Sum count, time and bytes of each (name, class) over all ranks, the longest first.

    A record counts in the window that holds its start, with its whole duration.
    """
    totals: dict[tuple[str, int], list[int]] = {}
    for rank in ranks:
        for what, (count, ns, size) in _sums(rank).items():
            row = totals.setdefault(what, [0, 0, 0])
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
        name: (count, ns // count)
        for (name, kind), (count, ns, _) in _sums(rank).items()
        if kind <= DeviceClass.OTHER
    }


def _sums(rank: RankAnalysis) -> KernelSums:
    """Return the sums of one rank's devices together."""
    sums: KernelSums = {}
    for analysis in rank.devices:
        for what, new in analysis.kernels.items():
            old = sums.get(what, (0, 0, 0))
            sums[what] = (old[0] + new[0], old[1] + new[1], old[2] + new[2])
    return sums


def kernel_sums(trace: Trace, device: Device, window: Window) -> KernelSums:
    """Return (name, class) -> (count, ns, bytes) of the records that start in a window."""
    rows = np.flatnonzero((device.starts >= window.start) & (device.starts < window.end))
    groups = group_by([device.name[rows], device.kind[rows]])
    durations = groups.sums(device.ends[rows] - device.starts[rows])
    sizes = groups.sums(np.maximum(trace.device.bytes[device.row[rows]], 0))
    return {
        (trace.strings[code], kind): (count, ns, size)
        for (code, kind), count, ns, size in zip(
            groups.keys, groups.count(), durations, sizes, strict=True
        )
    }
