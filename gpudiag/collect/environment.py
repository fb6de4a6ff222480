"""What this machine lets gpudiag see: told without importing or starting anything heavy."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata, util

from gpudiag import __version__
from gpudiag.collect.nvml import Gpu, NvmlError, visible_gpus
from gpudiag.hardware import Device, lookup_named
from gpudiag.model import format as fmt
from gpudiag.model.doctor import Check

# Distribution -> the module that is imported, and what it is for.
_PACKAGES = {
    "msgspec": ("msgspec", "decodes traces"),
    "numpy": ("numpy", "analyses them"),
    "isal": ("isal", "inflates .gz four times as fast as the standard library"),
    "pandas": ("pandas", "DataFrames in notebooks"),
    "plotly": ("plotly", "charts"),
    "nvidia-ml-py": ("pynvml", "talks to NVIDIA's driver"),
    "psutil": ("psutil", "reads the host's counters"),
    "torch": ("torch", "never needed to analyse; the training's own environment has it"),
}
_HIDING = "CUDA_VISIBLE_DEVICES"


def checks(readers: str) -> list[Check]:
    """Return what is here and what isn't, in the order in which it's shown.

    Args:
        readers: what traces are read with; the trace layer knows.
    """
    python = Check(
        id="python", ok=True, found=platform.python_version(), use=f"runs gpudiag, {sys.executable}"
    )
    own = Check(id="gpudiag", ok=True, found=__version__, use="this program")
    reading = Check(id="readers", ok=True, found=readers, use="in use for traces")
    packages = [_package(name, *row) for name, row in _PACKAGES.items()]
    return [own, python, reading, *packages, *_gpus()]


def _package(name: str, module: str, use: str) -> Check:
    """Look a package up without importing it."""
    try:
        here = util.find_spec(module) is not None
    except ValueError:  # it is being imported right now, without a spec
        here = True
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = "version not recorded" if here else "not installed"
    else:
        version = version if here else f"{version} is recorded, but {module} can't be imported"
    return Check(id=name, ok=here, found=version, use=use)


def _gpus() -> list[Check]:
    """Return what NVML sees, or the one line that says why it sees nothing."""
    try:
        seen = visible_gpus()
    except NvmlError as error:
        use = "clocks, power and utilization of NVIDIA GPUs; traces are analysed without"
        return [Check(id="GPUs", ok=False, found=str(error), use=use)]
    driver = f"driver {seen.driver or 'unknown'}"
    hidden = os.environ.get(_HIDING)
    use = driver if hidden is None else f"{driver}; {_HIDING}={hidden} is what a training sees"
    whole = Check(id="GPUs", ok=bool(seen.gpus), found=f"{len(seen.gpus)} through NVML", use=use)
    return [whole, *(_gpu(one) for one in seen.gpus)]


def _gpu(gpu: Gpu) -> Check:
    name = f"GPU {gpu.index}"
    if gpu.problem is not None:
        return Check(id=name, ok=False, found=gpu.problem, use="can't be asked")
    told = [gpu.name or "name not told", fmt.size(gpu.memory_bytes) if gpu.memory_bytes else None]
    found = ", ".join([*filter(None, told), *(["MIG on"] if gpu.mig else [])])
    row = lookup_named(gpu.name or "")
    peaks = (
        f"peaks known: doctor --gpus {row.key}"
        if isinstance(row, Device)
        else f"no peak: {row.reason}; MFU needs --peak-tflops"
    )
    return Check(id=name, ok=True, found=found, use=peaks)
