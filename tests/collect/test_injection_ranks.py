"""What the hooks record of jobs of several processes: torchrun, mp.spawn, forks, restarts."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import injected
import pytest

from gpudiag.collect.injection import Profile
from gpudiag.trace.event_log import read_event_log
from gpudiag.trace.source import source_of

pytestmark = pytest.mark.needs("torch")

TRAIN = """
import json, os, sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

def train(rank, steps=24, slow=0.0):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for i, batch in enumerate(DataLoader(torch.randn(steps * 8, 64), batch_size=8)):
        time.sleep(0.02 + slow * rank)
        loss = model(batch).pow(2).mean()
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses

def ended():
    dist.barrier()
    dist.destroy_process_group()
"""
TORCHRUN = """
dist.init_process_group("gloo")
rank = dist.get_rank()
group = dist.new_group([1], group_desc="second")
model, losses = train(rank)
print(json.dumps({"rank": rank, "losses": losses}), flush=True)
ended()
"""


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory):
    return injected.run(
        tmp_path_factory.mktemp("torchrun"), TRAIN + TORCHRUN, before=(*injected.TORCHRUN, "2")
    ).well()


def test_each_rank_has_its_log_and_the_launcher_none(torchrun):
    assert torchrun.logs == ["rank0.jsonl", "rank1.jsonl"]
    for rank in (0, 1):
        log = f"rank{rank}"
        (joined,) = torchrun.events("dist", log)
        assert (joined["rank"], joined["world"], joined["backend"]) == (rank, 2, "gloo")
        assert joined["dur"] > 0
        groups = {tuple(e["ranks"]): e["desc"] for e in torchrun.events("pg", log)}
        assert groups[0, 1] == "default_pg"
        assert rank == 0 or groups[1,] == "second"
        (first,) = torchrun.events("proc", log)
        assert (first["rank"], first["env"]["LOCAL_RANK"]) == (rank, str(rank))
        assert len(torchrun.events("opt", log)) == 24
        assert torchrun.events("exit", log)[0]["profile"] == "window"


def test_all_ranks_trace_the_same_steps(torchrun):
    assert torchrun.traces == ["rank0.json", "rank1.json"]
    assert torchrun.periods("rank0") == torchrun.periods("rank1")
    info = torchrun.trace("rank1")["distributedInfo"]
    assert (info["rank"], info["world_size"]) == (1, 2)


def test_a_job_of_several_ranks_computes_the_same_to_the_bit(tmp_path, torchrun):
    bare = injected.run(tmp_path, TRAIN + TORCHRUN, before=(*injected.TORCHRUN, "2"), bare=True)
    assert sorted(torchrun.out.splitlines()) == sorted(bare.out.splitlines())


def test_only_the_ranks_asked_for_are_traced(tmp_path):
    done = injected.run(
        tmp_path, TRAIN + TORCHRUN, before=(*injected.TORCHRUN, "2"),
        profile=Profile(ranks=(1,), settle=False, active=2),
    ).well()  # fmt: skip
    assert done.traces == ["rank1.json"]
    assert [e["profile"] for e in done.events("exit")] == ["not this rank"]
    assert len(done.periods("rank1")) == 2


def test_ranks_of_mp_spawn_are_told_by_their_process_group(tmp_path):
    program = (
        TRAIN
        + """
def work(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    train(rank)
    ended()

if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (port,), nprocs=2)
"""
    )
    done = injected.run(tmp_path, program).well()
    assert done.logs == ["rank0.jsonl", "rank1.jsonl"]
    assert done.traces == ["rank0.json", "rank1.json"]
    assert done.periods("rank0") == done.periods("rank1")
    assert done.events("proc", "rank1")[0]["rank"] == 1


def test_a_rank_that_is_started_again_writes_another_log(tmp_path):
    """Without a process group, which gloo now and then can't set up twice in a row."""
    program = """
import os, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(12):
    model(torch.ones(4, 8)).sum().backward(); optimizer.step()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    open(os.environ["RANK"], "w").close()
    while not (os.path.exists("0") and os.path.exists("1")): pass
    os._exit(3)
"""
    done = injected.run(
        tmp_path, program, before=(*injected.TORCHRUN, "2", "--max-restarts", "1")
    ).well()
    assert done.logs == ["rank0.1.jsonl", "rank0.jsonl", "rank1.1.jsonl", "rank1.jsonl"]
    for log, count in {"rank0": "0", "rank0.1": "1"}.items():
        (first,) = done.events("proc", log)
        assert first["env"]["TORCHELASTIC_RESTART_COUNT"] == count
        assert len(done.events("opt", log)) == 12


def test_distributed_checkpoints_are_logged_by_the_rank_that_waits_for_them(tmp_path):
    program = (
        TRAIN
        + """
import torch.distributed.checkpoint as dcp
dist.init_process_group("gloo")
rank = dist.get_rank()
model, _ = train(rank, steps=3)
state = {"model": model.state_dict(), f"own{rank}": torch.zeros(2_000_000)}
began = time.monotonic_ns()
dcp.save(state, checkpoint_id="a")
took = time.monotonic_ns() - began
async_began = time.monotonic_ns()
future = dcp.async_save(state, checkpoint_id="b")
blocked = time.monotonic_ns() - async_began
future.result()
size = sum(os.path.getsize(f"a/{name}") for name in os.listdir("a"))
if rank == 0:
    print(json.dumps({"took": took, "blocked": blocked, "size": size}))
ended()
"""
    )
    done = injected.run(tmp_path, program, before=(*injected.TORCHRUN, "2")).well()
    told = json.loads(done.out)
    whole, ahead = done.events("ckpt")
    assert (whole["api"], whole["async"], whole["to"]) == ("dcp.save", False, "a")
    assert abs(whole["dur"] - told["took"]) < 5e6
    assert 0 < whole["bytes"] <= told["size"]
    assert (ahead["api"], ahead["async"]) == ("dcp.async_save", True)
    assert abs(ahead["dur"] - told["blocked"]) < 5e6
    background = done.events("ckpt_bg")
    assert background
    assert all(e["t"] + e["dur"] >= ahead["t"] + ahead["dur"] for e in background)
    assert len(done.events("ckpt", "rank1")) == 2


FSDP = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
mesh = init_device_mesh("cpu", (2,))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(torch.randn(96, 64), batch_size=8):
    model(batch).pow(2).mean().backward(); optimizer.step(); optimizer.zero_grad()
ended()
"""
PIPELINE = """
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
dist.init_process_group("gloo")
torch.set_num_threads(1)
rank = dist.get_rank()
layer = nn.Linear(64, 64)
stage = PipelineStage(layer, rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda y, t: (y - t).pow(2).mean())
optimizer = torch.optim.AdamW(layer.parameters())
for batch in DataLoader(torch.randn(96, 64), batch_size=8):
    schedule.step(batch) if rank == 0 else schedule.step(target=batch)
    optimizer.step(); optimizer.zero_grad()
ended()
"""


@pytest.mark.parametrize("program", [FSDP, PIPELINE], ids=["fsdp2", "pipelining"])
def test_steps_of_sharded_and_pipelined_models_are_counted_right(tmp_path, program):
    done = injected.run(
        tmp_path, TRAIN + program, before=(*injected.TORCHRUN, "2"),
        profile=Profile(settle=False, warmup=1, active=3),
    ).well()  # fmt: skip
    for log in ("rank0", "rank1"):
        assert len(done.events("opt", log)) == len(done.events("step", log)) == 12
        assert done.periods(log) == [7, 8, 9]


def test_the_reader_can_use_every_line(torchrun):
    for log in torchrun.logs:
        path = torchrun.folder / "events" / log
        read = read_event_log(source_of(path.read_bytes(), str(path)))
        assert read.damaged == 0
        assert [process.rank for process in read.processes] == [int(log[4])]
        assert read.processes[0].samples == [8] * 24


def test_a_job_that_ends_before_its_first_step_has_said_who_it_was(tmp_path):
    program = TRAIN + 'dist.init_process_group("gloo"); dist.barrier(); os._exit(5)'
    done = injected.run(tmp_path, program, before=(*injected.TORCHRUN, "2"))
    assert done.code == 1
    assert done.logs == ["rank0.jsonl", "rank1.jsonl"]
    assert {e["k"] for e in done.events(log="rank1")} >= {"proc", "dist", "pg"}


@pytest.mark.parametrize("module", ["lightning", "transformers", "accelerate"])
def test_trainers_steps_are_counted_right(tmp_path, module):
    spec = importlib.util.find_spec(module)
    if spec is None:
        pytest.skip(f"{module} is not installed")
    folder = {"PYTHONPATH": str(Path(spec.origin).parents[1])}
    programs = {
        "accelerate": """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Linear(64, 8)
loader = DataLoader(torch.randn(192, 64), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).pow(2).mean()); optimizer.step(); optimizer.zero_grad()
accelerator.save_state("state")
""",
        "lightning": """
import lightning as L
class Model(L.LightningModule):
    def __init__(self):
        super().__init__(); self.layer = nn.Linear(64, 8)
    def training_step(self, batch, _): return self.layer(batch).pow(2).mean()
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
loader = DataLoader(torch.randn(96, 64), batch_size=8)
trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False)
trainer.fit(Model(), loader)
""",
        "transformers": """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16))
data = [{"input_ids": [1] * 16, "labels": [1] * 16}] * 24
arguments = TrainingArguments("out", per_device_train_batch_size=2, num_train_epochs=1,
                              report_to=[], use_cpu=True, save_steps=6)
Trainer(model, arguments, train_dataset=data).train()
""",
    }
    done = injected.run(tmp_path, TRAIN + programs[module], environment=folder).well()
    assert len(done.events("opt")) == 12
    assert done.events("ckpt")
