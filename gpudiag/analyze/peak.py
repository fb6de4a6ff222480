"""The denominator of MFU: whose dense peak, for which dtype, or why it can't be known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.analyze.rank import RankAnalysis
from gpudiag.analyze.trace_flops.results import FP32_OR_TF32, UNKNOWN_DTYPE
from gpudiag.hardware import Device as Gpu
from gpudiag.hardware import Hints, lookup
from gpudiag.model.tables import DeviceInfo


@dataclass(frozen=True, slots=True)
class Peak:
    """A dense peak, FLOP/s, for the dtype that a job is measured in."""

    dtype: str
    flops_per_s: float
    source: str
    gpu: Gpu | None  # None where the peak was given by hand and the GPU is in no row

    def of_dtype(self, dtype: str) -> float:
        """Return the device's own peak for a dtype, FLOP/s; the job's where it has none."""
        rate = self.gpu.peak_tflops(settled(dtype, self.gpu)) if self.gpu else None
        return rate * 1e12 if rate else self.flops_per_s


@dataclass(frozen=True, slots=True)
class NoPeak:
    """Why there is no peak, and which devices a name may mean."""

    reason: str
    unknown_gpu: bool = False
    candidates: tuple[str, ...] = ()


def settled(dtype: str, gpu: Gpu | None) -> str:
    """Return what a device computes in, where a kernel doesn't tell fp32 from tf32."""
    if dtype != FP32_OR_TF32:
        return dtype
    return "tf32" if gpu and gpu.peak_tflops("tf32") else "fp32"


def choose_peak(
    ranks: Sequence[RankAnalysis], dtype: str | None, peak_tflops: float | None
) -> Peak | NoPeak:
    """Return the peak of the devices that ran work, by their exact name; never a fallback.

    Args:
        ranks: the job's ranks.
        dtype: the dtype to measure in: declared, else the one that did most FLOPs.
        peak_tflops: given by hand, dense, TFLOP/s; the GPU's name decides nothing then.
    """
    gpu = _one_gpu(ranks)
    if peak_tflops is not None:
        row = gpu if isinstance(gpu, Gpu) else None
        return Peak(settled(dtype or UNKNOWN_DTYPE, row), peak_tflops * 1e12, "given by hand", row)
    if isinstance(gpu, NoPeak):
        return gpu
    if dtype is None or dtype == UNKNOWN_DTYPE:
        return NoPeak("no operator tells its dtype")
    wanted = settled(dtype, gpu)
    rate = gpu.peak_tflops(wanted)
    if rate is None:
        return NoPeak(f"{gpu.title} has no {wanted} peak")
    source = f"{gpu.title}, {wanted} dense: {gpu.source}"
    return Peak(wanted, rate * 1e12, f"{source}; {gpu.assumed}" if gpu.assumed else source, gpu)


def _one_gpu(ranks: Sequence[RankAnalysis]) -> Gpu | NoPeak:
    """Return the one kind of device that all windows ran on."""
    infos = {(d.name, d.sm_count, d.memory_bytes): d for rank in ranks for d in used(rank)}
    if not infos or not all(name for name, _, _ in infos):
        return NoPeak("the trace does not name its GPU", unknown_gpu=True)
    found = [
        lookup(one.name, Hints(sm_count=one.sm_count, memory_bytes=one.memory_bytes))
        for one in infos.values()
    ]
    rows = [one for one in found if isinstance(one, Gpu)]
    for one in found:
        if not isinstance(one, Gpu):
            candidates = tuple(dict.fromkeys(row.title for row in one.candidates))
            return NoPeak(f"{one.name}: {one.reason}", unknown_gpu=True, candidates=candidates)
    if len({row.key for row in rows}) > 1:
        return NoPeak("the ranks ran on different GPUs: " + ", ".join(sorted(r.key for r in rows)))
    return rows[0]


def used(rank: RankAnalysis) -> list[DeviceInfo]:
    """Return what is recorded of the devices that ran work in a rank's windows."""
    listed = {info.index: info for info in rank.info.devices}
    alike = {(info.name, info.sm_count): info for info in listed.values()}
    only = next(iter(alike.values())) if len(alike) == 1 else None
    nameless = DeviceInfo(-1, "")
    return [listed.get(one.device.index) or only or nameless for one in rank.devices]
