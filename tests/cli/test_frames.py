"""``gpudiag.load``: the traces as DataFrames, as docs/how-to/notebook.md describes them."""

from __future__ import annotations

import re
import subprocess
import sys

import pandas as pd
import pytest
import require
from cli.tiny import KERNEL_US, LOADER, write_trace

import gpudiag
from gpudiag.errors import InputError, UsageError

GUIDE = (require.REPO / "docs" / "how-to" / "notebook.md").read_text(encoding="utf-8")
TABLES = "kernels copies operators annotations runtime_calls collectives steps buckets".split()  # noqa: SIM905


@pytest.fixture
def traces(tmp_path):
    return gpudiag.load(write_trace(tmp_path / "trace.json"))


def test_the_package_has_few_public_names():
    """And importing it loads neither pandas nor the readers."""
    assert gpudiag.__all__ == ["Traces", "__version__", "load"]
    code = "import gpudiag, sys; sys.exit('pandas' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = gpudiag.lode


def test_each_record_is_a_row(traces):
    """The tiny trace: five steps of a loader call, an operator, a launch and a kernel."""
    kernels = traces.kernels()
    assert len(kernels) == len(traces.operators()) == len(traces.runtime_calls()) == 5
    assert list(kernels["dur_ns"]) == [int(KERNEL_US * 1000)] * 5
    assert list(kernels["name"].cat.categories) == ["ampere_sgemm_128x64_nn"]
    assert set(kernels["correlation"]) == set(traces.runtime_calls()["correlation"])
    assert (traces.annotations()["name"] == LOADER).sum() == 5
    assert list(traces.steps()["step"]) == [0, 1, 2, 3, 4]
    assert traces.copies().empty
    assert traces.collectives().empty


def test_what_is_not_recorded_is_na(traces):
    """Never -1, never 0."""
    assert traces.kernels()["graph_id"].isna().all()
    assert traces.operators()["correlation"].isna().all()


@pytest.mark.parametrize("method", TABLES)
def test_the_guide_names_every_column_and_dtype(samples, method):
    """A column that the guide doesn't have is a column that nobody can use."""
    for sample in ("sim-straggler-4rank", "gloo-clean"):
        frame = getattr(gpudiag.load(samples / sample), method)()
        assert frame.columns[0] == "rank"
        for column, dtype in frame.dtypes.items():
            assert re.search(rf"[`\s]{column}[`\s]", GUIDE), column
            assert str(dtype) in {"Int64", "category", "bool", "float64"}, column


def test_buckets_sum_to_one(samples):
    """Of every window of every rank, for devices and for training threads."""
    buckets = gpudiag.load(samples / "sim-straggler-4rank").buckets()
    sums = buckets.groupby(["rank", "view"], observed=True)["share"].sum()
    assert len(sums) == 8
    assert sums.to_numpy() == pytest.approx(1.0, abs=1e-12)
    assert buckets.query("view == 'host'")["device"].isna().all()


def test_ranks_stand_under_one_another_with_shared_categories(samples):
    """Names compare across ranks."""
    kernels = gpudiag.load(samples / "sim-straggler-4rank").kernels()
    assert list(kernels["rank"].unique()) == [0, 1, 2, 3]
    assert kernels["name"].dtype == "category"
    collectives = gpudiag.load(samples / "sim-straggler-4rank").collectives()
    assert set(collectives["on_device"]) == {True, False}
    assert (collectives["dur_ns"] > 0).all()


def test_the_analysis_is_the_one_that_analyze_prints(traces):
    """Computed once, when it is first asked for."""
    assert traces.analysis() is traces.analysis()
    assert traces.analysis().findings[0].id == "input_stall"
    assert "ranks 0" in repr(traces)


def test_several_paths_and_a_window(tmp_path):
    """As the command line takes them."""
    path = write_trace(tmp_path / "trace.json")
    loaded = gpudiag.load([str(path)], window="device_span")
    assert loaded.analysis().ranks[0].window_basis == "device_span"
    with pytest.raises(InputError):
        gpudiag.load(tmp_path / "none.json")
    with pytest.raises(UsageError, match="no window 'step'") as caught:
        gpudiag.load(path, window="step")
    assert "Did you mean steps" in caught.value.fix


def test_tables_hold_the_window_alone_where_asked(traces):
    """Five steps recorded, three of them accounted for; the first and the last are left out."""
    for table in (traces.kernels, traces.operators, traces.runtime_calls, traces.steps):
        assert len(table()) == 5
        assert len(table(window=True)) == 3
    assert list(traces.steps(window=True)["step"]) == [1, 2, 3]


@pytest.mark.parametrize("sample", ["sim-straggler-4rank", "gloo-clean"])
def test_what_the_window_holds_is_what_the_analysis_counts(samples, sample):
    """Per rank, the kernels that start in the window; on the host, every row of it."""
    loaded = gpudiag.load(samples / sample)
    for method in TABLES[:-1]:
        whole, inside = getattr(loaded, method)(), getattr(loaded, method)(window=True)
        assert len(inside) < len(whole) or not len(whole)
        assert list(inside.columns) == list(whole.columns)
    kernels = loaded.kernels(window=True)
    for result in loaded.analysis().ranks:
        starts = kernels.loc[kernels["rank"] == result.rank, "start_ns"]
        if result.window_ns:
            assert starts.max() - starts.min() < result.window_ns
        else:
            assert starts.empty


def test_the_examples_of_the_guide_run(samples, monkeypatch):
    """Every code block, in order, on a sample in place of one's own traces."""
    load = gpudiag.load
    monkeypatch.setattr(
        gpudiag, "load", lambda _: load(samples / "sim-straggler-4rank"), raising=False
    )
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL):
        exec(block, names)  # noqa: S102 - our own documentation
    assert isinstance(names["kernels"], pd.DataFrame)
