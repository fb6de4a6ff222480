"""How much of each leaf a rank has spent up to any time: piecewise linear, one curve per leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.device import Device
from gpudiag.analyze.host import Host
from gpudiag.analyze.hostview import host_layers
from gpudiag.analyze.idle import CAUSE_BUCKETS, IdleSplit, split_idle
from gpudiag.analyze.intervals import Intervals
from gpudiag.analyze.names import COPY_BUCKETS
from gpudiag.analyze.partition import partition
from gpudiag.analyze.window import ALL, Window
from gpudiag.model.tables import I64


@dataclass(frozen=True, slots=True)
class Curve:
    """Corners (time since the origin, ns spent so far) of one leaf.

    ``spent`` is None where all of the time from each even corner to the next odd one is the leaf's.
    """

    at: I64
    spent: I64 | None = None

    def between(self, starts: I64, ends: I64) -> I64:
        """Return what was spent in each [start, end); exact at corners, linear between them."""
        grown = self._grown()
        spent = np.interp(ends, self.at, grown) - np.interp(starts, self.at, grown)
        return np.maximum(np.rint(spent).astype(np.int64), 0)

    def _grown(self) -> I64:
        if self.spent is not None:
            return self.spent
        grown = np.cumsum(self.at[1::2] - self.at[::2])
        return _corners(np.append([0], grown[:-1]), grown)


@dataclass(frozen=True, slots=True)
class Kernels:
    """All calls of one compute kernel."""

    starts: I64
    in_window: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All leaves of a rank but communication, over its whole recording."""

    origin: int
    leaves: Mapping[str, Curve]
    kernels: Mapping[str, Kernels]  # compute kernels by name; none where no device was recorded

    def between(self, starts: I64, ends: I64) -> dict[str, I64]:
        """Return what each leaf took in each [start, end), ns; shape (len(starts),) a leaf."""
        return {
            leaf: curve.between(starts - self.origin, ends - self.origin)
            for leaf, curve in self.leaves.items()
        }


def device_timeline(device: Device, host: Host, strings: Sequence[str], window: Window) -> Timeline:
    """Return what a device spent its whole recording on, communication aside."""
    whole = Window(int(device.starts.min()), int(device.ends.max()), ALL)
    parts = partition(device, whole)
    leaves = {"compute.tensor": parts.tensor, "compute.other": parts.other}
    leaves |= {COPY_BUCKETS[kind]: part for kind, part in parts.copies.items()}
    curves = {leaf: _of_intervals(part, whole.start) for leaf, part in leaves.items() if len(part)}
    idle = split_idle(device, host, parts.idle, whole)
    kernels = _kernels(device, strings, window)
    return Timeline(whole.start, curves | _of_gaps(idle, whole.start), kernels)


def _kernels(device: Device, strings: Sequence[str], window: Window) -> dict[str, Kernels]:
    names, starts = device.name[device.is_compute], device.starts[device.is_compute]
    order = np.argsort(names, kind="stable")
    codes, first = np.unique(names[order], return_index=True)
    found = {}
    for code, mine in zip(codes.tolist(), np.split(starts[order], first)[1:], strict=True):
        inside = int(((mine >= window.start) & (mine < window.end)).sum())
        found[strings[code]] = Kernels(mine, inside)
    return found


def host_timeline(host: Host) -> Timeline:
    """Return what the training thread spent its whole recording on, collectives aside."""
    whole = Window(int(host.starts.min()), int(host.ends.max()), ALL)
    layers = host_layers(host, whole)
    return Timeline(
        whole.start,
        {
            leaf: _of_intervals(part, whole.start)
            for leaf, part in layers.items()
            if len(part) and leaf != "host.collective"
        },
        {},
    )


def _of_intervals(part: Intervals, origin: int) -> Curve:
    return Curve(_corners(part.starts, part.ends) - origin)


def _corners(starts: I64, ends: I64) -> I64:
    """Return starts and ends in turn."""
    corners: I64 = np.stack((starts, ends), axis=1).reshape(-1)
    return corners


def _of_gaps(idle: IdleSplit, origin: int) -> dict[str, Curve]:
    """Return a curve per idle bucket: a gap that is cut counts in proportion."""
    curves = {}
    for cause, bucket in enumerate(CAUSE_BUCKETS):
        rows = np.flatnonzero(idle.charged[:, cause])
        if not len(rows):
            continue
        grown = np.cumsum(idle.charged[rows, cause])
        curves[bucket] = Curve(
            _corners(idle.starts[rows], idle.ends[rows]) - origin,
            _corners(np.append([0], grown[:-1]), grown),
        )
    return curves
