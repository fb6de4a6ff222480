"""What a job costs by its number of ranks: ``python tests/bench/ranks.py --mb 50 --ranks 8,64``.

Simulated data-parallel jobs, each rank's trace repeated in time until it has the size asked for
(tests/bench/tile.py), analysed by ``gpudiag analyze`` in as many processes as there are cores.
Memory is the sum of the resident sets of the whole process tree, sampled every 50 ms: pages that
processes share are counted in each, so it is an upper bound.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import tile
from simulator import faults

CACHE = Path(tempfile.gettempdir()) / "gpudiag-bench" / "ranks"
EVERY_S = 0.05
STEPS = 6


@dataclass(frozen=True)
class Cost:
    """What one analysis took."""

    ranks: int
    text_mb: float
    wall_s: float
    cpu_s: float
    peak_mb: float


def job(ranks: int, mb: float) -> Path:
    """Return a folder with one trace a rank; made once."""
    folder = CACHE / f"{ranks}x{mb:g}"
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as small:
        faults.build(1, (), ranks, STEPS).write(small)
        for path in sorted(Path(small).glob("rank*.gz")):
            name = path.name.removesuffix(".gz")
            whole = Path(small) / name
            whole.write_bytes(gzip.decompress(path.read_bytes()))
            subprocess.run(
                [sys.executable, tile.__file__, whole, folder / name, "--mb", str(mb)], check=True,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
            whole.unlink()
    (folder / "done").touch()
    return folder


def analyze(folder: Path, *options: str) -> Cost:
    """Analyse a folder, watching the memory of the whole process tree."""
    files = sorted(folder.glob("rank*"))
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudiag", "analyze", str(folder), "--json", *options],
        stdout=subprocess.PIPE,
    )
    peak = Peak(process.pid)
    watcher = threading.Thread(target=peak.watch, daemon=True)
    watcher.start()
    out, _ = process.communicate()
    wall, after = time.perf_counter() - began, os.times()
    peak.over = True
    watcher.join()
    if process.returncode or b'"headline"' not in out:
        raise SystemExit(f"gpudiag analyze {folder}: exit {process.returncode}")
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    text = sum(path.stat().st_size for path in files) / 1e6
    return Cost(len(files), text, wall, cpu, peak.bytes / 1e6)


class Peak:
    """The largest sum of resident sets of a process and all below it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.bytes, self.over = pid, 0, False

    def watch(self) -> None:
        """Sample until told to stop."""
        while not self.over:
            self.bytes = max(self.bytes, sum(map(resident, tree(self.pid))))
            time.sleep(EVERY_S)


def tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in tree(int(child)))]


def resident(pid: int) -> int:
    """Return the bytes that a process holds in memory; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def main() -> None:
    """Measure and print a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mb", type=float, default=5, help="text of a rank, 10^6 bytes")
    options.add_argument("--ranks", default="8,16,32,64")
    options.add_argument("--processes", default="", help="for gpudiag; cores by default")
    asked = options.parse_args()
    given = ["--processes", asked.processes] if asked.processes else []
    print("| ranks | text, MB | wall, s | CPU, s | CPU s a rank | peak memory, MB |")
    print("|--:|--:|--:|--:|--:|--:|")
    for ranks in map(int, asked.ranks.split(",")):
        cost = analyze(job(ranks, asked.mb), *given)
        print(
            f"| {cost.ranks} | {cost.text_mb:.0f} | {cost.wall_s:.1f} | {cost.cpu_s:.1f} | "
            f"{cost.cpu_s / cost.ranks:.2f} | {cost.peak_mb:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
