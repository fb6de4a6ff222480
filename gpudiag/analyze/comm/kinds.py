"""Kinds of collectives: canonical names, who waits for whom, sizes and bus factors.

Sizes and bus bandwidth follow nccl-tests (PERFORMANCE.md): algorithm bandwidth is size over time,
bus bandwidth is that times a factor of the number of ranks n.
"""

from __future__ import annotations

import re
from enum import Enum


class Kind(Enum):
    """What a collective does."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BARRIER = "barrier"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    RECV = "recv"
    SEND_RECV = "send_recv"  # a kernel that may be either, or both
    UNKNOWN = "unknown"


# Kinds in which nobody ends before everybody has started.
SYNCHRONISING = frozenset(
    {Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.BARRIER}
)
POINT_TO_POINT = frozenset({Kind.SEND, Kind.RECV, Kind.SEND_RECV})

# Names of collectives as they stand in kernel arguments, record_param_comms, c10d and gloo spans,
# and kernel names, once lower-cased and without underscores. The first match counts.
_PATTERNS: tuple[tuple[str, Kind], ...] = (
    (r"barrier", Kind.BARRIER),
    (r"reducescatter", Kind.REDUCE_SCATTER),
    (r"allreduce", Kind.ALL_REDUCE),
    (r"allgather", Kind.ALL_GATHER),
    (r"alltoall", Kind.ALL_TO_ALL),
    (r"broadcast", Kind.BROADCAST),
    (r"sendrecv|batchisendirecv|coalescedsendrecv", Kind.SEND_RECV),
    (r"irecv|recv", Kind.RECV),
    (r"isend|send", Kind.SEND),
    (r"(?<!pre)scatter", Kind.SCATTER),
    (r"gather", Kind.GATHER),
    (r"reduce", Kind.REDUCE),
)
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _PATTERNS)


def kind_of(name: str) -> Kind:
    """Return the kind that a recorded name means."""
    plain = name.lower().replace("_", "")
    return next((kind for regex, kind in _COMPILED if regex.search(plain)), Kind.UNKNOWN)


def is_waiting_only(name: str) -> bool:
    """Tell records of waiting for a collective (``wait``, ``init``), which is no collective."""
    return name.lower() in {"wait", "init", "coalesced", "start_coalescing", "end_coalescing"}


def message_elements(kind: Kind, in_elements: int, out_elements: int) -> int | None:
    """Return the elements whose bytes are the size of a collective; None if not recorded."""
    if kind == Kind.ALL_GATHER:
        size = out_elements
    elif kind in (Kind.RECV, Kind.SCATTER, Kind.BROADCAST):
        size = max(in_elements, out_elements)
    else:
        size = in_elements if in_elements > 0 else out_elements
    return size if size >= 0 else None


def bus_factor(kind: Kind, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth for n ranks."""
    if ranks <= 1:
        return 0.0
    if kind == Kind.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    if kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL, Kind.GATHER, Kind.SCATTER):
        return (ranks - 1) / ranks
    return 1.0


_ITEM_BYTES = {
    "bool": 1, "byte": 1, "char": 1, "int8": 1, "uint8": 1, "float8": 1,
    "half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2,
    "float": 4, "float32": 4, "int": 4, "int32": 4,
    "double": 8, "float64": 8, "long": 8, "int64": 8,
}  # fmt: skip


def item_bytes(dtype: str) -> int | None:
    """Return the bytes of one element of a recorded dtype such as ``BFloat16``; None: unknown."""
    plain = dtype.lower().removeprefix("c10::").removeprefix("torch.")
    if plain.startswith("float8"):
        plain = "float8"
    return _ITEM_BYTES.get(plain)
