"""What ran: device kernels, or operators on the host where no device did, tied to operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpudiag.analyze.device import Device
from gpudiag.analyze.host import Host
from gpudiag.analyze.names import DeviceClass, by_code
from gpudiag.analyze.trace_flops.operators import Operators
from gpudiag.model.tables import I8, I32, I64, HostCategory, Mask, Trace

# What a kernel's name tells of a 4-byte float product: TF32 tensor cores, or plain fp32 units.
_TF32 = re.compile(r"tf32|s1688gemm(?!_)|tensorop_s1688(?!f16|bf16)", re.IGNORECASE)
_FP32 = re.compile(
    r"sgemm|scudnn|grad\w*_engine<float|simt|ffma|f32f32_f32f32|winograd|cijk_\w+?_s_?b",
    re.IGNORECASE,
)
NOT_TOLD, FP32, TF32 = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Work:
    """One row per kernel (or host operator), shape (n,); ``parts`` has shape (n, PARTS)."""

    device: I64  # which of the devices asked for
    start: I64
    duration: I64
    name: I32
    is_tensor: Mask
    owner: I64  # -> Operators, -1 for none
    is_known: Mask  # belongs to an operator whose FLOPs are known
    launch: I64  # row in Host of the launch call, else of the operator; -1: neither is recorded
    inner: I64  # innermost operator (row in Host) of kernels without an owner; -1: none
    parts: I64  # FLOPs of this kernel: its share of its operator's, by duration
    share: npt.NDArray[np.float64]  # of its operator; 0 without one
    float_unit: I8  # NOT_TOLD, FP32 or TF32, of its operator's kernels


def device_work(trace: Trace, host: Host, operators: Operators, devices: Sequence[Device]) -> Work:
    """Tie the compute kernels of all devices to the operators that launched them."""
    kernels = [np.flatnonzero(device.is_compute) for device in devices]

    def column(pick: Callable[[Device], npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
        pairs = zip(devices, kernels, strict=True)
        return np.concatenate([pick(device)[rows] for device, rows in pairs])

    starts = column(lambda d: d.starts).astype(np.int64)
    row = column(lambda d: d.row).astype(np.int64)
    launch = _launch_or_operator(trace, host, column(lambda d: d.launch).astype(np.int64), row)
    tensor = column(lambda d: d.kind) == DeviceClass.TENSOR
    name = column(lambda d: d.name).astype(np.int32)
    duration = column(lambda d: d.ends).astype(np.int64) - starts
    owner = _position(operators.row, host.enclosing(operators.row, launch))
    owner[duration == 0] = -1  # a record without time tells of no work that was done in it
    wrapped = host.enclosing(operators.wrappers, launch) >= 0
    share = _shares(owner, duration, tensor, len(operators))
    return Work(
        device=np.repeat(np.arange(len(devices)), [len(rows) for rows in kernels]),
        start=starts,
        duration=duration,
        name=name,
        is_tensor=tensor,
        owner=owner,
        is_known=(owner >= 0) | wrapped,
        launch=launch,
        inner=host.operator_of(np.where(owner < 0, launch, -1)),
        parts=_split(operators.parts, owner, share),
        share=share,
        float_unit=_float_units(host, owner, name, len(operators)),
    )


def host_work(host: Host, operators: Operators) -> Work:
    """Take the operators that ran on the host for their own kernels."""
    ran = np.flatnonzero(~operators.phantom)
    within = np.concatenate((operators.row, operators.wrappers))
    lost = operators.unknown[host.enclosing(np.sort(within), operators.unknown) < 0]
    lost = lost[host.enclosing(lost, lost) == lost]
    rows = np.concatenate((operators.row[ran], lost))
    owner = np.concatenate((ran, np.full(len(lost), -1, dtype=np.int64)))
    share = (owner >= 0).astype(np.float64)
    return Work(
        device=np.zeros(len(rows), dtype=np.int64),
        start=host.starts[rows],
        duration=host.ends[rows] - host.starts[rows],
        name=host.name[rows],
        is_tensor=np.ones(len(rows), dtype=bool),
        owner=owner,
        is_known=owner >= 0,
        launch=rows,
        inner=rows,
        parts=_split(operators.parts, owner, share),
        share=share,
        float_unit=np.full(len(rows), FP32, dtype=np.int8),
    )


def _launch_or_operator(trace: Trace, host: Host, launch: I64, row: I64) -> I64:
    """Return the launch row of each kernel; without one, the operator with its External id.

    Between torch 1.12 and 2.2 a kernel's External id was its correlation, which is no operator's:
    such an id is not used.
    """
    external = trace.device.external_id[row]
    ids = trace.host.external_id[host.row]
    named = np.flatnonzero((host.category == HostCategory.OPERATOR) & (ids > 0))
    asked = np.flatnonzero(
        (launch < 0) & (external > 0) & (external != trace.device.correlation[row])
    )
    if not len(named) or not len(asked):
        return launch
    named = named[np.argsort(ids[named], kind="stable")]
    at = np.minimum(np.searchsorted(ids[named], external[asked]), len(named) - 1)
    found = launch.copy()
    found[asked] = np.where(ids[named[at]] == external[asked], named[at], -1)
    return found


def _position(rows: I64, found: I64) -> I64:
    """Return the index in ``rows`` (ascending) of each found row, -1 for -1."""
    return np.where(found >= 0, np.searchsorted(rows, found), -1)


def _shares(owner: I64, duration: I64, tensor: Mask, operators: int) -> npt.NDArray[np.float64]:
    """Split each operator over its tensor kernels by duration, over all of its if it has none."""
    owned = owner >= 0
    has_tensor = np.zeros(operators, dtype=bool)
    has_tensor[owner[owned & tensor]] = True
    takes = owned.copy()
    takes[owned] = tensor[owned] | ~has_tensor[owner[owned]]
    weight = np.where(takes, np.maximum(duration, 1), 0).astype(np.float64)
    total = np.zeros(operators)
    np.add.at(total, owner[owned], weight[owned])
    share = np.zeros(len(owner))
    share[owned] = weight[owned] / total[owner[owned]]
    return share


def _split(parts: I64, owner: I64, share: npt.NDArray[np.float64]) -> I64:
    """Give each kernel its share of its operator's FLOPs; the shares of an operator sum exactly."""
    result = np.zeros((len(owner), parts.shape[1]), dtype=np.int64)
    rows = np.flatnonzero((owner >= 0) & (share > 0))
    if not len(rows):
        return result
    rows = rows[np.argsort(owner[rows], kind="stable")]
    group = owner[rows]
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    last = np.append(first[1:], len(rows)) - 1
    running = np.cumsum(share[rows])
    before = np.repeat(running[first] - share[rows[first]], last - first + 1)
    upto = np.clip(running - before, 0.0, 1.0)[:, None]
    upto[last] = 1.0
    edges = np.rint(parts[group] * upto).astype(np.int64)
    previous = np.vstack((np.zeros((1, parts.shape[1]), dtype=np.int64), edges[:-1]))
    previous[first] = 0
    result[rows] = edges - previous
    return result


def _float_units(host: Host, owner: I64, name: I32, operators: int) -> I8:
    """Return for each kernel what its operator's kernels say of fp32 against TF32."""

    def meaning(text: str) -> int:
        return TF32 if _TF32.search(text) else FP32 if _FP32.search(text) else NOT_TOLD

    units = by_code(host.strings, name, meaning)[name]
    known = np.zeros(operators, dtype=np.int8)
    np.maximum.at(known, owner[owner >= 0], units[owner >= 0])
    return np.where(owner >= 0, known[owner] if operators else 0, NOT_TOLD).astype(np.int8)
