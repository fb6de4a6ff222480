"""What a name means: kernels, copies, operators, runtime calls, host spans.

Names are matched once per distinct string, never per event. Device activity is told by category
(the reader does that); names only refine it. Sources: design rules in docs/concepts/accounting.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

import numpy as np

from gpudiag.model.tables import I8, I32, I64


class DeviceClass(IntEnum):
    """What a device record does, level 1 and the leaves of compute and copy."""

    TENSOR = 0  # compute: matmul, convolution, attention
    OTHER = 1  # compute: the rest
    COMM = 2
    # Copies, in the order in which an instant with several is charged.
    H2D_PAGEABLE = 3
    H2D_PINNED = 4
    H2D = 5
    D2H = 6
    D2D = 7
    P2P = 8
    MEMSET = 9
    COPY_OTHER = 10


COPY_BUCKETS: dict[DeviceClass, str] = {
    DeviceClass.H2D_PAGEABLE: "copy.h2d_pageable",
    DeviceClass.H2D_PINNED: "copy.h2d_pinned",
    DeviceClass.H2D: "copy.h2d",
    DeviceClass.D2H: "copy.d2h",
    DeviceClass.D2D: "copy.d2d",
    DeviceClass.P2P: "copy.p2p",
    DeviceClass.MEMSET: "copy.memset",
    DeviceClass.COPY_OTHER: "copy.other",
}

DEVICE_BUCKETS: dict[DeviceClass, str] = {
    DeviceClass.TENSOR: "compute.tensor",
    DeviceClass.OTHER: "compute.other",
    DeviceClass.COMM: "comm",
    **COPY_BUCKETS,
}


class HostClass(IntEnum):
    """What a host thread is doing, in the order in which an instant is charged (first match)."""

    CHECKPOINT = 0
    EVAL = 1
    COMPILE = 2
    ALLOCATOR = 3
    GC = 4
    INPUT = 5
    BLOCKING_COPY = 6
    HOST_COMM = 7
    SYNC = 8
    LAUNCH = 9
    OTHER = 10
    NOTHING = 11


IDLE_BUCKETS: dict[HostClass, str] = {
    HostClass.CHECKPOINT: "idle.checkpoint",
    HostClass.EVAL: "idle.eval",
    HostClass.COMPILE: "idle.compile",
    HostClass.ALLOCATOR: "idle.allocator",
    HostClass.GC: "idle.gc",
    HostClass.INPUT: "idle.input",
    HostClass.BLOCKING_COPY: "idle.blocking_copy",
    HostClass.HOST_COMM: "idle.host_comm",
    HostClass.SYNC: "idle.host_sync",
    HostClass.LAUNCH: "idle.launch",
    HostClass.OTHER: "idle.host_other",
    HostClass.NOTHING: "idle.unknown",
}

# Communication kernels: NCCL, RCCL, MSCCL(++), oneCCL, NVSHMEM, DeepEP, custom all-reduce,
# symmetric memory. Lower-cased names are searched.
_COMM = re.compile(
    r"nccl(dev)?kernel|^nccl|^rccl|rccl_|mscclpp|\bmsccl|oneccl|ccl_kernel|nvshmem|deep_ep"
    r"|::ep::(inter|intra)node|cross_device_reduce|custom_all_reduce|multimem_"
    r"|(one|two)_shot_all_reduce|symm_mem",
)

# Kernels of matmul, convolution and attention, where no operator is linked.
_TENSOR_KERNEL = re.compile(
    r"(?<!fb)gemm|cutlass.*(gemm|conv|fmha)|cublas|hipblaslt|^cijk_|_mm_|\bbmm_|_bmm|matmul|wgmma|hmma|xmma"
    r"|nvjet|tensorop|s\d{3,5}(gemm|cudnn|fprop|dgrad|wgrad)|s(884|1688|16816)"
    r"|conv(?!ert)|implicit_|winograd|fprop|dgrad|wgrad|igemm|miopen.*conv|naive_conv|splitk"
    r"|flash|fmha|attention|attn|sdpa|softmax_warp_mma|triton_tem|ck::.*gemm|kernel_sgemm|gemv|dot_kernel",
)
_NOT_TENSOR_KERNEL = re.compile(
    r"vectorized_elementwise|elementwise_kernel|reduce_kernel|batch_norm|bn_fw|bn_bw|pool"
    r"|im2col|col2im|nchwtonhwc|nhwctonchw|transpose|^triton_(poi|per|red)_|catarray|softmaxforward"
    r"|softmaxbackward|layer_norm|quantize|reshape_and_cache|dequant|prepare_varlen|scalepackedtensor",
)
_TENSOR_OPERATOR = re.compile(
    r"^(aten::|quantized::|torchao::|flash_attn\w*::|_flash_attn|xformers\w*::|mkldnn::)?"
    r"_*(mm|addmm|addmm_activation|bmm|baddbmm|addbmm|matmul|linear|linear_backward|mv|addmv|dot|vdot"
    r"|inner|mkldnn_linear|scaled_mm(_v2)?|scaled_grouped_mm(_v2)?|grouped_mm|int_mm|int8_mm"
    r"|weight_int4pack_mm|weight_int8pack_mm|mixed_dtypes_linear|sparse_semi_structured_\w+|cslt_sparse_mm"
    r"|bilinear|trilinear|conv\w*|\w*_convolution\w*|convolution\w*|thnn_conv\w*|slow_conv\w*"
    r"|cudnn_convolution\w*|miopen_\w*convolution\w*|scaled_dot_product\w*attention\w*"
    r"|efficient_attention\w*|flash_attention\w*|flash_attn\w*|cudnn_attention\w*"
    r"|fused_attention\w*|flex_attention\w*|native_multi_head_attention)_?$",
)
# Operators of aten that run matmul kernels among others: the kernel's name decides.
_MIXED_OPERATOR = re.compile(
    r"^aten::(_cudnn_rnn|miopen_rnn|lstm|gru|_thnn|einsum|_cdist|cdist|linalg)"
)

_SYNC_CALL = re.compile(
    r"(Device|Stream|Event|Ctx|Context|Thread|Queue)Synchronize|^(xpu|ze)\w*Sync"
)
_ALLOCATOR_CALL = re.compile(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|MallocHost|FreeHost|ExtMalloc)"
    r"|^(cu|hip)Mem(?!cpy|set|Prefetch|Advise|GetInfo|Get)|^ze(Mem|VirtualMem|PhysicalMem)(Alloc|Free)",
)
_COMPILE_CALL = re.compile(
    r"^(cu|hip)(Module|Library)Load|^(cuda|cu|hip)Graph(Instantiate|ExecUpdate)"
)
# Memsets are left out: one of zero bytes, as cuDNN and cuBLAS make, never has a device record.
_LAUNCH_CALL = re.compile(
    r"Launch\w*Kernel|LaunchKernel|GraphLaunch|ModuleLaunch|Memcpy|EnqueueKernel|EnqueueMemCopy",
)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_CAPTURE_BEGIN = re.compile(r"^(cuda|hip|cu)StreamBeginCapture")
_CAPTURE_END = re.compile(r"^(cuda|hip|cu)StreamEndCapture")

# Host spans by name, whatever their category: the documented table, extended by configuration.
HOST_SPANS: dict[HostClass, tuple[str, ...]] = {
    HostClass.CHECKPOINT: (
        r"\btorch\.save\b",
        r"torch/serialization\.py\(\d+\): save$",
        r"torch[./]distributed[./]checkpoint\S*(?: |\.)(async_)?save\b",
        r"\b(_?save_checkpoint|save_pretrained|save_state_dict|async_save)\b",
        r"\bdcp\.(async_)?save\b",
    ),
    HostClass.EVAL: (
        r"^(eval|evaluate|evaluation|validate|validation)\b",
        r"\): (evaluate|validate)$",
    ),
    HostClass.COMPILE: (
        r"_compile\.compile_inner",
        r"compile_fx|fx_codegen_and_compile|GraphLowering\.compile|compile_file",
        r"autotun(e|ing)|Autotuner\.(benchmark|bench|precompile)",
        r"torch/_dynamo/convert_frame\.py",
        r"^(inductor|torch\.compile|TorchDynamo|dynamo)\b.*(compil|codegen|lower)",
        r"^inductor(_compile)?$",
        r"triton/(compiler|runtime/autotuner|runtime/jit\.py\(\d+\): (_do_)?compile)",
        r"Torch-Compiled Region.*\bcompil",
    ),
    HostClass.ALLOCATOR: (r"^allocator retry$",),
    HostClass.GC: (r"\bgc\.collect\b", r"<built-in function collect>"),
    HostClass.INPUT: (
        r"enumerate\(DataLoader\)#.*__next__",
        r"enumerate\(DataPipe\)#",
        r"_\w*DataLoaderIter\.__next__",
        r"dataloader\.py\(\d+\): __next__$",
    ),
    HostClass.HOST_COMM: (
        r"^gloo:",
        r"^mpi:",
        r"^(c10d::|nccl:)?(monitored_)?barrier",
        r"\b(TCPStore|FileStore|PrefixStore|HashStore)\b",
        r"distributed_c10d\.py\(\d+\): (monitored_)?barrier$",
        r"(all_gather|broadcast|gather|scatter)_object(_list)?$",
    ),
}

SPAN_KEYS: dict[str, HostClass] = {
    "checkpoint": HostClass.CHECKPOINT,
    "eval": HostClass.EVAL,
    "compile": HostClass.COMPILE,
    "gc": HostClass.GC,
    "loader": HostClass.INPUT,
}

_ANNOTATION_NAME = re.compile(r"^\S.*#\S|^## .* ##$")
_STEP_NAME = re.compile(r"^ProfilerStep\s*#\s*([0-9]{1,18})(?![0-9])")
_COLLECTIVE_SPAN = re.compile(r"^(nccl:|c10d::|record_param_comms$|rccl:|ucc:|xccl:)")
_HOST_COLLECTIVE = re.compile(r"^(gloo:|mpi:|ucc:)")


def step_number(name: str) -> int | None:
    """Return N of ``ProfilerStep#N``, None for any other name."""
    match = _STEP_NAME.match(name)
    return int(match.group(1)) if match else None


def is_annotation(name: str) -> bool:
    """Tell names that are annotations whatever their recorded category."""
    return bool(_ANNOTATION_NAME.match(name))


def is_collective_span(name: str) -> bool:
    """Tell host spans that enclose the launch of a collective."""
    return bool(_COLLECTIVE_SPAN.match(name))


def is_host_collective(name: str) -> bool:
    """Tell host spans in which a host thread carries a collective out, not just enqueues it."""
    return bool(_HOST_COLLECTIVE.match(name))


def is_launch(name: str) -> bool:
    """Tell runtime calls that always put work on a device: kernels, graphs, copies."""
    return bool(_LAUNCH_CALL.search(name))


def is_graph_launch(name: str) -> bool:
    """Tell runtime calls that replay a graph."""
    return bool(_GRAPH_LAUNCH.search(name))


def capture_edge(name: str) -> int:
    """Return 1 where graph capture begins, -1 where it ends, else 0."""
    if _CAPTURE_BEGIN.match(name):
        return 1
    return -1 if _CAPTURE_END.match(name) else 0


def is_comm_kernel(name: str) -> bool:
    """Tell communication kernels."""
    return bool(_COMM.search(name.lower()))


def is_tensor_kernel(name: str) -> bool:
    """Tell matmul, convolution and attention kernels by their own name."""
    lowered = name.lower()
    return bool(_TENSOR_KERNEL.search(lowered)) and not _NOT_TENSOR_KERNEL.search(lowered)


def operator_is_tensor(name: str) -> bool | None:
    """Return whether an operator's kernels are matmul, convolution or attention; None: can't tell.

    Operators outside ``aten`` that aren't known (autograd nodes, compiled regions, custom
    wrappers) launch kernels of any kind: the kernel's name decides there.
    """
    if name.startswith("triton_"):
        return None  # named after what it fuses, of which a template alone computes products
    if _TENSOR_OPERATOR.match(name):
        return True
    if name.startswith("aten::") and not _MIXED_OPERATOR.match(name):
        return False
    return None


def copy_class(name: str) -> DeviceClass:
    """Return the kind of a memcpy by name, such as ``Memcpy HtoD (Pageable -> Device)``."""
    lowered = name.lower()
    if re.search(r"htod|host ?to ?device|hosttodevice", lowered):
        if "pageable" in lowered:
            return DeviceClass.H2D_PAGEABLE
        return DeviceClass.H2D_PINNED if "pinned" in lowered else DeviceClass.H2D
    if re.search(r"dtoh|device ?to ?host", lowered):
        return DeviceClass.D2H
    if re.search(r"ptop|peer", lowered):
        return DeviceClass.P2P
    if re.search(r"dtod|device ?to ?device", lowered):
        return DeviceClass.D2D
    return DeviceClass.COPY_OTHER


class HostNames:
    """Meaning of host span names, with a user's own patterns added to the documented table."""

    def __init__(self, extra: Mapping[str, Sequence[str]] | None = None) -> None:
        patterns = {key: list(value) for key, value in HOST_SPANS.items()}
        for key, regexes in (extra or {}).items():
            patterns[SPAN_KEYS[key]].extend(regexes)
        self._table = [
            (key, re.compile("|".join(f"(?:{regex})" for regex in regexes)))
            for key, regexes in sorted(patterns.items())
        ]

    def span_class(self, name: str) -> HostClass | None:
        """Return the class of a span in the table, None for one that isn't."""
        return next((key for key, regex in self._table if regex.search(name)), None)

    def call_class(self, name: str) -> HostClass:
        """Return the class of a runtime or driver call."""
        if _SYNC_CALL.search(name):
            return HostClass.SYNC
        if _ALLOCATOR_CALL.search(name):
            return HostClass.ALLOCATOR
        return HostClass.COMPILE if _COMPILE_CALL.match(name) else HostClass.LAUNCH


def by_code(strings: Sequence[str], codes: I32 | I64, meaning: Callable[[str], int]) -> I8:
    """Evaluate ``meaning`` once per distinct code; shape (len(strings),), 0 where not asked."""
    table = np.zeros(len(strings), dtype=np.int8)
    for code in distinct(codes):
        table[code] = meaning(strings[code])
    return table


def distinct(codes: I32 | I64) -> I64:
    """Return the distinct values of small non-negative integers, sorted, without sorting them."""
    return np.flatnonzero(np.bincount(codes))
