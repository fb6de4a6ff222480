"""What a row is, told by its recorded category: never by its name, stream or process.

One table for every age and vendor of Kineto (old names: 2021 and earlier). A category that is not
in the table is a host span of kind OTHER, so that a new category never becomes device activity.
"""

from __future__ import annotations

from enum import IntEnum

from gpudiag.model.tables import DeviceKind, HostCategory

Scalar = str | int | float | bool | None


class Row(IntEnum):
    """The reader's own row kinds: host kinds first, with the values of ``HostCategory``."""

    OPERATOR = HostCategory.OPERATOR
    ANNOTATION = HostCategory.ANNOTATION
    RUNTIME = HostCategory.RUNTIME
    DRIVER = HostCategory.DRIVER
    PYTHON = HostCategory.PYTHON
    OVERHEAD = HostCategory.OVERHEAD
    OTHER = HostCategory.OTHER
    KERNEL = 10 + DeviceKind.KERNEL
    MEMCPY = 10 + DeviceKind.MEMCPY
    MEMSET = 10 + DeviceKind.MEMSET
    SPAN = 20  # the profiler's own span: the recorded window
    DROPPED = 21  # projections, synchronisation and counters: neither host time nor device work
    UNCATEGORISED = 22  # no category: legacy exports; told by its process there


FIRST_DEVICE = Row.KERNEL
LAST_DEVICE = Row.MEMSET
LAST_HOST = Row.OTHER

CATEGORIES: dict[str, Row] = {
    "cpu_op": Row.OPERATOR,
    "Operator": Row.OPERATOR,
    "user_annotation": Row.ANNOTATION,
    "python_function": Row.PYTHON,
    "overhead": Row.OVERHEAD,
    "cuda_runtime": Row.RUNTIME,
    "hip_runtime": Row.RUNTIME,
    "xpu_runtime": Row.RUNTIME,
    "mtia_runtime": Row.RUNTIME,
    "privateuse1_runtime": Row.RUNTIME,
    "Runtime": Row.RUNTIME,
    "cuda_driver": Row.DRIVER,
    "hip_driver": Row.DRIVER,
    "xpu_driver": Row.DRIVER,
    "privateuse1_driver": Row.DRIVER,
    "Driver": Row.DRIVER,
    "kernel": Row.KERNEL,
    "Kernel": Row.KERNEL,
    "gpu_memcpy": Row.MEMCPY,
    "Memcpy": Row.MEMCPY,
    "gpu_memset": Row.MEMSET,
    "Memset": Row.MEMSET,
    "Trace": Row.SPAN,
    "gpu_user_annotation": Row.DROPPED,
    "gpu_user_Annotation": Row.DROPPED,
    "cuda_sync": Row.DROPPED,
    "xpu_sync": Row.DROPPED,
    "cuda_event": Row.DROPPED,
    "cuda_profiler_range": Row.DROPPED,
    "xpu_scope_profiler": Row.DROPPED,
    "external_correlation": Row.DROPPED,
    "collective_comm": Row.DROPPED,
    "hpu_op": Row.DROPPED,
    "mtia_ccp_events": Row.DROPPED,
    "mtia_insight": Row.DROPPED,
    "mtia_counters": Row.DROPPED,
    "hardware_counters": Row.DROPPED,
    "glow_runtime": Row.OTHER,
    "ac2g": Row.DROPPED,
    "async": Row.DROPPED,
    "async_gpu": Row.DROPPED,
    "async_cpu_to_gpu": Row.DROPPED,
    "fwdbwd": Row.DROPPED,
    "forward_backward": Row.DROPPED,
    "cpu_to_cuda": Row.DROPPED,
}


class CategoryCodes(dict[Scalar, int]):
    """Row kind by recorded category; its keys are the categories that the file holds."""

    def __missing__(self, key: Scalar) -> int:
        """Look the category up once; None (absent) is a kind of its own."""
        known = Row.UNCATEGORISED if key is None else CATEGORIES.get(str(key), Row.OTHER)
        self[key] = int(known)
        return int(known)
