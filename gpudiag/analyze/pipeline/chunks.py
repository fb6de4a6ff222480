"""What a stage's forward and backward of one micro-batch take: medians of its chunks.

A chunk is the work between consecutive messages of a rank, cut in launch order. What it is, the
messages around it tell; a last stage has nothing between a forward and its backward, and a first
stage nothing between a backward and the next forward::

    middle stage   recv [F] send, recv [B] send, recv [F] ...
    last stage     recv [F B] send, recv [F B] send
    first stage    [F] send [F] send, recv [B F] send, recv [B] recv [B]
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from gpudiag.analyze.comm.records import Record
from gpudiag.analyze.device import Device
from gpudiag.analyze.host import Host
from gpudiag.analyze.hostview import host_layers
from gpudiag.analyze.intervals import Intervals, clip, difference, union, union_all
from gpudiag.analyze.names import HostClass, is_collective_span
from gpudiag.analyze.pipeline.chain import Chain, Messages, grouped, is_message, of_stages
from gpudiag.analyze.pipeline.schedules import StageTimes
from gpudiag.analyze.window import ALL, Window, step_of
from gpudiag.model import thresholds
from gpudiag.model.tables import I64

_ERROR_OF_MEDIAN = 1.2533 * 1.4826  # of normal samples, from their median absolute deviation
# (forwards, backwards) in a chunk
_FORWARD, _BACKWARD, _BOTH = (1, 0), (0, 1), (1, 1)


@dataclass(frozen=True, slots=True)
class RankChunks:
    """A rank's messages by step, and the work between them, ns."""

    messages: Mapping[int, list[Messages]]
    work: Mapping[int, list[int]]  # before each of the step's messages, and after the last


@dataclass(frozen=True, slots=True)
class StageChunks:
    """The median times of a stage, and how many chunks they are of."""

    times: StageTimes
    samples: int
    uncertainty_ns: int  # standard error of their sum


def rank_chunks(host: Host, device: Device | None, records: Sequence[Record]) -> RankChunks | None:
    """Cut a rank's work at its messages, step by step; None where it has none of stages."""
    records = of_stages(records)
    if not records:
        return None
    by_step: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if is_message(record) and record.step is not None:
            by_step[record.step].append(record)
    work_between = _DeviceWork(host, device, records) if device else _HostWork(host)
    messages, work = {}, {}
    for step, mine in by_step.items():
        cuts = np.array([record.launched for record in mine], dtype=np.int64)
        found = work_between.of_step(step, cuts)
        least = round(thresholds.NO_WORK_FRAC * max(found, default=0))
        messages[step], work[step] = grouped(mine, found, least)
    return RankChunks(messages, work)


class _DeviceWork:
    """A device's compute between launches: first start to last end, less waits for messages."""

    def __init__(self, host: Host, device: Device, records: Sequence[Record]) -> None:
        rows = np.flatnonzero(device.is_compute & (device.launch >= 0))
        launched = host.starts[device.launch[rows]]
        order = np.argsort(launched, kind="stable")
        self._rows, self._launched = rows[order], launched[order]
        self._step = step_of(host.steps, self._launched) if host.steps else np.full(len(rows), -1)
        self._number = {step.number: index for index, step in enumerate(host.steps)}
        self._device = device
        starts = np.array([r.start for r in records if is_message(r)], dtype=np.int64)
        ends = np.array([r.end for r in records if is_message(r)], dtype=np.int64)
        compute = union(device.starts[device.is_compute], device.ends[device.is_compute])
        waiting = difference(union(starts, ends), compute)
        # In shorter gaps the next kernel is being launched, and a message runs beside.
        long = waiting.ends - waiting.starts > thresholds.LAUNCH_LATENCY_NS
        self._waiting = Intervals(waiting.starts[long], waiting.ends[long])

    def of_step(self, step: int, cuts: I64) -> list[int]:
        """Return the work before each cut and after the last, ns."""
        mine = self._step == self._number.get(step, -2)
        rows, segment = self._rows[mine], np.searchsorted(cuts, self._launched[mine])
        return [self._span(rows[segment == k]) for k in range(len(cuts) + 1)]

    def _span(self, rows: I64) -> int:
        if not len(rows):
            return 0
        first, last = int(self._device.starts[rows].min()), int(self._device.ends[rows].max())
        waiting: int = clip(self._waiting, first, last).total
        return last - first - waiting


def operators(host: Host) -> Intervals:
    """Return when the training thread ran operators, those of collectives aside.

    A message that is sent asynchronously has its span on the thread that goes on computing.
    """
    rows = host.rows_of(host.step_thread)
    rows = rows[(host.kind[rows] == HostClass.LAUNCH) & ~host.named(is_collective_span)[rows]]
    return union(host.starts[rows], host.ends[rows])


class _HostWork:
    """The training thread's time outside collectives, and in operators beside them."""

    def __init__(self, host: Host) -> None:
        whole = Window(int(host.starts.min()), int(host.ends.max()), ALL)
        layers = host_layers(host, whole)
        parts = [part for name, part in layers.items() if name != "host.collective"]
        self._work = union_all([*parts, operators(host)])
        self._steps = {step.number: step for step in host.steps}

    def of_step(self, step: int, cuts: I64) -> list[int]:
        """Return the work before each cut and after the last, ns."""
        span = self._steps[step]
        edges = [span.start, *np.clip(cuts, span.start, span.end).tolist(), span.end]
        return [clip(self._work, a, b).total for a, b in pairwise(edges)]


def stage_chunks(chain: Chain, stage: int, chunks: RankChunks) -> StageChunks | None:
    """Return a stage's median forward and backward; None where it has no chunk to be told."""
    if chain.chunks > 1 and len(chain.ranks) == 2:  # noqa: PLR2004 - forward and backward look alike
        return _of_whole_steps(chain, chunks)
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for step, messages in chunks.messages.items():
        work = chunks.work[step]
        before: Messages | None = None
        # What follows the last message is the optimizer too, and left out.
        for ns, after in zip(work, messages, strict=False):
            found[_kinds(chain, stage, before, after)].append(ns)
            before = after
    times = _told(*(found[kind] for kind in (_FORWARD, _BACKWARD, _BOTH)))
    if times is None:
        return None
    samples = [found[kind] for kind in (_FORWARD, _BACKWARD, _BOTH) if found[kind]]
    return StageChunks(times, sum(map(len, samples)), sum(map(_uncertainty, samples)))


def _uncertainty(samples: Sequence[int]) -> int:
    """Return the standard error of a median, by the median absolute deviation, ns."""
    centre = median(samples)
    spread = median(abs(one - centre) for one in samples)
    return round(_ERROR_OF_MEDIAN * spread / math.sqrt(len(samples)))


def _of_whole_steps(chain: Chain, chunks: RankChunks) -> StageChunks:
    units = chain.microbatches * chain.chunks
    each = [sum(work[:-1]) // units for work in chunks.work.values()]
    times = _told([], [], each)
    assert times is not None  # noqa: S101 - both together were given
    return StageChunks(times, len(each), _uncertainty(each))


def _kinds(chain: Chain, stage: int, before: Messages | None, after: Messages) -> tuple[int, int]:
    """Return how many forwards and backwards lie between two messages of a stage."""
    onward, back = chain.next_of(stage), chain.previous_of(stage)
    received = before.receives if before else frozenset()
    first, last = stage == 0, stage + 1 == len(chain.ranks)
    forward = onward in after.sends
    backward = back in after.sends
    if last and back in received and not forward:
        forward = True  # its forward is sent to nobody
    if first and chain.ranks[1] in received and not backward:
        backward = True  # nor is the first stage's backward
    return int(forward), int(backward)


def _told(
    forwards: Sequence[int], backwards: Sequence[int], both: Sequence[int]
) -> StageTimes | None:
    """Return the median forward and backward from chunks of one of them, or both together.

    Where there are more chunks of both than of the backward, these tell it. Where there are only
    such chunks, a third is taken as the forward: 1F1B's idle time depends on their sum alone.
    """
    forward = median(forwards) if forwards else None
    backward = median(backwards) if backwards else None
    if both and len(both) > len(backwards):
        if forward is None:
            forward = median(both) - backward if backward is not None else median(both) / 3
        backward = median(both) - forward
    elif both and forward is None and backward is not None:
        forward = median(both) - backward
    if forward is None or backward is None:
        return None
    return StageTimes(max(round(forward), 0), max(round(backward), 0))
