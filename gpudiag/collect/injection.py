"""Put what training processes load into the folder of a run, and onto their PYTHONPATH.

    RUN/inject/sitecustomize.py      found first on PYTHONPATH by every Python process
    RUN/inject/_gpudiag_inject.py    the hooks, loaded where torch is imported
    RUN/inject/config.json           what they are to do
    RUN/events/  RUN/traces/         what they write

Everything travels in PYTHONPATH alone, because launchers that copy an environment to other nodes
take that and drop names they don't know. GPUDIAG_INJECT is for the second layer:
gpudiag_inject.pth, installed with gpudiag's wheel, reaches interpreters that ignore PYTHONPATH
(-E, -I).
"""

from __future__ import annotations

import json
import os
import py_compile
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gpudiag.errors import LaunchError

_SOURCE = Path(__file__).parent / "inject"
_FILES = ("sitecustomize.py", "_gpudiag_inject.py")
_FOLDERS = ("inject", "events", "traces")
SECOND_LAYER = "GPUDIAG_INJECT"

DEFAULT_TRACE_BUDGET_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """When, where and how much is traced."""

    profile: bool = True
    skip: int = 5  # steps before the window, at the least
    settle: bool = True  # wait until step times have settled; not where the user says --skip
    warmup: int = 2
    active: int = 6
    every: int = 0  # steps from one window to the next; 0: one window
    ranks: str | tuple[int, ...] = "auto"  # or "all"
    trace_budget: int = DEFAULT_TRACE_BUDGET_BYTES  # raw bytes of the whole job
    rendezvous: str | None = None  # a folder that all nodes see, to agree on the window in


def inject(folder: Path, environment: Mapping[str, str], profile: Profile) -> dict[str, str]:
    """Write what processes load into a node's folder; return what changes in the environment.

    Raises:
        LaunchError: the folder can't be written to, or its path can't be on PYTHONPATH.
    """
    folder = folder.absolute()
    target = folder / "inject"
    if os.pathsep in str(target):
        raise LaunchError(
            f"{folder}: has a {os.pathsep!r} in its path",
            "PYTHONPATH can't name such a folder, so nothing of the training would be seen.",
            "Choose another folder with -o DIR.",
        )
    try:
        for name in _FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            shutil.copyfile(_SOURCE / name, target / name)
        (target / "config.json").write_text(json.dumps(asdict(profile)), encoding="utf-8")
        for name in _FILES:  # spares each process of this Python 40 ms, even under -B
            py_compile.compile(str(target / name), doraise=True)
    except OSError as error:
        raise LaunchError(
            f"{target}: can't be written", f"{error.strerror}.", "Choose a folder with -o DIR."
        ) from error
    before = environment.get("PYTHONPATH")
    path = os.pathsep.join([str(target), before] if before else [str(target)])
    return {"PYTHONPATH": path, SECOND_LAYER: str(target)}
