"""MIG instances: the peak goes with the SMs of the instance, the bandwidth with its memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpudiag.hardware.device import Device, Unknown

# "mig 1g.10gb", "mig 1c.3g.40gb" (a compute instance), "mig 1g.10gb+me" (with media engines).
_PROFILE = re.compile(
    r"(?P<base>.+) mig (?:(?P<compute>\d)c\.)?(?P<slices>\d)g\.(?P<gb>\d+)gb(?:[+-]\S+)?"
)
# The memory of every device with MIG is dealt out in eighths, a slice of its size each; those with
# four compute slices have four.
_MEMORY_SLICES = {7: 8, 4: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The part of a MIG device's name behind "MIG"."""

    slices: int
    memory_gb: int
    compute_slices: int | None  # where the instance is divided further

    @property
    def text(self) -> str:
        """Return the profile as nvidia-smi writes it."""
        compute = f"{self.compute_slices}c." if self.compute_slices else ""
        return f"{compute}{self.slices}g.{self.memory_gb}gb"


def split_mig(name: str) -> tuple[str, Profile] | None:
    """Return the whole device's name and the profile of a normalised MIG name; None for others."""
    match = _PROFILE.fullmatch(name)
    if match is None:
        return None
    compute = match["compute"]
    profile = Profile(
        slices=int(match["slices"]),
        memory_gb=int(match["gb"]),
        compute_slices=int(compute) if compute else None,
    )
    return match["base"], profile


def instance(
    name: str, whole: Device, profile: Profile, sm_count: int | None = None
) -> Device | Unknown:
    """Return a MIG instance as a device: peak x SMs / SMs of the whole, bandwidth by memory slices.

    SMs: as the trace counts them, else from the table, else slices / slices of the whole.
    """
    slices = whole.mig_slices
    if slices is None or not _possible(whole, profile, slices):
        reason = f"{whole.key} has no MIG profile {profile.text}"
        return Unknown(name=name, candidates=(whole,), reason=reason)
    sms, basis = _sms(whole, profile, sm_count)
    share, told = _share(whole, profile, slices, sms)
    return replace(
        whole,
        key=f"{whole.key}/{profile.text}",
        names=(name,),
        sm_count=sms,
        dense_tflops={dtype: peak * share for dtype, peak in whole.dense_tflops.items()},
        sparse_tflops={},
        memory_gb=(profile.memory_gb,),
        memory_gb_s=_bandwidth(whole, profile, slices),
        link_gb_s=None,  # instances don't reach NVLink
        assumed=f"{told} of {whole.title}{basis}",
    )


def _possible(whole: Device, profile: Profile, slices: int) -> bool:
    compute = profile.compute_slices or profile.slices
    return 0 < compute <= profile.slices <= slices and profile.memory_gb <= max(whole.memory_gb)


def _sms(whole: Device, profile: Profile, sm_count: int | None) -> tuple[int | None, str]:
    if sm_count is not None:
        return sm_count, ", as the trace counts them"
    if profile.compute_slices:
        one = whole.mig_sms.get("1g")
        return (one * profile.compute_slices if one else None), ""
    exact = f"{profile.slices}g.{profile.memory_gb}gb"
    return whole.mig_sms.get(exact, whole.mig_sms.get(f"{profile.slices}g")), ""


def _share(whole: Device, profile: Profile, slices: int, sms: int | None) -> tuple[float, str]:
    """Return the instance's part of the peak, and the part in words."""
    if sms is not None and whole.sm_count is not None:
        return sms / whole.sm_count, f"{sms} of {whole.sm_count} SMs"
    compute = profile.compute_slices or profile.slices
    return compute / slices, f"{compute} of {slices} compute slices"


def _bandwidth(whole: Device, profile: Profile, slices: int) -> float | None:
    if whole.memory_gb_s is None:
        return None
    parts = _MEMORY_SLICES[slices]
    taken = min(parts, max(1, round(profile.memory_gb / max(whole.memory_gb) * parts)))
    return whole.memory_gb_s * taken / parts
