"""The table "where the time went": every bucket, summing to the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpudiag.model import format as fmt
from gpudiag.model import thresholds
from gpudiag.report.describe.causes import host_in
from gpudiag.report.totals import Totals, device_totals, host_totals, with_window
from gpudiag.report.view import DECORATION, Column, Row, Table, Tone

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis, BlameRow, GapCause

_WAIT = "comm.wait"
_FIRST = ("compute.tensor", "compute.other")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """A job's buckets with what their numbers are divided by, and the unit they are shown in."""

    analysis: Analysis
    buckets: dict[str, int]
    totals: Totals
    member: str  # what a window belongs to: a GPU, or a rank's training thread

    @property
    def scale(self) -> fmt.Scale:
        """Return the unit of the time column: it suits one step's window."""
        return fmt.Scale.fitting(self.totals.each_ns(self.totals.window_ns))

    def time(self, ns: int) -> str:
        """Return a bucket's time per step and member, in the column's unit."""
        return self.scale.text(self.totals.each_ns(ns))


def _device_split(analysis: Analysis) -> _Split | None:
    totals = device_totals(analysis)
    if totals is None:
        return None
    return _Split(analysis=analysis, buckets=analysis.job_buckets_ns, totals=totals, member="GPU")


def _host_split(analysis: Analysis) -> _Split | None:
    totals = host_totals(analysis)
    if totals is None or not analysis.job_host_buckets_ns:
        return None
    return _Split(
        analysis=analysis, buckets=analysis.job_host_buckets_ns, totals=totals, member="rank"
    )


def device_table(analysis: Analysis, *, everything: bool = False) -> Table | None:
    """Return where the devices' time went; None where no device has a window."""
    split = _device_split(analysis)
    if split is None:
        return None
    notes = (_sum_note(split), *_launch_range(split), *_states(split), *_utilization(split))
    return Table(
        title="where the GPU time went",
        columns=_columns(split),
        rows=(*_rows(split, everything=everything), _sum_row(split)),
        notes=notes,
    )


def host_table(analysis: Analysis) -> Table | None:
    """Return where the training threads' time went; None where no host window is known."""
    split = _host_split(analysis)
    if split is None:
        return None
    return Table(
        title="where the host's time went",
        columns=_columns(split),
        rows=(*_rows(split, everything=True), _sum_row(split)),
        notes=(_sum_note(split),),
    )


def top_rows(analysis: Analysis, wanted: int) -> Table | None:
    """Return the largest buckets alone, each with its unit and without a sum: for ``--brief``."""
    split = _device_split(analysis) or _host_split(analysis)
    if split is None:
        return None
    names = sorted(split.buckets, key=lambda name: (-split.buckets[name], name))[:wanted]
    unit = split.scale.unit + ("/step" if split.totals.per_step else "")
    rows = tuple(_row(split, name, unit=f" {unit}") for name in names)
    return Table(title="", columns=_columns(split), rows=rows)


def _columns(split: _Split) -> tuple[Column, ...]:
    per = "·".join(
        part
        for part, needed in (
            ("step", split.totals.per_step),
            (split.member, split.totals.members > 1),
        )
        if needed
    )
    return (
        Column(title="bucket", cut="middle"),
        Column(
            title=f"{split.scale.unit}/{per}" if per else split.scale.unit,
            short=split.scale.unit + ("/step" if split.totals.per_step else ""),
            align="right",
            drop=1,
        ),
        Column(title="share", align="right"),
        Column(title="", bar=True, drop=DECORATION + 1),
        Column(title="charged to", drop=6, below="charged to", min_width=16, cut="middle"),
        Column(title="at", drop=7, below="at", min_width=8, cut="path"),
        Column(title="finding", drop=2, below=""),
    )


def _rows(split: _Split, *, everything: bool) -> list[Row]:
    names = _ordered(split.buckets)
    small = [n for n in names if split.totals.share(split.buckets[n]) < thresholds.REST_FRAC]
    if everything or len(small) == 1:
        small = []
    rows = [_row(split, name) for name in names if name not in small]
    if small:
        rest_ns = sum(split.buckets[name] for name in small)
        cells = _cells(split, f"rest ({len(small)} buckets)", rest_ns)
        rows.append(Row(cells=(*cells, "", "", ""), tone="dim"))
    return rows


def _ordered(buckets: dict[str, int]) -> list[str]:
    """Return compute first, as the mock-ups do, then the rest by size."""
    present = [name for name, ns in buckets.items() if ns]
    rest = sorted((n for n in present if n not in _FIRST), key=lambda n: (-buckets[n], n))
    return [name for name in _FIRST if name in present] + rest


def _row(split: _Split, name: str, *, unit: str = "") -> Row:
    ns = split.buckets[name]
    finding = _finding_of(split.analysis, name)
    tone: Tone = "good" if name == "compute.tensor" else "plain"
    tail = (*_charged_to(split.analysis, name), f"◀ {finding}" if finding else "")
    return Row(
        cells=(*_cells(split, name, ns, unit=unit), *tail),
        tone="warn" if finding else tone,
        bar_frac=split.totals.share(ns),
    )


def _cells(split: _Split, title: str, ns: int, *, unit: str = "") -> tuple[str, str, str, str]:
    return title, split.time(ns) + unit, fmt.share(split.totals.share(ns)), ""


def _charged_to(analysis: Analysis, name: str) -> tuple[str, str]:
    """Return who a bucket is charged to (ranks if not all, largest host span), and where.

    A wait is charged to whom it was for: "rank 2, idle.input".
    """
    if name == _WAIT:
        blamed = _blamed(analysis)
        return f"{fmt.rank_list([blamed.rank])}, {blamed.cause}" if blamed else "", ""
    cause = _largest_cause(analysis, name)
    parts = [_only_on(analysis, name), host_in(cause) if cause else ""]
    at = fmt.clean(cause.file_line) if cause and cause.file_line else ""
    return ", ".join(part for part in parts if part), at


def _finding_of(analysis: Analysis, name: str) -> str:
    """Return the finding that a bucket is named in; of waits, the one that names their cause."""
    owner = next((f.id for f in analysis.findings if name in f.buckets), "")
    blamed = _blamed(analysis)
    if owner or name != _WAIT or blamed is None:
        return owner
    causing = (f for f in analysis.findings if blamed.cause in f.buckets)
    return next((f.id for f in causing if blamed.rank in f.ranks), "")


def _blamed(analysis: Analysis) -> BlameRow | None:
    """Return the rank and cause that most of the waits are charged to; None where none is."""
    largest = max(analysis.blame, key=lambda one: one.wait_ns, default=None)
    if largest is None or largest.wait_ns < analysis.job_buckets_ns.get(_WAIT, 0) / 2:
        return None
    return largest


def _only_on(analysis: Analysis, name: str) -> str:
    """Return the ranks that a bucket is found on, where it is not on all of them."""
    results = with_window(analysis)
    having = {r.rank for r in results if (r.buckets_ns or {}).get(name)}
    if not having or having == {r.rank for r in results}:
        return ""
    return f"{fmt.rank_list(having)} only"


def _largest_cause(analysis: Analysis, name: str) -> GapCause | None:
    """Return what the host was in for most of a bucket; None where nothing fills half of it."""
    causes = [cause for cause in analysis.gap_causes if cause.cause == name]
    largest = max(causes, key=lambda cause: cause.total_ns, default=None)
    if largest is None or largest.total_ns < analysis.job_buckets_ns.get(name, 0) / 2:
        return None
    return largest


def _sum_row(split: _Split) -> Row:
    return Row(
        cells=(*_cells(split, "sum", sum(split.buckets.values())), "", "", ""), tone="strong"
    )


def _sum_note(split: _Split) -> str:
    """Return whether the buckets fill the window, and what the window is made of."""
    totals = split.totals
    off = sum(split.buckets.values()) - totals.window_ns
    if off:
        return f"sum ≠ window by {off:+,} ns: a bug of gpudiag, please report it"
    made_of = fmt.counted(totals.members, split.member)
    if totals.per_step:
        made_of = fmt.times(totals.steps_each, totals.steps, "period", totals.members, split.member)
    return f"sum = window, to the ns: {made_of}, {totals.window_ns:,} ns"


def _launch_range(split: _Split) -> tuple[str, ...]:
    """Return launch-bound time as a range, where the profiler's own cost may be part of it."""
    name = "idle.launch"
    most = split.buckets.get(name, 0)
    unsure = sum(r.unrecoverable_ns.get(name, 0) for r in with_window(split.analysis))
    if not most or not unsure:
        return ()
    low, high = split.totals.share(max(0, most - unsure)), split.totals.share(most)
    between = fmt.share_range(low, high)
    if between == fmt.share(high):  # no difference that could be seen
        return ()
    return (f"{name} is {between}: the profiler itself may cost the difference",)


def _states(split: _Split) -> tuple[str, ...]:
    """Return level 1, the device's state whatever the reason, in one line."""
    level1 = [r.level1_ns for r in with_window(split.analysis) if r.level1_ns]
    if len(level1) != len(with_window(split.analysis)):
        return ()
    states = ("compute", "comm", "copy", "idle")
    sums = {state: sum(one.get(state, 0) for one in level1) for state in states}
    return (", ".join(f"{s} {fmt.share(split.totals.share(ns))}" for s, ns in sums.items()),)


def _utilization(split: _Split) -> tuple[str, ...]:
    """Return what NVML's utilization comes to: time with a kernel running, copies not counted.

    compute + exposed comm = time in which any kernel runs; NVML samples it over its own period.
    """
    results = with_window(split.analysis)
    level1 = [r.level1_ns for r in results if r.level1_ns]
    if len(level1) != len(results):
        return ()
    running = sum(one.get("compute", 0) + one.get("comm", 0) for one in level1)
    percentage = fmt.share(split.totals.share(running))
    said = f'nvidia-smi shows about {percentage} "utilization"'
    return (f"{said}: it counts time with any kernel running, not work",)
