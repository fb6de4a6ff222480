"""Hooks inside a training process: events into a file, and a few steps of torch.profiler.

One file, standard library only, Python 3.8 and newer, nothing of gpudiag: it is copied beside its
config.json into the folder of a run, and loaded by every process of the command that imports torch.

Three rules. Until the process trains (an optimizer steps, a DataLoader is read, a process group is
joined) no file is opened, so launchers, loader workers and compile workers leave nothing. A hook
that fails is logged once and taken out; the user's program goes on. The profiler is started, moved
and stopped in the training thread alone, never inside a backward pass or a graph capture.

Events are lines of JSON, see docs/reference/event-log.md. Steps are decided by whoever reads them,
from the raw optimizer calls; the steps counted here only drive the profiler.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
import weakref

SCHEMA = 1
ANCHOR_EVERY_NS = 60_000_000_000
LEAST_SPAN_NS = 1_000_000  # shorter waits and collections are only summed, per step
MOST_EARLY = 1_000  # events kept before the process trains
MOST_OPTIMIZERS = 64  # an optimizer per parameter: the calls of these are logged, the rest counted
ALLOCATOR_EVERY = 10  # steps between two looks at the allocator
NO_OPTIMIZER_AFTER = 8  # batches, where no optimizer was ever made
NO_CALL_AFTER = 64  # batches, where one was made but is not called (or is compiled)
SETTLED_STEPS, SETTLED_FRAC = 4, 0.25  # so many step times within this of their median
SETTLE_AT_MOST = 15  # steps waited for that
AGREED_STEPS = 2  # ranks open the window so many steps after the first one proposed it
MOST_WINDOW_NS = 120_000_000_000
MOST_EVENTS = 400_000  # of a window: ending it stalls training 3 to 12 us per event
# Per node of the autograd graph: operators, their nested ones, backward, optimizer.
EVENTS_PER_NODE = 16
BYTES_PER_EVENT = 440  # of raw JSON, with shapes
SAMPLE_S = 0.02
MOST_STACKS, MOST_FRAMES = 6_000, 48
DEFAULTS = {
    "profile": True,
    "skip": 5,
    "settle": True,
    "warmup": 2,
    "active": 6,
    "every": 0,
    "ranks": "auto",
    "trace_budget": 4 << 30,
    "rendezvous": None,
}
FACTS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
)
CUPTI_HOLDERS = ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")

now = time.monotonic_ns


# --- guards: what fails is logged once and taken out -----------------------------------------

OFF = set()  # names of hooks that failed
UNDO = {}  # name of a hook -> how to take it out


def hook(name):
    """Make a function part of a hook: it fails at most once, and never into the user's program."""

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            if name in OFF:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                withdraw(name, error)
                return None

        return call

    return decorate


def withdraw(name, error):
    """Log a hook's failure, and put back what it had replaced."""
    OFF.add(name)
    said = "%s: %s" % (type(error).__name__, str(error)[:500])
    for undo in UNDO.pop(name, []):
        try:
            undo()
        except Exception as again:
            said += "; it stays in place: %r" % again
    try:
        STATE.log.event("fail", hook=name, error=said, t=now())
        with open(os.path.join(STATE.run, "inject.log"), "a") as file:
            file.write("pid %d: %s: %s\n" % (os.getpid(), name, said))
    except Exception:  # nowhere left to say it
        pass


def replace(name, owner, attribute, make):
    """Put ``make(original)`` in the place of an attribute, for as long as the hook works."""
    original = owner.__dict__[attribute]
    new = functools.wraps(original)(make(original))
    setattr(owner, attribute, new)

    def undo():
        if owner.__dict__.get(attribute) is new:
            setattr(owner, attribute, original)

    UNDO.setdefault(name, []).append(undo)


# --- the log: one file per process, one write per line ---------------------------------------


class Log:
    """Appends lines to this process's file; keeps them in memory until the process trains."""

    def __init__(self, folder):
        self.folder = folder
        self.fd = self.path = self.rank = None
        self.early = []
        self.torn, self.lost = False, 0
        self.anchored = 0

    def open(self, header):
        """Create the file, named by pid until the rank is known; write what came before."""
        self.path = os.path.join(self.folder, "pid%d.jsonl" % os.getpid())
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self.fd = os.open(self.path, flags, 0o600)
        self.anchored = now()
        early, self.early = self.early, None
        self.event("proc", clock=clock(), **header)
        for line in early:
            self.line(line)

    def name_by_rank(self, rank):
        """Give the file its final name: rank3.jsonl, or rank3.1.jsonl where that is taken."""
        for number in range(10_000):
            name = "rank%d%s" % (rank, ".%d" % number if number else "")
            path = os.path.join(self.folder, name + ".jsonl")
            try:
                os.link(self.path, path)
                os.unlink(self.path)
            except FileExistsError:
                continue
            except OSError:  # a disk without hard links
                if os.path.exists(path):
                    continue
                os.rename(self.path, path)
            self.path, self.rank = path, rank
            return

    def event(self, kind, **fields):
        """Write one event."""
        fields = {"k": kind, **fields}
        self.line(json.dumps(fields, separators=(",", ":"), default=str))

    def line(self, text):
        """Write one line, or several joined by newlines; a full disk costs those lines alone."""
        if self.fd is None:
            if self.early is not None and len(self.early) < MOST_EARLY:
                self.early.append(text)
            return
        at = now()
        if at - self.anchored > ANCHOR_EVERY_NS:
            self.anchored = at
            text = json.dumps({"k": "anchor", "clock": clock(), "t": at}) + "\n" + text
        if self.torn:
            text = '\n{"k":"lost","lines":%d,"t":%d}\n%s' % (self.lost, at, text)
        data = (text + "\n").encode("utf-8", "backslashreplace")
        try:
            whole = os.write(self.fd, data) == len(data)
        except OSError:
            whole = False
        self.torn, self.lost = (False, 0) if whole else (True, self.lost + 1)


def clock():
    """Return one instant on both clocks."""
    before = now()
    wall = time.time_ns()
    return {"mono_ns": (before + now()) // 2, "wall_ns": wall}


# --- what is known of this process -----------------------------------------------------------


class State:
    """Everything that is known of this process; forked children start anew."""

    def __init__(self, folder):
        self.folder = folder
        self.run = os.path.dirname(folder)
        self.config = dict(DEFAULTS)
        self.reset()

    def reset(self):
        """Forget what concerned another process."""
        self.pid = os.getpid()
        self.log = Log(os.path.join(self.run, "events"))
        self.begun = False
        self.rank = self.world = None
        self.groups = 0
        self.thread = threading.main_thread().ident
        self.local = threading.local()
        self.optimizers = {}  # id -> Calls
        self.calls = 0
        self.anchor = None
        self.by_batch = False
        self.batches = 0
        self.step, self.stepped_at, self.node = 0, None, None
        self.recent, self.nodes = [], []
        self.evals = {}
        self.switching = False
        self.collecting = self.compiling = None
        self.alloc = (0, 0)
        self.window, self.windows, self.foreign = None, 0, set()
        self.opens_at, self.earliest = None, None
        self.ours = False
        self.pending = False
        self.outcome = "short"
        self.sum = Sums()

    def here(self):
        """Tell whether this is the training thread."""
        return threading.get_ident() == self.thread


class Sums:
    """What a step adds up."""

    __slots__ = ("ckpt", "collected", "elsewhere", "fetches", "opts", "ours", "samples", "shape",
                 "skipped", "tokens", "waited")  # fmt: skip

    def __init__(self):
        self.fetches = self.waited = self.elsewhere = self.ckpt = self.collected = 0
        self.opts = self.skipped = self.ours = self.samples = self.tokens = 0
        self.shape = None


class Calls:
    """The calls of one optimizer."""

    __slots__ = ("count", "kind", "last", "number", "ref", "started")

    def __init__(self, optimizer, number):
        self.ref = weakref.ref(optimizer)
        self.number, self.kind = number, type(optimizer).__name__
        self.count = self.last = 0
        self.started = None


STATE = None


def torch_module():
    """Return the torch that this process has."""
    return sys.modules["torch"]


# --- who this process is ---------------------------------------------------------------------


def is_helper():
    """Tell whether this process serves another one that trains."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    if getattr(worker, "_worker_info", None) is not None:
        return True
    process = sys.modules.get("multiprocessing.process")
    target = getattr(process and process.current_process(), "_target", None)
    return str(getattr(target, "__module__", "")).startswith(
        ("torch.distributed.checkpoint", "torch._inductor")
    )


def begin():
    """Open the log: this process trains."""
    state = STATE
    if state.begun or is_helper():
        return state.begun
    state.begun = True
    state.log.open(
        {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "argv": list(getattr(sys, "orig_argv", sys.argv)),
            "rank": rank_of(last_word=False),
            "env": {name: os.environ[name] for name in FACTS if name in os.environ},
            "host": os.uname().nodename,
            "py": sys.version.split()[0],
            "torch": str(torch_module().__version__),
            "cuda": getattr(torch_module().version, "cuda", None),
            "thread": threading.get_native_id(),
            "t": now(),
        }
    )
    name_rank(last_word=False)
    return True


def joined():
    """Return torch.distributed where this process is in a group, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed
    return None


def rank_of(last_word):
    """Return the rank: of torch.distributed, else of the launcher; None: not known yet."""
    distributed = joined()
    if distributed is not None:
        return distributed.get_rank()
    names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if last_word else ("RANK",)
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0 if last_word else None


def name_rank(last_word):
    """Settle the rank, where it can be told, and name the log by it."""
    state = STATE
    if state.rank is not None:
        return
    rank = rank_of(last_word)
    if rank is not None:
        state.rank = rank
        state.log.name_by_rank(rank)


@hook("process groups")
def see_groups(started=None):
    """Write down the process groups that are new."""
    distributed = joined()
    if distributed is None:
        return
    state, c10d = STATE, sys.modules["torch.distributed.distributed_c10d"]
    names = c10d._world.pg_names
    if len(names) == state.groups:
        return
    at = now()
    if state.world is None:
        name_rank(last_word=True)
        rank, state.world = distributed.get_rank(), distributed.get_world_size()
        backend, took = distributed.get_backend(), at - started if started else None
        state.log.event(
            "dist", rank=rank, world=state.world, backend=backend, t=started or at, dur=took
        )
    for group, name in list(names.items())[state.groups :]:
        ranks = sorted(c10d._world.pg_group_ranks.get(group, ()))
        desc = getattr(group, "group_desc", None)
        state.log.event("pg", name=str(name), desc=desc, ranks=ranks, t=at)
    state.groups = len(names)


def watch_groups(module):
    """Hook torch.distributed.distributed_c10d."""

    def make(original):
        def init_process_group(*args, **kwargs):
            started = now()
            result = original(*args, **kwargs)
            joined_group(started)
            return result

        return init_process_group

    replace("process groups", module, "init_process_group", make)


@hook("process groups")
def joined_group(started):
    """A process that is in a group is a rank, whether or not it ever steps."""
    if begin():
        see_groups(started)


@hook("device")
def see_device():
    """Write down which device this process uses."""
    cuda = torch_module().cuda
    if cuda.is_initialized():
        index = cuda.current_device()
        properties = cuda.get_device_properties(index)
        uuid = str(getattr(properties, "uuid", "")) or None
        STATE.log.event("dev", name=properties.name, index=index, uuid=uuid, t=now())
        watch_memory()


# --- optimizer calls, and the steps that they mark -------------------------------------------


def watch_optimizers(module):
    """Hook torch.optim.optimizer."""
    before = module.register_optimizer_step_pre_hook(before_optimizer)
    after = module.register_optimizer_step_post_hook(after_optimizer)
    UNDO["optimizer"] = [before.remove, after.remove]


def watch_scaler(module):
    """Hook torch.amp.grad_scaler: a step that is skipped for its gradients is a step still."""

    def make(original):
        def _maybe_opt_step(self, optimizer, *args, **kwargs):
            started, calls = now(), STATE.calls
            result = original(self, optimizer, *args, **kwargs)
            if STATE.calls == calls:
                skipped_call(optimizer, started)
            return result

        return _maybe_opt_step

    replace("scaler", module.GradScaler, "_maybe_opt_step", make)


def is_compiling():
    """Tell whether torch.compile is tracing: it must find nothing here."""
    return sys.modules["torch"].compiler.is_compiling()


@hook("optimizer")
def note_start(optimizer):
    calls_of(optimizer).started = now()


def before_optimizer(optimizer, args, kwargs):
    """See an optimizer's step begin."""
    if not is_compiling():
        note_start(optimizer)


def after_optimizer(optimizer, args, kwargs):
    """See an optimizer's step end."""
    if not is_compiling():
        note_call(optimizer)


def calls_of(optimizer):
    """Return the record of an optimizer; one at the address of a dead one is another."""
    known = STATE.optimizers.get(id(optimizer))
    if known is None or known.ref() is not optimizer:
        number = len(STATE.optimizers) if known is None else known.number
        known = STATE.optimizers[id(optimizer)] = Calls(optimizer, number)
    return known


@hook("optimizer")
def note_call(optimizer):
    calls = calls_of(optimizer)
    started, calls.started = calls.started, None
    count_call(calls, now() if started is None else started, skipped=False)


@hook("scaler")
def skipped_call(optimizer, started):
    count_call(calls_of(optimizer), started, skipped=True)


def count_call(calls, started, skipped):
    """Log a call, and end the step where it is the one that marks steps."""
    state, ended = STATE, now()
    if not begin():
        return
    inside = in_backward()
    if not inside:
        state.thread = threading.get_ident()
    state.calls += 1
    state.by_batch = False
    state.sum.opts += 1
    calls.count += 1
    calls.last = state.calls
    if calls.number < MOST_OPTIMIZERS:
        more = (',"skip":1' if skipped else "") + (',"bw":1' if inside else "")
        state.log.line(
            '{"k":"opt","t":%d,"dur":%d,"id":%d,"cls":"%s","mb":%d%s}'
            % (started, ended - started, calls.number, calls.kind, state.sum.fetches, more)
        )
    if marks_step(calls):
        end_step(ended, inside)


def marks_step(calls):
    """Tell whether this call ends a step: that of the rarest optimizer still in use does."""
    state = STATE
    reach = max(16, 4 * len(state.optimizers))
    if state.anchor is None:
        state.anchor = calls
    elif calls is state.anchor:
        alive = [c for c in state.optimizers.values() if state.calls - c.last < reach]
        rarest = min(alive, key=lambda c: (c.count, c.number))
        if rarest.count < calls.count - 1:  # an optimizer that came later, and is called less
            start_counting(rarest)
            return False
    elif state.calls - state.anchor.last > reach:  # the old one is no longer called
        start_counting(calls)
    return calls is state.anchor


def start_counting(anchor):
    """Let another optimizer mark the steps."""
    STATE.anchor, STATE.recent = anchor, []
    for calls in STATE.optimizers.values():
        calls.count = 1 if calls is anchor else 0


def end_step(at, inside):
    """Write a step's sums; let the window open, go on or close."""
    state, sums = STATE, STATE.sum
    if state.step == 0:
        first_step()
    state.step += 1
    took = None if state.stepped_at is None else at - state.stepped_at
    state.stepped_at, state.sum = at, Sums()
    lines = []
    if sums.samples:
        lines.append(
            '{"k":"tokens","step":%d,"samples":%d,"tokens":%s,"shape":%s,"t":%d}'
            % (state.step, sums.samples, sums.tokens or "null", json.dumps(sums.shape), at)
        )
    lines.append(
        '{"k":"step","n":%d,"t":%d,"dt":%s,"dl":%d,"dln":%d,"dlb":%d,"bw":%d,"ck":%d,"gc":%d,'
        '"oc":%d,"ov":%d,"ps":"%s"}'
        % (
            state.step, at, "null" if took is None else took, sums.waited, sums.fetches,
            sums.elsewhere, inside, sums.ckpt, sums.collected, sums.opts, sums.ours, phase(),
        )
    )  # fmt: skip
    state.log.line("\n".join(lines))
    state.evals.clear()  # who steps is training, whatever the modules say
    if took is not None:
        state.recent = [*state.recent, took - sums.ours][-SETTLED_STEPS:]
    if state.step % ALLOCATOR_EVERY == 0:
        look_around()
    drive()


def first_step():
    """By now everything that says who this is has happened."""
    see_groups()
    name_rank(last_word=True)
    see_device()


def phase():
    """Return what the window does: idle, warm, on, or done."""
    if STATE.window is not None:
        return "on" if STATE.window.recording else "warm"
    return "done" if STATE.windows else "idle"


# --- the loader ------------------------------------------------------------------------------


def watch_loader(module):
    """Hook torch.utils.data.dataloader: each batch, and what starting an epoch costs."""

    def make_next(original):
        def __next__(self):
            outer = fetch_begins()
            if outer is None:
                return original(self)
            batch, ended = None, True
            try:
                batch = original(self)
                ended = False
                return batch
            finally:
                fetch_ends(outer, self, batch, ended)

        return __next__

    def make_iter(original):
        def __iter__(self):
            outer = fetch_begins(is_batch=False)
            if outer is None:
                return original(self)
            try:
                return original(self)
            finally:
                epoch_begins(outer, self)

        return __iter__

    replace("loader", module._BaseDataLoaderIter, "__next__", make_next)
    replace("loader", module.DataLoader, "__iter__", make_iter)


@hook("loader")
def fetch_begins(is_batch=True):
    """Return when a wait begins; None for a loader inside a loader, and in a loader's worker."""
    state = STATE
    if getattr(state.local, "fetching", False) or not (state.begun or begin()):
        return None
    if is_batch and state.by_batch and state.here():
        end_step(now(), False)
    state.local.fetching = True
    return now()


@hook("loader")
def fetch_ends(started, loader, batch, ended):
    """Log a wait of this thread for a batch."""
    state, took = STATE, now() - started
    state.local.fetching = False
    if not state.here():  # a thread that fetches ahead: nobody waits for it here
        state.sum.elsewhere += 1
        return
    sums = state.sum
    sums.waited += took
    if not ended and not state.evals:
        sums.fetches += 1
    elif not ended:
        graded = torch_module().is_grad_enabled()
        for one in state.evals.values():
            one.fetched(graded)
    if not ended:
        state.batches += 1
        shape, size, tokens = measure(batch)
        if size is not None and not state.evals:
            sums.samples += size
            sums.tokens += tokens or 0
            sums.shape = shape
        if not state.calls and not state.by_batch:
            state.by_batch = state.batches >= (
                NO_CALL_AFTER if optimizer_made() else NO_OPTIMIZER_AFTER
            )
    else:
        shape, size = None, None
    if took >= LEAST_SPAN_NS:
        workers = getattr(loader, "_num_workers", None)
        more = {"end": True} if ended else {}
        state.log.event(
            "dl_wait",
            t=started,
            dur=took,
            step=state.step,
            nw=workers,
            bs=size,
            shape=shape,
            **more,
        )


@hook("loader")
def epoch_begins(started, loader):
    """Log what it took to start an epoch: workers are started here."""
    state, took = STATE, now() - started
    state.local.fetching = False
    if took >= LEAST_SPAN_NS and state.here():
        state.sum.waited += took
        workers = getattr(loader, "num_workers", None)
        state.log.event("dl_wait", t=started, dur=took, step=state.step, nw=workers, start=True)


def measure(batch):
    """Return the shape, samples and tokens of a batch, by its ids, else by its first tensor."""
    first = batch
    for _ in range(3):  # a dict of tensors, a pair of tensors, a pair of a list and a tensor
        if hasattr(first, "shape"):
            break
        if hasattr(first, "keys"):
            first = first["input_ids"] if "input_ids" in first else next(iter(first.values()), None)
        elif isinstance(first, (list, tuple)) and first:
            first = first[0]
        else:
            break
    shape = getattr(first, "shape", None)
    if shape is None or not len(shape):
        return None, None, None
    shape = [int(n) for n in shape]
    whole = len(shape) == len("BT") and str(getattr(first, "dtype", "")).endswith(
        ("int64", "int32")
    )
    return shape, shape[0], shape[0] * shape[1] if whole else None


def optimizer_made():
    """Tell whether any optimizer was made in this process, whether or not it was called."""
    kinds = [sys.modules["torch.optim.optimizer"].Optimizer]
    while kinds:
        kind = kinds.pop()
        if getattr(getattr(kind, "step", None), "hooked", False):
            return True
        kinds += kind.__subclasses__()
    return False


# --- checkpoints -----------------------------------------------------------------------------


def watch_save(owner, attribute, api, target, is_async=False):
    """Hook a function that saves; ``target`` is (position, keyword) of what it saves to."""

    def make(original):
        def save(*args, **kwargs):
            saving = save_begins(api, args, kwargs, target)
            if saving is None:
                return original(*args, **kwargs)
            result, failed = None, True
            try:
                result = original(*args, **kwargs)
                failed = False
                return result
            finally:
                save_ends(saving, result, failed, is_async)

        return save

    replace("save", owner, attribute, make)


class Saving:
    """A save that runs: when it began, what it writes to, and what saves inside it wrote."""

    def __init__(self, api, to):
        self.api, self.to = api, to
        self.position = position_of(to)
        self.inner_bytes = 0
        self.wall = time.time()
        self.started = now()


@hook("save")
def save_begins(api, args, kwargs, target):
    """Return a save that begins; savers that call others are one save."""
    position, keyword = target
    to = kwargs.get(keyword, args[position] if len(args) > position else None)
    saving = Saving(api, to)
    running = STATE.local.__dict__.setdefault("saves", [])
    running.append(saving)
    return saving


@hook("save")
def save_ends(saving, result, failed, is_async):
    """Log the outermost save; the bytes of inner ones are its own."""
    state, took = STATE, now() - saving.started
    running = state.local.saves
    del running[running.index(saving) :]
    written = saving.inner_bytes or bytes_written(saving)
    if running:
        running[-1].inner_bytes += written or 0
        return
    fields = {
        "api": saving.api, "t": saving.started, "dur": took, "step": state.step,
        "to": name_of(saving.to), "bytes": written, "async": is_async,
    }  # fmt: skip
    if failed:
        fields["failed"] = True
    if not state.here():
        state.log.event("ckpt_bg", **fields)
        return
    state.sum.ckpt += took
    state.log.event("ckpt", **fields)
    done = getattr(result, "upload_completion", result)
    if is_async and hasattr(done, "add_done_callback"):
        done.add_done_callback(functools.partial(upload_ended, fields))


@hook("save")
def upload_ended(fields, _future):
    """Log the end of a save that went on in the background."""
    whole = dict(fields, dur=now() - fields["t"])
    STATE.log.event("ckpt_bg", **whole)


def position_of(to):
    """Return where an open file stands; None for what has no position."""
    try:
        return to.tell()
    except Exception:
        return None


def bytes_written(saving):
    """Return what a save left on disk, or in its buffer; None where that can't be told."""
    to = saving.to
    try:
        if hasattr(to, "write"):
            size = to.getbuffer().nbytes if hasattr(to, "getbuffer") else to.tell()
            return size - (saving.position or 0)
        if os.path.isdir(to):
            entries = [entry.stat() for entry in os.scandir(to) if entry.is_file()]
            return sum(s.st_size for s in entries if s.st_mtime >= saving.wall - 1) or None
        return os.path.getsize(to)
    except Exception:
        return None


def name_of(to):
    """Return the path that is saved to, in few characters."""
    if isinstance(to, (str, os.PathLike)):
        return os.fsdecode(to)[:500]
    name = getattr(to, "name", None) or getattr(to, "path", None)
    return str(name)[:500] if isinstance(name, (str, os.PathLike)) else type(to).__name__


def watch_dcp(module):
    """Hook torch.distributed.checkpoint's saves."""
    target = (9, "checkpoint_id")  # by keyword alone
    watch_save(module, "save", "dcp.save", target)
    watch_save(module, "async_save", "dcp.async_save", target, is_async=True)


# --- evaluation, garbage, compilation, memory ------------------------------------------------


class Eval:
    """A module that was put into eval mode."""

    def __init__(self, module):
        self.ref = weakref.ref(module)
        self.started = self.last = now()
        self.batches = self.graded = 0

    def fetched(self, graded):
        """A batch came while it was."""
        self.last = now()
        self.batches += 1
        self.graded += graded

    def write(self, ended, **more):
        """Log the phase; ``no_grad``: whether its batches came with gradients off."""
        no_grad = None if not self.batches else not self.graded
        STATE.log.event(
            "eval", t=self.started, dur=ended - self.started, batches=self.batches,
            no_grad=no_grad, **more,
        )  # fmt: skip


def watch_modes(module):
    """Hook Module.train, which Module.eval calls too; it calls itself for each child."""

    def make(original):
        def train(self, mode=True):
            state = STATE
            if state.switching:
                return original(self, mode)
            mode_changes(self, mode)
            state.switching = True
            try:
                return original(self, mode)
            finally:
                state.switching = False

        return train

    replace("eval", module.Module, "train", make)


@hook("eval")
def mode_changes(module, mode):
    """A module that leaves training begins an evaluation; its return ends it."""
    state = STATE
    if not state.here():
        return
    if not mode:
        if module.training and id(module) not in state.evals:
            state.evals[id(module)] = Eval(module)
        return
    known = state.evals.get(id(module))
    if known is None or known.ref() is not module:
        return
    later = [key for key, one in state.evals.items() if one.started >= known.started]
    for key in later:
        del state.evals[key]
    known.write(now())


@hook("gc")
def on_collection(phase, info):
    """Log collections by their generation; short ones are only summed."""
    state = STATE
    if phase == "start":
        state.collecting = now()
        return
    started, state.collecting = state.collecting, None
    if started is None:
        return
    took = now() - started
    if state.here():
        state.sum.collected += took
    if took >= LEAST_SPAN_NS:
        state.log.event(
            "gc", t=started, dur=took, gen=info.get("generation"), col=info.get("collected")
        )


def watch_garbage():
    """Hook the garbage collector."""
    import gc

    if on_collection in gc.callbacks:  # torch was reloaded
        return
    gc.callbacks.append(on_collection)
    UNDO["gc"] = [lambda: gc.callbacks.remove(on_collection)]


@hook("compile")
def compile_begins(*_args):
    STATE.compiling = now()


@hook("compile")
def compile_ends(*args):
    """Log a compilation; the id of dynamo, frame/number, says whether it is a second one."""
    state = STATE
    started, state.compiling = state.compiling, None
    if started is None:
        return
    what = str(getattr(args[0], "compile_id", "") or "") if args else ""
    number = what.rpartition("/")[2].partition("_")[0]
    trigger = str(getattr(getattr(args[0], "callback_trigger", None), "name", "")) if args else ""
    state.log.event(
        "compile", t=started, dur=now() - started, what=what,
        recompile=number.isdigit() and int(number) > 0, trigger=trigger.lower() or None,
    )  # fmt: skip


def watch_compiler(module):
    """Hook torch._dynamo.callback."""
    handler = module.callback_handler
    handler.register_start_callback(compile_begins)
    handler.register_end_callback(compile_ends)
    UNDO["compile"] = [
        lambda: handler.remove_start_callback(compile_begins),
        lambda: handler.remove_end_callback(compile_ends),
    ]


def watch_memory():
    """Ask CUDA's allocator to tell of allocations that fail for good."""
    observe = getattr(torch_module()._C, "_cuda_attach_out_of_memory_observer", None)
    if observe is not None:
        observe(out_of_memory)


@hook("memory")
def out_of_memory(_device, wanted, _allocated, free):
    STATE.log.event("oom", t=now(), step=STATE.step, wanted=wanted, free=free)


@hook("memory")
def look_around():
    """Now and then: groups made since, retries of the allocator, a compiler that was reset."""
    see_groups()
    see_retries()
    dynamo = sys.modules.get("torch._dynamo.callback")
    if dynamo is None or "compile" in OFF:
        return
    if compile_begins not in dynamo.callback_handler.start_callbacks:
        watch_compiler(dynamo)


def see_retries():
    """Log allocations that had to be tried again since the last look."""
    state, cuda = STATE, torch_module().cuda
    if not cuda.is_initialized():
        return
    stats = cuda.memory_stats_as_nested_dict()
    counts = (stats.get("num_alloc_retries", 0), stats.get("num_ooms", 0))
    if counts != state.alloc:
        state.alloc = counts
        state.log.event("alloc", retries=counts[0], ooms=counts[1], step=state.step, t=now(), dur=0)


# --- the window of torch.profiler ------------------------------------------------------------


def in_backward():
    """Tell whether this thread runs a backward pass."""
    return torch_module()._C._current_graph_task_id() != -1


def safe_here():
    """Tell whether the profiler may be touched at this point."""
    torch = torch_module()
    if in_backward() or not STATE.here():
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


@hook("profiler")
def drive():
    """Open, advance or close the window where the step has ended, or once it is safe."""
    state = STATE
    if not state.config["profile"]:
        state.outcome = "off"
        return
    note_nodes()
    if state.window is None and not wants_window():
        return
    if safe_here():
        move_window()
    elif in_backward():
        state.pending = True
        watch_backward()


def note_nodes():
    """Count the nodes of the autograd graph that the step made: events cost in proportion."""
    state, count = STATE, getattr(torch_module()._C._autograd, "_get_sequence_nr", None)
    if count is None or not state.here():
        return
    node = count()
    if state.node is not None:
        state.nodes = [*state.nodes, node - state.node][-SETTLED_STEPS:]
    state.node = node


def watch_backward():
    """Go on at the end of the backward pass: here an optimizer steps inside it."""
    autograd = torch_module().autograd
    if hasattr(autograd.backward, "_gpudiag"):
        return

    def make(original):
        def backward(*args, **kwargs):
            result = original(*args, **kwargs)
            if STATE.pending and not in_backward():
                after_backward()
            return result

        backward._gpudiag = True
        return backward

    replace("profiler", autograd, "backward", make)


@hook("profiler")
def after_backward():
    STATE.pending = False
    STATE.thread = threading.get_ident()
    if safe_here():
        move_window()


def move_window():
    """Do the next thing with the window."""
    with ours():
        if STATE.window is None:
            open_window()
        else:
            advance_window()


class ours:
    """What happens inside is our doing: its time is ours, and so are profilers that start."""

    def __enter__(self):
        self.started, STATE.ours = now(), True
        # Kineto's notes are kept off the user's stderr, unless they asked for them.
        self.quiet = "KINETO_LOG_LEVEL" not in os.environ
        if self.quiet:
            os.environ["KINETO_LOG_LEVEL"] = "6"

    def __exit__(self, *_error):
        if self.quiet:
            os.environ.pop("KINETO_LOG_LEVEL", None)
        state, took = STATE, now() - self.started
        state.ours = False
        state.sum.ours += took
        if took >= LEAST_SPAN_NS:
            state.log.event("prof_overhead", ns=took, step=state.step, t=self.started)


def wants_window():
    """Tell whether the window is due at this step."""
    state, config = STATE, STATE.config
    if state.windows and not config["every"]:
        return False
    if state.earliest is None:
        state.earliest = config["skip"]
    if state.step < state.earliest:
        return False
    if not traced_rank():
        state.outcome = "not this rank"
        return False
    if state.opens_at is None:
        state.opens_at = opening_step()
    return state.opens_at is not None and state.step >= state.opens_at


def opening_step():
    """Return the step at which the window opens; None: not decided yet.

    Ranks that step together trace the same steps: the first one whose steps have settled proposes
    one a little ahead, in a file that the others find.
    """
    state, config = STATE, STATE.config
    ready = state.windows or not config["settle"] or settled()
    if not state.world or state.world == 1 or state.windows or not config["settle"]:
        return state.step if ready else None
    job = os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("MASTER_PORT") or os.getppid()
    job = "%s-%s" % (job, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    name = "window-" + "".join(c if c.isalnum() or c == "-" else "_" for c in job)[:100]
    path = os.path.join(config["rendezvous"] or state.folder, name)
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        pass
    if not ready:
        return None
    proposal = state.step + AGREED_STEPS
    own = "%s.%s.%d" % (path, os.uname().nodename, os.getpid())
    try:
        with open(own, "w") as file:
            file.write(str(proposal))
        try:
            os.link(own, path)
        finally:
            os.unlink(own)
    except FileExistsError:
        with open(path) as file:
            return int(file.read())
    except OSError:  # no room, or no hard links: each rank for itself
        pass
    return proposal


def settled():
    """Tell whether step times no longer change, or have had long enough."""
    state = STATE
    if state.step >= state.earliest + SETTLE_AT_MOST:
        return True
    times = sorted(state.recent)
    middle = times[len(times) // 2] if times else 0
    return len(times) >= SETTLED_STEPS and times[-1] - times[0] <= 2 * SETTLED_FRAC * middle


def traced_rank():
    """Tell whether this rank is one of those to trace."""
    state, ranks = STATE, STATE.config["ranks"]
    if ranks == "all" or not state.world:
        return True
    if ranks == "auto":
        chosen = chosen_ranks()
        if chosen is not None:
            return state.rank in chosen
        stride = -(-state.world // 64)
        # A different place in each run of ranks: not always the first GPU of a node.
        return state.rank % stride == (state.rank // stride * 5) % stride
    return state.rank in ranks


def chosen_ranks():
    """Return the ranks that gpudiag chose from outside, having seen step times; None: not yet."""
    try:
        with open(os.path.join(STATE.folder, "ranks.json")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def affordable_steps():
    """Return how many steps can be recorded within the budget for bytes and events."""
    state, config = STATE, STATE.config
    wanted, world = config["active"], state.world or 1
    traced = len(config["ranks"]) if isinstance(config["ranks"], list) else min(world, 64)
    local = min(traced, int(os.environ.get("LOCAL_WORLD_SIZE") or 0) or world)
    disk = os.statvfs(os.path.join(state.run, "traces"))
    room = disk.f_bavail * disk.f_frsize // (4 * local)
    budget = min(config["trace_budget"] // traced, room, MOST_EVENTS * BYTES_PER_EVENT)
    per_step = max([1, *state.nodes]) * EVENTS_PER_NODE * BYTES_PER_EVENT
    return min(wanted, budget // per_step)


def open_window():
    """Start warming up, unless somebody else profiles or there is no room."""
    state, at = STATE, now()
    why, later = None, None
    if state.foreign or torch_module()._C._autograd._profiler_enabled():
        why, later = "the program's own profiler is on", 5
    else:
        steps = affordable_steps()
        if steps < 1:
            why, later = "a step's trace is over the budget, or the disk is full", 1_000
    if why is not None:
        if state.outcome != why:
            state.log.event("defer", why=why, step=state.step, t=at)
        state.outcome = why
        state.earliest, state.opens_at = state.step + later, None
        return
    state.window = Window(state.step + 1, state.config["warmup"], steps)
    state.windows += 1
    state.window.start()
    state.log.event("prof_start", step=state.step, active=steps, dur_ns=now() - at, t=at)


def advance_window():
    """A step of the window has ended."""
    window, state = STATE.window, STATE
    if now() - window.opened > MOST_WINDOW_NS:
        close_window("time")
    elif state.step - window.first + 1 >= window.warmup + window.active:
        close_window("window")
    elif window.events() > MOST_EVENTS:
        close_window("events")
    else:
        window.advance()


@hook("profiler")
def close_window(why):
    """End the window, and export what it recorded."""
    state, at = STATE, now()
    window, state.window = state.window, None
    state.outcome = why
    state.earliest = state.step + max(1, state.config["every"] - (state.step - window.first + 1))
    state.opens_at = None
    state.recent = []
    try:
        window.stop()
    finally:
        state.log.event("prof_stop", why=why, step=state.step, dur_ns=now() - at, t=at)


class Window:
    """Some steps of torch.profiler: warming up, then recording."""

    def __init__(self, first, warmup, active):
        torch = torch_module()
        self.first, self.warmup, self.active = first, warmup, active
        self.opened = now()
        self.thread = threading.get_ident()
        self.node = None
        kinds = torch.profiler.ProfilerActivity
        activities = [kinds.CPU]
        held = [name for name in CUPTI_HOLDERS if os.environ.get(name)]
        if torch.cuda.is_initialized() and not held:
            activities.append(kinds.CUDA)
            tear_cupti_down()
        elif torch.cuda.is_initialized():
            STATE.log.event("defer", why="no GPU activity: %s is set" % held[0], t=now())
        xpu = getattr(torch, "xpu", None)
        if xpu is not None and xpu.is_initialized():
            activities.append(kinds.XPU)
        self.profiler = torch.profiler.profile(
            activities=activities, schedule=self.action, record_shapes=True
        )
        self.profiler.step_num = first
        self.stacks = Stacks()

    def action(self, number):
        """Return what torch.profiler does in a step."""
        kinds = torch_module().profiler.ProfilerAction
        return kinds.WARMUP if number < self.first + self.warmup else kinds.RECORD

    @property
    def recording(self):
        """Whether the current step is recorded."""
        return self.profiler.current_action == torch_module().profiler.ProfilerAction.RECORD

    def start(self):
        """Begin with the step that begins."""
        self.profiler.start()
        self.records_from_here()

    def advance(self):
        """Go on to the step that begins."""
        self.profiler.step()
        self.records_from_here()

    def records_from_here(self):
        """Start what goes with recording."""
        if self.recording and self.node is None:
            self.node = STATE.node or 0
            self.stacks.start()

    def events(self):
        """Return about how many events are recorded so far."""
        return 0 if self.node is None else ((STATE.node or 0) - self.node) * EVENTS_PER_NODE

    def lost(self):
        """Tell whether somebody else ended our session: stopping or exporting it would crash."""
        enabled = torch_module()._C._autograd._profiler_enabled()
        return threading.get_ident() != self.thread or (self.recording and not enabled)

    def stop(self):
        """Stop, and export what was recorded."""
        self.stacks.stop()
        if self.lost():
            STATE.log.event("defer", why="the session was ended by somebody else", t=now())
            return
        recorded = self.recording
        self.profiler.stop()
        if recorded:
            self.export()
            self.stacks.write()

    def export(self):
        """Write the trace beside its final name, then give it that."""
        started, folder = now(), os.path.join(STATE.run, "traces")
        mine = "pid%d." % os.getpid()
        partial = os.path.join(folder, mine + "json.tmp")
        try:
            self.profiler.export_chrome_trace(partial)
            name = free_name(folder)
            os.rename(partial, os.path.join(folder, name))
        finally:  # Kineto writes beside it too; on a full disk both are left
            for left in os.listdir(folder):
                if left.startswith(mine):
                    os.unlink(os.path.join(folder, left))
        size = os.path.getsize(os.path.join(folder, name))
        STATE.log.event(
            "trace", file=name, raw=size, export_ns=now() - started, step=STATE.step,
            first=self.first + self.warmup, t=started,
        )  # fmt: skip


def free_name(folder):
    """Return the name of a trace that isn't taken, packed or not."""
    taken = {name.partition(".json")[0] for name in os.listdir(folder)}
    name = "rank%d" % STATE.rank
    return next(
        one + ".json" for one in (name, *("%s.%d" % (name, i) for i in range(1, 10_000)))
        if one not in taken
    )  # fmt: skip


def tear_cupti_down():
    """Let CUPTI go when the window ends, where that works: else kernels stay slower after it."""
    version = str(getattr(torch_module().version, "cuda", None) or "0")
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if numbers >= [12, 6]:
        os.environ.setdefault("TEARDOWN_CUPTI", "1")


class Stacks:
    """Where the training thread's Python is, sampled while a window records."""

    def __init__(self):
        self.thread = threading.get_ident()
        self.on = False
        self.rows = []  # [start, end, samples, frames]
        self.cost = 0

    def start(self):
        """Sample from a thread of its own, which no list of threads shows."""
        import _thread

        self.on = True
        _thread.start_new_thread(self.sample, ())

    def stop(self):
        """Take no more samples."""
        self.on = False

    def sample(self):
        """Append a row for each stack that differs from the one before."""
        try:
            while self.on and len(self.rows) < MOST_STACKS:
                time.sleep(SAMPLE_S)
                started = now()
                where = frames_of(sys._current_frames().get(self.thread))
                if not self.on or not where:
                    continue
                last = self.rows[-1] if self.rows else None
                if last is not None and last[3] == where:
                    last[1], last[2] = started, last[2] + 1
                else:
                    self.rows.append([started, started, 1, where])
                self.cost += now() - started
        except Exception as error:
            withdraw("stacks", error)

    def write(self):
        """Log the rows; done once the window has ended."""
        lines = [
            json.dumps({"k": "stack", "t": t, "dur": end - t, "frames": frames, "n": n})
            for t, end, n, frames in self.rows
        ]
        if lines:
            STATE.log.line("\n".join(lines))
            STATE.log.event("stacks_cost", ns=self.cost, n=sum(r[2] for r in self.rows), t=now())


def frames_of(frame):
    """Return ``file:line function`` of a stack, innermost first."""
    frames = []
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        if code.co_filename != __file__:
            frames.append("%s:%d %s" % (code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return frames


# --- the user's own profiler always wins -----------------------------------------------------


def watch_profiler(module):
    """Hook torch.profiler.profiler: know of the user's profiles while they are open."""

    def make_start(original):
        def start(self, *args, **kwargs):
            users_profiler(self, "start")
            return original(self, *args, **kwargs)

        return start

    def make_stop(original):
        def stop(self, *args, **kwargs):
            try:
                return original(self, *args, **kwargs)
            finally:
                users_profiler(self, "stop")

        return stop

    replace("own profiler", module.profile, "start", make_start)
    replace("own profiler", module.profile, "stop", make_stop)


def watch_legacy_profiler(module):
    """Hook torch.autograd.profiler, which every profiler starts through."""

    def make(original):
        def _prepare_trace(self, *args, **kwargs):
            users_profiler(self, "prepare")
            return original(self, *args, **kwargs)

        return _prepare_trace

    replace("own profiler", module.profile, "_prepare_trace", make)


@hook("own profiler")
def users_profiler(profiler, what):
    """Give way to a profiler that isn't ours: end our window, and open none while it is on."""
    state = STATE
    if state.ours:
        return
    if what == "stop":
        state.foreign.discard(id(profiler))
        return
    if what == "start":
        state.foreign.add(id(profiler))
    if state.window is not None and not in_backward():
        with ours():
            close_window("the program's own profiler started")


# --- fork and exit ---------------------------------------------------------------------------


def in_child():
    """A forked child has neither our file nor our window."""
    state = STATE
    had_window = state.window is not None and state.window.recording
    if state.log.fd is not None:
        os.close(state.log.fd)
    state.reset()
    if had_window:
        stop_recording()


def stop_recording():
    """End what a child inherits of a window: it would hold each operator in memory, for ever."""
    torch = torch_module()
    quiet, stderr = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    try:
        os.dup2(quiet, 2)  # torch warns that collection is switched
        torch.autograd._toggle_collection_dynamic(False, {torch.profiler.ProfilerActivity.CPU})
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(quiet)


@hook("exit")
def at_exit():
    """Export what a window has, and say how the process got on."""
    state = STATE
    if os.getpid() != state.pid or not state.begun:
        return
    if state.step or OFF:  # who never steps may be the parent of those that do
        name_rank(last_word=True)
    if state.window is not None and safe_here():
        with ours():
            close_window("exit")
    if not state.by_batch:
        for one in list(state.evals.values())[:1]:
            if one.batches:
                one.write(one.last, open=True)
    see_retries()
    state.log.event("exit", steps=state.step, profile=state.outcome, windows=state.windows, t=now())


def watch_process(_torch):
    """Hook the process itself, once torch is there."""
    import atexit

    watch_garbage()
    atexit.register(at_exit)
    os.register_at_fork(after_in_child=hook("fork")(in_child))


# --- imports ---------------------------------------------------------------------------------


def watch_trainer(api, attribute, target):
    """Return a hook for a class's method that saves a checkpoint."""

    def watch(module):
        watch_save(getattr(module, attribute[0]), attribute[1], api, target)

    return watch


LIGHTNING = watch_trainer(
    "lightning.save_checkpoint", ("Trainer", "save_checkpoint"), (1, "filepath")
)
FABRIC = watch_trainer("fabric.save", ("Fabric", "save"), (1, "path"))
# Module -> what is hooked in it once it has been imported.
MODULES = {
    "torch": watch_process,
    "torch.serialization": lambda m: watch_save(m, "save", "torch.save", (1, "f")),
    "torch.optim.optimizer": watch_optimizers,
    "torch.amp.grad_scaler": watch_scaler,
    "torch.nn.modules.module": watch_modes,
    "torch.utils.data.dataloader": watch_loader,
    "torch.autograd.profiler": watch_legacy_profiler,
    "torch.profiler.profiler": watch_profiler,
    "torch.distributed.distributed_c10d": watch_groups,
    "torch.distributed.checkpoint.state_dict_saver": watch_dcp,
    "torch._dynamo.callback": watch_compiler,
    "safetensors.torch": lambda m: watch_save(
        m, "save_file", "safetensors.save_file", (1, "filename")
    ),
    "transformers.trainer": watch_trainer(
        "transformers.save_checkpoint", ("Trainer", "_save_checkpoint"), (9, "output_dir")
    ),
    "accelerate.accelerator": watch_trainer(
        "accelerate.save_state", ("Accelerator", "save_state"), (1, "output_dir")
    ),
    "lightning.pytorch.trainer.trainer": LIGHTNING,
    "pytorch_lightning.trainer.trainer": LIGHTNING,
    "lightning.fabric.fabric": FABRIC,
    "lightning_fabric.fabric": FABRIC,
}  # fmt: skip


class Finder:
    """Finds what the other finders find; a few modules are hooked once they have been executed.

    The loader's ``exec_module`` is replaced on the instance and put back when it is called: its
    type, and everything that is asked of it later, are the user's own.
    """

    def __init__(self):
        self.busy = threading.local()

    def find_spec(self, name, path=None, target=None):
        """Return the spec of a module, as the other finders give it."""
        if name not in MODULES or getattr(self.busy, name, False):
            return None
        setattr(self.busy, name, True)
        try:
            spec = None
            for finder in list(sys.meta_path):
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        break
        finally:
            setattr(self.busy, name, False)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self.watch(spec.loader, name)
        return spec

    @staticmethod
    def watch(loader, name):
        """Hook the module once its own loader has executed it."""
        execute = loader.exec_module

        def exec_module(module):
            vars(loader).pop("exec_module", None)
            execute(module)
            if getattr(sys.modules.get(name), "__spec__", None) is module.__spec__:
                hook("import of " + name)(MODULES[name])(module)

        # A loader that takes no attributes: that module goes unwatched.
        with contextlib.suppress(AttributeError):
            loader.exec_module = exec_module


def activate(folder):
    """Watch imports; return the finder. Called once per process."""
    global STATE
    STATE = State(folder)
    with open(os.path.join(folder, "config.json")) as file:
        STATE.config.update(json.load(file))
    finder = Finder()
    sys.meta_path.insert(0, finder)
    return finder
