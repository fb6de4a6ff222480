"""Rows whose start time can't be: far from all the rest of the recording, and few."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gpudiag.model import format as fmt
from gpudiag.model.tables import INVALID_TIME, DeviceTable, HostTable, Quality

if TYPE_CHECKING:
    from gpudiag.model.tables import I64, Mask

# Between two rows of one recording lies less than this; a process that hangs for so long has
# been stopped. Files this far apart are taken as different runs too (job.RUN_GAP_NS).
LONGEST_SILENCE_NS = 3_600 * 10**9
# A recording holds at least this share of its file's rows: less, and which part is wrong is open.
_MAIN_FRAC = 0.9

_Table = TypeVar("_Table", HostTable, DeviceTable)


def without_outlying(
    host: HostTable, device: DeviceTable, base_ns: int
) -> tuple[HostTable, DeviceTable, list[Quality]]:
    """Take the time of rows that lie over an hour from the recording, and say how many and where.

    The recording is the group of rows without an hour's silence inside that holds 90 % of all; a
    file without such a group, such as one of two long parts, is left as it is. Rows at zero on the
    trace's own scale never got a time, so they count for neither.
    """
    tables = (host, device)
    main = _main_group(np.concatenate([t.ts_ns[_timed(t, base_ns)] for t in tables]))
    if main is None:
        return host, device, []
    far_host, far_device = (_far(t.ts_ns, *main) & ~_unset(t, base_ns) for t in tables)
    times = np.concatenate((host.ts_ns[far_host], device.ts_ns[far_device]))
    if not len(times):
        return host, device, []
    message = (
        f"{fmt.counted(len(times), 'row')} of {len(host) + len(device):,} lie apart in time, "
        f"{_where(times, *main)}: left out"
    )
    entry = Quality("start_times_disbelieved", "warning", len(times), message)
    return _untimed(host, far_host), _untimed(device, far_device), [entry]


def _unset(table: HostTable | DeviceTable, base_ns: int) -> Mask:
    """Mask rows of 0/0, that the profiler clamped; they are dropped and counted as such."""
    mask: Mask = (table.ts_ns == base_ns) & (table.dur_ns == 0)
    return mask


def _timed(table: HostTable | DeviceTable, base_ns: int) -> Mask:
    mask: Mask = (table.ts_ns != INVALID_TIME) & (table.ts_ns != base_ns)
    return mask


def _main_group(times: I64) -> tuple[int, int] | None:
    """Return first and last start of the recording; None where no group is large enough."""
    if not len(times):
        return None
    ordered = np.sort(times)
    # |times| < 2**62, so no difference leaves int64.
    breaks = np.flatnonzero(np.diff(ordered) > LONGEST_SILENCE_NS) + 1
    edges = np.concatenate(([0], breaks, [len(ordered)]))
    largest = int(np.diff(edges).argmax())
    low, high = int(edges[largest]), int(edges[largest + 1])
    if high - low < _MAIN_FRAC * len(ordered):
        return None
    return int(ordered[low]), int(ordered[high - 1])


def _far(times: I64, first: int, last: int) -> Mask:
    before, after = first - LONGEST_SILENCE_NS, last + LONGEST_SILENCE_NS
    mask: Mask = (times != INVALID_TIME) & ((times < before) | (times > after))
    return mask


def _where(times: I64, first: int, last: int) -> str:
    """Return how far away rows lie at most, on either side of the recording."""
    sides = (("before", first - times.min()), ("after", times.max() - last))
    return " and ".join(
        f"up to {fmt.duration(int(far))} {side} all others" for side, far in sides if far > 0
    )


def _untimed(table: _Table, far: Mask) -> _Table:
    if not far.any():
        return table
    return replace(table, ts_ns=np.where(far, INVALID_TIME, table.ts_ns))
