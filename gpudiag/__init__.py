"""gpudiag: where every GPU-second of a PyTorch training run went."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudiag.frames import Traces, load

__version__ = "0.1.0"
__all__ = ["Traces", "__version__", "load"]


def __getattr__(name: str) -> object:
    """Import pandas and the readers only when someone asks for tables."""
    if name in {"Traces", "load"}:
        from gpudiag import frames  # noqa: PLC0415 - that's the point

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
