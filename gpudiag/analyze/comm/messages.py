"""What one rank's communication is compared by: collectives, and what it did beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.analyze.comm.records import Record, device_records, host_records
from gpudiag.analyze.comm.timeline import Timeline, device_timeline, host_timeline
from gpudiag.analyze.device import Device
from gpudiag.analyze.host import Host
from gpudiag.analyze.hostview import host_layers
from gpudiag.analyze.intervals import EMPTY, Intervals
from gpudiag.analyze.partition import partition
from gpudiag.analyze.pipeline.chunks import RankChunks, operators, rank_chunks
from gpudiag.analyze.window import Window
from gpudiag.model.tables import Trace


@dataclass(frozen=True, slots=True)
class RankMessages:
    """A rank's collectives and messages, on its own clock.

    Empty for a rank with several devices: its file doesn't tell which of them a collective of the
    others meets, and its communication stays unsplit.
    """

    records: tuple[Record, ...] = ()
    exposed: Intervals = EMPTY  # time to split: exposed comm, or the thread's in collectives
    timeline: Timeline | None = None
    chunks: RankChunks | None = None  # of a stage of a pipeline
    operators: Intervals = EMPTY  # of a stage without a device: when its thread ran operators


def rank_messages(
    trace: Trace,
    host: Host,
    devices: Sequence[Device],
    windows: Sequence[tuple[Device, Window]],
    view: Window | None,
) -> RankMessages:
    """Return what is to be compared with the other ranks."""
    if devices:
        return _of_device(trace, host, *windows[0]) if len(windows) == 1 else RankMessages()
    records = host_records(trace, host)
    if not records:
        return RankMessages()
    chunks = rank_chunks(host, None, records)
    return RankMessages(
        records=tuple(records),
        exposed=host_layers(host, view)["host.collective"] if view else EMPTY,
        timeline=host_timeline(host),
        chunks=chunks,
        operators=operators(host) if chunks else EMPTY,
    )


def _of_device(trace: Trace, host: Host, device: Device, window: Window) -> RankMessages:
    records = device_records(trace, host, device)
    if not records:
        return RankMessages()
    return RankMessages(
        records=tuple(records),
        exposed=partition(device, window).comm,
        timeline=device_timeline(device, host, trace.strings, window),
        chunks=rank_chunks(host, device, records),
    )
