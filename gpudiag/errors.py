"""The errors that gpudiag shows to people: what, why, what to do; each knows its exit code.

GpudiagError            exit 1   the root; caught once, in the cli
├── UsageError          exit 2   the command or the configuration is wrong
├── InputError          exit 3   an input can't be read, or holds nothing to analyse
└── LaunchError         exit 125, 126, 127: the user's command could not be started
"""

from __future__ import annotations


class GpudiagError(Exception):
    """A failure with a message in three parts: what happened, why, what to do."""

    exit_code = 1

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def lines(self) -> list[str]:
        """Return the message, one line each for what, why and what to do; empty parts left out."""
        return [line for line in (self.what, self.why, self.fix) if line]


class UsageError(GpudiagError):
    """The command line or the configuration can't be acted on."""

    exit_code = 2


class InputError(GpudiagError):
    """An input is unreadable or holds nothing that can be analysed."""

    exit_code = 3


class LaunchError(GpudiagError):
    """The wrapped command could not be started: 125 ours, 126 not executable, 127 not found."""

    def __init__(self, what: str, why: str = "", fix: str = "", exit_code: int = 125) -> None:
        super().__init__(what, why, fix)
        self.exit_code = exit_code
