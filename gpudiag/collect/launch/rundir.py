"""The folder of a run: its name, what is in it, and run.json, readable whenever we are killed.

RUN/                       gpudiag-runs/<UTC time>-<command>-<4 hex>/, or what -o says
  run.json                 command, host, versions, how it ended; for its owner only
  inject/                  what the training processes load
  events/  traces/  host/  telemetry/
  nodes/HOST/…             the same per node, where a run has several
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gpudiag import __version__
from gpudiag.collect.launch.supervise import Ended
from gpudiag.errors import LaunchError, UsageError

RUNS = "gpudiag-runs"
_FOLDERS = ("events", "traces", "host", "telemetry")
# Of the environment, what says how a job is laid out; nothing that may be secret.
_FACTS = re.compile(
    r"^(SLURM_(JOB_ID|NNODES|NTASKS|PROCID|NODEID|JOB_NUM_NODES)|CUDA_VISIBLE_DEVICES|WORLD_SIZE|RANK"
    r"|LOCAL_RANK|NODE_RANK|TORCHELASTIC_RUN_ID|OMP_NUM_THREADS|NCCL_[A-Z0-9_]+)$"
)
_SECRET = re.compile(r"token|secret|passw|key|credential", re.IGNORECASE)
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What run.json holds."""

    schema: int = 1
    gpudiag_version: str = __version__
    run_id: str
    host: str
    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    python: str
    pid: int
    child_pid: int | None = None
    started_wall_ns: int
    ended_wall_ns: int | None = None
    exit_code: int | None = None
    signal: int | None = None


@dataclass(slots=True)
class RunFolder:
    """The folder of one node of a run, and its run.json."""

    path: Path
    record: RunRecord
    file: Path

    def started(self, child: int) -> None:
        """Note that the command runs."""
        self.record = replace(self.record, child_pid=child)
        self._write()

    def ended(self, how: Ended) -> None:
        """Note how the command ended."""
        self.record = replace(
            self.record, ended_wall_ns=time.time_ns(), exit_code=how.code, signal=how.signal
        )
        self._write()

    def _write(self) -> None:
        """Replace run.json in one step: whole at any moment; a full disk costs nothing else."""
        new = self.file.with_suffix(".json.new")
        try:
            with os.fdopen(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
                json.dump(asdict(self.record), file, indent=1)
            new.replace(self.file)
        except OSError:
            new.unlink(missing_ok=True)


def open_run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    out: Path | None,
    run_id: str | None,
    *,
    force: bool,
) -> RunFolder:
    """Make the folder of a run, or join the one that another node has made."""
    started, host = time.time_ns(), socket.gethostname()
    job = run_id or environment.get("SLURM_JOB_ID") or environment.get("TORCHELASTIC_RUN_ID")
    several = int(environment.get("SLURM_NNODES", "1") or 1) > 1 or run_id is not None
    top = out or Path(RUNS) / _name(argv, started, job if several else None)
    folder = top / "nodes" / host if several else top
    _refuse_used(folder, out, force=force, joins=several)
    try:
        for name in _FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"{folder}: can't be made", f"{error.strerror}.", "Choose a folder with -o DIR."
        ) from error
    record = RunRecord(
        run_id=job or top.name,
        host=host,
        argv=tuple(argv),
        cwd=str(Path.cwd()),
        environment={
            name: value
            for name, value in environment.items()
            if _FACTS.match(name) and not _SECRET.search(name)
        },
        python=platform.python_version(),
        pid=os.getpid(),
        started_wall_ns=started,
    )
    taken = (folder / "run.json").exists()
    run = RunFolder(folder, record, folder / (f"run-{os.getpid()}.json" if taken else "run.json"))
    run._write()  # noqa: SLF001 - its own module
    return run


def _name(argv: Sequence[str], started_ns: int, job: str | None) -> str:
    """Return the name of a run: by its job where several nodes must find the same folder."""
    command = _PLAIN.sub("-", Path(argv[0]).name)[:40]
    if job is not None:
        return f"{command}-{_PLAIN.sub('-', job)[:60]}"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(started_ns // 10**9))
    return f"{stamp}-{command}-{secrets.token_hex(2)}"


def _refuse_used(folder: Path, out: Path | None, *, force: bool, joins: bool) -> None:
    if out is None or force or joins or not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is a file", "-o names the folder of the run.", "Choose another."
        )
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "", "Choose another folder, or add --force.")
