"""FLOPs, bytes and type of one operator call, for every operator that has a formula."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import TypeAlias

from gpudiag.analyze.trace_flops import attention, convolution, matmul
from gpudiag.analyze.trace_flops.attention import Layout, custom_layout
from gpudiag.analyze.trace_flops.call import Call, Shape, UnknownFlopsError
from gpudiag.analyze.trace_flops.traffic import traffic_bytes

# Output sizes of forward convolutions, by the shapes of input and weight.
ConvolutionOutputs: TypeAlias = Mapping[tuple[Shape, Shape], Shape]

_NAMESPACES = re.compile(r"^(aten|mkldnn|aiter)::")
_ITS_OWN_COUNT = "kernel_flop"
_NONSENSE = "the recorded arguments make no sense"
# No call does a billion billion FLOPs; 64 bits hold a window's sum of those that are below.
_MOST = 10**18
# Inductor's templates of products; without their own count nothing tells their FLOPs.
_TEMPLATE = re.compile(r"^triton_tem_")


class Kind(IntEnum):
    """Which family of formulas an operator belongs to."""

    NONE = 0
    MATMUL = 1
    CONVOLUTION = 2
    CONVOLUTION_BACKWARD = 3
    CONVOLUTION_HALF = 4  # see convolution.HALVES
    ATTENTION = 5
    ATTENTION_BACKWARD = 6
    TEMPLATE = 7


@dataclass(frozen=True, slots=True)
class Flops:
    """What one call costs.

    ``full`` counts a causal mask's pairs as if they were computed, ``visible`` leaves them out;
    they differ for fused attention only. ``executed`` exceeds ``model`` where a kernel computes
    something again (the backward of fused attention).
    """

    model: int
    executed: int
    visible_model: int
    visible_executed: int
    bytes: int | None  # operands read and result written once, where shapes and types tell
    dtype: str | None
    kind: Kind
    per_half: bool = False  # a backward convolution without its mask: FLOPs of one half


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a call's FLOPs are not known, and the most they can be where that is."""

    reason: str
    bound: int | None = None


def kind_of(name: str) -> Kind:
    """Return the family of an operator by its name; evaluated once per distinct name."""
    short = short_name(name)
    if short is not None:
        return _KINDS.get(short, Kind.NONE)
    return Kind.TEMPLATE if _TEMPLATE.match(name) else _attention_kind(custom_layout(name))


def short_name(name: str) -> str | None:
    """Return an aten operator's name without namespace and in-place mark; None for others."""
    match = _NAMESPACES.match(name)
    return name[match.end() :].removesuffix("_") if match else None


def flops_of(
    call: Call, recorded_flops: int = -1, outputs: ConvolutionOutputs | None = None
) -> Flops | Unknown:
    """Return what one call costs, or why that is not known.

    Args:
        call: the call's shapes, scalars and types.
        recorded_flops: Inductor's own count (``kernel_flop``), preferred where positive.
        outputs: output sizes of convolutions learned elsewhere, for calls without scalars.
    """
    if 0 < recorded_flops < _MOST:
        return _plain(Kind.TEMPLATE, recorded_flops, traffic_bytes(call), call.dtype(0))
    try:
        found = _by_kind(call, outputs or {})
    except UnknownFlopsError as error:
        bounded = error.bound is not None and 0 <= error.bound < _MOST
        return Unknown(error.reason, error.bound if bounded else None)
    except (ArithmeticError, LookupError, ValueError):
        return Unknown(_NONSENSE)
    parts = (found.model, found.executed, found.visible_model, found.visible_executed)
    sensible = all(0 <= part < _MOST for part in (*parts, found.bytes or 0))
    return found if sensible else Unknown(_NONSENSE)


def learned_output(call: Call) -> tuple[tuple[Shape, Shape], Shape] | None:
    """Return the forward output sizes that a backward convolution tells, None for other calls."""
    layout = convolution.BACKWARD.get(short_name(call.name) or "")
    return None if layout is None else convolution.learned_output(call, layout)


def _attention_kind(layout: Layout | None) -> Kind:
    if layout is None:
        return Kind.NONE
    return Kind.ATTENTION_BACKWARD if layout.backward else Kind.ATTENTION


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(matmul.MATMULS, Kind.MATMUL),
    **dict.fromkeys(convolution.FORWARD, Kind.CONVOLUTION),
    **dict.fromkeys(convolution.BACKWARD, Kind.CONVOLUTION_BACKWARD),
    **dict.fromkeys(convolution.HALVES, Kind.CONVOLUTION_HALF),
    **{name: _attention_kind(layout) for name, layout in attention.ATEN.items()},
}


def _by_kind(call: Call, outputs: ConvolutionOutputs) -> Flops:
    short = short_name(call.name) or ""
    kind = kind_of(call.name)
    if kind == Kind.MATMUL:
        return _matmul(call, short)
    if kind == Kind.CONVOLUTION:
        return _convolution(call, convolution.FORWARD[short], outputs)
    if kind == Kind.CONVOLUTION_BACKWARD:
        return _convolution_backward(call, convolution.BACKWARD[short])
    if kind in {Kind.ATTENTION, Kind.ATTENTION_BACKWARD}:
        return _attention(call, attention.ATEN.get(short) or custom_layout(call.name))
    if kind == Kind.TEMPLATE:
        raise UnknownFlopsError(f"Inductor template without {_ITS_OWN_COUNT}")
    raise UnknownFlopsError("no formula")


def _plain(kind: Kind, flops: int, size: int | None, dtype: str | None) -> Flops:
    return Flops(flops, flops, flops, flops, size, dtype, kind)


def _matmul(call: Call, short: str) -> Flops:
    formula, operands = matmul.MATMULS[short]
    first = matmul.operand_index(short)
    read = call.bytes(*operands) if operands else None
    size = _traffic(read, matmul.result_elements(call, short), call.element_bytes(first))
    return _plain(Kind.MATMUL, formula(call), size, call.dtype(first))


def _convolution(call: Call, layout: convolution.Forward, outputs: ConvolutionOutputs) -> Flops:
    x, weight = call.shape(0), call.shape(layout.weight)
    out = None if call.lists() else outputs.get((x, weight))
    flops = convolution.forward_flops(call, layout, out)
    # FLOPs / (2 prod(weight[1:])) is the number of outputs, or of inputs where transposed.
    result = flops // max(2 * prod(weight[1:]), 1)
    known = None if convolution.is_transposed(call, layout) else result
    size = _traffic(call.bytes(0, layout.weight), known, call.element_bytes(0))
    return _plain(Kind.CONVOLUTION, flops, size, call.dtype(0))


def _traffic(read: int | None, result: int | None, element_bytes: float | None) -> int | None:
    """Return bytes read and ``result`` elements written, None where any of it is unknown."""
    if read is None or result is None or element_bytes is None:
        return None
    return int(read + result * element_bytes)


def _convolution_backward(call: Call, layout: convolution.Backward) -> Flops:
    one = convolution.backward_flops(call, layout)
    parts = convolution.output_mask(call)
    read = call.bytes(layout.grad, layout.input, layout.weight)
    written = call.bytes(layout.input, layout.weight)
    size = read + written if read is not None and written is not None else None
    flops = one if parts is None else one * parts
    dtype = call.dtype(layout.input)
    kind = Kind.CONVOLUTION_BACKWARD
    return Flops(flops, flops, flops, flops, size, dtype, kind, per_half=parts is None)


def _attention(call: Call, layout: Layout | None) -> Flops:
    if layout is None:
        raise UnknownFlopsError("no formula")
    found = attention.attention_flops(call, layout)
    at = layout.query
    q, k, v = call.bytes(at), call.bytes(at + 1), call.bytes(at + 2)
    size = None
    if q is not None and k is not None and v is not None:
        # Forward: q, k, v and the output; backward: those, its gradient, and dq, dk, dv.
        size = 2 * q + k + v if not layout.backward else 4 * q + 2 * k + 2 * v
    return Flops(
        found.model,
        found.executed,
        found.visible_model,
        found.visible_executed,
        size,
        call.dtype(at),
        _attention_kind(layout),
    )
