"""Write the parts of the documentation that the program itself knows.

``python docs/generate.py`` writes docs/reference/findings.md from the catalogue and the table of
data-quality entries, docs/reference/hardware.md from the hardware table, sample_traces/README.md
from the samples' answers and their analysis, and the terminal capture in README.md from a sample
trace; ``--check`` only says whether they are up to date.
"""  # noqa: INP001 - a script, no package

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.analyze.job import analyze_job
from gpudiag.analyze.names import HOST_SPANS, SPAN_KEYS
from gpudiag.hardware import devices
from gpudiag.model.catalogue import CATALOGUE
from gpudiag.model.quality import QUALITY
from gpudiag.report.describe.entries import owners
from gpudiag.trace import read_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpudiag.hardware import Device
    from gpudiag.model.entry import Entry

ROOT = Path(__file__).resolve().parents[1]
FINDINGS = ROOT / "docs" / "reference" / "findings.md"
HARDWARE = ROOT / "docs" / "reference" / "hardware.md"
README = ROOT / "README.md"
SAMPLES = ROOT / "sample_traces" / "README.md"
SAMPLE = "sample_traces/sim-input-stall"
WIDTH = "100"
_CAPTURE = re.compile(r"(<!-- capture -->\n```\n).*?(\n```\n)", re.DOTALL)
_HEADER = """\
# Findings, buckets and data quality

Written by `docs/generate.py` from the catalogue that `gpudiag explain` prints. How the buckets are
measured against one another is in [the accounting](../concepts/accounting.md).
"""
_SPANS = """\
What the host does is told by the names of annotations, operators and Python frames, and of the
spans of an [event log](event-log.md). The first row that matches counts. These are regular
expressions, searched; `spans.*` of the [configuration](configuration.md) adds to them."""
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
_SAMPLES_HEADER = """\
# Sample traces

Written by `docs/generate.py`: the last column is what `gpudiag analyze sample_traces/NAME` names
first today. `answer.json` in each folder holds what was put in, and the numbers that an analysis
must give.

- `sim-*` are simulated: `python tests/simulator/make_samples.py` writes them, from fixed seeds.
- `gloo-*` are recorded: real training of a small transformer on two CPU ranks over gloo, by
  `python tests/workloads/record_samples.py`; only the host name and a path are replaced.
"""
_SAMPLE_TEXTS = {
    "gloo-checkpoints": "2 CPU ranks; rank 0 saves 192 MB after every second step",
    "gloo-clean": "2 CPU ranks; nothing is wrong but what a shared machine does",
    "gloo-slow-loader": "2 CPU ranks; every rank's dataset sleeps 150 ms a batch, no workers",
    "gloo-slow-rank": "2 CPU ranks; rank 1 sleeps 120 ms before each forward",
    "sim-healthy": "1 GPU; nothing is wrong",
    "sim-host-sync": "1 GPU; the host reads the loss in every step",
    "sim-input-stall": "1 GPU; the training thread tokenises each batch itself",
    "sim-launch-bound": "1 GPU; kernels too short for the host to keep ahead",
    "sim-pipeline-1f1b": "4 GPUs; a pipeline of 4 stages, 8 microbatches, 1F1B",
    "sim-straggler-4rank": "4 GPUs; rank 2's loader is late",
}
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
    lines += ["", "## Host spans", "", _SPANS, "", "| counts as | names |", "|---|---|"]
    lines += [_span_names(key.name.lower(), names) for key, names in sorted(HOST_SPANS.items())]
    return "\n".join(lines) + "\n"


def _span_names(kind: str, patterns: Iterable[str]) -> str:
    setting = next((key for key, known in SPAN_KEYS.items() if known.name.lower() == kind), kind)
    return (
        f"| {setting} | {', '.join(f'`{one}`'.replace('|', chr(92) + '|') for one in patterns)} |"
    )


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


def samples() -> str:
    """Return sample_traces/README.md."""
    lines = [_SAMPLES_HEADER, "| sample | is | put in | found first |", "|---|---|---|---|"]
    for folder in sorted(path.parent for path in SAMPLES.parent.glob("*/answer.json")):
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
        expected = answer.get("expected") or {}
        put_in = answer.get("findings") or [expected.get("finding")]
        found = analyze_job(read_job([str(folder)])).findings[:1]
        cells = [f"`{folder.name}`", _SAMPLE_TEXTS[folder.name], _names(put_in)]
        lines.append(_table_row([*cells, _names(one.id for one in found)]))
    return "\n".join(lines) + "\n"


def _names(findings: Iterable[str | None]) -> str:
    return ", ".join(f"`{name}`" for name in findings if name) or "nothing"


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
    written = {
        FINDINGS: findings(),
        HARDWARE: hardware(),
        SAMPLES: samples(),
        README: readme(),
    }
    stale = [
        (path, text)
        for path, text in written.items()
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
