"""What a file is, told by its first bytes."""

from __future__ import annotations

from gpudiag.errors import InputError


class NotATraceError(InputError):
    """The file is of a known kind, but no trace that can be read."""

    def __init__(self, kind: str, what: str, why: str = "", fix: str = "") -> None:
        super().__init__(what, why, fix)
        self.kind = kind
