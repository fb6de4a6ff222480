"""What the FLOPs of one window are, by convention, type, kernel and operator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

# Operand types: not told by the shapes, and not told by the kernel (TF32 where the device has it).
UNKNOWN_DTYPE = "unknown"
FP32_OR_TF32 = "fp32_or_tf32"


class Phase(IntEnum):
    """What an operator ran for."""

    FORWARD = 0
    BACKWARD = 1
    RECOMPUTE = 2  # a forward done again in the backward
    AMBIGUOUS = 3  # a backward that is itself differentiated: counts as model FLOPs
    OPTIMIZER = 4  # inside Optimizer.step: executed, but not the model's


@dataclass(frozen=True, slots=True)
class FlopTotals:
    """FLOPs under one convention; ``hw_flops`` is exactly the sum of the parts."""

    model_flops: int = 0  # forward and backward that the mathematics needs
    recompute_flops: int = 0  # forward done again (activation checkpointing)
    attention_recompute_flops: int = 0  # QK^T done again inside fused attention's backward
    optimizer_flops: int = 0  # matrix products of the optimizer (Muon, Shampoo)

    @property
    def extra_flops(self) -> int:
        """Executed FLOPs that are neither the model's nor activation recomputation."""
        return self.attention_recompute_flops + self.optimizer_flops

    @property
    def hw_flops(self) -> int:
        """All executed FLOPs."""
        return self.model_flops + self.recompute_flops + self.extra_flops


@dataclass(frozen=True, slots=True)
class DtypeFlops:
    """Executed FLOPs of one operand type and the time of the kernels that did them."""

    dtype: str  # bf16, fp16, fp8, int8, tf32, fp32, fp32_or_tf32 (not told by the kernel), unknown
    full: FlopTotals
    visible: FlopTotals
    time_ns: int


@dataclass(frozen=True, slots=True)
class KernelFlops:
    """Launches of one kernel name with one operand type, a row of the roofline table.

    ``flops`` (masked pairs left out: what the kernel computes) were done in ``flops_ns``, and
    ``bytes`` moved in ``bytes_ns``: the time of those launches whose shapes tell them.
    """

    name: str
    dtype: str | None
    is_tensor: bool
    count: int
    time_ns: int
    flops: int | None
    flops_ns: int
    bytes: int | None
    bytes_ns: int


@dataclass(frozen=True, slots=True)
class OperatorFlops:
    """Occurrences of one operator with the same arguments; ``dims`` as recorded."""

    name: str
    dims: str
    dtype: str | None
    phase: Phase
    count: int
    time_ns: int  # all kernels that belong to it, or the operator's own time on a CPU
    full_flops: int  # executed
    visible_flops: int


@dataclass(frozen=True, slots=True)
class Uncounted:
    """Tensor kernels (on a CPU: operators) whose FLOPs are not known, and why.

    ``bound_flops`` is the most they can have done, None where nothing bounds it.
    """

    name: str
    operator: str | None
    reason: str
    count: int
    time_ns: int
    bound_flops: int | None


@dataclass(frozen=True, slots=True)
class WindowFlops:
    """FLOPs of one device's window, or of the host's where no device ran.

    ``full`` counts causal attention as if nothing were masked (the default convention, as PaLM,
    torchtitan and torch.utils.flop_counter); ``visible`` counts only the pairs that a mask leaves.
    """

    device: int | None  # None: operators on the host
    start_ns: int
    end_ns: int
    full: FlopTotals
    visible: FlopTotals
    ambiguous_flops: int  # part of full.model_flops: double backward, or recomputation
    tensor_ns: int  # kernels of matmul, convolution and attention (CPU: such operators)
    known_ns: int  # of these, kernels of operators whose FLOPs are known
    tensor_kernels: int
    known_kernels: int
    by_dtype: tuple[DtypeFlops, ...]
    kernels: tuple[KernelFlops, ...]  # longest first
    operators: tuple[OperatorFlops, ...]  # longest first
    uncounted: tuple[Uncounted, ...]  # longest first

    @property
    def flops_coverage_frac(self) -> float | None:
        """Kernel time with known FLOPs over all tensor kernel time; None without any."""
        return self.known_ns / self.tensor_ns if self.tensor_ns else None

    @property
    def dominant_dtype(self) -> str | None:
        """The operand type that did most FLOPs: a guess of what the job is trained in."""
        known = [one for one in self.by_dtype if one.dtype != UNKNOWN_DTYPE]
        most = max(known, key=lambda one: one.full.hw_flops, default=None)
        return most.dtype if most else None
