"""FLOPs of matrix products from their shapes; one multiply-add is two FLOPs.

Sources: operator schemas of torch 2.13; the bias of ``addmm`` and the like is not counted, as in
torch.utils.flop_counter.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from gpudiag.analyze.trace_flops.call import Call, Shape, UnknownFlopsError

_FP4 = "fp4"
_MISFIT = "the recorded shapes don't fit each other"
# _weight_int4pack_mm keeps 8 rows of the weight in each of the packed tensor's.
_INT4_ROWS = 8


def _fit(left: int, right: int) -> None:
    """Raise unless the inner sizes agree: a trace whose arguments are shifted tells nothing."""
    if left != right:
        raise UnknownFlopsError(_MISFIT)


def _product(call: Call, left: int, right: int) -> int:
    """[m, k] by [k, n]: 2 m k n."""
    a, b = call.shape(left, 2), call.shape(right, 2)
    _fit(a[1], b[0])
    # Two fp4 values share a byte, and the shape counts bytes.
    packed = 2 if call.dtype(left) == _FP4 else 1
    return 2 * a[0] * a[1] * b[1] * packed


def _batched(call: Call, left: int, right: int) -> int:
    """[b, m, k] by [b, k, n]: 2 b m k n."""
    a, b = call.shape(left, 3), call.shape(right, 3)
    _fit(a[2], b[1])
    return 2 * prod(a) * b[2]


def _grouped(call: Call) -> int:
    """Grouped product; groups share the rows (2-D by 3-D) or the inner size (2-D by 2-D).

    [m, k] by [g, k, n]: 2 m k n; [m, k] by [k, n]: 2 m k n; [g, m, k] by [k, n] : 2 m k n;
    [g, m, k] by [g, k, n]: 2 g m k n. Rows of padding can't be told and count.
    """
    a, b = call.shape(0), call.shape(1)
    ranks = (len(a), len(b))
    packed = 2 if call.dtype(0) == _FP4 else 1
    _fit(a[-1], b[-2] if len(b) > 1 else -1)
    if ranks in {(2, 2), (2, 3)}:
        return 2 * a[0] * a[1] * b[-1] * packed
    if ranks == (3, 3):
        return 2 * prod(a) * b[2] * packed
    if ranks == (3, 2):
        return 2 * a[1] * a[2] * b[1] * packed
    raise UnknownFlopsError("shapes are no grouped product")


def _linear(call: Call) -> int:
    """[..., k] by a weight of [n, k]: 2 (...) k n."""
    x, weight = call.shape(0), call.shape(1)
    if len(weight) > 2:  # noqa: PLR2004 - a matrix, or a vector for one output
        raise UnknownFlopsError(_MISFIT)
    _fit(x[-1], weight[-1])
    return 2 * prod(x) * (weight[0] if len(weight) > 1 else 1)


def _linear_backward(call: Call) -> int:
    """Towards the input and the weight, as far as the output mask asks for them."""
    x, weight = call.shape(0), call.shape(2)
    mask = call.flags(3)
    if mask is None:
        raise UnknownFlopsError("output mask not recorded")
    return 2 * prod(x) * weight[0] * sum(mask[:2])


def _linear_backward_input(call: Call) -> int:
    """Grad [..., n] by weight [n, k]: 2 (...) n k."""
    return 2 * prod(call.shape(1)) * call.shape(2)[-1]


def _linear_backward_weight(call: Call) -> int:
    """Grad [..., n] transposed by input [..., k]: 2 (...) n k."""
    return 2 * prod(call.shape(0)) * call.shape(1)[-1]


def _matmul(call: Call) -> int:
    """Any two tensors that torch.matmul takes, batch dimensions broadcast."""
    a, b = call.shape(0), call.shape(1)
    if len(a) == 1:
        a = (1, *a)
    if len(b) == 1:
        b = (*b, 1)
    _fit(a[-1], b[-2])
    return 2 * prod(_broadcast(a[:-2], b[:-2])) * a[-2] * a[-1] * b[-1]


def _broadcast(a: Shape, b: Shape) -> Shape:
    longest = max(len(a), len(b))
    left = (1,) * (longest - len(a)) + a
    right = (1,) * (longest - len(b)) + b
    return tuple(map(max, left, right))


def _int4(call: Call) -> int:
    """[m, k] by a packed weight of [n/8, ...]: 2 m k n."""
    return 2 * prod(call.shape(0, 2)) * call.shape(1)[0] * _INT4_ROWS


def _foreach(call: Call) -> int:
    """Sum of 2 m k n over the pairs of two lists."""
    pairs = zip(call.shapes(0), call.shapes(1), strict=True)
    return sum(2 * a[0] * a[1] * b[1] for a, b in pairs)


# Operator -> (FLOPs of a call, positions of the operands read besides the result).
MATMULS: dict[str, tuple[Callable[[Call], int], tuple[int, ...]]] = {
    "mm": (lambda call: _product(call, 0, 1), (0, 1)),
    "_int_mm": (lambda call: _product(call, 0, 1), (0, 1)),
    "_scaled_mm": (lambda call: _product(call, 0, 1), (0, 1)),
    "_scaled_mm_v2": (lambda call: _product(call, 0, 1), (0, 1)),
    "addmm": (lambda call: _product(call, 1, 2), (0, 1, 2)),
    "_addmm_activation": (lambda call: _product(call, 1, 2), (0, 1, 2)),
    "bmm": (lambda call: _batched(call, 0, 1), (0, 1)),
    "baddbmm": (lambda call: _batched(call, 1, 2), (0, 1, 2)),
    "addbmm": (lambda call: _batched(call, 1, 2), (0, 1, 2)),
    "_grouped_mm": (_grouped, (0, 1)),
    "_scaled_grouped_mm": (_grouped, (0, 1)),
    "_scaled_grouped_mm_v2": (_grouped, (0, 1)),
    "_foreach_mm": (_foreach, ()),
    "_weight_int4pack_mm": (_int4, (0, 1)),
    "_weight_int4pack_mm_for_cpu": (_int4, (0, 1)),
    "_weight_int8pack_mm": (_linear, (0, 1)),
    "mv": (lambda call: 2 * prod(call.shape(0, 2)), (0, 1)),
    "addmv": (lambda call: 2 * prod(call.shape(1, 2)), (0, 1, 2)),
    "dot": (lambda call: 2 * prod(call.shape(0)), (0, 1)),
    "vdot": (lambda call: 2 * prod(call.shape(0)), (0, 1)),
    # Composites: they count only where no operator inside them does.
    "matmul": (_matmul, (0, 1)),
    "linear": (_linear, (0, 1)),
    "mkldnn_linear": (_linear, (0, 1)),
    "_linear_pointwise": (_linear, (0, 1)),
    "gemm_a16w16": (_linear, (0, 1)),
    "linear_backward": (_linear_backward, (0, 1, 2)),
    "mkldnn_linear_backward": (_linear_backward, (0, 1, 2)),
    "mkldnn_linear_backward_input": (_linear_backward_input, (1, 2)),
    "mkldnn_linear_backward_weights": (_linear_backward_weight, (0, 1)),
}
# Which argument's type is the product's: the first operand, not the bias.
_SECOND_IS_OPERAND = {"addmm", "_addmm_activation", "baddbmm", "addbmm", "addmv"}


def operand_index(short_name: str) -> int:
    """Return the position of the first operand of the product."""
    return 1 if short_name in _SECOND_IS_OPERAND else 0


def result_elements(call: Call, short_name: str) -> int | None:
    """Return the number of elements of the result, None where the shapes don't tell."""
    first = operand_index(short_name)
    a, b = call.optional_shape(first), call.optional_shape(first + 1)
    if a is None or b is None:
        return None
    if short_name in {"linear", "mkldnn_linear", "_linear_pointwise", "gemm_a16w16"}:
        return prod(a[:-1]) * b[0]
    if len(a) == len(b) and len(a) > 1:
        return prod(a[:-1]) * b[-1]
    return None
