"""The traces of a job: which files belong together, by rank; never two runs merged silently."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING, TypeAlias

from gpudiag.errors import InputError, UsageError
from gpudiag.model.analysis import Input
from gpudiag.model.format import counted
from gpudiag.model.job import JobTraces, RankTrace
from gpudiag.model.tables import Quality
from gpudiag.trace.detect import EVENT_LOG, NotATraceError, detect
from gpudiag.trace.event_log import EventLog, damage_of, read_event_log
from gpudiag.trace.find import find_files
from gpudiag.trace.identify import Member, identify
from gpudiag.trace.logged import process_of, starts_after, with_events
from gpudiag.trace.read import read_source
from gpudiag.trace.source import open_source
from gpudiag.trace.world import told_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpudiag.trace.find import Candidate

# Files of one process, or without a rank, that lie further apart than this are of different runs.
RUN_GAP_NS = 3_600_000_000_000
_LISTED = 16  # ranks or files named in one message
_TRACE_NAME = ".json"  # an empty file of such a name was to be a trace
# What a file turned out to be: a trace and its line in the inputs, an event log, or an error.
Loaded: TypeAlias = tuple[Member, Input] | EventLog | InputError


@dataclass(slots=True)
class _Job:
    """What is gathered while the files are read."""

    members: list[Member] = field(default_factory=list)
    inputs: dict[str, Input] = field(default_factory=dict)
    quality: list[Quality] = field(default_factory=list)
    errors: list[InputError] = field(default_factory=list)
    earlier: dict[str, list[str]] = field(default_factory=dict)  # windows before the one kept
    logs: list[EventLog] = field(default_factory=list)

    def skip(self, path: str, message: str, kind: str | None = None) -> None:
        self.inputs[path] = replace(
            self.inputs.get(path) or Input(path=path, format=kind),
            status="skipped",
            message=message,
        )

    def note(self, kind: str, severity: str, count: int, message: str) -> None:
        self.quality.append(Quality(kind, severity, count, message))


def read_job(
    paths: Iterable[str],
    progress: Callable[[str, int], None] | None = None,
    *,
    shapes: bool = True,
) -> JobTraces:
    """Read all traces of one job. ``progress`` is told (path, bytes of it read so far).

    Without ``shapes`` the tables of operator args stay empty, which saves time and memory.
    """
    candidates = find_files(paths)
    return assemble(candidates, (load(one.path, progress, shapes=shapes) for one in candidates))


def load(
    path: str, progress: Callable[[str, int], None] | None = None, *, shapes: bool = True
) -> Loaded:
    """Read one file, whatever it is: a trace, an event log, or why it is neither."""
    report = (lambda count: progress(path, count)) if progress else None
    try:
        with open_source(path, report) as source:
            if detect(source.head) == EVENT_LOG:
                return read_event_log(source)
            trace = read_source(source, shapes=shapes)
    except InputError as error:
        return error
    member = identify(path, trace)
    return member, _input_of(member)


def assemble(candidates: Sequence[Candidate], found: Iterable[Loaded]) -> JobTraces:
    """Put what was loaded of each candidate together as one job."""
    job = _Job()
    for candidate, one in zip(candidates, found, strict=True):
        _take(job, candidate, one)
    if not job.members:
        raise _nothing(job, candidates)
    _note_unreadable(job)
    members = _latest_windows(job)
    _refuse_mixed_jobs(job, members)
    ranked = _assign_ranks(job, _attach_logs(job, members))
    world_size, missing = told_world(ranked, job.note)
    return JobTraces(
        ranks=[rank_trace(member) for member in ranked],
        world_size=world_size,
        missing_ranks=missing,
        inputs=list(job.inputs.values()),
        quality=job.quality,
    )


def rank_trace(member: Member) -> RankTrace:
    """Return one rank of a job: a trace with what its process told."""
    return RankTrace(
        rank=member.rank or 0,
        rank_source=member.rank_source,
        host=member.host,
        trace=member.trace,
        tokens_per_step=median_low(member.tokens) if member.tokens else None,
        samples_per_step=median_low(member.samples) if member.samples else None,
    )


def _take(job: _Job, candidate: Candidate, one: Loaded) -> None:
    path = candidate.path
    if isinstance(one, EventLog):
        _add_log(job, one)
    elif isinstance(one, NotATraceError):
        job.skip(path, f"{one.name}: not analysed", one.kind)
        if candidate.named or (one.kind == "empty" and _TRACE_NAME in path):
            job.errors.append(one)
    elif isinstance(one, InputError):
        job.skip(path, f"{one.what}. {one.why}".strip())
        job.errors.append(one)
    else:
        member, job.inputs[path] = one
        job.members.append(member)


def _add_log(job: _Job, log: EventLog) -> None:
    job.logs.append(log)
    damage = damage_of(log)
    job.quality += [damage] if damage else []
    last = log.processes[-1]
    job.inputs[log.path] = Input(
        path=log.path,
        format=EVENT_LOG,
        rank=last.rank,
        host=last.host,
        pid=last.pid,
        events=log.lines,
        bytes=log.bytes,
        status="partial" if damage else "ok",
        message=damage.message if damage else None,
    )


def _attach_logs(job: _Job, members: list[Member]) -> list[Member]:
    """Give each trace the events of its own process."""
    log_of = {id(one): log.path for log in job.logs for one in log.processes}
    left = [one for log in job.logs for one in log.processes]
    used = set()
    found = []
    for member in members:
        mine = process_of(member, left)
        if mine is None:
            found.append(member)
            continue
        left.remove(mine)
        path = log_of[id(mine)]
        used.add(path)
        if starts_after(mine, member):
            message = f"{path}: its process starts after its trace ends ({member.path})"
            job.note("event_log_clock", "warning", 1, message)
        found.append(with_events(member, mine))
    for log in job.logs:
        if log.path not in used:
            job.skip(log.path, "no trace of its process was given: not analysed", EVENT_LOG)
    return found


def _input_of(member: Member) -> Input:
    trace = member.trace
    devices = sorted(set(trace.device.device.tolist()))
    losses = [q.message for q in trace.quality if q.severity != "info"]
    return Input(
        path=member.path,
        format=trace.format,
        rank=member.rank,
        host=member.host,
        pid=member.pid,
        device=devices[0] if len(devices) == 1 else None,
        events=trace.events,
        bytes=trace.bytes,
        status="partial" if trace.partial else "ok",
        message="; ".join(losses) or None,
    )


def _nothing(job: _Job, candidates: Sequence[Candidate]) -> InputError:
    if not candidates:
        return InputError(
            "no files found in what was given",
            "",
            "Give trace files, or the folder that holds them.",
        )
    if len(job.errors) == 1:
        return job.errors[0]
    alone = "an event log, without the trace of its process"
    seen = [f"{i.path}: {i.message or alone}" for i in list(job.inputs.values())[:_LISTED]]
    return InputError(
        f"none of {len(candidates)} files is a readable PyTorch profiler trace",
        "; ".join(seen),
        "Give the files that torch.profiler wrote, or the folder that holds them.",
    )


def _note_unreadable(job: _Job) -> None:
    if job.errors:
        whats = "; ".join(e.what for e in job.errors[:_LISTED])
        job.note("inputs_unreadable", "error", len(job.errors), f"left out: {whats}")


def _latest_windows(job: _Job) -> list[Member]:
    """Of the windows that one process recorded one after the other, keep the latest."""
    by_process: dict[tuple[str | None, str | None, int | None], list[Member]] = {}
    for member in sorted(job.members, key=lambda m: (m.start_ns, m.path)):
        by_process.setdefault((member.host, member.pid, member.rank), []).append(member)
    kept = []
    # Where one rank's traces overlap there are two runs, even if pids and times of others fit.
    two_runs = any(
        rank is not None and not _one_after_the_other(windows)
        for (_, _, rank), windows in by_process.items()
    )
    for windows in by_process.values():
        last = windows[-1]
        in_turn = last.pid is not None and not two_runs and _one_after_the_other(windows)
        if len(windows) > 1 and in_turn:
            job.earlier[last.path] = [m.path for m in windows[:-1]]
            for earlier in windows[:-1]:
                job.skip(
                    earlier.path,
                    f"an earlier window of the process that wrote {last.path}; "
                    "give this file alone to analyse it",
                )
            job.note(
                "earlier_windows", "info", len(windows) - 1,
                f"{len(windows)} windows of process {last.pid}: the latest is used ({last.path})",
            )  # fmt: skip
            kept.append(last)
        else:
            kept.extend(windows)
    return sorted(kept, key=lambda m: m.path)


def _one_after_the_other(windows: list[Member]) -> bool:
    """Tell whether windows, by start, are disjoint and (host unknown: a pid repeats) close."""
    pairs = list(pairwise(windows))
    disjoint = all(a.end_ns < b.start_ns for a, b in pairs)
    close = all(b.start_ns - a.end_ns < RUN_GAP_NS for a, b in pairs)
    return disjoint and (close or windows[0].host is not None)


def _refuse_mixed_jobs(job: _Job, members: list[Member]) -> None:
    sizes: dict[int, list[Member]] = {}
    for member in members:
        if member.trace.info.world_size is not None:
            sizes.setdefault(member.trace.info.world_size, []).append(member)
    if len(sizes) > 1:
        groups = {}
        for size, group in sorted(sizes.items()):
            runs = _runs(group)
            for number, run in enumerate(runs, 1):
                groups[f"world size {size}" + (f", run {number}" if len(runs) > 1 else "")] = run
        raise _mixed(job, "traces of jobs of different size", groups)
    runs = _runs(members)
    if len(runs) > 1:
        groups = {f"run {i}": run for i, run in enumerate(runs, 1)}
        raise _mixed(job, f"traces of {len(runs)} runs", groups)


def _mixed(job: _Job, what: str, groups: dict[str, list[Member]]) -> UsageError:
    """Return the refusal, with each group's files; the folder that all share is said once."""
    paths = {
        name: [p for m in group for p in (*job.earlier.get(m.path, ()), m.path)]
        for name, group in groups.items()
    }
    every = [p for group in paths.values() for p in group]
    folder = _common_folder(every)
    listed = [f"{name}: {_listed(group, folder, every)}" for name, group in paths.items()]
    more = len(listed) - _LISTED
    return UsageError(
        f"{what} were given together" + (f", below {folder}" if folder else ""),
        "\n".join([*listed[:_LISTED], *([f"and {more} more"] if more > 0 else [])]),
        "Analyse one at a time: give the files or the folder of that one alone.",
    )


def _common_folder(paths: list[str]) -> str:
    """Return the folder that all files lie below; "" where they share none."""
    try:
        folder = os.path.commonpath([os.path.dirname(p) for p in paths])  # noqa: PTH120 - no "."
    except ValueError:  # relative and absolute ones, or several drives
        return ""
    return "" if folder == os.path.sep else folder


def _listed(paths: list[str], folder: str, every: list[str]) -> str:
    """Return a group's files, by the name of their folder where it holds nothing else of them."""
    own = _common_folder(paths)
    inside = [p for p in every if own and p.startswith(own + os.path.sep)]
    if own != folder and len(paths) > 1 and len(inside) == len(paths):
        name = os.path.relpath(own, folder) if folder else own
        return f"{name}{os.path.sep} ({counted(len(paths), 'file')})"
    names = [os.path.relpath(p, folder) if folder else p for p in paths]
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _runs(members: list[Member]) -> list[list[Member]]:
    """Group traces into runs: a rank once per run, by time, those of one folder together."""
    ranks = [m.rank for m in members]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return [members]  # clocks of hosts may differ by anything
    runs: list[list[Member]] = []
    for member in sorted(members, key=lambda m: (m.start_ns, m.path)):
        able = [
            run
            for run in runs
            if member.start_ns - run[0].start_ns < RUN_GAP_NS
            and (member.rank is None or member.rank not in {m.rank for m in run})
        ]
        beside = [run for run in able if _folder(member) in {_folder(m) for m in run}]
        if chosen := next(iter(beside or able), None):
            chosen.append(member)
        else:
            runs.append([member])
    return [sorted(run, key=lambda m: (m.rank or 0, m.path)) for run in runs]


def _folder(member: Member) -> str:
    return os.path.dirname(member.path)  # noqa: PTH120 - paths are texts here


def _assign_ranks(job: _Job, members: list[Member]) -> list[Member]:
    unknown = [m for m in members if m.rank is None]
    if not unknown:
        return sorted(members, key=lambda m: m.rank or 0)
    taken = {m.rank for m in members}
    free = (
        r
        for r in range(len(members) + max((r or 0 for r in taken), default=0) + 1)
        if r not in taken
    )
    source = "only file" if len(members) == 1 else "order"
    assigned = [replace(m, rank=next(free), rank_source=source) for m in unknown]
    for member in assigned:
        job.inputs[member.path] = replace(job.inputs[member.path], rank=member.rank)
    if source == "only file":
        message = "the trace records no rank: taken as rank 0"
    else:
        listed = ", ".join(f"{m.rank}: {m.path}" for m in assigned[:_LISTED])
        message = f"{len(assigned)} traces record no rank; ranks given in order of path: {listed}"
    job.note("rank_assumed", "info" if source == "only file" else "warning", len(assigned), message)
    return sorted([m for m in members if m.rank is not None] + assigned, key=lambda m: m.rank or 0)
