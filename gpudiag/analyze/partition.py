"""Level 1 and the leaves of compute, comm and copy: each instant to exactly one.

Priority at an instant: compute > comm > copy > idle::

    compute   [=====]      [===]
    comm          [=======]            exposed: ....[===]
    copy   [==]         [=======]      exposed: [=]......[==]
    idle                            [..
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudiag.analyze.intervals import Intervals, clip, complement, difference, merge, union
from gpudiag.analyze.names import COPY_BUCKETS, DeviceClass

if TYPE_CHECKING:
    from gpudiag.analyze.device import Device
    from gpudiag.analyze.window import Window
    from gpudiag.model.tables import Mask


UNSPLIT = "comm.unsplit"


@dataclass(frozen=True, slots=True)
class Extent:
    """How long a set is, and of how many pieces, without the pieces."""

    total: int  # ns
    pieces: int

    def __len__(self) -> int:
        return self.pieces


@dataclass(frozen=True, slots=True)
class PartitionSums:
    """A window's partition: how long each set is, and where the device waited or had nothing."""

    tensor: Extent
    other: Extent  # compute without tensor work
    comm: Intervals  # exposed: no compute
    copies: dict[DeviceClass, Extent]  # exposed: no compute, no comm
    idle: Intervals
    busy: Extent  # any device activity

    def level1_ns(self) -> dict[str, int]:
        """Return ns of compute, comm, copy and idle; they sum to the window."""
        return {
            "compute": self.tensor.total + self.other.total,
            "comm": self.comm.total,
            "copy": sum(part.total for part in self.copies.values()),
            "idle": self.idle.total,
        }

    def leaves_ns(self) -> dict[str, int]:
        """Return ns of the leaves of compute, comm and copy, zeros left out."""
        leaves = {
            "compute.tensor": self.tensor.total,
            "compute.other": self.other.total,
            UNSPLIT: self.comm.total,
        }
        leaves |= {COPY_BUCKETS[kind]: part.total for kind, part in self.copies.items()}
        return {name: ns for name, ns in leaves.items() if ns}


@dataclass(frozen=True, slots=True)
class Partition:
    """A device's window cut into disjoint sets; together they are the window."""

    tensor: Intervals
    other: Intervals  # compute without tensor work
    comm: Intervals  # exposed: no compute
    copies: dict[DeviceClass, Intervals]  # exposed: no compute, no comm
    idle: Intervals
    busy: Intervals  # any device activity

    def summed(self) -> PartitionSums:
        """Return how long each set is."""
        return PartitionSums(
            tensor=_extent(self.tensor),
            other=_extent(self.other),
            comm=self.comm,
            copies={kind: _extent(part) for kind, part in self.copies.items()},
            idle=self.idle,
            busy=_extent(self.busy),
        )


def _extent(part: Intervals) -> Extent:
    return Extent(part.total, len(part))


def partition(device: Device, window: Window) -> Partition:
    """Cut the window of a device into disjoint sets by what it ran."""
    busy = _active(device, window, device.kind >= 0)
    tensor = _active(device, window, device.kind == DeviceClass.TENSOR)
    compute = _active(device, window, device.is_compute)
    comm = _active(device, window, device.is_comm)
    return Partition(
        tensor=tensor,
        other=difference(compute, tensor),
        comm=difference(comm, compute),
        copies=_exposed_copies(device, window, merge(compute, comm)),
        idle=complement(busy, window.start, window.end),
        busy=busy,
    )


def _active(device: Device, window: Window, mask: Mask) -> Intervals:
    """Return when any of some records ran, within the window."""
    return clip(union(device.starts[mask], device.ends[mask]), window.start, window.end)


def _exposed_copies(
    device: Device, window: Window, taken: Intervals
) -> dict[DeviceClass, Intervals]:
    """Return the exposed time of each kind of copy; of several at once the first kind has it."""
    exposed: dict[DeviceClass, Intervals] = {}
    for kind in COPY_BUCKETS:
        part = difference(_active(device, window, device.kind == kind), taken)
        if len(part):
            exposed[kind] = part
            taken = merge(taken, part)
    return exposed
