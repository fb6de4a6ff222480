"""``gpudiag doctor --gpus``: the GPUs whose peaks are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from gpudiag.report.view import Column, Report, Row, Table

_DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")


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


def hardware_report(gpus: Iterable[Peaks]) -> Report:
    """Return a table with a row for each GPU."""
    rows = tuple(Row(cells=_cells(gpu)) for gpu in gpus)
    return Report(
        headline=f"{len(rows)} GPUs are known by the whole name that their driver prints.",
        context="dense TFLOP/s, int8 TOP/s; for any other GPU: --peak-tflops",
        sections=(Table(title="peaks", columns=_columns(), rows=rows),),
    )


def _columns() -> tuple[Column, ...]:
    return (
        Column(title="key"),
        Column(title="driver's name", drop=5),
        Column(title="SMs", align="right", drop=4),
        *(Column(title=name, align="right", drop=_drop(name)) for name in _DTYPES),
        Column(title="GB/s", align="right", drop=3),
    )


def _drop(dtype: str) -> int:
    return 0 if dtype in {"bf16", "fp8"} else 2


def _cells(gpu: Peaks) -> tuple[str, ...]:
    peaks = [gpu.dense_tflops.get(name) for name in _DTYPES]
    numbers = [gpu.sm_count, *peaks, gpu.memory_gb_s]
    return (gpu.key, gpu.title, *("" if one is None else f"{one:g}" for one in numbers))
