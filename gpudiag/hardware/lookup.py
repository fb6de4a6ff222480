"""From the name that a driver prints to a device: the whole name or none, never a likeness."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpudiag.hardware.device import Ambiguous, Device, Unknown
from gpudiag.hardware.mig import instance, split_mig
from gpudiag.hardware.table import Table, normalised, table

_GIB = 1024**3
# A driver reports a little less than the size that is sold (96.0 GiB sold, 95.0 reported); 288 GB
# parts keep up to 7 % for themselves. A bigger memory than is sold is another device.
_LEAST_REPORTED_SHARE = 0.9
# Suffixes of NVIDIA's virtual GPUs: "NVIDIA A10-24Q", "GRID A100-10C".
_VIRTUAL = re.compile(r".*-\d+[abcq]$")
# What names share without being alike: sizes, form factors, words of marketing.
_COMMON_TOKEN = re.compile(r"\d+g?b?|hbm\d\w*|pcie|sxm\d?|nvl\d*|[a-z/]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What a trace says of a device besides its name."""

    sm_count: int | None = None
    memory_bytes: int | None = None

    def fits(self, device: Device) -> bool:
        """Tell whether a device can have these properties; what isn't known fits."""
        sms_fit = None in {self.sm_count, device.sm_count} or self.sm_count == device.sm_count
        return sms_fit and self._memory_fits(device)

    def _memory_fits(self, device: Device) -> bool:
        if self.memory_bytes is None or not device.memory_gb:
            return True
        seen = self.memory_bytes / _GIB
        return any(_LEAST_REPORTED_SHARE * sold <= seen <= sold for sold in device.memory_gb)

    def text(self) -> str:
        """Return the hints in words: "132 SMs and 95.0 GiB"."""
        parts = []
        if self.sm_count is not None:
            parts.append(f"{self.sm_count} SMs")
        if self.memory_bytes is not None:
            parts.append(f"{self.memory_bytes / _GIB:.1f} GiB")
        return " and ".join(parts)


NO_HINTS = Hints()


def lookup(name: str, hints: Hints = NO_HINTS) -> Device | Ambiguous | Unknown:
    """Return the device whose driver prints this name, whole.

    Case, white space and a vendor in front don't matter. Hints tell apart the devices that share a
    name, and count the SMs of a MIG instance; they never overrule a name.
    """
    known = table()
    split = split_mig(normalised(name))
    if split is None:
        return _whole(name, normalised(name), hints, known)
    base, profile = split
    found = _whole(name, base, NO_HINTS, known)
    if not isinstance(found, Device):
        return replace(found, name=name)
    return instance(name, found, profile, hints.sm_count)


def lookup_named(name: str) -> Device | Ambiguous | Unknown:
    """Return the device that a person named: by a driver name, or by the key of a row."""
    found = lookup(name)
    if isinstance(found, Device):
        return found
    return table().by_key.get("-".join(normalised(name).split()), found)


def _whole(name: str, wanted: str, hints: Hints, known: Table) -> Device | Ambiguous | Unknown:
    if wanted in known.by_name:
        return known.by_key[known.by_name[wanted]]
    if wanted in known.shared:
        sharing = tuple(known.by_key[key] for key in known.shared[wanted])
        return _narrowed(name, sharing, hints)
    return _unknown(name, wanted, hints, known)


def _narrowed(name: str, sharing: tuple[Device, ...], hints: Hints) -> Device | Ambiguous:
    """Return the one device that the hints leave of those that share a name, or all they leave."""
    left = tuple(device for device in sharing if hints.fits(device))
    keys = _listed(sharing)
    if len(left) == 1 and hints != NO_HINTS:
        others = _listed(device for device in sharing if device is not left[0])
        told = f"{name} is the name of several devices; {hints.text()} fit only {left[0].key}"
        return replace(left[0], assumed=f"{told}, not {others}")
    return Ambiguous(name=name, candidates=left or sharing, reason=f"it is the name of {keys}")


def _unknown(name: str, wanted: str, hints: Hints, known: Table) -> Ambiguous | Unknown:
    tokens = _tokens(wanted)
    rows = tuple(known.by_key.values())
    if _VIRTUAL.match(wanted):
        like = _alike(tokens, rows)
        return Unknown(name=name, candidates=like, reason="a virtual GPU has no published peak")
    within = tuple(row for row in rows if any(tokens <= _tokens(normalised(n)) for n in row.names))
    if len(within) > 1 and _telling(tokens):
        return Ambiguous(name=name, candidates=within, reason=f"it may be any of {_listed(within)}")
    like = _alike(tokens, rows) or _with_properties(hints, rows)
    return Unknown(name=name, candidates=like, reason="no row of the hardware table has this name")


def _tokens(text: str) -> frozenset[str]:
    return frozenset(re.split(r"[ -]+", text))


def _telling(tokens: frozenset[str]) -> frozenset[str]:
    """Return the words that tell devices apart: "a100", "mi300x"."""
    return frozenset(token for token in tokens if not _COMMON_TOKEN.fullmatch(token))


def _alike(tokens: frozenset[str], rows: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices with a telling word of the name in theirs, as a suggestion only."""
    words = _telling(tokens)
    return tuple(
        row
        for row in rows
        if words & frozenset().union(_tokens(row.key), *(_tokens(normalised(n)) for n in row.names))
    )


def _with_properties(hints: Hints, rows: tuple[Device, ...]) -> tuple[Device, ...]:
    if None in {hints.sm_count, hints.memory_bytes}:
        return ()
    return tuple(row for row in rows if row.sm_count is not None and hints.fits(row))


def _listed(rows: Iterable[Device]) -> str:
    return ", ".join(row.key for row in rows)
