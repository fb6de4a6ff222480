"""What a test needs that a machine may lack: skipped with the reason, or a failure where promised.

A test says ``@pytest.mark.needs("torch")``, or calls :func:`require`. Where the thing is absent
the test is skipped; where GPUDIAG_TEST_REQUIRE (comma-separated) names the thing, its absence is
a failure, so that a machine that promises to have it can't skip anything unseen.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

REPO = Path(__file__).resolve().parents[1]
SHARED = REPO.parent / "shared"
SAMPLES = REPO / "sample_traces"

PROMISES = "GPUDIAG_TEST_REQUIRE"
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
_COMPILER_NAMES = ("cc", "gcc", "clang")


def _which_any(names: tuple[str, ...]) -> bool:
    return any(shutil.which(name) for name in names)


# thing -> (is it here?, what to do to have it)
THINGS: dict[str, tuple[Callable[[], bool], str]] = {
    "torch": (
        lambda: importlib.util.find_spec("torch") is not None,
        "torch is not installed (pip install torch==2.13.0)",
    ),
    "cc": (lambda: _which_any(_COMPILER_NAMES), "no C compiler on PATH"),
    "shared": ((SHARED / "traces").is_dir, "no folder ../shared beside the repository"),
    "chromium": (lambda: _which_any(_CHROMIUM_NAMES), "no Chromium on PATH"),
}


def promised() -> frozenset[str]:
    """Return the things that this machine promises to have; an unknown name is an error."""
    names = frozenset(n.strip() for n in os.environ.get(PROMISES, "").split(",") if n.strip())
    unknown = names - THINGS.keys()
    if unknown:
        msg = f"{PROMISES} names {sorted(unknown)}, known are {sorted(THINGS)}"
        raise pytest.UsageError(msg)
    return names


def require(*things: str) -> None:
    """Go on if every thing is here; else skip, or fail where the machine promised it."""
    for thing in things:
        present, reason = THINGS[thing]
        if present():
            continue
        if thing in promised():
            pytest.fail(f"needs {thing}: {reason}, and {PROMISES} promises it", pytrace=False)
        pytest.skip(f"needs {thing}: {reason}")
