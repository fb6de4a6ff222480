"""A job from its paths: one trace in this process, several ranks in processes side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gpudiag.analyze.job import analyze_job, common_steps, compare_ranks
from gpudiag.analyze.rank import Options
from gpudiag.engine.summary import Summary
from gpudiag.engine.workers import Workers, cores, workers
from gpudiag.errors import InputError
from gpudiag.model.analysis import Analysis
from gpudiag.model.job import JobTraces
from gpudiag.trace.detect import EVENT_LOG, detect
from gpudiag.trace.event_log import EventLog, Process
from gpudiag.trace.find import Candidate, find_files
from gpudiag.trace.job import Loaded, assemble, load, read_job
from gpudiag.trace.source import STDIN, open_source

# Below this much of files a new process costs more than it saves.
LEAST_BYTES = 16 << 20

Progress = Callable[[str, int], None]


def analyze_paths(
    paths: Sequence[str],
    options: Options,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Read and analyse the traces of one job.

    Args:
        paths: files, folders, globs; ``-`` is standard input.
        options: of the analysis.
        processes: how many ranks are read at once; None: as many as there are cores.
        progress: told (path, bytes of it read so far).

    Raises:
        InputError: nothing can be read.
        UsageError: the traces are not of one run.
        GpudiagError: a process was killed.
    """
    candidates = find_files(paths)
    count = min(processes or cores(), len(candidates))
    if count < 2 or not _worth_it(candidates, given=processes is not None):  # noqa: PLR2004 - nobody beside
        return analyze_job(read_job(paths, progress), options)
    logs = {one.path: log for one in candidates if (log := _event_log(one)) is not None}
    told = tuple(process for log in logs.values() for process in log.processes)
    traces = [one.path for one in candidates if one.path not in logs]
    with workers(count) as pool:
        return _analyzed(candidates, logs, traces, (told, options), pool, progress)


def _worth_it(candidates: Sequence[Candidate], *, given: bool) -> bool:
    """Tell whether processes pay: by the files' size, or because they were asked for."""
    if any(one.path == STDIN for one in candidates):
        return False
    return given or sum(map(_size, candidates)) >= LEAST_BYTES


def _size(candidate: Candidate) -> int:
    try:
        return Path(candidate.path).stat().st_size
    except OSError:
        return 0


def _event_log(candidate: Candidate) -> EventLog | None:
    """Return a candidate's event log; None for what else it is, also if it can't be read."""
    try:
        with open_source(candidate.path) as source:
            is_log = detect(source.head) == EVENT_LOG
    except InputError:
        return None
    found = load(candidate.path) if is_log else None
    return found if isinstance(found, EventLog) else None


def _analyzed(
    candidates: Sequence[Candidate],
    logs: dict[str, EventLog],
    traces: Sequence[str],
    given: tuple[tuple[Process, ...], Options],
    pool: Workers,
    progress: Progress | None,
) -> Analysis:
    told, options = given
    found: dict[str, Loaded | Summary] = dict(logs)
    found |= _summed(traces, (told, options, None), pool, progress)
    job = assemble(candidates, _loaded(candidates, found))
    numbers, quality = common_steps([_numbers(found, path) for path in _paths(job)])
    if numbers is not None:
        others = [path for path in _paths(job) if _numbers(found, path) - numbers]
        found |= _summed(others, (told, options, numbers), pool, progress)
    ranks = []
    for rank in job.ranks:
        summary = found[rank.trace.path]
        assert isinstance(summary, Summary)  # noqa: S101 - a trace of the job was read
        ranks.append(replace(summary.rank, rank=rank.rank))
    return compare_ranks(job, ranks, quality, options)


def _summed(
    paths: Sequence[str], rest: tuple[object, ...], pool: Workers, progress: Progress | None
) -> dict[str, Loaded | Summary]:
    def done(path: str) -> None:
        if progress is not None:
            progress(path, _size(Candidate(path, named=False)))

    return dict(zip(paths, pool.summaries(paths, *rest, done=done), strict=True))


def _loaded(
    candidates: Sequence[Candidate], found: dict[str, Loaded | Summary]
) -> Iterator[Loaded]:
    for candidate in candidates:
        one = found[candidate.path]
        yield (one.member, one.input) if isinstance(one, Summary) else one


def _paths(job: JobTraces) -> list[str]:
    return [rank.trace.path for rank in job.ranks]


def _numbers(found: dict[str, Loaded | Summary], path: str) -> set[int]:
    one = found[path]
    return set(one.numbers) if isinstance(one, Summary) else set()
