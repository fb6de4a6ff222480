"""Write the parts of the documentation that the program itself knows.

``python docs/generate.py`` writes docs/reference/findings.md from the catalogue and the table of
data-quality entries, docs/reference/hardware.md from the hardware table, and the terminal capture
in README.md from a sample trace; ``--check`` only says whether they are up to date.
"""  # noqa: INP001 - a script, no package

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.hardware import devices
from gpudiag.model.catalogue import CATALOGUE
from gpudiag.model.quality import QUALITY
from gpudiag.report.describe.entries import owners

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpudiag.hardware import Device
    from gpudiag.model.entry import Entry

ROOT = Path(__file__).resolve().parents[1]
FINDINGS = ROOT / "docs" / "reference" / "findings.md"
HARDWARE = ROOT / "docs" / "reference" / "hardware.md"
README = ROOT / "README.md"
SAMPLE = "sample_traces/sim-input-stall"
WIDTH = "100"
_CAPTURE = re.compile(r"(<!-- capture -->\n```\n).*?(\n```\n)", re.DOTALL)
_HEADER = """\
# Findings, buckets and data quality

Written by `docs/generate.py` from the catalogue that `gpudiag explain` prints. How the buckets are
measured against one another is in [the accounting](../concepts/accounting.md).
"""
_HARDWARE_HEADER = """\
# Hardware

Written by `docs/generate.py` from `gpudiag/hardware/devices.toml`.

MFU divides by the **dense** peak of the dtype that did most of the FLOPs: 2:4 sparsity, which data
sheets like to print, is twice that and never used. A device is found by the whole name that its
driver prints (case, spaces and the vendor in front don't matter); no part of a name matches, and no
other device stands in for one that isn't here. A name that several devices share is told apart by
the SM count and the memory in the trace, or it is refused with the candidates listed. For anything
else, say the peak: `--peak-tflops` (see [Configuration](configuration.md)).

A MIG instance (`... MIG 1g.10gb`) has the peak of its SMs: peak × SMs of the instance / SMs of the
device, or compute slices / slices where the SMs aren't known.

Peaks are dense TFLOP/s (integers: TOP/s). Bandwidths are in GB/s; a link's is both directions
together.
"""
_DTYPES = ("fp64", "fp64_tensor", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")


def findings() -> str:
    """Return docs/reference/findings.md."""
    lines = [_HEADER, "## Findings", ""]
    for entry in _of("finding"):
        lines += list(_finding(entry))
    lines += ["## Buckets", "", "| bucket | is | measured | findings |", "|---|---|---|---|"]
    lines += [_bucket(one) for one in _of("bucket")]
    lines += ["", "## Data quality", "", "| entry | means |", "|---|---|"]
    lines += [f"| `{name}` | {sentence} |" for name, sentence in QUALITY.items()]
    return "\n".join(lines) + "\n"


def _of(kind: str) -> list[Entry]:
    return [entry for entry in CATALOGUE.values() if entry.kind == kind]


def _bucket(entry: Entry) -> str:
    found = ", ".join(f"[{name}](#{name})" for name in owners(entry.id, CATALOGUE))
    return f"| `{entry.id}` | {_said(entry)} | {entry.measured} | {found} |"


def _said(entry: Entry) -> str:
    """Return title and meaning as sentences; once where they are the same."""
    title = f"{entry.title[0].upper()}{entry.title[1:]}."
    return title if entry.meaning == entry.title else f"{title} {entry.meaning}"


def _finding(entry: Entry) -> Iterator[str]:
    yield from (f"### {entry.id}", "", f"*{entry.title[0].upper()}{entry.title[1:]}.*", "")
    yield from (entry.meaning, "")
    yield f"- Measured: {entry.measured}"
    yield f"- Reported: {entry.threshold}"
    if entry.buckets:
        yield "- Buckets: " + ", ".join(f"`{name}`" for name in entry.buckets)
    yield from (f"- Do: {text}" for text in entry.advice)
    yield ""


def hardware() -> str:
    """Return docs/reference/hardware.md."""
    rows = devices()
    shown = [name for name in _DTYPES if any(name in row.dense_tflops for row in rows)]
    head = ["device", "names", "SMs", "max MHz", *shown, "memory GB/s", "link GB/s"]
    lines = [_HARDWARE_HEADER, _table_row(head), _table_row(["---"] * len(head))]
    lines += [_table_row(_peaks(row, shown)) for row in rows]
    lines += ["", "## Sources", "", "| device | source | date | confidence | notes |"]
    lines += ["|---|---|---|---|---|"]
    lines += [
        _table_row([row.key, row.source, row.date, row.confidence, row.notes]) for row in rows
    ]
    lines += ["", "## Where sources disagree", ""]
    lines += [f"- {row.key}: {text}" for row in rows for text in row.conflicts]
    return "\n".join(lines) + "\n"


def _peaks(row: Device, dtypes: list[str]) -> list[str]:
    names = ", ".join(f"`{name}`" for name in row.names) or "not known"
    numbers: list[float | None] = [row.sm_count, row.max_clock_mhz]
    numbers += [row.dense_tflops.get(name) for name in dtypes]
    numbers += [row.memory_gb_s, row.link_gb_s]
    return [row.key, names, *("" if one is None else f"{one:g}" for one in numbers)]


def _table_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def readme() -> str:
    """Return README.md with the terminal capture of today's program."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUDIAG_")}
    shown = subprocess.run(
        [sys.executable, "-m", "gpudiag", "analyze", SAMPLE],
        cwd=ROOT,
        env=env | {"COLUMNS": WIDTH, "NO_COLOR": "1", "PYTHONUTF8": "1"},
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout.rstrip("\n")
    capture = f"$ gpudiag analyze {SAMPLE}\n{shown}"
    text = README.read_text(encoding="utf-8")
    return _CAPTURE.sub(lambda match: match[1] + capture + match[2], text, count=1)


def main(arguments: list[str]) -> int:
    """Write what differs, or, with --check, name it and return 1."""
    stale = [
        (path, text)
        for path, text in ((FINDINGS, findings()), (HARDWARE, hardware()), (README, readme()))
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in arguments:
        for path, _ in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: python docs/generate.py\n")
        return int(bool(stale))
    for path, text in stale:
        path.write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
