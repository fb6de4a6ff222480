"""What msgspec decodes of an event: only what a column needs; the rest is skipped unread.

``ts``, ``dur`` and ``args`` stay raw text: times are converted exactly from their digits (see
times.py), and args are decoded by kind of row, so that Python frames cost nothing.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any, Union

import msgspec

from gpudiag.trace.categories import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_TEXT = msgspec.Raw(b"")
NO_ARGS = msgspec.Raw(b"{}")
# Phases of the Chrome format that carry nothing for us: instants, counters, flows, begin/end...
SKIPPED_PHASES = [c for c in string.ascii_letters + "()" if c not in "XM"]


class Complete(msgspec.Struct, tag_field="ph", tag="X", gc=False):
    """A span: ``ph`` X."""

    cat: Scalar = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT
    args: msgspec.Raw = NO_ARGS


class Metadata(msgspec.Struct, tag_field="ph", tag="M", gc=False):
    """A name for a process or thread: ``ph`` M."""

    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    args: msgspec.Raw = NO_ARGS


_SKIPPED = [
    msgspec.defstruct(f"Skipped{i}", [], tag_field="ph", tag=phase, gc=False)
    for i, phase in enumerate(SKIPPED_PHASES)
]
# A union built from a list can't be written as a type expression.
EVENTS: msgspec.json.Decoder[Sequence[object]] = msgspec.json.Decoder(
    list[Union[(Complete, Metadata, *_SKIPPED)]]  # type: ignore[valid-type]
)


class NameArgs(msgspec.Struct, gc=False):
    """Args of a metadata row."""

    name: Scalar = None


class LaunchArgs(
    msgspec.Struct, gc=False, rename={"external": "External id", "old_external": "external id"}
):
    """Args of runtime and driver calls."""

    external: Any = -1
    correlation: Any = -1
    old_external: Any = -1


_OPERATOR_KEYS = {
    "external": "External id",
    "old_external": "external id",
    "stack": "Call stack",
    "collective": "Collective name",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "flops": "kernel_flop",
    "dims": "Input Dims",
    "old_dims": "Input dims",
    "types": "Input type",
    "concrete": "Concrete Inputs",
}


class OperatorArgsRow(msgspec.Struct, gc=False, rename=_OPERATOR_KEYS):
    """Args of operators and annotations. Key order follows the writer's: lookup is cheaper so."""

    external: Any = -1
    sequence: Any = -1
    forward_thread: Any = -1
    concrete: msgspec.Raw = NO_TEXT
    types: msgspec.Raw = NO_TEXT
    dims: msgspec.Raw = NO_TEXT
    stack: Any = None
    collective: Any = None
    flops: Any = -1
    old_external: Any = -1
    old_dims: msgspec.Raw = NO_TEXT


_DEVICE_KEYS = {
    "external": "External id",
    "old_external": "external id",
    "graph": "graph id",
    "from_device": "fromDevice",
    "in_device": "inDevice",
    "sycl_queue": "sycl queue",
    "level_zero_queue": "l0 queue",
    "collective": "Collective name",
}


class DeviceArgs(msgspec.Struct, gc=False, rename=_DEVICE_KEYS):
    """Args of kernels, copies and memsets."""

    external: Any = -1
    device: Any = None
    stream: Any = None
    correlation: Any = -1
    bytes: Any = -1
    graph: Any = -1
    collective: Any = None
    old_external: Any = -1
    from_device: Any = None
    in_device: Any = None
    sycl_queue: Any = None
    level_zero_queue: Any = None
    queue: Any = None


_COLLECTIVE_KEYS = {
    "op": "Collective name",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group_size": "Group size",
    "group": "Process Group Name",
    "group_id": "Process Group ID",
    "group_description": "Process Group Description",
    "group_ranks": "Process Group Ranks",
    "src_rank": "Src Rank",
    "dst_rank": "Dst Rank",
    "seq": "Seq",
}


class CollectiveArgs(msgspec.Struct, gc=False, rename=_COLLECTIVE_KEYS):
    """Collective metadata, on kernels and on ``record_param_comms`` operators."""

    op: Any = None
    in_elements: Any = -1
    out_elements: Any = -1
    group_size: Any = -1
    dtype: Any = None
    group: Any = None
    group_id: Any = None  # before the group had a name
    group_description: Any = None
    group_ranks: Any = None
    src_rank: Any = -1
    dst_rank: Any = -1
    seq: Any = -1
