"""What this machine lets gpudiag see: told without importing or starting anything heavy."""

from __future__ import annotations

import ctypes
import platform
import sys
from importlib import metadata

from gpudiag import __version__
from gpudiag.model.doctor import Check

NVML_LIBRARY = "libnvidia-ml.so.1"

# Distribution -> what it is for; without isal the standard library inflates, without the others
# what they are for can't be had.
_PACKAGES = {
    "msgspec": "reads traces",
    "numpy": "analyses them",
    "isal": "inflates .gz four times as fast as the standard library",
    "pandas": "DataFrames in notebooks",
    "plotly": "charts",
    "nvidia-ml-py": "talks to NVIDIA's driver",
    "psutil": "reads the host's counters",
    "torch": "never needed to analyse; the training's own environment has it",
}


def checks() -> list[Check]:
    """Return what is here and what isn't, in the order in which it's shown."""
    python = Check(
        id="python", ok=True, found=platform.python_version(), use=f"runs gpudiag, {sys.executable}"
    )
    own = Check(id="gpudiag", ok=True, found=__version__, use="this program")
    return [own, python, *(_package(name, use) for name, use in _PACKAGES.items()), _nvml()]


def _package(name: str, use: str) -> Check:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(id=name, ok=False, found="not installed", use=use)
    return Check(id=name, ok=True, found=version, use=use)


def _nvml() -> Check:
    """Load NVIDIA's management library, as its driver installs it."""
    use = "clocks, power and utilization of NVIDIA GPUs; traces are analysed without"
    try:
        ctypes.CDLL(NVML_LIBRARY)
    except OSError:
        found = f"no {NVML_LIBRARY}: no NVIDIA driver on this machine or in this container"
        return Check(id="nvml", ok=False, found=found, use=use)
    return Check(id="nvml", ok=True, found=NVML_LIBRARY, use=use)
