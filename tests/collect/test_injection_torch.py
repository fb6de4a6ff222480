"""What the hooks record of real training in one process, against the script's own truth."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise

import injected
import pytest

from gpudiag.collect.injection import Profile

pytestmark = pytest.mark.needs("torch")

SETUP = """
import gc, hashlib, json, os, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
now = time.monotonic_ns
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
losses = []

def backward(batch):
    loss = model(batch).pow(2).mean()
    loss.backward()
    losses.append(loss.item())

def say(**facts):
    digest = hashlib.sha256(repr(losses).encode())
    for p in model.parameters():
        digest.update(p.detach().numpy().tobytes())
    print(json.dumps(dict(facts, digest=digest.hexdigest(), losses=len(losses))))
"""


def truth(done: injected.Done) -> dict:
    """Return what a program said of itself, at its end."""
    return json.loads(done.out.splitlines()[-1])


def close(measured_ns: float, true_ns: float) -> bool:
    """Tell whether an event is as near to the truth as is promised: 2 % or 5 ms."""
    return abs(measured_ns - true_ns) <= max(0.02 * true_ns, 5e6)


EVERYTHING = (
    SETUP
    + """
class Slow(Dataset):
    def __len__(self): return 192
    def __getitem__(self, i):
        time.sleep(0.04 / 8)
        return torch.full((32,), float(i))

t = {"loader": 0, "save": 0, "eval": 0, "gc": 0, "steps": []}
optimizer = torch.optim.AdamW(model.parameters())
loader = iter(DataLoader(Slow(), batch_size=8))
for step in range(24):
    began = now()
    batch = next(loader)
    t["loader"] += now() - began
    backward(batch)
    optimizer.step()
    t["steps"].append(now())
    optimizer.zero_grad()
    if step == 9:
        waste = [[] for _ in range(2_000_000)]
        t["gc_at"] = began = now(); gc.collect(); t["gc"] = now() - began
        del waste
    if step % 5 == 4:
        state = {"m": model.state_dict(), "more": torch.zeros(8_000_000)}
        began = now()
        torch.save(state, f"c{step}.pt")
        t["save"] += now() - began
began = now()
model.eval()
with torch.no_grad():
    for batch in DataLoader(Slow(), batch_size=32):
        model(batch)
model.train()
t["eval"] = now() - began
optimizer.step()
with open("c.bin", "wb") as file:
    torch.save({"a": torch.zeros(1000)}, file)
files = ["c4.pt", "c9.pt", "c14.pt", "c19.pt", "c.bin"]
say(bytes=[os.path.getsize(f) for f in files], **t)
"""
)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return injected.run(tmp_path_factory.mktemp("everything"), EVERYTHING).well()


def test_what_a_program_computes_and_prints_stays_to_the_bit(tmp_path, everything):
    bare = injected.run(tmp_path, EVERYTHING, bare=True)
    assert truth(everything)["digest"] == truth(bare)["digest"]
    assert everything.err == bare.err == ""


def test_waits_saves_collections_and_evaluations_take_what_they_take(everything):
    told = truth(everything)
    training = [e for e in everything.events("dl_wait") if e.get("bs") == 8]
    assert len(training) == 24
    assert close(sum(e["dur"] for e in training), told["loader"])
    saves = [e for e in everything.events("ckpt") if e["to"].startswith("c")]
    assert [e["to"] for e in saves] == ["c4.pt", "c9.pt", "c14.pt", "c19.pt", "c.bin"]
    assert close(sum(e["dur"] for e in saves[:4]), told["save"])
    assert [e["bytes"] for e in saves] == told["bytes"]
    asked_for = next(e for e in everything.events("gc") if e["t"] >= told["gc_at"])
    assert close(asked_for["dur"], told["gc"])
    (evaluation,) = everything.events("eval")
    assert close(evaluation["dur"], told["eval"])
    assert (evaluation["batches"], evaluation["no_grad"]) == (6, True)


def test_steps_are_where_the_optimizer_steps(everything):
    told, calls = truth(everything)["steps"], everything.events("opt")
    assert len(calls) == 25
    ends = [e["t"] + e["dur"] for e in calls[:24]]
    assert all(close(end, true) for end, true in zip(ends, told, strict=True))
    assert {e["mb"] for e in calls[:24]} == {1}
    steps = everything.events("step")
    assert [e["n"] for e in steps] == list(range(1, 26))
    waits = sum(e["dl"] for e in steps[:24])
    assert close(waits, truth(everything)["loader"])
    assert steps[0]["dt"] is None
    assert all(b["t"] - a["t"] == b["dt"] for a, b in pairwise(steps))
    assert [e["samples"] for e in everything.events("tokens")] == [8] * 24


def test_a_window_is_traced_and_step_times_are_kept_on_both_sides(everything):
    assert everything.traces == ["rank0.json"]
    (started,), (trace,), (stopped,) = map(everything.events, ("prof_start", "trace", "prof_stop"))
    assert trace["file"] == "rank0.json"
    assert trace["raw"] == (everything.folder / "traces" / "rank0.json").stat().st_size
    recorded = everything.periods()
    assert recorded[0] == trace["first"] == started["step"] + 3  # warm-up 2
    assert started["step"] >= 5
    phases = [e["ps"] for e in everything.events("step")]
    assert phases[:5] == ["idle"] * 5
    assert phases.count("on") == len(recorded)
    assert stopped["why"] == "window"
    assert len(recorded) == 6
    assert phases[-1] == "done"
    overhead = sum(e["ov"] for e in everything.events("step"))
    assert overhead >= sum(e["ns"] for e in everything.events("prof_overhead")) * 0.99
    names = {e.get("name") for e in everything.trace()["traceEvents"]}
    assert {"aten::addmm", "Optimizer.step#AdamW.step"} <= names
    shapes = [e["args"].get("Input Dims") for e in everything.trace()["traceEvents"]
              if e.get("name") == "aten::addmm"]  # fmt: skip
    assert all(shapes)


def test_stacks_of_the_window_name_the_line_that_waits(everything):
    stacks = everything.events("stack")
    assert stacks
    line = EVERYTHING.splitlines().index("        time.sleep(0.04 / 8)") + 1
    at_sleep = [e for e in stacks if e["frames"][0].endswith(f"program.py:{line} __getitem__")]
    samples = sum(e["n"] for e in at_sleep)
    # 40 ms of sleep a step, looked at every 20 ms; a busy machine looks less often.
    assert samples >= 0.5 * len(everything.periods()) * 40 / 20
    (cost,) = everything.events("stacks_cost")
    assert cost["ns"] / cost["n"] < 1e6


ACCUMULATION = """
for i in range(40):
    backward(next(data))
    if i % 4 == 3: a.step()
"""
GAN = """
for i in range(60):
    backward(next(data)); a.step()
    if i % 5 == 4: b.step()
"""
LBFGS = """
x, optimizer = next(data), torch.optim.LBFGS(model.parameters(), max_iter=4)
def closure():
    model.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss
for i in range(10): optimizer.step(closure)
"""
OVERFLOW = """
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60)
for i in range(10):
    loss = model(next(data) * 1e30).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(a); scaler.update(); a.zero_grad()
"""


@pytest.mark.parametrize(
    ("body", "calls", "steps"),
    [
        (ACCUMULATION, [10], 10),
        (GAN, [60, 12], 12),  # a critic that steps five times as often
        (LBFGS, [10], 10),
        (OVERFLOW, [10], 10),  # steps that are skipped
    ],
    ids=["accumulation", "gan", "lbfgs", "overflow"],
)
def test_every_optimizer_call_is_logged_and_counts_steps(tmp_path, body, calls, steps):
    program = f"{SETUP}\ndata = iter(DataLoader(torch.randn(800, 32), batch_size=8))\n"
    program += "a, b = (torch.optim.SGD(model.parameters(), lr=1e-3) for _ in 'ab')\n" + body
    done = injected.run(tmp_path, program, profile=Profile(settle=False)).well()
    events = done.events("opt")
    ids = [e["id"] for e in events]
    assert [ids.count(one) for one in range(len(calls))] == calls
    # The steps counted online only drive the profiler: they may start a little wrong.
    assert steps <= len(done.events("step")) <= steps + 6
    if body is ACCUMULATION:
        assert {e["mb"] for e in events} == {4}
    if body is OVERFLOW:
        assert any(e.get("skip") for e in events)
    assert done.traces


def test_optimizers_that_step_inside_the_backward_pass_are_traced_all_the_same(tmp_path):
    program = (
        SETUP
        + """
optimizers = {p: torch.optim.SGD([p], lr=1e-3) for p in model.parameters()}
def step(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(step)
for i in range(30):
    backward(torch.randn(8, 32))
say()
"""
    )
    done = injected.run(tmp_path, program).well()
    calls = done.events("opt")
    assert len(calls) == 30 * 4
    assert {e["bw"] for e in calls} == {1}
    assert len(done.periods()) >= 5
    assert truth(done)["digest"] == truth(injected.run(tmp_path, program, bare=True))["digest"]


def test_inference_without_an_optimizer_has_its_batches_for_steps(tmp_path):
    program = (
        SETUP
        + """
model.eval()
with torch.no_grad():
    for batch in DataLoader(torch.randn(400, 32), batch_size=8):
        losses.append(model(batch).sum().item())
"""
    )
    done = injected.run(tmp_path, program).well()
    assert 40 <= len(done.events("step")) <= 50
    assert done.traces == ["rank0.json"]
    assert done.events("eval") == []  # there is no training that it would interrupt


@pytest.mark.parametrize("steps", [1, 3, 6, 10])
def test_short_programs_leave_what_can_be_had(tmp_path, steps):
    program = f"""{SETUP}
a = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range({steps}):
    backward(torch.randn(8, 32)); a.step()
"""
    done = injected.run(tmp_path, program, profile=Profile(settle=False)).well()
    (end,) = done.events("exit")
    assert end["steps"] == steps == len(done.events("opt"))
    assert end["profile"] == ("short" if steps < 5 else "exit")
    assert done.traces == (["rank0.json"] if steps == 10 else [])
    assert done.err == ""


@pytest.mark.parametrize(
    ("profile", "outcome"),
    [
        (Profile(profile=False), "off"),
        (Profile(ranks=(3,)), "window"),  # one process has no ranks to choose from
        (Profile(trace_budget=1000), "a step's trace is over the budget, or the disk is full"),
    ],
)
def test_the_window_keeps_to_the_options(tmp_path, profile, outcome):
    program = f"""{SETUP}
a = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(40):
    backward(torch.randn(8, 32)); a.step()
"""
    done = injected.run(tmp_path, program, profile=profile).well()
    assert [e["profile"] for e in done.events("exit")] == [outcome]
    assert bool(done.traces) == (outcome == "window")


def test_windows_come_again_every_so_many_steps(tmp_path):
    program = f"""{SETUP}
a = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(60):
    backward(torch.randn(8, 32)); a.step()
"""
    profile = Profile(skip=4, settle=False, warmup=1, active=3, every=20)
    done = injected.run(tmp_path, program, profile=profile).well()
    assert [done.periods(name) for name in ("rank0", "rank0.1", "rank0.2")] == [
        [6, 7, 8], [26, 27, 28], [46, 47, 48]
    ]  # fmt: skip


USERS_PROFILER = (
    SETUP
    + """
from torch.profiler import ProfilerActivity, profile, schedule
kind = sys.argv[1]
a = torch.optim.SGD(model.parameters(), lr=1e-3)
def train(steps, p=None):
    for i in range(steps):
        backward(torch.randn(8, 32)); a.step()
        if p is not None: p.step()
counts = []
def seen(p):
    counts.append(sum(e.name == "aten::addmm" for e in p.events()))
cpu = [ProfilerActivity.CPU]
if kind == "before":
    with profile(activities=cpu) as p:
        train(20)
    seen(p); train(30)
elif kind == "during":
    train(9)
    with profile(activities=cpu) as p:
        train(10)
    seen(p); train(20)
elif kind == "scheduled":
    with profile(activities=cpu, schedule=schedule(wait=3, warmup=1, active=4, repeat=2),
                 on_trace_ready=seen) as p:
        train(40, p)
    train(30)
else:
    train(9)
    with torch.autograd.profiler.profile() as p:
        train(10)
    counts.append(sum(e.name == "aten::addmm" for e in p.function_events)); train(20)
say(counts=counts)
"""
)


@pytest.mark.parametrize("kind", ["before", "during", "scheduled", "legacy"])
def test_the_programs_own_profiler_always_wins(tmp_path, kind):
    bare = injected.run(tmp_path, USERS_PROFILER, kind, bare=True)
    done = injected.run(tmp_path, USERS_PROFILER, kind, profile=Profile(settle=False)).well()
    assert truth(done) == truth(bare)
    assert all(truth(done)["counts"])
    assert done.traces  # before it, or once it had ended
    whys = [e["why"] for e in done.events() if e["k"] in {"defer", "prof_stop"}]
    assert any("own profiler" in why for why in whys), whys


def test_workers_and_forks_leave_nothing_and_inherit_no_window(tmp_path):
    program = (
        SETUP
        + """
import multiprocessing as mp
class Data(Dataset):
    def __len__(self): return 8000
    def __getitem__(self, i): return torch.zeros(32)
def grow(queue):
    import resource
    x = torch.zeros(4)
    for _ in range(1000): x.add_(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(60_000): x.add_(1)
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
if __name__ == "__main__":
    a = torch.optim.SGD(model.parameters(), lr=1e-3)
    context = mp.get_context("fork"); queue = context.Queue()
    for i, batch in enumerate(DataLoader(Data(), batch_size=100, num_workers=2)):
        backward(batch); a.step()
        if i == 9:
            child = context.Process(target=grow, args=(queue,)); child.start()
            grown = queue.get(); child.join()
    for batch in DataLoader(Data(), batch_size=4000, num_workers=1,
                            multiprocessing_context="spawn"):
        backward(batch); a.step()
    say(grown=grown, code=child.exitcode)
"""
    )
    done = injected.run(tmp_path, program, profile=Profile(settle=False)).well()
    assert done.logs == ["rank0.jsonl"]
    assert done.traces == ["rank0.json"]
    assert (truth(done)["code"], done.err) == (0, "")
    assert truth(done)["grown"] < 30_000  # KiB; an inherited window holds 2.8 kB per operator
    assert {e["nw"] for e in done.events("dl_wait")} <= {1, 2}
    assert any(e.get("start") for e in done.events("dl_wait"))  # spawning a worker is waited for


def test_compilations_are_logged_with_what_they_took(tmp_path):
    program = (
        SETUP
        + """
@torch.compile(backend=sys.argv[1])
def square(x): return (x * x).sum()
a = torch.optim.SGD(model.parameters(), lr=1e-3)
step = torch.compile(model, backend=sys.argv[1])
took = []
for i in range(20):
    began = now()
    square(torch.ones(4 + i // 10, 3))
    took.append(now() - began)
    step(torch.randn(8, 32)).pow(2).mean().backward(); a.step()
say(took=max(took))
"""
    )
    done = injected.run(tmp_path, program, "eager").well()
    compiled = done.events("compile")
    assert [e["recompile"] for e in compiled].count(True) == 1
    assert max(e["dur"] for e in compiled) > 1e6
    assert len(done.events("opt")) == 20
    assert done.traces


def test_a_compiled_optimizer_has_no_more_graph_breaks_than_without(tmp_path):
    """Its steps are not seen: what is compiled must not hold anything of ours."""
    program = (
        SETUP
        + """
step = torch.compile(model, backend="eager")
a = torch.optim.SGD(model.parameters(), lr=1e-3)
opt = torch.compile(lambda: a.step(), backend="eager")
for i, batch in enumerate(DataLoader(torch.randn(800, 32), batch_size=8)):
    loss = step(batch).pow(2).mean(); loss.backward(); losses.append(loss.item())
    opt()
import torch._dynamo.utils as u
say(breaks=sum(u.counters["graph_break"].values()))
"""
    )
    done = injected.run(tmp_path, program).well()
    assert truth(done) == truth(injected.run(tmp_path, program, bare=True))
    assert len(done.events("step")) == 100 - 63  # batches stand in for steps, from the 64th on


@pytest.mark.needs("cc")
def test_a_program_compiled_by_inductor_runs_as_ever_and_its_workers_leave_nothing(tmp_path):
    program = (
        SETUP
        + """
step = torch.compile(model)
a = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(12):
    loss = step(torch.randn(8, 32)).pow(2).mean(); loss.backward(); losses.append(loss.item())
    a.step()
say()
"""
    )
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = injected.run(tmp_path, program, environment=cache).well()
    bare = injected.run(tmp_path, program, bare=True, environment=cache)
    assert truth(done) == truth(bare)
    assert done.logs == ["rank0.jsonl"]


def test_a_hook_that_fails_is_logged_once_and_taken_out(tmp_path):
    program = (
        SETUP
        + """
import _gpudiag_inject as hooks
a = torch.optim.SGD(model.parameters(), lr=1e-3)
def broken(*_): raise RuntimeError("on purpose")
hooks.measure = hooks.note_nodes = hooks.in_backward = hooks.name_of = broken
for i, batch in enumerate(DataLoader(torch.randn(80, 32), batch_size=8)):
    backward(batch); a.step()
    torch.save(model.state_dict(), "x.pt")
print(hasattr(DataLoader.__iter__, "__wrapped__"), len(losses))
"""
    )
    done = injected.run(tmp_path, program)
    assert (done.code, done.out, done.err) == (0, "False 10\n", "")
    failed = [line.partition(": ")[2] for line in done.failures().splitlines()]
    assert failed == [f"{h}: RuntimeError: on purpose" for h in ("loader", "optimizer", "save")]
    assert [e["hook"] for e in done.events("fail")] == ["loader", "optimizer", "save"]


def test_a_full_disk_stops_the_events_and_nothing_else(tmp_path):
    program = (
        SETUP
        + """
import resource
a = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(60):
    if i == 5: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    if i == 40: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    backward(torch.randn(8, 32)); a.step()
say()
"""
    )
    done = injected.run(tmp_path, program)
    assert (done.code, done.err) == (0, "")
    assert truth(done)["losses"] == 60
    assert not any(name.endswith(".tmp") for name in done.traces)
    lines = (done.folder / "events" / "rank0.jsonl").read_text().splitlines()
    whole = []
    for line in lines:
        try:
            whole.append(json.loads(line))
        except ValueError:
            continue
    assert len(lines) - len(whole) <= 1  # the one that was torn
    (lost,) = [e for e in whole if e["k"] == "lost"]
    seen = [e["n"] for e in whole if e["k"] == "step"]
    assert lost["lines"] >= 20
    assert seen[-1] == 60


STUBS = {
    "safetensors/torch.py": "def save_file(tensors, filename, metadata=None):\n"
    "    open(filename, 'wb').write(b'0' * 1000)\n",
    "transformers/trainer.py": "import torch\nclass Trainer:\n"
    "    def _save_checkpoint(self, model, trial):\n        torch.save(model, 't.pt')\n",
    "accelerate/accelerator.py": "import os, torch\nclass Accelerator:\n"
    "    def save_state(self, output_dir=None):\n        os.mkdir(output_dir)\n"
    "        torch.save({}, output_dir + '/a.pt'); torch.save({}, output_dir + '/b.pt')\n",
    "lightning/pytorch/trainer/trainer.py": "import io, torch\nclass Trainer:\n"
    "    def save_checkpoint(self, filepath, weights_only=False):\n"
    "        buffer = io.BytesIO(); torch.save({}, buffer)\n"
    "        open(filepath, 'wb').write(buffer.getvalue())\n",
    "lightning/fabric/fabric.py": "import torch\nclass Fabric:\n"
    "    def save(self, path, state):\n        torch.save(state, path)\n",
}


def test_the_savers_of_trainers_are_one_save_each(tmp_path):
    """Stand-ins with the signatures of the real ones, which the smoke tests run."""
    for name, text in STUBS.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    program = (
        SETUP
        + """
from safetensors.torch import save_file
from transformers.trainer import Trainer
from accelerate.accelerator import Accelerator
from lightning.pytorch.trainer.trainer import Trainer as Lightning
from lightning.fabric.fabric import Fabric
a = torch.optim.SGD(model.parameters(), lr=1e-3)
backward(torch.randn(8, 32)); a.step()
save_file({}, "s.safetensors")
Trainer()._save_checkpoint(model.state_dict(), None)
Accelerator().save_state("acc")
Lightning().save_checkpoint("l.ckpt")
Fabric().save("f.ckpt", {})
print(json.dumps([1000, os.path.getsize("t.pt"), os.path.getsize("acc/a.pt") * 2,
                  os.path.getsize("l.ckpt"), os.path.getsize("f.ckpt")]))
"""
    )
    done = injected.run(tmp_path, program, environment={"PYTHONPATH": str(tmp_path / "lib")}).well()
    saves = done.events("ckpt")
    assert [e["api"] for e in saves] == [
        "safetensors.save_file", "transformers.save_checkpoint", "accelerate.save_state",
        "lightning.save_checkpoint", "fabric.save",
    ]  # fmt: skip
    assert [e["bytes"] for e in saves] == json.loads(done.out)


def test_hooks_cost_little_per_step(tmp_path):
    """Far above what is measured by tests/bench/overhead.py: it must not be ten times as much."""
    program = (
        SETUP
        + """
a = torch.optim.SGD(model.parameters(), lr=1e-3)
took = []
for i in range(300):
    backward(torch.randn(8, 32)); a.zero_grad()
    began = now(); a.step(); took.append(now() - began)
print(json.dumps(took[50:]))
"""
    )
    profile = Profile(profile=False)
    wrapped, bare = (
        statistics.quantiles(json.loads(injected.run(
            tmp_path / name, program, profile=profile, bare=name == "bare").out), n=10)[0]
        for name in ("wrapped", "bare") if not (tmp_path / name).mkdir()
    )  # fmt: skip
    assert wrapped - bare < 500_000


def test_the_log_opens_with_who_writes_it(everything):
    first = everything.events()[0]
    assert (first["k"], first["schema"]) == ("proc", 1)
    assert first["argv"][-1].endswith("program.py")
    assert abs(first["clock"]["mono_ns"] - first["t"]) < 5e9
    assert everything.logs == ["rank0.jsonl"]
    assert (everything.folder / "events" / "rank0.jsonl").stat().st_mode & 0o077 == 0
