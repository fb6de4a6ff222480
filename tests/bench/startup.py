"""How long ``gpudiag --help`` takes, process start to exit: median of 20 runs, target 150 ms."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import measure

TARGET_MS = 150


def main(argv: list[str]) -> int:
    """Measure; return 1 above the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    args = parser.parse_args(argv)
    command = [str(Path(sys.executable).with_name("gpudiag")), "--help"]
    costs = [measure.run(command, "analyze") for _ in range(args.runs)]
    middle = measure.median(costs)
    fastest_ms = min(c.wall_s for c in costs) * 1e3
    median_ms = middle.wall_s * 1e3
    print(
        f"gpudiag --help: median {median_ms:.0f} ms of {args.runs} runs "
        f"(fastest {fastest_ms:.0f} ms, CPU {middle.cpu_s * 1e3:.0f} ms, "
        f"{middle.rss_mb:.0f} MB); target {TARGET_MS} ms"
    )
    return int(median_ms > TARGET_MS)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
