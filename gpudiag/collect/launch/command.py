"""Find the program of a command, and start it: not a byte of its arguments is changed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudiag.errors import LaunchError

NOT_EXECUTABLE, NOT_FOUND = 126, 127
# Python ignores these for itself; a program starts with them as its own shell would have it.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def find_program(name: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program as a shell finds it, or raise with the shell's exit code."""
    if os.sep in name:
        path = Path(name)
        if path.is_dir():
            raise LaunchError(f"{name}: is a folder", "", "Give a program.", NOT_EXECUTABLE)
        if not path.exists():
            raise LaunchError(f"{name}: no such file", "", "Check the command.", NOT_FOUND)
        if not os.access(path, os.X_OK):
            raise LaunchError(
                f"{name}: is not executable", "", f"Run: chmod +x {name}", NOT_EXECUTABLE
            )
        return name
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found is None:
        raise LaunchError(f"{name}: command not found", "", "Check the command.", NOT_FOUND)
    return found


def start(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    mask: Sequence[int],
) -> int:
    """Start a program in our process group with our standard streams; return its pid.

    ``mask`` is the signal mask that it starts with: the one that gpudiag was started with.
    """
    try:
        return os.posix_spawn(
            program, list(arguments), environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
        )
    except FileNotFoundError as error:  # the interpreter that its first line names
        raise LaunchError(f"{program}: {error.strerror}", "", "Check it.", NOT_FOUND) from error
    except PermissionError as error:
        raise LaunchError(
            f"{program}: {error.strerror}", "", "Check its permissions.", NOT_EXECUTABLE
        ) from error
    except OSError as error:
        raise LaunchError(
            f"{program}: {error.strerror}", "", "Is it a program?", NOT_EXECUTABLE
        ) from error
