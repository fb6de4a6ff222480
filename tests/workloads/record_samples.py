"""Records sample_traces/gloo-*: real two-rank training on a CPU, one folder per injected fault.

Run it with a Python that has torch::

    python tests/workloads/record_samples.py [NAME ...]

Each folder gets ``rank0.json.gz``, ``rank1.json.gz`` and ``answer.json``: what was injected, as
``train.py`` measured it, and which bucket of each rank must lead. The traces are as torch.profiler
wrote them but for the host name and the path in ``traceName``.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parents[1] / "sample_traces"
RANKS = 2
FOLDER_LIMIT_BYTES = 300_000
# One wide layer: few operators (bytes in the trace), yet compute that outweighs the gloo traffic.
MODEL = ("--layers", "1", "--width", "128", "--length", "128")


@dataclass(frozen=True)
class Injected:
    """A fault on one rank: where its time must be found, within ``tolerance_frac`` of truth."""

    field: str  # of train.StepTruth
    bucket: str
    tolerance_frac: float


# The loader's own work and the save's bookkeeping come on top of what train.py times.
LOADER = Injected("loader_ns", "host.input", 0.02)
CHECKPOINT = Injected("checkpoint_ns", "host.checkpoint", 0.02)
# No span marks the sleep, so Python time between operators falls into the same bucket.
SLOW = Injected("slow_ns", "host.other", 0.05)


@dataclass(frozen=True)
class Scenario:
    """One sample: the options of train.py and what an analysis must say."""

    what: str
    options: tuple[str, ...]
    leading: tuple[str, ...]  # per rank, the largest host bucket
    injected: tuple[Injected | None, ...]  # per rank
    findings: tuple[str, ...]
    culprits: tuple[int, ...]


SCENARIOS = {
    "gloo-clean": Scenario(
        "nothing injected",
        (),
        ("host.op", "host.op"),
        (None, None),
        (),
        (),
    ),
    "gloo-slow-loader": Scenario(
        "every rank's dataset sleeps 150 ms per batch, num_workers=0",
        ("--slow-loader-ms", "150"),
        ("host.input", "host.input"),
        (LOADER, LOADER),
        ("input_stall",),
        (0, 1),
    ),
    "gloo-slow-rank": Scenario(
        "rank 1 sleeps 120 ms before each forward pass, outside any annotation",
        ("--slow-rank", "1", "--slow-ms", "120"),
        ("host.collective", "host.other"),
        (None, SLOW),
        ("straggler",),
        (1,),
    ),
    "gloo-checkpoints": Scenario(
        "rank 0 saves a checkpoint of 192 MB after every second step",
        ("--checkpoint-every", "2", "--checkpoint-mb", "192"),
        ("host.checkpoint", "host.collective"),
        (CHECKPOINT, None),
        ("checkpoint_stall",),
        (0,),
    ),
}


def run_training(out: Path, options: tuple[str, ...]) -> None:
    """Run train.py on two ranks, profiled."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(RANKS), str(HERE / "train.py"), "--profile", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "6"}
    subprocess.run([*command, *MODEL, *options], check=True, env=environment)


def scrub(text: str, rank: int) -> str:
    """Take the machine's name and paths out of a trace's text; nothing else changes."""
    text = re.sub(r'"host_name": "[^"]*"', '"host_name": "host0"', text)
    return re.sub(r'"traceName": "[^"]*"', f'"traceName": "rank{rank}.json"', text)


def answer_for_rank(scenario: Scenario, truth: dict) -> dict:
    """Return what an analysis of this rank must find."""
    rank = truth["rank"]
    recorded = [s for s in truth["steps"] if s["recorded"]]
    answer = {
        "leading_bucket": scenario.leading[rank],
        "step_numbers": [s["step"] for s in recorded],
        "step_wall_ns": [s["wall_ns"] for s in recorded],
        "injected": None,
    }
    fault = scenario.injected[rank]
    if fault:
        per_step = [s[fault.field] for s in recorded]
        answer["injected"] = {
            "bucket": fault.bucket,
            "per_step_ns": per_step,
            "window_all_ns": sum(per_step),
            "window_steps_ns": sum(per_step[1:-1]),
            "tolerance_frac": fault.tolerance_frac,
        }
    return answer


def record(name: str, scenario: Scenario) -> None:
    """Record one sample into its folder."""
    folder = SAMPLES / name
    folder.mkdir(parents=True, exist_ok=True)
    answer = {
        "what": scenario.what,
        "recorded_by": f"tests/workloads/train.py {' '.join(MODEL + scenario.options)}",
        "backend": "gloo",
        "world_size": RANKS,
        "findings": scenario.findings,
        "culprits": scenario.culprits,
        "ranks": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        run_training(out, scenario.options)
        for rank in range(RANKS):
            text = gzip.decompress((out / f"rank{rank}.json.gz").read_bytes()).decode()
            packed = gzip.compress(scrub(text, rank).encode(), 9, mtime=0)
            (folder / f"rank{rank}.json.gz").write_bytes(packed)
            truth = json.loads((out / f"rank{rank}.truth.json").read_text())
            answer["ranks"][str(rank)] = answer_for_rank(scenario, truth)
    (folder / "answer.json").write_text(json.dumps(answer, indent=2) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size:,} bytes")
    if size >= FOLDER_LIMIT_BYTES:
        raise SystemExit(f"{name} is over {FOLDER_LIMIT_BYTES:,} bytes")


def main() -> None:
    """Record the samples named, or all."""
    for name in sys.argv[1:] or SCENARIOS:
        record(name, SCENARIOS[name])


if __name__ == "__main__":
    main()
