"""Every file that was handed to us: its exit code, and what is said of it.

The table's first matching row holds. A row for a format that isn't read yet says which kind the
message names; later work takes such rows out.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import pytest
import require

from gpudiag.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

ROOT = require.SHARED
HOST_ONLY = "Device activity not recorded"

# path pattern below ../shared -> exit code, and a text that stdout (0, 4) or stderr (3) holds
TABLE: tuple[tuple[str, int, str], ...] = (
    ("cases/inputs/C01_windows_backslash.json", 0, "escape"),
    ("cases/inputs/C03_control_char.json", 0, "control"),
    ("cases/inputs/C06_bad_crc.json.gz", 4, "checksum"),
    ("cases/inputs/C06_truncated.json.gz", 4, "cut off at byte 437"),
    ("cases/inputs/C06_empty.json", 3, "empty file"),
    ("cases/inputs/C12_ts_zero_kernels.json", 0, "ts 0 and dur 0"),
    ("cases/inputs/C17_kernel_before_launch.json", 0, "start before their launch"),
    ("cases/inputs/C16_graph_replay.json", 0, "graph replay"),
    ("cases/inputs/C43_fr_hostname_rank/*.json", 3, "flight recorder"),
    ("cases/inputs/C43_fr_hostname_rank/*", 3, "empty file"),
    ("cases/inputs/C*.json", 0, ""),
    ("cases/inputs/C*.json.gz", 0, ""),
    ("cases/inputs/*.NOTE.txt", 3, "text file"),
    ("cases/inputs/*.log", 3, "training log"),
    ("cases/inputs/*.prom", 3, "Prometheus metrics"),
    ("cases/inputs/C3?_dcgmi_*", 3, "dcgmi dmon"),
    ("cases/inputs/*.csv", 3, "CSV log"),
    ("cases/inputs/C39_dmon_*", 3, "nvidia-smi"),
    ("traces/tl-*/PROVENANCE.txt", 3, "training log"),
    ("traces/*/PROVENANCE.txt", 3, "text file"),
    ("traces/README.md", 3, "training log"),
    ("traces/kt-hta-not-a-kineto-trace/*_et.json.gz", 3, "execution trace"),
    ("traces/kt-megatron-tp2-v100-2rank/pytorch_et_0.json", 3, "execution trace"),
    ("traces/kt-hta-not-a-kineto-trace/memory_timeline.raw.gz", 3, "memory timeline"),
    ("traces/kt-xpu-fixtures/*unitrace*", 3, "Chrome trace of another tool"),
    ("traces/kt-cpu-only-course/*", 0, HOST_ONLY),
    ("traces/kt-hta-cpu-only-gloo/*", 0, HOST_ONLY),
    ("traces/kt-switchtransformer-a100pcie/trace_no_kernels.json", 0, HOST_ONLY),
    ("traces/kt-hta-rank-problems/*distributedInfo*", 0, HOST_ONLY),
    ("traces/kt-hta-rank-problems/distributed_info*", 0, HOST_ONLY),
    ("traces/kt-hta-rank-problems/rank_non_gpu*", 0, HOST_ONLY),
    ("traces/kt-torchbench-a100-nokernels/*", 0, "copies are recorded, but no kernel"),
    ("traces/gloo-faults/*.trace.json.gz", 0, HOST_ONLY),
    ("traces/gloo-faults/*", 3, ""),
    ("traces/kt-*", 0, "where the GPU time went"),
    ("traces/jx-*.xplane.pb", 3, "xplane"),
    ("traces/jx-*", 3, "JAX"),
    ("traces/fr-*/_dump_*", 3, "flight recorder"),
    ("traces/fr-*/derived_json/*", 3, "flight recorder"),
    ("traces/fr-*", 3, ""),
    ("traces/ns-*.sqlite", 3, "Nsight Systems"),
    ("traces/op-*.parquet", 3, "Parquet"),
    ("traces/op-*", 3, ""),
    ("traces/smi-*", 3, ""),
    ("traces/dc-*", 3, ""),
    ("traces/ib-*", 3, ""),
    ("traces/nt-*", 3, ""),
    ("traces/tl-*", 3, ""),
)


def handed() -> list[str]:
    """Return every file handed to us, as a path below ../shared."""
    folders = (ROOT / "cases" / "inputs", ROOT / "traces")
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(ROOT)) for path in files)


def run(*args: str) -> tuple[int, str, str]:
    """Run the command line in this process; return exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
        main(list(args))
    return stop.value.code or 0, out.getvalue(), err.getvalue()


def expected(name: str) -> tuple[int, str]:
    return next((code, text) for pattern, code, text in TABLE if fnmatch(name, pattern))


@pytest.mark.needs("shared")
@pytest.mark.parametrize("name", handed())
def test_a_handed_file_is_analysed_or_named_for_what_it_is(name, monkeypatch):
    """The exit code is the table's, the text is said, and nobody sees a traceback."""
    monkeypatch.setenv("COLUMNS", "400")
    code, text = expected(name)
    got, out, err = run("analyze", str(ROOT / name), "-v")
    assert (got, err if got != code else "") == (code, "")
    assert "Traceback" not in err
    assert "has a bug" not in err
    if code == 3:
        assert out == ""
        assert len(err.strip().splitlines()) == 3, err
        assert text in err
    else:
        assert text in out


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    ("folder", "ranks", "missing"),
    [
        ("kt-nanogpt-8rank-h100", 8, 0),
        ("kt-torchrec-dlrm-4rank-a2a", 4, 0),
        ("kt-torchrec-ddp-resnet-2rank", 2, 0),
        ("kt-megatron-tp2-v100-2rank", 2, 0),
        ("kt-hta-sampled-2of128", 2, 126),
    ],
)
def test_the_ranks_of_a_job_are_analysed_together(folder, ranks, missing):
    """A folder of one job gives one analysis with every rank, and names those that lack."""
    code, out, _ = run("analyze", str(ROOT / "traces" / folder), "--json")
    assert code == 0
    job = json.loads(out)["job"]
    assert (len(job["ranks"]), len(job["missing_ranks"])) == (ranks, missing)


@pytest.mark.needs("shared")
@pytest.mark.parametrize(
    "paths",
    [
        ["cases/inputs/C26_two_runs_same_rank_0.1698955364.pt.trace.json",
         "cases/inputs/C26_two_runs_same_rank_1.1698955629.pt.trace.json"],
        ["traces/kt-qa-tutorial-h100-two-windows"],
    ],
)  # fmt: skip
def test_two_runs_are_never_merged_silently(paths: list[Path]):
    """Files of two runs are refused with both runs listed."""
    code, out, err = run("analyze", *(str(ROOT / path) for path in paths))
    assert (code, out) == (2, "")
    assert "2 runs" in err


@pytest.mark.needs("shared")
def test_ranks_whose_clocks_differ_by_seconds_are_one_job():
    """Five seconds of clock skew between two hosts make no second run."""
    files = [str(ROOT / "cases" / "inputs" / f"C25_clock_skew_rank{rank}.json") for rank in (0, 1)]
    code, out, _ = run("analyze", *files, "--json")
    assert code == 0
    assert json.loads(out)["job"]["ranks"] == [0, 1]
