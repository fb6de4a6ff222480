"""NVIDIA's management library, through nvidia-ml-py: which GPUs this machine shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class NvmlError(Exception):
    """Why NVML can't be asked, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver tells it; None is "it doesn't"."""

    index: int
    name: str | None
    memory_bytes: int | None
    mig: bool | None
    problem: str | None = None  # why it can't be asked: lost, no permission


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What NVML sees; CUDA_VISIBLE_DEVICES hides nothing from it."""

    driver: str | None
    gpus: list[Gpu]


def visible_gpus() -> Visible:
    """Ask NVML for the machine's GPUs.

    Raises:
        NvmlError: it can't be asked; the message says why.
    """
    try:
        import pynvml  # type: ignore[import-untyped] # noqa: PLC0415 - only where it is asked
    except ImportError as error:
        raise NvmlError("nvidia-ml-py can't be imported: pip install nvidia-ml-py") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlError(_reason(pynvml, error)) from error
    try:
        count = pynvml.nvmlDeviceGetCount()
        driver = _ask(pynvml, pynvml.nvmlSystemGetDriverVersion)
        return Visible(driver=driver, gpus=[_gpu(pynvml, index) for index in range(count)])
    except pynvml.NVMLError as error:
        raise NvmlError(_reason(pynvml, error)) from error
    finally:
        _ask(pynvml, pynvml.nvmlShutdown)


def _gpu(nvml: Any, index: int) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return Gpu(index=index, name=None, memory_bytes=None, mig=None, problem=str(error))
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    modes = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    return Gpu(
        index=index,
        name=_ask(nvml, nvml.nvmlDeviceGetName, handle),
        memory_bytes=None if memory is None else int(memory.total),
        mig=None if modes is None else modes[0] == nvml.NVML_DEVICE_MIG_ENABLE,
    )


def _ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of NVML tells, None where it doesn't."""
    try:
        told = function(*arguments)
    except nvml.NVMLError:
        return None
    return told.decode(errors="replace") if isinstance(told, bytes) else told


def _reason(nvml: Any, error: Exception) -> str:
    if isinstance(error, nvml.NVMLError_LibraryNotFound):
        return "no libnvidia-ml.so.1: no NVIDIA driver on this machine or in this container"
    return f"NVML: {error}"
