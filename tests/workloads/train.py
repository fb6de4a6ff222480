"""A small transformer trained for real, with faults on request and the truth written down.

Run it as users run theirs::

    torchrun --nproc-per-node 2 tests/workloads/train.py --profile out --slow-rank 1 --slow-ms 50

Each rank writes ``out/rank<R>.json.gz`` (torch.profiler, the active steps) and
``out/rank<R>.truth.json``: per step, the wall time and the nanoseconds that this script itself
measured around each injected fault. The training loop knows nothing of gpudiag.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812 (the name that PyTorch code uses)
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 512
WAIT_STEPS, WARMUP_STEPS, ACTIVE_STEPS = 1, 2, 6


@dataclass
class StepTruth:
    """What one training step really took; ``step`` is the N of ProfilerStep#N."""

    step: int
    start_unix_ns: int
    wall_ns: int = 0
    loader_ns: int = 0  # slept in the dataset
    slow_ns: int = 0  # slept before the forward pass
    checkpoint_ns: int = 0  # inside save_checkpoint
    fault_ns: int = 0  # inside what --fault put in
    gradients_unix_ns: int = 0  # when the last gradient was there, on the machine's clock
    recorded: bool = False  # inside the profiler's active window


class Stopwatch:
    """Adds the time spent inside a ``with`` block to one field of the current step."""

    def __init__(self) -> None:
        self.step = StepTruth(step=0, start_unix_ns=time.time_ns())
        self.steps: list[StepTruth] = []
        self._started_ns = time.perf_counter_ns()

    @contextlib.contextmanager
    def time(self, field: str):
        """Measure the block."""
        start = time.perf_counter_ns()
        yield
        spent = time.perf_counter_ns() - start
        setattr(self.step, field, getattr(self.step, field) + spent)

    def has_gradients(self) -> None:
        """Say that this rank is ready to reduce the last of its gradients."""
        self.step.gradients_unix_ns = time.time_ns()

    def next_step(self) -> None:
        """Close the current step and open the next."""
        now = time.perf_counter_ns()
        self.step.wall_ns = now - self._started_ns
        number = self.step.step - WAIT_STEPS - WARMUP_STEPS
        self.step.recorded = 0 <= number < ACTIVE_STEPS
        self.steps.append(self.step)
        self.step = StepTruth(step=self.step.step + 1, start_unix_ns=time.time_ns())
        self._started_ns = now


class Tokens(Dataset):
    """Random token sequences; each takes ``delay_s`` to read, as from a slow disk."""

    def __init__(self, count: int, length: int, delay_s: float, watch: Stopwatch) -> None:
        self.tokens = torch.randint(VOCABULARY, (count, length + 1))
        self.delay_s = delay_s
        self.watch = watch

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.delay_s:
            with self.watch.time("loader_ns"):
                time.sleep(self.delay_s)
        return self.tokens[index]


# What --fault can put into every step of --slow-rank; each lasts --slow-ms.
FAULTS = ("compute", "backward", "loader", "gc", "checkpoint", "host")
WATCH: list[Stopwatch] = []  # the one stopwatch, where operators find it


def _sleep(seconds: float) -> None:
    with WATCH[0].time("fault_ns"):
        time.sleep(seconds)


@torch.library.custom_op("workload::slow", mutates_args=())
def slow(x: torch.Tensor, seconds: float) -> torch.Tensor:
    """Take long to copy a tensor: an operator that computes too much."""
    _sleep(seconds)
    return x.clone()


class SlowBackward(torch.autograd.Function):
    """Nothing forward; backward it takes long before any gradient is there."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, seconds: float) -> torch.Tensor:
        """Return a copy."""
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Sleep."""
        _sleep(ctx.seconds)
        return grad, None


def before_forward(fault: str, seconds: float, tokens: torch.Tensor) -> None:
    """Put in what happens between the loader and the forward."""
    if fault == "compute":
        slow(tokens, seconds)
    elif fault == "host":
        _sleep(seconds)
    elif fault in ("gc", "checkpoint"):
        with record_function({"gc": "gc.collect", "checkpoint": "save_checkpoint"}[fault]):
            _sleep(seconds)


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False),
            nn.GELU(),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then mix per position."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_mlp(x))


class Transformer(nn.Module):
    """A decoder-only language model."""

    def __init__(self, layers: int, width: int, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token at every position."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def write_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer, extra_mb: int) -> None:
    """Write model and optimizer; ``extra_mb`` stands for a larger model's state."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "extra": torch.zeros(extra_mb * 250_000),
    }
    with tempfile.TemporaryFile() as file:
        torch.save(state, file)


def save_checkpoint(model: nn.Module, optimizer: torch.optim.Optimizer, extra_mb: int) -> None:
    """Save under a name that shows in a trace: torch.save alone leaves nothing there."""
    with record_function("save_checkpoint"):
        write_checkpoint(model, optimizer, extra_mb)


def make_profiler(out: Path, rank: int, *, with_stack: bool, device: str) -> profile:
    """Return torch.profiler with a schedule, writing one trace per rank."""
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)

    def export(finished: profile) -> None:
        finished.export_chrome_trace(str(out / f"rank{rank}.json.gz"))

    return profile(
        activities=activities,
        schedule=schedule(wait=WAIT_STEPS, warmup=WARMUP_STEPS, active=ACTIVE_STEPS, repeat=1),
        on_trace_ready=export,
        record_shapes=True,
        with_stack=with_stack,
    )


def train(args: argparse.Namespace, rank: int, world_size: int) -> list[StepTruth]:
    """Train; return the truth per step."""
    torch.manual_seed(rank)
    watch = Stopwatch()
    WATCH[:] = [watch]
    fault = args.fault if rank == args.slow_rank else ""
    delay_s = (args.slow_ms if fault == "loader" else args.slow_loader_ms) / 1e3 / args.batch
    dataset = Tokens(args.steps * args.batch, args.length, delay_s, watch)
    loader = DataLoader(dataset, batch_size=args.batch)
    model: nn.Module = Transformer(args.layers, args.width).to(args.device)
    model.embed.weight.register_post_accumulate_grad_hook(lambda _: watch.has_gradients())
    if world_size > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    profiler = contextlib.nullcontext()
    if args.profile:
        profiler = make_profiler(args.profile, rank, with_stack=args.with_stack, device=args.device)
    with profiler as profiling:
        watch.next_step()  # set-up is no step
        watch.steps.clear()
        watch.step.step = 0
        for step, batch in enumerate(loader):
            tokens = batch.to(args.device)
            if rank == args.slow_rank and args.slow_ms and not fault:
                with watch.time("slow_ns"):
                    time.sleep(args.slow_ms / 1e3)
            before_forward(fault, args.slow_ms / 1e3, tokens)
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            if fault == "backward":
                loss = SlowBackward.apply(loss, args.slow_ms / 1e3)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if args.checkpoint_every and rank == 0 and (step + 1) % args.checkpoint_every == 0:
                with watch.time("checkpoint_ns"):
                    save_checkpoint(model, optimizer, args.checkpoint_mb)
            watch.next_step()
            if profiling:
                profiling.step()
    return watch.steps


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=WAIT_STEPS + WARMUP_STEPS + ACTIVE_STEPS + 1)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--slow-loader-ms", type=float, default=0, help="per batch, every rank")
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-ms", type=float, default=0, help="per step, on --slow-rank")
    parser.add_argument("--fault", choices=FAULTS, default="", help="what --slow-ms is spent in")
    parser.add_argument("--checkpoint-every", type=int, default=0, help="steps; 0 is never")
    parser.add_argument("--checkpoint-mb", type=int, default=64)
    parser.add_argument("--profile", type=Path, help="folder for traces and truth")
    parser.add_argument("--with-stack", action="store_true")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Join the job if there is one, train, write the truth."""
    args = parse_arguments(argv)
    torch.set_num_threads(1)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if args.profile:
        args.profile.mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    steps = train(args, rank, world_size)
    if args.profile:
        truth = {"rank": rank, "world_size": world_size, "steps": [asdict(s) for s in steps]}
        (args.profile / f"rank{rank}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    if dist.is_initialized():
        dist.barrier()  # a rank that leaves early can abort the others inside gloo
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
