"""gpudiag run on real trainings: what it says, what it keeps, what it leaves alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest
import require
from cli.tiny import gpudiag

TRAIN = """
import json, sys, time, torch, torch.nn as nn, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
late = dist.get_rank() == 1
took = []
class Data(Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, index):
        began = time.perf_counter_ns()
        time.sleep(0.012 if late else 0)
        item = torch.randint(500, (32,))
        took.append(time.perf_counter_ns() - began)
        return item
model = DistributedDataParallel(nn.Sequential(nn.Embedding(500, 32), nn.Linear(32, 500)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step, batch in zip(range(int(sys.argv[1])), DataLoader(Data(), batch_size=8)):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if late:
    with open("truth.json", "w") as file:
        json.dump([sum(took[i : i + 8]) for i in range(0, len(took), 8)], file)
print("trained", flush=True)
dist.destroy_process_group()
"""


def environment():
    path = os.pathsep.join(filter(None, [str(require.REPO), os.environ.get("PYTHONPATH")]))
    return dict(os.environ) | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def run(*arguments, cwd, **options):
    return subprocess.run(
        [sys.executable, "-m", "gpudiag", "run", *map(str, arguments)],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=240, check=False,
        **options,
    )  # fmt: skip


def train(tmp_path, *options, steps=30):
    (tmp_path / "train.py").write_text(TRAIN)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return run(*options, "--", *launcher, "--nproc-per-node", 2, "train.py", steps, cwd=tmp_path)


def kept(tmp_path):
    (folder,) = (tmp_path / "gpudiag-runs").iterdir()
    return folder


@pytest.mark.needs("torch")
def test_a_wrapped_training_ends_with_its_diagnosis(tmp_path):
    """The loader of rank 1 is late: cause, rank, and the script's own time to 5 % or 5 ms."""
    done = train(tmp_path)
    assert (done.returncode, done.stdout.count("trained")) == (0, 2)
    folder = kept(tmp_path)
    assert sorted(one.name for one in (folder / "events").iterdir()) == [
        "rank0.jsonl",
        "rank1.jsonl",
    ]
    traces = sorted(one.name for one in (folder / "traces").iterdir())
    assert traces == ["rank0.json.gz", "rank1.json.gz"]
    assert not (folder / "inject.log").exists()
    said = " ".join(done.stderr.split())
    assert "waits for the data loader on rank 1" in said
    assert len(done.stderr.splitlines()) <= 2 * 14
    analysis = json.loads(gpudiag("analyze", folder, "--json").stdout)
    (loader,) = (one for one in analysis["findings"] if one["id"] == "input_stall")
    assert loader["ranks"] == [1]
    late = analysis["ranks"][1]
    waited = late["host_buckets_ns"]["host.input"] / len(late["host_steps_ns"])
    slept = median(json.loads((tmp_path / "truth.json").read_text()))
    assert waited == pytest.approx(slept, abs=max(0.05 * slept, 5_000_000))


@pytest.mark.needs("torch")
def test_a_run_without_a_trace_says_so_and_keeps_its_events(tmp_path):
    """Too few steps, or --no-profile: never an empty verdict."""
    done = train(tmp_path, "--no-profile", steps=4)
    assert (done.returncode, done.stdout.count("trained")) == (0, 2)
    assert "no step was traced" in done.stderr
    events = (kept(tmp_path) / "events" / "rank1.jsonl").read_text()
    assert events.count('"dl_wait"') >= 4


def test_a_command_without_torch_is_left_alone_and_told(tmp_path):
    """Its code and output are its own; why nothing was seen is said on stderr."""
    done = run("--", sys.executable, "-c", "print(1); raise SystemExit(3)", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "1\n")
    assert "no process of this command trained" in done.stderr
    quiet = run("-q", "--", "true", cwd=tmp_path)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--profile-ranks", "0,x", "--", "true"),
        ("--trace-budget", "much", "--", "true"),
        ("--profile-steps", "0", "--", "true"),
        ("-o", "used", "--", "true"),
    ],
)
def test_usage_is_refused_before_the_start(tmp_path, options):
    """Exit 2; the command has not run."""
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    done = run(*options, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.needs("torch")
def test_a_killed_wrapper_leaves_a_run_that_can_be_analysed(tmp_path):
    """SIGKILL of gpudiag: the training goes on to its end, and what it wrote is read."""
    (tmp_path / "train.py").write_text(TRAIN)
    command = [sys.executable, "-m", "gpudiag", "run", "-o", "kept", "--", sys.executable, "-m"]
    command += ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", "30"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    events = tmp_path / "kept" / "events"
    until = time.monotonic() + 90
    while len(list(events.glob("rank*"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert out.count(b"trained") == 2
    done = gpudiag("analyze", tmp_path / "kept", "--json")
    assert done.returncode == 0, done.stderr
    assert [one["rank"] for one in json.loads(done.stdout)["ranks"]] == [0, 1]
    assert json.loads(Path(tmp_path / "kept" / "run.json").read_text())["exit_code"] is None
