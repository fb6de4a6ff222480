"""Runs a Python program with gpudiag's hooks in it, and reads what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from gpudiag.collect.injection import Profile, inject

TIMEOUT_S = 240
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@dataclass(frozen=True)
class Done:
    """How a program ended, and the folder of its run."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def logs(self) -> list[str]:
        """The names of the event logs."""
        return sorted(path.name for path in (self.folder / "events").iterdir())

    @property
    def traces(self) -> list[str]:
        """The names of what lies in traces/."""
        return sorted(path.name for path in (self.folder / "traces").iterdir())

    def events(self, kind: str | None = None, log: str = "rank0") -> list[dict]:
        """Return the events of a log, every line of which must be whole."""
        text = (self.folder / "events" / f"{log}.jsonl").read_text()
        events = [json.loads(line) for line in text.splitlines()]
        return [event for event in events if kind in (None, event["k"])]

    def trace(self, name: str = "rank0") -> dict:
        """Return a trace."""
        return json.loads((self.folder / "traces" / f"{name}.json").read_text())

    def periods(self, name: str = "rank0") -> list[int]:
        """Return the numbers of the steps that a trace marks."""
        names = {e.get("name", "") for e in self.trace(name)["traceEvents"]}
        return sorted(int(n.partition("#")[2]) for n in names if n.startswith("ProfilerStep#"))

    def failures(self) -> str:
        """Return what inject.log says of hooks that failed."""
        log = self.folder / "inject.log"
        return log.read_text() if log.exists() else ""

    def well(self) -> Done:
        """Return this, if the program ended well and no hook failed."""
        assert (self.code, self.failures()) == (0, ""), self.err
        return self


def run(
    tmp_path: Path,
    program: str,
    *options: str,
    before: tuple[str, ...] = (),
    profile: Profile | None = None,
    environment: dict[str, str] | None = None,
    bare: bool = False,
    python: str = sys.executable,
) -> Done:
    """Run a program; ``before`` stands between Python and its script; ``bare``: without hooks."""
    script, folder = tmp_path / "program.py", tmp_path / "run"
    script.write_text(textwrap.dedent(program))
    variables = dict(os.environ) | {"OMP_NUM_THREADS": "1"} | (environment or {})
    variables.pop("PYTHONPATH", None) if "PYTHONPATH" not in (environment or {}) else None
    if not bare:
        variables |= inject(folder, variables, profile or Profile())
    result = subprocess.run(
        [python, *before, str(script), *options],
        env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return Done(result.returncode, result.stdout, result.stderr, folder)
