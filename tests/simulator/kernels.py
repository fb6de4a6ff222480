"""Kernels and copies of an H100 in bf16: real names, durations from FLOPs or bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simulator.device import DeviceOp, Flops, Meeting

PEAK_FLOPS = 989_000_000_000_000  # what durations are made from
DENSE_PEAK = 989.4e12  # FLOP/s, bf16 without sparsity, half of the 1978.9 of the data sheet
MATMUL_PCT, FLASH_PCT = 60, 45  # of the peak
HBM_BYTES_PER_US = 2_500_000  # 75 % of 3.35 TB/s
PINNED_BYTES_PER_US, PAGEABLE_BYTES_PER_US = 50_000, 6_000
SHORTEST_NS = 1_900

GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{}_n_tilesize128x128x64_"
    "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
)
FLASH = (
    "void pytorch_flash::flash_{0}_kernel<Flash_{0}_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t>>(pytorch_flash::Flash_{0}_params)"
)
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::{0}<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::{0}<c10::BFloat16>, std::array<char*, 3ul>)"
)
LAYER_NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16*)"
)
ADAMW = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
    "at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
    "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (ADAM_MODE)1> >"
)


@dataclass(frozen=True)
class Shape:
    """Sizes of the model: a decoder of `layers` blocks on `batch` sequences."""

    layers: int = 2
    batch: int = 4
    sequence: int = 2048
    hidden: int = 2048
    heads: int = 16
    vocab: int = 32_000

    @property
    def tokens(self) -> int:
        """Rows of every matrix."""
        return self.batch * self.sequence


def _kernel(name: str, leaf: str, dur: int, *, grid: int, block: int = 128) -> DeviceOp:
    args: dict[str, Any] = {
        "registers per thread": 168 if leaf == "compute.tensor" else 32,
        "shared memory": 231_424 if leaf == "compute.tensor" else 0,
        "blocks per SM": round(grid / 132, 6),
        "warps per SM": round(grid * block / 32 / 132, 6),
        "grid": [grid, 1, 1],
        "block": [block, 1, 1],
        "est. achieved occupancy %": 18 if leaf == "compute.tensor" else 87,
    }
    return DeviceOp(name=name, cat="kernel", leaf=leaf, dur=max(SHORTEST_NS, dur), args=args)


def _flops_ns(flops: int, pct: int) -> int:
    return flops * 1_000_000_000 * 100 // (PEAK_FLOPS * pct)


def gemm(m: int, n: int, k: int, layout: str = "tn") -> DeviceOp:
    """Matrix product, 2 m n k FLOPs."""
    flops = 2 * m * n * k
    op = _kernel(
        GEMM.format(layout), "compute.tensor", _flops_ns(flops, MATMUL_PCT), grid=132, block=384
    )
    op.flops = Flops(model=flops, executed=flops)
    return op


def flash(shape: Shape, direction: str = "fwd") -> DeviceOp:
    """Causal attention: half of 4 b h s^2 d FLOPs forward, 2.5 times that backward.

    By the full convention it is credited with all of them, and the model needs 2 times backward.
    """
    square = 4 * shape.batch * shape.sequence**2 * shape.hidden
    credit = Flops(model=square, executed=square)
    if direction == "bwd":
        credit = Flops(model=2 * square, executed=square * 5 // 2)
    flops = credit.executed // 2
    blocks = shape.batch * shape.heads * max(1, shape.sequence // 128)
    name = FLASH.format(direction)
    op = _kernel(name, "compute.tensor", _flops_ns(flops, FLASH_PCT), grid=blocks)
    op.flops = credit
    return op


def elementwise(nbytes: int, functor: str = "CUDAFunctor_add") -> DeviceOp:
    """Memory-bound kernel over `nbytes` read and written."""
    ns = nbytes * 1000 // HBM_BYTES_PER_US
    grid = max(1, nbytes // 6144)
    return _kernel(ELEMENTWISE.format(functor), "compute.other", ns, grid=grid)


def layer_norm(nbytes: int) -> DeviceOp:
    """Layer normalisation over `nbytes`."""
    ns = nbytes * 1000 // HBM_BYTES_PER_US
    return _kernel(LAYER_NORM, "compute.other", ns, grid=max(1, nbytes // 8192))


def adamw(params: int) -> DeviceOp:
    """Fused AdamW: 28 bytes a parameter."""
    return _kernel(ADAMW, "compute.other", params * 28 * 1000 // HBM_BYTES_PER_US, grid=320)


def busy(ns: int, leaf: str = "compute.tensor") -> DeviceOp:
    """Kernel of a given duration."""
    name = GEMM.format("tn") if leaf == "compute.tensor" else ELEMENTWISE.format("GeluCUDAKernel")
    return _kernel(name, leaf, ns, grid=132)


def copy(kind: str, nbytes: int, ns: int | None = None) -> DeviceOp:
    """Copy or memset; `kind` is the leaf without ``copy.``."""
    names = {
        "h2d_pinned": "Memcpy HtoD (Pinned -> Device)",
        "h2d_pageable": "Memcpy HtoD (Pageable -> Device)",
        "d2h": "Memcpy DtoH (Device -> Pinned)",
        "d2d": "Memcpy DtoD (Device -> Device)",
        "memset": "Memset (Device)",
    }
    speeds = {
        "h2d_pageable": PAGEABLE_BYTES_PER_US,
        "d2d": HBM_BYTES_PER_US // 2,
        "memset": HBM_BYTES_PER_US,
    }
    if ns is None:
        ns = 1_300 + nbytes * 1000 // speeds.get(kind, PINNED_BYTES_PER_US)
    cat = "gpu_memset" if kind == "memset" else "gpu_memcpy"
    args = {"bytes": nbytes, "memory bandwidth (GB/s)": round(nbytes / ns, 6)}
    return DeviceOp(name=names[kind], cat=cat, leaf=f"copy.{kind}", dur=ns, args=args)


def nccl(name: str, args: dict[str, Any], meeting: Meeting | None, ns: int = 0) -> DeviceOp:
    """Kernel of a collective: lasts until its meeting is over, or `ns` where it has none."""
    full = f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)"
    op = _kernel(full, "comm", ns, grid=24, block=544)
    op.meeting = meeting
    op.args |= args
    return op
