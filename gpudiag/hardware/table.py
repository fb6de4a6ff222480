"""The data file, read once: devices.toml as rows."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from gpudiag.hardware.device import Device

_FILE = "devices.toml"
_TUPLES = frozenset({"names", "memory_gb", "conflicts"})


@dataclass(frozen=True, slots=True)
class Table:
    """All devices by key, each listed name with its key, and the names that several share."""

    by_key: Mapping[str, Device]
    by_name: Mapping[str, str]  # normalised
    shared: Mapping[str, tuple[str, ...]]  # normalised


def normalised(name: str) -> str:
    """Return a name as it is compared: lower case, single spaces, no vendor in front."""
    text = " ".join(name.split()).casefold()
    for vendor in ("nvidia ", "amd "):
        text = text.removeprefix(vendor)
    return text


def devices() -> tuple[Device, ...]:
    """Return every device, in the order of the file."""
    return tuple(table().by_key.values())


@cache
def table() -> Table:
    """Return the whole data file."""
    data = tomllib.loads(files("gpudiag.hardware").joinpath(_FILE).read_text(encoding="utf-8"))
    rows = [_device(row) for row in data["device"]]
    return Table(
        by_key={row.key: row for row in rows},
        by_name={normalised(name): row.key for row in rows for name in row.names},
        shared={normalised(one["name"]): tuple(one["keys"]) for one in data["shared_name"]},
    )


def _device(row: dict[str, Any]) -> Device:
    fields: dict[str, Any] = row | {key: tuple(row[key]) for key in _TUPLES & row.keys()}
    return Device(**fields | {"date": str(row["date"])})
