"""FLOPs of convolutions, forward and backward, from their shapes.

Normal:     2 N prod(out) C_out (C_in/groups) prod(kernel)  =  2 N prod(out) prod(weight)
Transposed: 2 N prod(in) prod(weight)
Backward:   the forward's, once towards the input and once towards the weight.

``weight[1]`` is C_in/groups already, in the backward too (torch.utils.flop_counter counts the
weight's gradient ``groups`` times there).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gpudiag.analyze.trace_flops.call import Call, Shape, UnknownFlopsError


@dataclass(frozen=True, slots=True)
class Forward:
    """How a forward convolution records its arguments."""

    lists: str = ""  # what its integer lists are: K kernel, S stride, P padding, D dilation
    transposed: bool = False
    transposed_at: int | None = None  # position of the flag, where it is an argument
    weight: int = 1


_GENERIC = Forward("SPD", transposed_at=6)
_PLAIN = Forward("SPD")
_BACKEND = Forward("PSD")
_KERNEL_FIRST = Forward("KSP")
_KERNEL_FIRST_DILATED = Forward("KSPD")
_TRANSPOSED = Forward(transposed=True)

FORWARD: dict[str, Forward] = {
    "convolution": _GENERIC,
    "_convolution": _GENERIC,
    "convolution_overrideable": _GENERIC,
    "_convolution_mode": _PLAIN,
    **{f"conv{n}d": _PLAIN for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _TRANSPOSED for n in (1, 2, 3)},
    "cudnn_convolution": _BACKEND,
    "miopen_convolution": _BACKEND,
    "miopen_depthwise_convolution": _BACKEND,
    "mkldnn_convolution": _BACKEND,
    "_mps_convolution": _BACKEND,
    "_convolution_pointwise": _BACKEND,
    "cudnn_convolution_relu": _PLAIN,
    "cudnn_convolution_add_relu": _PLAIN,
    "miopen_convolution_relu": _PLAIN,
    "miopen_convolution_add_relu": _PLAIN,
    "cudnn_convolution_transpose": _TRANSPOSED,
    "miopen_convolution_transpose": _TRANSPOSED,
    "_mps_convolution_transpose": _TRANSPOSED,
    "_convolution_transpose_pointwise": _TRANSPOSED,
    "_slow_conv2d_forward": _KERNEL_FIRST,
    "slow_conv3d": _KERNEL_FIRST,
    "slow_conv3d_forward": _KERNEL_FIRST,
    "slow_conv_dilated2d": _KERNEL_FIRST_DILATED,
    "slow_conv_dilated3d": _KERNEL_FIRST_DILATED,
    "slow_conv_transpose2d": _TRANSPOSED,
    "slow_conv_transpose3d": _TRANSPOSED,
    "thnn_conv2d": _KERNEL_FIRST,
    "thnn_conv2d_forward": _KERNEL_FIRST,
    "_conv_depthwise2d": _KERNEL_FIRST_DILATED,
    "conv_depthwise3d": _KERNEL_FIRST_DILATED,
    "thnn_conv_depthwise2d_forward": _KERNEL_FIRST_DILATED,
    "_nnpack_spatial_convolution": Forward("PS"),
}


@dataclass(frozen=True, slots=True)
class Backward:
    """Where a backward convolution has its tensors; its output mask is its last argument."""

    grad: int
    input: int
    weight: int = 2
    transposed: bool = False
    transposed_at: int | None = None


_GRAD_FIRST = Backward(0, 1)
_INPUT_FIRST = Backward(1, 0)  # torch 1.x

BACKWARD: dict[str, Backward] = {
    "convolution_backward": Backward(0, 1, transposed_at=7),
    "convolution_backward_overrideable": Backward(0, 1, transposed_at=6),
    "_slow_conv2d_backward": _GRAD_FIRST,
    "slow_conv_dilated2d_backward": _GRAD_FIRST,
    "slow_conv_dilated3d_backward": _GRAD_FIRST,
    "thnn_conv2d_backward": _GRAD_FIRST,
    "thnn_conv_depthwise2d_backward": _GRAD_FIRST,
    "cudnn_convolution_backward": _INPUT_FIRST,
    "miopen_convolution_backward": _INPUT_FIRST,
    "miopen_depthwise_convolution_backward": _INPUT_FIRST,
    "mkldnn_convolution_backward": _INPUT_FIRST,
    "mps_convolution_backward": _INPUT_FIRST,
    "cudnn_convolution_transpose_backward": Backward(1, 0, transposed=True),
    "miopen_convolution_transpose_backward": Backward(1, 0, transposed=True),
    "mps_convolution_transpose_backward": Backward(1, 0, transposed=True),
}
# Halves of a backward convolution of torch 1.x. Their own shapes are incomplete; how many of them
# an operator holds tells its output mask where no scalars were recorded.
HALVES = {
    f"{library}_convolution{kind}_backward_{half}"
    for library in ("cudnn", "miopen")
    for kind in ("", "_transpose")
    for half in ("input", "weight")
}


def forward_flops(call: Call, layout: Forward, out: Shape | None = None) -> int:
    """Return the FLOPs of a forward convolution; ``out`` are its output's sizes where known."""
    x, weight = _tensors(call, 0, layout.weight)
    sizes = x[2:] if is_transposed(call, layout) else out or output_sizes(call, layout)
    return 2 * x[0] * prod(sizes) * prod(weight)


def output_sizes(call: Call, layout: Forward) -> Shape:
    """Return (in + 2 padding - dilation (kernel - 1) - 1) // stride + 1 per dimension."""
    x, weight = _tensors(call, 0, layout.weight)
    kernel, spatial = weight[2:], x[2:]
    named = "same" in call.concrete or "valid" in call.concrete
    letters = layout.lists.replace("P", "") if named else layout.lists
    lists = dict(zip(letters, call.lists(), strict=False))
    dilation = _each(lists.get("D", [1] if "D" not in layout.lists else None), len(kernel))
    stride = _each(lists.get("S"), len(kernel))
    padding = _named_padding(call, kernel, dilation) or _each(lists.get("P"), 2 * len(kernel))
    before, after = padding[: len(kernel)], padding[len(kernel) :]
    rows = zip(spatial, kernel, dilation, stride, before, after, strict=True)
    return tuple((i + p + q - d * (k - 1) - 1) // s + 1 for i, k, d, s, p, q in rows)


def output_mask(call: Call) -> int | None:
    """Return how many of the gradients of input and weight are asked for; None: not recorded."""
    mask = call.flags(-1)
    return None if mask is None else sum(mask[:2])


def backward_flops(call: Call, layout: Backward) -> int:
    """Return the FLOPs towards one of input and weight; both cost the same."""
    x, weight = _tensors(call, layout.input, layout.weight)
    grad = call.shape(layout.grad)
    sizes = x[2:] if _is_transposed_backward(call, layout, x, grad) else grad[2:]
    return 2 * x[0] * prod(sizes) * prod(weight)


def learned_output(call: Call, layout: Backward) -> tuple[tuple[Shape, Shape], Shape] | None:
    """Return ((input, weight), output sizes) that a backward call tells of its forward."""
    x, weight = call.optional_shape(layout.input), call.optional_shape(layout.weight)
    grad = call.optional_shape(layout.grad)
    if x is None or weight is None or grad is None:
        return None
    return (x, weight), grad[2:]


def _tensors(call: Call, x: int, weight: int) -> tuple[Shape, Shape]:
    """Return input and weight; an input without its batch dimension gets one."""
    data, kernel = call.shape(x), call.shape(weight)
    if len(data) == len(kernel) - 1:
        data = (1, *data)
    if len(data) != len(kernel):
        raise UnknownFlopsError("input and weight differ in dimensions")
    return data, kernel


def _named_padding(call: Call, kernel: Shape, dilation: list[int]) -> list[int] | None:
    """Return padding before and after per dimension for ``same`` and ``valid``."""
    if "valid" in call.concrete:
        return [0] * (2 * len(kernel))
    if "same" not in call.concrete:
        return None
    total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return [one // 2 for one in total] + [one - one // 2 for one in total]


def _each(values: list[int] | None, dimensions: int) -> list[int]:
    """Return one value per dimension; one is given for all, or each is given once for both ends."""
    if not values:
        raise UnknownFlopsError("stride, padding or dilation not recorded")
    if len(values) == 1:
        return values * dimensions
    if 2 * len(values) == dimensions:
        return values * 2
    if len(values) != dimensions:
        raise UnknownFlopsError("stride, padding or dilation doesn't fit the weight")
    return values


def is_transposed(call: Call, layout: Forward) -> bool:
    """Tell whether a forward call is a transposed convolution."""
    at = layout.transposed_at
    if at is None:
        return layout.transposed
    return at < len(call.concrete) and call.concrete[at] == "True"


def _is_transposed_backward(call: Call, layout: Backward, x: Shape, grad: Shape) -> bool:
    at = layout.transposed_at
    if at is not None and at < len(call.concrete) and call.concrete[at]:
        return call.concrete[at] == "True"
    # Not recorded: a transposed convolution's output is the larger side.
    return layout.transposed or (at is not None and prod(grad[2:]) > prod(x[2:]))
