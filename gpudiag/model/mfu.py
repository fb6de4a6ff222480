"""MFU from a model's description and a throughput: one run, as each convention counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpudiag.model.analysis import SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class ConventionMfu:
    """One convention's figures; None where it can't be worked out, the remark says why."""

    id: str
    attention: str  # full, causal or none
    formula: str
    source: str
    flops_per_token: float | None = None
    hw_flops_per_token: float | None = None  # None, too, where it has no word for recomputation
    tflops_per_gpu: float | None = None
    hw_tflops_per_gpu: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMfu:
    """A run's MFU, what it was worked out from, and the same run in the other conventions.

    Field names are the keys of ``gpudiag mfu --json``.
    """

    schema_version: int = SCHEMA_VERSION
    gpudiag_version: str
    model: str
    numbers: Mapping[str, float]  # N, N_active, L, H·Q, h, V, T: those that are known
    forward_flops_per_token: Mapping[str, float]  # by part; empty where only numbers are known
    recompute: str
    tokens_per_s: float  # of the whole job
    gpus: int
    gpu_name: str | None
    dtype: str | None
    peak_tflops: float  # dense, of one GPU
    peak_source: str
    chosen: ConventionMfu
    conventions: tuple[ConventionMfu, ...]
    notes: tuple[str, ...] = ()
