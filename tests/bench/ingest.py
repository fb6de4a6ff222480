"""The reading benchmark: gpudiag beside HolisticTraceAnalysis, same file, same run.

::

    python tests/bench/ingest.py --base TRACE.json.gz --mb 100 500 --rounds 3

Each tool is a whole process, from start to exit: ``gpudiag analyze FILE --json``; reading alone
(``gpudiag.trace.read_trace``); HolisticTraceAnalysis with its temporal, idle time and overlap
analyses, in a virtual environment of its own. Rounds are interleaved and the medians printed.
MB is 10^6 bytes of uncompressed JSON; RSS is in 10^6 bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import venv
from dataclasses import asdict, dataclass
from pathlib import Path

import measure

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared" / "traces"
DEFAULT_BASE = SHARED / "kt-hta-ncclmeta-a100-rank0of2" / "nccl_data.json.gz"
CACHE = Path(tempfile.gettempdir()) / "gpudiag-bench"
# 0.5.0 with pandas 3 crashes in several analyses.
HTA_REQUIREMENTS = ("HolisticTraceAnalysis==0.5.0", "pandas<3")

READ_ALONE = """
import sys
from pathlib import Path
from gpudiag.trace import read_trace
trace = read_trace(Path(sys.argv[1]))
assert not trace.partial and len(trace.host) and len(trace.device)
print("rows", len(trace.host), len(trace.device), "events", trace.events)
"""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
temporal = analysis.get_temporal_breakdown(visualize=False)
idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
assert len(temporal) == 1 and len(idle) >= 1 and len(overlap) == 1
print("breakdowns", temporal.to_dict("records"))
"""


@dataclass(frozen=True)
class Tool:
    """A command to measure on a file, and what its output must hold."""

    name: str
    command: tuple[str, ...]
    marker: str
    options: tuple[str, ...] = ()

    def run(self, trace: Path) -> measure.Cost:
        """Measure one run."""
        return measure.run([*self.command, str(trace), *self.options], self.marker)


def hta_python(cache: Path) -> Path:
    """Return the Python of HolisticTraceAnalysis' own environment, made on first use."""
    home = cache / "hta-venv"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *HTA_REQUIREMENTS], check=True)
        (home / "complete").touch()
    return python


def tools(names: list[str], cache: Path) -> list[Tool]:
    """Return the tools to compare, in the order named."""
    gpudiag = Path(sys.executable).with_name("gpudiag")
    makers = {
        "analyze": lambda: Tool(
            "gpudiag analyze", (str(gpudiag), "analyze"), '"schema_version"', ("--json",)
        ),
        "read": lambda: Tool("gpudiag read alone", (sys.executable, "-c", READ_ALONE), "rows "),
        "hta": lambda: Tool(
            "HTA 0.5.0, 3 analyses", (str(hta_python(cache)), "-c", HTA), "breakdowns "
        ),
    }
    return [makers[name]() for name in names]


def tiled(base: Path, megabytes: int, cache: Path) -> Path:
    """Return a trace of about that size, made on first use in a process of its own.

    A child starts with its parent's peak memory on its account, so this one stays small.
    """
    target = cache / f"{base.name.split('.')[0]}-{megabytes}mb.json.gz"
    if not target.exists():
        command = [sys.executable, HERE / "tile.py", base, target, "--mb", str(megabytes)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return target


def json_megabytes(path: Path) -> float:
    """Return the size of the text inside a gzip file."""
    size = 0
    with gzip.open(path) as text:
        while block := text.read(1 << 20):
            size += len(block)
    return size / 1e6


def report(tool: Tool, cost: measure.Cost, megabytes: float) -> str:
    """Return one row of the table."""
    return (
        f"| {tool.name} | {megabytes:.0f} | {cost.wall_s:.2f} | {cost.cpu_s:.2f} "
        f"| {megabytes / cost.cpu_s:.0f} | {cost.rss_mb:.0f} |"
    )


def ratios(medians: dict[str, measure.Cost]) -> list[str]:
    """Return how gpudiag stands beside HTA in the same run."""
    ours, theirs = medians.get("gpudiag analyze"), medians.get("HTA 0.5.0, 3 analyses")
    if not ours or not theirs:
        return []
    cpu, memory = theirs.cpu_s / ours.cpu_s, ours.rss_mb / theirs.rss_mb
    return [f"CPU: HTA / gpudiag = {cpu:.1f}; memory: gpudiag / HTA = {memory:.3f}"]


def compare(base: Path, megabytes: int, args: argparse.Namespace) -> dict:
    """Measure every tool on one size; print the table; return the figures."""
    trace = tiled(base, megabytes, args.cache)
    size = json_megabytes(trace)
    chosen = tools(args.tools, args.cache)
    costs: dict[str, list[measure.Cost]] = {tool.name: [] for tool in chosen}
    for _ in range(args.rounds):
        for tool in chosen:
            costs[tool.name].append(tool.run(trace))
    medians = {name: measure.median(runs) for name, runs in costs.items()}
    print(f"\n{base.name} tiled to {size:.0f} MB, medians of {args.rounds}\n")
    print("| tool | MB | wall s | CPU s | MB per CPU s | peak RSS MB |")
    print("|---|--:|--:|--:|--:|--:|")
    print("\n".join(report(tool, medians[tool.name], size) for tool in chosen))
    print("\n".join(ratios(medians)), flush=True)
    runs = {name: [asdict(c) for c in values] for name, values in costs.items()}
    return {"base": base.name, "json_mb": size, "runs": runs}


def main(argv: list[str]) -> None:
    """Compare the tools."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, nargs="+", default=[DEFAULT_BASE])
    parser.add_argument("--mb", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", nargs="+", default=["analyze", "read", "hta"])
    parser.add_argument("--cache", type=Path, default=CACHE, help="for tiles and HTA")
    parser.add_argument("--json", type=Path, help="also write every run's figures here")
    args = parser.parse_args(argv)
    args.cache.mkdir(parents=True, exist_ok=True)
    figures = [compare(base, size, args) for base in args.base for size in args.mb]
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
