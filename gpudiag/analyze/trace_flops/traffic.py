"""Bytes that a memory-bound operator moves at least: every tensor once, from the shapes."""

from __future__ import annotations

import re
from math import prod

from gpudiag.analyze.trace_flops.call import Call, dtype_bytes

# Fused kernels of Inductor list every tensor that they read or write.
_TRITON = re.compile(r"^triton_(poi|per|red|tem|for)_")
# Some of them touch only a part of a tensor.
_PARTIAL = re.compile(r"embedding|index|gather|scatter|slice|select|split|unbind|narrow")
# One value out per (broadcast) value in.
_ELEMENTWISE = re.compile(
    r"^aten::(add|sub|rsub|mul|div|neg|abs|exp|log|log2|sqrt|rsqrt|pow|reciprocal|sin|cos|tanh"
    r"|sigmoid|relu|leaky_relu|gelu|silu|elu|hardtanh|hardswish|clamp|clamp_min|clamp_max|where"
    r"|maximum|minimum|eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+|lerp|addcmul|addcdiv|masked_fill"
    r"|threshold|dropout|native_dropout|_softmax|_log_softmax|_safe_softmax|native_layer_norm"
    r"|_fused_rms_norm|native_group_norm|cudnn_batch_norm|native_batch_norm|miopen_batch_norm"
    r"|(threshold|gelu|silu|sigmoid|tanh|elu|leaky_relu|hardtanh|native_dropout|_softmax"
    r"|_log_softmax)_backward(_data)?)_?$"
)
_READ_ONLY = re.compile(
    r"^aten::(sum|mean|amax|amin|max|min|any|all|argmax|argmin|norm|linalg_vector_norm)$"
)
_WRITE_ONLY = re.compile(r"^aten::(fill_|zero_)$")
_COPY = "aten::copy_"
# More than any device holds: the recorded shapes are wrong.
_MOST_BYTES = 10**15


def traffic_bytes(call: Call) -> int | None:
    """Return the least bytes moved by a memory-bound call, None where its shapes don't tell.

    Elementwise: the inputs, and a result of their broadcast shape in the widest of their types.
    In place: the inputs, and the first of them written. Reductions: the inputs.
    """
    if _WRITE_ONLY.match(call.name):
        return _tensors(call)[0]
    inputs, largest = _tensors(call)
    if inputs is None:
        return None
    if _TRITON.match(call.name):
        return None if _PARTIAL.search(call.name) else inputs
    if _READ_ONLY.match(call.name) or call.name == _COPY:
        return inputs
    if not _ELEMENTWISE.match(call.name):
        return None
    return inputs + (call.bytes(0) or 0 if call.name.endswith("_") else largest)


def _tensors(call: Call) -> tuple[int | None, int]:
    """Return the bytes of all tensor arguments, and those of the largest of them."""
    sizes = []
    for dims, recorded in zip(call.dims, call.types, strict=False):
        width = dtype_bytes(recorded)
        if width is None or not all(isinstance(size, int) for size in dims):
            continue
        sizes.append(int(prod(dims) * width))
    known = sizes and min(sizes) >= 0 and sum(sizes) < _MOST_BYTES
    return (sum(sizes), max(sizes)) if known else (None, 0)
