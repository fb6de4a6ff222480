"""What torch.profiler adds to the host per recorded event: the constants of `analyze/idle.py`.

Runs a loop of small CPU operators with and without the profiler and divides the difference by the
number of events recorded. On a machine without a GPU only operators and Python frames can be
measured; runtime calls are taken as half an operator (one record, no shapes).

    python tests/bench/profiler_cost.py
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

ITERATIONS = 3_000
ROUNDS = 7


def loop(x: torch.Tensor) -> None:
    for _ in range(ITERATIONS):
        x.add_(1).mul_(0.5)


def plain_ns(x: torch.Tensor) -> int:
    start = time.perf_counter_ns()
    loop(x)
    return time.perf_counter_ns() - start


def profiled_ns(x: torch.Tensor, **options: bool) -> tuple[int, dict[str, int]]:
    with profile(activities=[ProfilerActivity.CPU], **options) as recording:
        elapsed = plain_ns(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recording.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    counts: dict[str, int] = {}
    for event in events:
        if event.get("ph") == "X":
            counts[event["cat"]] = counts.get(event["cat"], 0) + 1
    return elapsed, counts


def main() -> None:
    torch.set_num_threads(1)
    x = torch.ones(8)
    loop(x)
    plain = statistics.median(plain_ns(x) for _ in range(ROUNDS))
    for name, options in (
        ("operators", {}),
        ("operators with shapes", {"record_shapes": True}),
        ("operators and frames", {"with_stack": True}),
    ):
        runs = [profiled_ns(x, **options) for _ in range(ROUNDS)]
        added = statistics.median(elapsed for elapsed, _ in runs) - plain
        counts = runs[0][1]
        events = sum(counts.values())
        print(f"{name}: {added / events:.0f} ns per event ({events} events, {counts})")


if __name__ == "__main__":
    main()
