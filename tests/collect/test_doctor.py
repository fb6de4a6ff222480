"""gpudiag doctor: what is on the machine, through nvidia-ml-py and a library in NVML's place."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from cli.tiny import gpudiag
from rich.cells import cell_len

from gpudiag.hardware import devices

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
SOURCE = Path(__file__).with_name("fakenvml.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return the folder of a libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target, SOURCE], check=True)
    return folder


def doctor(**environment):
    done = gpudiag("doctor", "--json", env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return {one["id"]: one for one in json.loads(done.stdout)["checks"]}


@pytest.mark.needs("cc")
def test_visible_gpus_are_named_with_their_row_or_why_there_is_none(library):
    """A known one, an unknown one, a lost one: each says what it means."""
    found = doctor(LD_LIBRARY_PATH=str(library), CUDA_VISIBLE_DEVICES="1")
    assert found["GPUs"]["ok"]
    assert found["GPUs"]["found"] == "3 through NVML"
    assert found["GPUs"]["use"].startswith("driver 570.00; CUDA_VISIBLE_DEVICES=1")
    assert found["GPU 0"]["found"] == "NVIDIA H100 80GB HBM3, 80.0 GB"
    assert "h100-sxm" in found["GPU 0"]["use"]
    assert "--peak-tflops" in found["GPU 1"]["use"]
    assert (found["GPU 2"]["ok"], found["GPU 2"]["found"]) == (False, "GPU is lost")


@pytest.mark.needs("cc")
def test_why_no_gpu_is_seen_is_one_line(library, tmp_path):
    """No driver loaded; no library; nvidia-ml-py that can't be imported: exit 0 all the same."""
    unloaded = doctor(LD_LIBRARY_PATH=str(library), FAKE_NVML_NO_DRIVER="1")["GPUs"]
    assert (unloaded["ok"], unloaded["found"]) == (False, "NVML: Driver Not Loaded")
    (tmp_path / "pynvml.py").write_text("raise ImportError('broken')")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    broken = doctor(PYTHONPATH=path)["GPUs"]
    assert not broken["ok"]
    assert "pip install nvidia-ml-py" in broken["found"]


def test_packages_are_looked_up_without_importing_them(tmp_path):
    """A torch that fails to import is still found, and costs nothing."""
    (tmp_path / "torch.py").write_text("raise SystemExit('imported')")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    found = doctor(PYTHONPATH=path)
    assert found["torch"]["ok"]
    assert "msgspec" in found["readers"]["found"]
    assert {"gpudiag", "python", "numpy", "isal", "pandas", "plotly"} <= set(found)


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_the_table_of_gpus_loses_nothing_at_any_width(width):
    """What has no room in its row stands under it, whole."""
    done = gpudiag("doctor", "--gpus", env=os.environ | {"COLUMNS": str(width)})
    lines = done.stdout.splitlines()
    assert max(map(cell_len, lines)) <= width
    first = lines.index(next(line for line in lines if line.startswith("peaks"))) + 1
    starts = [i for i in range(first, len(lines)) if lines[i][2:3].strip()]
    blocks = [lines[i:j] for i, j in zip(starts, [*starts[1:], len(lines)], strict=True)]
    for gpu, block in zip(devices(), blocks, strict=True):
        said = " ".join(" ".join(block).split())
        shown = [gpu.dense_tflops.get(name) for name in DTYPES]
        for value in (*shown, gpu.sm_count, gpu.memory_gb_s):
            assert value is None or f"{value:g}" in said.split()
        assert said.startswith(gpu.key)
        assert gpu.title in said
