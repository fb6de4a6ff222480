"""FLOPs of each window, by the convention's parts, with their coverage and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudiag.analyze.device import Device
from gpudiag.analyze.host import Host
from gpudiag.analyze.trace_flops.moved import moved_bytes
from gpudiag.analyze.trace_flops.operators import AMBIGUOUS, Operators, find_operators
from gpudiag.analyze.trace_flops.results import WindowFlops
from gpudiag.analyze.trace_flops.tables import (
    by_dtype,
    by_kernel,
    by_operator,
    operand_types,
    totals,
)
from gpudiag.analyze.trace_flops.uncounted import uncounted
from gpudiag.analyze.trace_flops.work import Work, device_work, host_work
from gpudiag.analyze.window import Window
from gpudiag.model.tables import I64, Trace


def count_flops(
    trace: Trace, host: Host, windows: Sequence[tuple[Device, Window]]
) -> list[WindowFlops]:
    """Count the FLOPs of every device's window, from the operators that launched its kernels.

    A kernel counts, with its share of its operator's FLOPs (by duration), in the window that holds
    its start. An operator without a kernel did not run on a device and counts nowhere. Give all
    devices of the trace at once: an operator is split over all of its kernels.
    """
    if not windows:
        return []
    operators = find_operators(trace, host)
    work = device_work(trace, host, operators, [device for device, _ in windows])
    spans = [(device.index, window) for device, window in windows]
    return _windows(host, operators, work, spans)


def count_host_flops(trace: Trace, host: Host, window: Window) -> WindowFlops:
    """Count the FLOPs of operators that ran on the host: a trace without device activity.

    An operator counts in the window that holds its start; those that were cut short before they
    ran (early stop, selective checkpointing) are told by their shape in the trace and left out.
    """
    operators = find_operators(trace, host)
    return _windows(host, operators, host_work(host, operators), [(None, window)])[0]


def _windows(
    host: Host,
    operators: Operators,
    work: Work,
    spans: Sequence[tuple[int | None, Window]],
) -> list[WindowFlops]:
    moved = moved_bytes(operators, work)
    labels = operand_types(operators, work)
    found = []
    for position, (device, window) in enumerate(spans):
        rows = _inside(work, position, window)
        tensor = rows[work.is_tensor[rows]]
        known = work.is_known[tensor]
        parts = work.parts[rows].sum(axis=0)
        full, visible = totals(parts)
        found.append(
            WindowFlops(
                device=device,
                start_ns=window.start,
                end_ns=window.end,
                full=full,
                visible=visible,
                ambiguous_flops=int(parts[AMBIGUOUS]),
                tensor_ns=int(work.duration[tensor].sum()),
                known_ns=int(work.duration[tensor[known]].sum()),
                tensor_kernels=len(tensor),
                known_kernels=int(known.sum()),
                by_dtype=by_dtype(work, rows, labels),
                kernels=by_kernel(host, work, rows, labels, moved),
                operators=by_operator(operators, work, rows, labels),
                uncounted=uncounted(host, operators, work, tensor[~known]),
            )
        )
    return found


def _inside(work: Work, position: int, window: Window) -> I64:
    """Return the rows of one device that start inside its window."""
    mine = work.device == position
    return np.flatnonzero(mine & (work.start >= window.start) & (work.start < window.end))
