"""Synchronise calls of a device's window, by the operator that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.names import HostClass

if TYPE_CHECKING:
    from gpudiag.analyze.device import Device
    from gpudiag.analyze.host import Host
    from gpudiag.analyze.window import Window


def sync_calls(host: Host, device: Device, window: Window) -> dict[str, tuple[int, int]]:
    """Return operator (the call itself where none holds it) -> (calls, ns inside them)."""
    calls = np.flatnonzero(host.kind == HostClass.SYNC)
    at = host.starts[calls] - device.offset_ns
    calls = calls[(at >= window.start) & (at < window.end)]
    totals: dict[str, tuple[int, int]] = {}
    for call, operator in zip(calls.tolist(), host.operator_of(calls).tolist(), strict=True):
        name = host.strings[host.name[operator if operator >= 0 else call]]
        count, ns = totals.get(name, (0, 0))
        totals[name] = (count + 1, ns + int(host.ends[call] - host.starts[call]))
    return totals
