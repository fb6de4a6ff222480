"""A job: ranks in one simulated world, their clocks, and the files it writes."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator import emit, kernels
from simulator.engine import Engine
from simulator.host import Group, Process
from simulator.truth import DeviceTruth, RankTruth

# 60 days after the base: absolute microseconds that a double can't hold to the nanosecond.
EPOCH_NS = 5_184_000_000_000_000
ANY = "*"  # the scenario is about the partition: what leads is not asserted
LEVEL1 = ("compute", "comm", "copy", "idle")


@dataclass(frozen=True)
class Clock:
    """The clocks of one rank: what they show at a true time."""

    offset_ns: int = 0
    drift_ppb: int = 0
    device_early_ns: int = 0

    def host(self, ns: int) -> int:
        """Host clock at true time `ns`."""
        return EPOCH_NS + ns + self.offset_ns + ns * self.drift_ppb // 1_000_000_000

    def device(self, ns: int) -> int:
        """Device clock at true time `ns`."""
        return self.host(ns) - self.device_early_ns


@dataclass
class Job:
    """A simulated job; `expected` is the finding an analyzer should lead with."""

    name: str
    seed: int
    params: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    gpu: str = "NVIDIA H100 80GB HBM3"
    with_seq: bool = True
    lost_device_pct: int = 0  # device records the tracer loses
    lost_launch_pct: int = 0  # launch records the tracer loses

    def __post_init__(self) -> None:
        self.engine = Engine()
        self.ranks: list[Process] = []
        self.clocks: dict[int, Clock] = {}
        self.groups: list[Group] = []
        self.stages: list[Any] = []  # of a pipeline
        self._ran = False

    def rank(self, devices: Iterable[int] | None = None, clock: Clock | None = None) -> Process:
        """Add a rank."""
        number = len(self.ranks)
        proc = Process(
            self.engine, number, list([number] if devices is None else devices), self.seed
        )
        self.ranks.append(proc)
        self.clocks[number] = clock or Clock()
        return proc

    def group(self, name: str, desc: str, ranks: list[int], **speed: int) -> Group:
        """Add a process group."""
        self.groups.append(Group(name, desc, ranks, with_seq=self.with_seq, **speed))
        return self.groups[-1]

    def run(self) -> Job:
        """Simulate, then turn true times into what each clock showed."""
        if not self._ran:
            self.engine.run()
            for proc in self.ranks:
                _localise(proc, self.clocks[proc.rank])
                self._lose_records(proc)
            self._ran = True
        return self

    def truth(self) -> dict[str, Any]:
        """Return the truth of all ranks."""
        return {
            "scenario": self.name,
            "seed": self.seed,
            "params": self.params,
            "expected": self.expected,
            "ranks": [entry for proc in self.run().ranks for entry in self._rank_truth(proc)],
            "collectives": [entry for group in self.groups for entry in _collectives(group)],
        }

    def write(self, folder: Path | str, truth_name: str = "truth.json") -> Path:
        """Write one trace per rank, and the truth."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for proc in self.run().ranks:
            text = self.trace(proc.rank).encode()
            path = folder / file_name(proc.rank)
            path.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))
        (folder / truth_name).write_text(json.dumps(self.truth(), indent=1) + "\n")
        return folder

    def trace(self, rank: int) -> str:
        """Return the Kineto JSON of one rank."""
        return emit.trace(self.run(), self.ranks[rank])

    def _lose_records(self, proc: Process) -> None:
        for op in (op for device in proc.devices.values() for op in device.log):
            op.recorded = proc.random.randrange(100) >= self.lost_device_pct
            if op.launch and proc.random.randrange(100) < self.lost_launch_pct:
                op.launch.recorded = False

    def _rank_truth(self, proc: Process) -> Iterable[dict[str, Any]]:
        clock = self.clocks[proc.rank]
        rank = RankTruth(proc, clock, len(self.ranks))
        host_window, host_buckets = rank.host()
        for index in sorted(proc.devices):
            device = rank.device(index)
            entry = (
                _device_entry(device)
                | _flops_entry(device)
                | {
                    "host_window_ns": host_window,
                    "host_buckets_ns": _sorted(host_buckets),
                    "clock": vars(clock),
                }
            )
            other = rank.device(index, own_shadow=True).buckets
            if other != device.buckets:
                alternatives = {"shadow_of_launching_thread": _sorted(other)}
                entry["alternatives_ns"] = alternatives
            if clock.device_early_ns:
                physical = rank.device(index, shift=clock.device_early_ns)
                entry["physical_buckets_ns"] = _sorted(physical.buckets)
            yield entry


def file_name(rank: int) -> str:
    """Return the name of a rank's trace."""
    return f"rank{rank}.pt.trace.json.gz"


def _localise(proc: Process, clock: Clock) -> None:
    for span in proc.spans:
        span.start, span.end = clock.host(span.start), clock.host(span.end)
    for device in proc.devices.values():
        assert all(op.end >= op.start >= 0 for op in device.log), "a deadlock: device work undone"
        for op in device.log:
            op.start, op.end = clock.device(op.start), clock.device(op.end)


def _device_entry(device: DeviceTruth) -> dict[str, Any]:
    level1 = dict.fromkeys(LEVEL1, 0)
    for leaf, ns in device.buckets.items():
        level1[leaf.partition(".")[0]] += ns
    longest = sorted(device.gaps, key=lambda g: (g[0].start - g[0].end, g[0].start))[:20]
    starts = device.step_starts
    return {
        "rank": device.rank.proc.rank,
        "device": device.index,
        "file": file_name(device.rank.proc.rank),
        "window_ns": device.end - device.start,
        "window_start_ns": device.start + emit.BASE_NS,
        "window_basis": "steps",
        "periods": len(starts) - 1,
        "steps_ns": [b - a for a, b in itertools.pairwise(starts)],
        "host_device_offset_ns": device.offset,
        "level1_ns": level1,
        "buckets_ns": _sorted(device.buckets),
        "wait_by_last_rank_ns": {str(k): v for k, v in sorted(device.waits.items())},
        "longest_gaps": [
            {
                "start_ns": gap.start + emit.BASE_NS,
                "dur_ns": gap.end - gap.start,
                "parts_ns": parts,
                "ended_by": gap.ender.name,
            }
            for gap, parts in longest
        ],
    }


def _flops_entry(device: DeviceTruth) -> dict[str, Any]:
    """FLOPs of the window and their shares of the dense peak; nothing where they aren't known."""
    flops = device.flops()
    if flops is None:
        return {}
    budget = kernels.DENSE_PEAK * (device.end - device.start) / 1e9
    return flops | {"mfu": flops["model_flops"] / budget, "hfu": flops["hw_flops"] / budget}


def _collectives(group: Group) -> Iterable[dict[str, Any]]:
    by_op: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    last: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for meeting in group.meetings.values():
        key = (meeting.group, meeting.op)
        entry = by_op[key]
        entry[0] += 1
        entry[1] += sum(meeting.last_arrival - at for at in meeting.arrivals.values())
        entry[2] += meeting.transfer_ns * len(meeting.ranks)
        who = str(meeting.last_rank)
        last[key][who] = last[key].get(who, 0) + 1
    for (name, op), (count, wait, transfer) in sorted(by_op.items()):
        yield {
            "group": name,
            "op": op,
            "count": count,
            "wait_ns_whole_run": wait,
            "transfer_ns_whole_run": transfer,
            "last_rank_counts": dict(sorted(last[name, op].items())),
        }


def _sorted(buckets: dict[str, int]) -> dict[str, int]:
    return {leaf: ns for leaf, ns in sorted(buckets.items()) if ns}
