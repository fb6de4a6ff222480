"""What is known of one device, and the two ways in which a name can fail to tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device, or one MIG instance of it: peaks are dense, without 2:4 sparsity."""

    key: str
    names: tuple[str, ...]  # as the driver prints them; none where no driver name is known
    vendor: str
    arch: str
    sm_count: int | None = None  # SMs; compute units where the vendor is AMD
    max_clock_mhz: int | None = None
    peak_clock_mhz: int | None = None  # the clock behind the published tensor peaks
    dense_tflops: Mapping[str, float] = field(default_factory=dict)
    sparse_tflops: Mapping[str, float] = field(default_factory=dict)
    memory_gb: tuple[float, ...] = ()  # sizes sold
    memory_gb_s: float | None = None
    link_gb_s: float | None = None  # NVLink or xGMI, both directions together
    pcie_generation: int | None = None
    mig_slices: int | None = None  # compute slices of the whole device
    mig_sms: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    date: str = ""
    confidence: str = ""
    notes: str = ""
    conflicts: tuple[str, ...] = ()
    assumed: str = ""  # how the device was told where the name alone did not tell it

    @property
    def title(self) -> str:
        """Return what to call the device: its first driver name, or its key."""
        return self.names[0] if self.names else self.key

    def peak_tflops(self, dtype: str) -> float | None:
        """Return the dense peak for a dtype in TFLOP/s; None where it has no such rate."""
        return self.dense_tflops.get(dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """A name that several devices share: no peak."""

    name: str
    candidates: tuple[Device, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A name that is in no row: no peak. The candidates are for people to choose from."""

    name: str
    candidates: tuple[Device, ...] = ()
    reason: str = ""
