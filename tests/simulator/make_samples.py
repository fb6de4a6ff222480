"""Write the simulated samples of sample_traces: ``python tests/simulator/make_samples.py``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulator import multi, pipeline, single, training
from simulator.job import Job
from simulator.kernels import Shape
from simulator.training import Plan, fixed

SAMPLES = Path(__file__).parents[2] / "sample_traces"
LIMIT_BYTES = 300_000


def input_stall() -> Job:
    """The main thread tokenises each batch itself (num_workers=0), and the GPU waits for it."""
    plan = Plan(
        steps=6,
        shape=Shape(layers=3, batch=4, heads=16),
        loader_ns=fixed(17_500_000),
        samples=4,
        autograd_thread=True,
        frames=True,
        main_frame="train.py(102): main",
        sync_every_step=True,
    )
    job = Job("sim-input-stall", 101)
    training.start(job.rank(), plan)
    job.expected = {
        "finding": "input_stall",
        "ranks": [0],
        "host_span": training.LOADER.replace("MultiProcessing", "SingleProcess"),
        "file_line": "data/corpus.py(31)",
    }
    return job


def build() -> dict[str, Job]:
    """Return the samples by folder name."""
    return {
        "sim-input-stall": input_stall(),
        "sim-straggler-4rank": multi.ddp_slow_loader_rank(steps=5, layers=2),
        "sim-launch-bound": single.launch_bound(steps=5, layers=6),
        "sim-host-sync": single.host_sync_item(steps=6, layers=3),
        "sim-healthy": single.clean(steps=6, layers=4),
        "sim-pipeline-1f1b": pipeline.pipeline_1f1b(steps=4),
    }


def main() -> None:
    """Write them all, each small enough for the repository."""
    for name, job in build().items():
        job.name = name
        folder = job.write(SAMPLES / name, truth_name="answer.json")
        size = sum(path.stat().st_size for path in folder.iterdir())
        assert size < LIMIT_BYTES, f"{name} has {size} bytes"
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    main()
