"""``gpudiag doctor --gpus``: the GPUs whose peaks are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from gpudiag.report.view import Column, Line, Lines, Report, Row, Table

_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
_DROP = {"bf16": 0, "fp8": 1, "fp16": 1}  # the others go before


class Peaks(Protocol):
    """What is shown of a GPU; a row of the hardware table has it."""

    @property
    def key(self) -> str:
        """Return a short name."""

    @property
    def title(self) -> str:
        """Return the name that a driver prints."""

    @property
    def sm_count(self) -> int | None:
        """Return its SMs or compute units."""

    @property
    def dense_tflops(self) -> Mapping[str, float]:
        """Return its dense peaks, TFLOP/s by dtype."""

    @property
    def memory_gb_s(self) -> float | None:
        """Return its memory's bandwidth."""


class Details(Peaks, Protocol):
    """All that is known of a GPU."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return its names as drivers print them."""

    @property
    def sparse_tflops(self) -> Mapping[str, float]:
        """Return its peaks with 2:4 sparsity, TFLOP/s by dtype."""

    @property
    def max_clock_mhz(self) -> int | None:
        """Return its highest clock."""

    @property
    def peak_clock_mhz(self) -> int | None:
        """Return the clock behind its published peaks."""

    @property
    def memory_gb(self) -> tuple[float, ...]:
        """Return the sizes of memory sold."""

    @property
    def link_gb_s(self) -> float | None:
        """Return the bandwidth of its links, both directions together."""

    @property
    def source(self) -> str:
        """Return where the figures are from."""

    @property
    def date(self) -> str:
        """Return when they were looked up."""

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Return where sources differ."""


def details_report(gpus: Iterable[Details]) -> Report:
    """Return all that is known of some GPUs."""
    sections = tuple(Lines(title=gpu.key, lines=_details(gpu)) for gpu in gpus)
    return Report(
        headline=f"What is known of {', '.join(one.title for one in sections)}.",
        context="dense peaks are what MFU divides by",
        sections=sections,
    )


def _details(gpu: Details) -> tuple[Line, ...]:
    memory = " or ".join(f"{size:g} GB" for size in gpu.memory_gb)
    clocks = [("highest", gpu.max_clock_mhz), ("behind the peaks", gpu.peak_clock_mhz)]
    texts = {
        "names": "; ".join(gpu.names),
        "SMs": "" if gpu.sm_count is None else str(gpu.sm_count),
        "dense TFLOP/s": _by_dtype(gpu.dense_tflops),
        "2:4 sparse": _by_dtype(gpu.sparse_tflops),
        "memory": ", ".join(filter(None, [memory, _rate(gpu.memory_gb_s)])),
        "links": _rate(gpu.link_gb_s),
        "clock": ", ".join(f"{which} {mhz} MHz" for which, mhz in clocks if mhz),
        "source": f"{gpu.source} ({gpu.date})" if gpu.date else gpu.source,
    }
    lines = [Line(label=label, text=text, indent=2) for label, text in texts.items() if text]
    return (*lines, *(Line(label="conflict", text=text, indent=2) for text in gpu.conflicts))


def _by_dtype(peaks: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in peaks.items())


def _rate(gb_s: float | None) -> str:
    return "" if gb_s is None else f"{gb_s:g} GB/s"


def hardware_report(gpus: Iterable[Peaks]) -> Report:
    """Return a table with a row for each GPU."""
    rows = tuple(Row(cells=_cells(gpu)) for gpu in gpus)
    return Report(
        headline=f"{len(rows)} GPUs are known by the whole name that their driver prints.",
        context="dense TFLOP/s, int8 TOP/s; other dtypes, clocks, sources and their dates of one: "
        "gpudiag doctor --gpus KEY; "
        "for any other GPU: --peak-tflops",
        sections=(Table(title="peaks", columns=_columns(), rows=rows),),
    )


def _columns() -> tuple[Column, ...]:
    """Return the columns; those without room stand on lines under their row."""
    return (
        Column(title="key"),
        _numbers("SMs", drop=4),
        *(_numbers(name, drop=_DROP.get(name, 2)) for name in _DTYPES),
        _numbers("GB/s", drop=3),
        Column(title="driver's name", drop=5, below="driver's name", cut="whole"),
    )


def _numbers(title: str, *, drop: int) -> Column:
    return Column(title=title, align="right", drop=drop, below=title)


def _cells(gpu: Peaks) -> tuple[str, ...]:
    peaks = [gpu.dense_tflops.get(name) for name in _DTYPES]
    numbers = [gpu.sm_count, *peaks, gpu.memory_gb_s]
    return (gpu.key, *("" if one is None else f"{one:g}" for one in numbers), gpu.title)
