"""What the hooks cost a training: step times with and without, in interleaved pairs of runs.

The p10 of step times over the p10 of the runs without; the median moves by 40 % on a busy machine.

    outside   every step, no window open           promised: <= 1.01
    inside    the steps that a window records      promised: <= 1.15
    op-bound  the same, of a loop of tiny operators: reported, not promised
    start     of a Python process that imports nothing: <= 30 ms; and of one that imports torch

    python tests/bench/overhead.py [--pairs 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpudiag.collect.injection import Profile, inject

STEPS = 40
DDP = """
import json, os, sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
torch.set_num_threads(1)
dist.init_process_group("gloo")
layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
model = DistributedDataParallel(nn.Sequential(*(layer for _ in range(2))))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ends = []
for batch in DataLoader(torch.randn(8 * int(sys.argv[1]), 64, 256), batch_size=8):
    model(batch).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
    ends.append(time.monotonic_ns())
if dist.get_rank() == 0:
    print(json.dumps([b - a for a, b in zip(ends, ends[1:])]), flush=True)
dist.barrier(); dist.destroy_process_group()
"""
OP_BOUND = """
import json, sys, time, torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(60)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
ends = []
for i in range(int(sys.argv[1])):
    model(torch.ones(4, 8)).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
    ends.append(time.monotonic_ns())
print(json.dumps([b - a for a, b in zip(ends, ends[1:])]))
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
OUTSIDE = Profile(profile=False)
INSIDE = Profile(skip=5, settle=False, warmup=2, active=STEPS)


def step_times(program: str, before: tuple[str, ...], profile: Profile | None) -> list[int]:
    """Run a training; return its step times, ns; those of the window alone where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(program)
        variables = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
        if profile is not None:
            variables |= inject(Path(folder) / "run", variables, profile)
        command = [sys.executable, *before, str(script), str(STEPS)]
        done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    times = json.loads(done.stdout)
    return times[9:-1]  # past the start of every window, before its end


def start_time(code: str, *, hooked: bool) -> float:
    """Return the seconds that a Python process takes."""
    with tempfile.TemporaryDirectory() as folder:
        variables = dict(os.environ)
        if hooked:
            variables |= inject(Path(folder), variables, OUTSIDE)
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=variables, check=True)
        return time.perf_counter() - started


def p10(times: list[int]) -> float:
    return statistics.quantiles(times, n=10)[0]


def compare(program: str, before: tuple[str, ...], profile: Profile, pairs: int) -> str:
    """Return the ratio of p10s, over pairs that take turns."""
    bare, hooked = [], []
    for i in range(pairs):
        for one, into in ((None, bare), (profile, hooked))[:: 1 if i % 2 else -1]:
            into.extend(step_times(program, before, one))
    ratio, ms = p10(hooked) / p10(bare), p10(bare) / 1e6
    return f"{ratio:.3f}  ({ms:.2f} ms a step without, {(ratio - 1) * ms:+.3f} ms; {pairs} pairs)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    for name, code, runs in (("start", "pass", 8 * pairs), ("start, torch", "import torch", pairs)):
        times = [
            (start_time(code, hooked=False), start_time(code, hooked=True)) for _ in range(runs)
        ]
        bare, hooked = (min(column) for column in zip(*times, strict=True))
        print(f"{name}: {(hooked - bare) * 1e3:+.1f} ms on {bare * 1e3:.0f} ms (best of {runs})")
    print("outside:", compare(DDP, TORCHRUN, OUTSIDE, pairs))
    print("inside:", compare(DDP, TORCHRUN, INSIDE, pairs))
    print("op-bound, outside:", compare(OP_BOUND, (), OUTSIDE, pairs))
    print("op-bound, inside:", compare(OP_BOUND, (), INSIDE, pairs))


if __name__ == "__main__":
    main()
