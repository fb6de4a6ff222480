"""FLOPs of fused attention, forward and backward, from the shapes of q, k and v.

P = pairs of (query, key) that count, over batch and query heads::

    forward             2 P (D_qk + D_v)        QK^T and PV
    backward, model     4 P (D_qk + D_v)        twice the forward
    backward, executed  2 P (3 D_qk + 2 D_v)    QK^T is computed again: 2.5 times for D_qk = D_v

``full``: P = S_q S_k, a causal mask is not subtracted (PaLM, torch.utils.flop_counter).
``visible``: P = the pairs that the mask leaves. A window of ``left`` keys is part of the model's
definition: full counts left + 1 (+ right) keys per query, visible also cuts them at the edges.
Queries and keys are aligned at their ends, as flash attention does it (the same as at the start
where S_q = S_k, which torch demands for a causal mask elsewhere). Fewer key heads than query heads
(GQA) change nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from gpudiag.analyze.trace_flops.call import Call, Shape, UnknownFlopsError

UNKNOWN_LENGTHS = "unknown sequence lengths (variable-length attention)"


@dataclass(frozen=True, slots=True)
class Layout:
    """How an attention operator records its arguments."""

    query: int = 0  # position of q; k and v follow
    heads_first: bool = False  # (B, H, S, D) instead of (B, S, H, D)
    backward: bool = False
    causal: int | None = 0  # which of the boolean scalars is the causal flag; None: not told
    mask_type: int | None = None  # position of efficient attention's custom_mask_type
    window: str = ""  # "flag": two integers after the causal flag; "tail": see _TAIL_WINDOW


_SDPA = Layout(heads_first=True)
_SDPA_SECOND_FLAG = Layout(heads_first=True, causal=1)
_SDPA_BACKWARD = Layout(query=1, heads_first=True, backward=True)
# Positions of (window_size_left, window_size_right) of aten's own flash attention.
_TAIL_WINDOW = {False: (11, 12), True: (15, 16)}

ATEN: dict[str, Layout] = {
    "scaled_dot_product_attention": _SDPA,
    "_scaled_dot_product_flash_attention": _SDPA,
    "_scaled_dot_product_flash_attention_for_cpu": _SDPA,
    "_scaled_dot_product_fused_attention_overrideable": _SDPA,
    "_scaled_dot_product_attention_math_for_mps": _SDPA,
    "_scaled_dot_product_efficient_attention": _SDPA_SECOND_FLAG,
    "_scaled_dot_product_cudnn_attention": _SDPA_SECOND_FLAG,
    "_cudnn_attention_forward": _SDPA_SECOND_FLAG,
    "_scaled_dot_product_flash_attention_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_fused_attention_overrideable_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_efficient_attention_backward": _SDPA_BACKWARD,
    "_scaled_dot_product_cudnn_attention_backward": _SDPA_BACKWARD,
    "_cudnn_attention_backward": _SDPA_BACKWARD,
    "_flash_attention_forward": Layout(window="tail"),
    "_flash_attention_forward_no_dropout_inplace": Layout(query=1),
    "_flash_attention_backward": Layout(query=1, backward=True, window="tail"),
    "_efficient_attention_forward": Layout(causal=None, mask_type=9),
    "_efficient_attention_backward": Layout(query=1, backward=True, causal=None, mask_type=14),
}
# flash-attn 2 and 3, xformers, aiter: registered outside aten, (B, S, H, D) or (total, H, D).
_CUSTOM = re.compile(
    r"^(flash_?attn\w*|xformers\w*|vllm_flash_attn\w*|hopper\w*)::\w*"
    r"(?P<way>fwd|bwd|forward|backward)|^_?flash_?attn\w*(?P<way2>fwd|bwd|forward|backward)"
)
# Attention over a cache: how much of it is filled is in no shape.
_CACHE = re.compile(r"kvcache|paged|splitkv|decode|combine")
_NO_FLAG = re.compile(r"^xformers::")


def custom_layout(name: str) -> Layout | None:
    """Return the layout of a flash-attn or xformers operator, None for any other name."""
    match = _CUSTOM.match(name)
    if not match or _CACHE.search(name):
        return None
    backward = (match["way"] or match["way2"]) in {"bwd", "backward"}
    if _NO_FLAG.match(name):
        return Layout(query=int(backward), backward=backward, causal=None)
    return Layout(query=int(backward), backward=backward, window="flag")


@dataclass(frozen=True, slots=True)
class AttentionFlops:
    """FLOPs of one call under both conventions."""

    model: int
    executed: int
    visible_model: int
    visible_executed: int


def attention_flops(call: Call, layout: Layout) -> AttentionFlops:
    """Return the FLOPs of a fused attention call."""
    sizes = _sizes(call, layout)
    mask = _mask(call, layout)
    pairs = [sizes.batch_heads * mask.pairs(sizes.queries, sizes.keys, full) for full in (1, 0)]
    return _flops(layout, sizes, pairs)


def _flops(layout: Layout, sizes: _Sizes, pairs: list[int]) -> AttentionFlops:
    qk, v = sizes.qk_width, sizes.v_width
    if layout.backward:
        model, executed = 4 * (qk + v), 2 * (3 * qk + 2 * v)
    else:
        model = executed = 2 * (qk + v)
    full, visible = pairs
    return AttentionFlops(full * model, full * executed, visible * model, visible * executed)


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch_heads: int  # batch times query heads
    queries: int
    keys: int
    qk_width: int
    v_width: int


def _sizes(call: Call, layout: Layout) -> _Sizes:
    q, k, v = (call.shape(layout.query + i) for i in range(3))
    if len(q) != len(k) or len(k) != len(v):
        raise UnknownFlopsError("q, k and v differ in dimensions")
    if layout.heads_first:
        if len(q) < 2:  # noqa: PLR2004 - sequence and width
            raise UnknownFlopsError("q has no sequence dimension")
        return _Sizes(prod(q[:-2]), q[-2], k[-2], q[-1], v[-1])
    offsets = _offsets(call, layout)
    if len(q) == 3 or (offsets and len(q) == 4):  # noqa: PLR2004 - (total, H, D) and (1, total, H, D)
        return _packed_sizes(call, layout, offsets, (q[-3:], k[-3:], v[-3:]))
    if len(q) not in {4, 5}:
        raise UnknownFlopsError("q is neither (B, S, H, D) nor (total, H, D)")
    return _Sizes(q[0] * prod(q[2:-1]), q[1], k[1], q[-1], v[-1])


def _offsets(call: Call, layout: Layout) -> list[int]:
    """Return the lengths of the integer vectors after v: offsets of the packed sequences."""
    found = []
    for index in range(layout.query + 3, len(call.dims)):
        shape = call.optional_shape(index)
        if shape and len(shape) == 1 and call.dtype(index) in {"int32", "int64"}:
            found.append(shape[0])
    return found[:2]


def _packed_sizes(
    call: Call, layout: Layout, offsets: list[int], qkv: tuple[Shape, Shape, Shape]
) -> _Sizes:
    """Return the sizes of packed sequences where they can only be of one length; else raise.

    The sum of n lengths is the total and none exceeds the longest: n longest = total means that
    all are the longest.
    """
    q, k, v = qkv
    count = offsets[0] - 1 if offsets else 0
    longest = [size for size in call.integers() if size > 0][:2]
    if count == 1:
        return _Sizes(q[1], q[0], k[0], q[2], v[2])
    if count > 1 and len(longest) > 1 and (q[0], k[0]) == (count * longest[0], count * longest[1]):
        return _Sizes(count * q[1], longest[0], longest[1], q[2], v[2])
    raise UnknownFlopsError(UNKNOWN_LENGTHS, _bound(call, layout, longest, qkv))


def _bound(
    call: Call, layout: Layout, longest: list[int], qkv: tuple[Shape, Shape, Shape]
) -> int | None:
    """Return the FLOPs if every query saw as many keys as any can: at most the longest sequence."""
    if len(longest) < 2:  # noqa: PLR2004 - of queries and of keys
        return None
    q, _, v = qkv
    keys = _mask(call, layout).keys_per_query(longest[1])
    sizes = _Sizes(q[1], q[0], keys, q[2], v[2])
    return _flops(layout, sizes, [q[0] * q[1] * keys] * 2).executed


@dataclass(frozen=True, slots=True)
class Mask:
    """Which keys a query sees: query i, aligned at the end, those from i - left to i + right."""

    causal: bool
    left: int | None = None
    right: int | None = None

    def keys_per_query(self, keys: int) -> int:
        """Return the most keys that one query sees under the full convention."""
        if self.left is None and self.right is None:
            return keys
        right = 0 if self.causal else self.right
        if self.left is None or right is None:
            return keys
        return min(keys, self.left + right + 1)

    def pairs(self, queries: int, keys: int, full: int) -> int:
        """Return how many pairs count for one head of one sequence."""
        if full:
            return queries * self.keys_per_query(keys)
        shift = keys - queries
        right = 0 if self.causal else self.right
        seen = queries * keys
        if right is not None:  # keys after i + shift + right are not seen
            seen -= _clipped_sum(keys - 1 - shift - right, queries, keys)
        if self.left is not None:  # nor those before i + shift - left
            seen -= _clipped_sum(queries - 1 + shift - self.left, queries, keys)
        return max(seen, 0)


def _clipped_sum(first: int, count: int, top: int) -> int:
    """Return the sum over i in 0..count-1 of (first - i) held between 0 and ``top``."""
    whole = min(max(first - top, 0), count)  # terms held at the top
    last = min(max(first, 0), count)  # terms above zero
    terms = max(last - whole, 0)
    return whole * top + terms * (first - whole) - terms * (terms - 1) // 2


def _mask(call: Call, layout: Layout) -> Mask:
    if layout.mask_type is not None:
        return Mask(causal=bool(call.integer(layout.mask_type)))
    booleans = call.booleans()
    if layout.causal is None or len(booleans) <= layout.causal:
        return Mask(causal=False)
    at, causal = booleans[layout.causal]
    positions = (at + 1, at + 2) if layout.window == "flag" else _TAIL_WINDOW[layout.backward]
    if not layout.window:
        return Mask(causal=causal)
    left, right = (_size(call.integer(position)) for position in positions)
    return Mask(causal=causal, left=left, right=right)


def _size(recorded: int | None) -> int | None:
    """Return a window size; -1 and none mean unlimited."""
    return recorded if recorded is not None and recorded >= 0 else None
