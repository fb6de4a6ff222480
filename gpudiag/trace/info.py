"""``TraceInfo``: who recorded the trace, on what, told from its metadata and from its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpudiag.model.tables import INVALID_TIME, HostCategory, TraceInfo
from gpudiag.trace import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpudiag.model.tables import HostTable, Thread
    from gpudiag.trace.builder import TableBuilder

_MAIN_SPAN = "PyTorch Profiler"
_CATEGORY_VENDORS = (("xpu_", "xpu"), ("mtia_", "mtia"), ("privateuse1_", "privateuse1"))
_DEVICE_VENDORS = (
    ("AMD", "rocm"),
    ("Intel", "xpu"),
    ("NVIDIA", "cuda"),
    ("Tesla", "cuda"),
    ("GeForce", "cuda"),
    ("Quadro", "cuda"),
)


def trace_info(
    metadata: Mapping[str, Any], base_ns: int, builder: TableBuilder, host: HostTable,
    threads: list[Thread],
) -> TraceInfo:  # fmt: skip
    """Gather what the trace says of itself."""
    distributed = metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    devices = meta.devices(metadata)
    start, end = _span(builder, base_ns)
    return TraceInfo(
        rank=meta.optional(distributed.get("rank")),
        world_size=meta.optional(distributed.get("world_size")),
        backend=meta.text(distributed.get("backend")),
        host=meta.text(metadata.get("host_name")),
        pid=_main_pid(host, threads),
        base_time_ns=base_ns,
        devices=devices,
        groups=meta.groups(distributed),
        trace_id=meta.text(metadata.get("trace_id")),
        vendor=_vendor(metadata, builder, host, [d.name for d in devices]),
        record_shapes=meta.flag(metadata.get("record_shapes")),
        with_stack=meta.flag(metadata.get("with_stack")),
        profile_memory=meta.flag(metadata.get("profile_memory")),
        span_start_ns=start,
        span_end_ns=end,
    )


def _main_pid(host: HostTable, threads: list[Thread]) -> str | None:
    """Return the process with most host rows, the profiler's own rows left out."""
    own = host.thread[host.category != HostCategory.OVERHEAD]
    if not len(own):
        return None
    pids = sorted({t.pid for t in threads})
    of_thread = np.array([pids.index(t.pid) for t in threads])
    counts = np.bincount(of_thread[own], minlength=len(pids))
    return pids[int(counts.argmax())]


def _span(builder: TableBuilder, base_ns: int) -> tuple[int | None, int | None]:
    """Return the profiler's own span; the latest when a file holds several."""
    valid = [s for s in builder.spans if INVALID_TIME not in s[1:] and s[2] >= 0]
    main = [s for s in valid if s[0].startswith(_MAIN_SPAN)] or valid
    if not main:
        return None, None
    _, start, duration = max(main, key=lambda s: (s[2], s[1]))
    return start + base_ns, start + base_ns + duration


def _vendor(
    metadata: Mapping[str, Any], builder: TableBuilder, host: HostTable, devices: list[str],
) -> str | None:  # fmt: skip
    """Tell the vendor from categories, then from runtime call names, then from the devices."""
    seen = [c for c in builder.categories if isinstance(c, str)]
    for prefix, vendor in _CATEGORY_VENDORS:
        if any(c.startswith(prefix) for c in seen):
            return vendor
    calls = (host.category == HostCategory.RUNTIME) | (host.category == HostCategory.DRIVER)
    strings = builder.strings.values_in_order
    names = [strings[i] for i in np.unique(host.name[calls]).tolist()]
    if any(n.startswith("hip") for n in names) or "hip_runtime_version" in metadata:
        return "rocm"
    if builder.legacy_rows or any(n.startswith("cu") for n in names):
        return "cuda"
    for prefix, vendor in _DEVICE_VENDORS:
        if any(d.startswith(prefix) for d in devices):
            return vendor
    return None
