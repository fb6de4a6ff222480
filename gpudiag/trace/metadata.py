"""What a trace says of itself, from the text around its events, wherever the writer put it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpudiag.model.tables import DeviceInfo, ProcessGroup
from gpudiag.trace.columns import integer
from gpudiag.trace.repair import repair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpudiag.trace.faults import Faults

# Keys of the outermost object that only PyTorch's profiler writes.
KINETO_KEYS = frozenset(
    ("schemaVersion", "deviceProperties", "distributedInfo", "traceName", "baseTimeNanoseconds",
     "record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules", "trace_id")
)  # fmt: skip
_WANTED = (
    "schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "host_name",
    "trace_id", "record_shapes", "with_stack", "profile_memory", "hip_runtime_version",
)  # fmt: skip
_BASE_LIMIT_NS = 2**62


def parse_metadata(head: bytes, tail: bytes, tail_at: int, faults: Faults) -> dict[str, Any]:
    """Return the outermost object without its events; damaged values are left out and counted.

    ``head`` is the text up to the bracket that opens the events, ``tail`` the text after the one
    that closes them, which stands at ``tail_at``; empty where the events never end.
    """
    if not head.lstrip().startswith(b"{"):
        return {}
    text = head + b"]" + (tail or b"}")
    value = _decode(text)
    if value is not None:
        return value
    repaired, repairs = repair(text)
    value = _decode(repaired)
    if value is None:
        return _piecewise(text, faults)
    for kind, (count, first) in repairs.items():
        beyond = first - len(head) - 1
        faults.add(kind, first if beyond < 0 else tail_at + beyond, count)
    return value


def _decode(text: bytes) -> dict[str, Any] | None:
    try:
        text.decode()
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _piecewise(text: bytes, faults: Faults) -> dict[str, Any]:
    """Read the wanted keys one by one out of text that is no JSON as a whole."""
    decoder = json.JSONDecoder(strict=False)
    decoded = text.decode(errors="replace")
    found: dict[str, Any] = {}
    faults.add("metadata_lost", 0)
    for key in _WANTED:
        match = re.search(rf'"{key}"[ \t\r\n]*:[ \t\r\n]*', decoded)
        if match is None:
            continue
        try:
            found[key] = decoder.raw_decode(decoded, match.end())[0]
        except (ValueError, RecursionError):
            continue
    return found


def base_time_ns(metadata: Mapping[str, Any]) -> int:
    """Return ``baseTimeNanoseconds``; 0 where it isn't recorded."""
    value = metadata.get("baseTimeNanoseconds")
    base = integer(value)
    return base if 0 < base < _BASE_LIMIT_NS else 0


def optional(value: object) -> int | None:
    """Return a recorded non-negative integer, or None."""
    number = integer(value)
    return number if number >= 0 else None


def flag(value: object) -> bool | None:
    """Return a recorded switch (true or 1), or None where it isn't recorded."""
    return bool(value) if isinstance(value, int | bool) else None


def text(value: object) -> str | None:
    """Return a recorded string, or None."""
    return value if isinstance(value, str) and value else None


def devices(metadata: Mapping[str, Any]) -> tuple[DeviceInfo, ...]:
    """Return the devices that were visible to the process."""
    rows = metadata.get("deviceProperties")
    if not isinstance(rows, list):
        return ()
    return tuple(_device(i, row) for i, row in enumerate(rows) if isinstance(row, dict))


def _device(position: int, row: Mapping[str, Any]) -> DeviceInfo:
    major, minor = row.get("computeMajor"), row.get("computeMinor")
    index = optional(row.get("id"))
    return DeviceInfo(
        index=position if index is None else index,
        name=text(row.get("name")) or "",
        sm_count=optional(row.get("numSms")),
        compute_capability=f"{major}.{minor}" if isinstance(major, int) else None,
        memory_bytes=optional(row.get("totalGlobalMem")),
    )


def groups(distributed: Mapping[str, Any]) -> tuple[ProcessGroup, ...]:
    """Return the process groups of ``distributedInfo.pg_config``."""
    rows = distributed.get("pg_config")
    if not isinstance(rows, list):
        return ()
    return tuple(_group(row) for row in rows if isinstance(row, dict))


def _group(row: Mapping[str, Any]) -> ProcessGroup:
    return ProcessGroup(
        name=str(row.get("pg_name", "")),
        description=text(row.get("pg_desc")),
        size=optional(row.get("pg_size")),
        ranks=ranks_of(row.get("ranks")),
    )


def ranks_of(value: object) -> tuple[int, ...] | None:
    """Return a group's ranks, from a list or (on-demand traces) its text; None if cut short."""
    if isinstance(value, str):
        items = [part.strip() for part in value.strip().strip("[]").split(",")]
        value = [i for i in items if i]
    if not isinstance(value, list) or not value:
        return None
    ranks = [optional(v) for v in value]
    return tuple(r for r in ranks if r is not None) if None not in ranks else None
