"""The exit codes of commands that analyse (docs/reference/exit-codes.md)."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit code says; errors carry their own, see gpudiag.errors."""

    DONE = 0
    FAIL_ON_MET = 1
    USAGE = 2
    UNREADABLE = 3
    PARTIAL = 4
    INTERRUPTED = 130
