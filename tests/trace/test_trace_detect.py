"""What is no PyTorch trace is named for what it is; every known file is read or refused by name."""

from __future__ import annotations

import json
import pickle
import sqlite3

import pytest
from trace_tables import SHARED, check, kernel, read, trace_of

from gpudiag.trace import read_trace
from gpudiag.trace.detect import NotATraceError
from gpudiag.trace.kinds import KINDS

SAMPLES = {
    "empty": b"",
    "git_lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n",
    "symlink": b"../../objects/ab/trace.json.gz",
    "utf16": '{"traceEvents": []}'.encode("utf-16"),
    "execution_trace": b'{"schema": "1.0.1", "pid": 1, "nodes": [{"id": 1}]}',
    "memory_timeline": b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]",
    "memory_snapshot": pickle.dumps({"segments": [], "device_traces": [[]]}),
    "flight_recorder": pickle.dumps({"version": "2.9", "pg_config": {}, "entries": []}),
    "pickle": pickle.dumps({"a": 1}),
    "jax": b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},\n"traceEvents":[\n'
    b'{"args":{"name":"/device:GPU:0"},"name":"process_name","ph":"M","pid":1}]}',
    "xplane": b'\x0a\xc7\xa9\x01\x12\x0e/host:metadata"\xa6\x0e\x08O\x12\xa1\x0e\x08\x84O' * 9,
    "chrome_trace": b'{"traceEvents": [{"ph": "X", "name": "zeLaunch", "ts": 1, "dur": 2}]}',
    "parquet": b"PAR1\x15\x04",
    "zip": b"PK\x03\x04\x14\x00",
    "tar": b"a.json".ljust(257, b"\0") + b"ustar\x0000",
    "zstd": b"\x28\xb5\x2f\xfd\x24",
    "bzip2": b"BZh91AY",
    "xz": b"\xfd7zXZ\0\0",
    "html": b"<!DOCTYPE html>\n<html><body>Sign in</body></html>",
    "xml": b'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log>',
    "smi_csv": b"timestamp, index, name, utilization.gpu [%]\n2025/06/13, 0, Tesla, 0 %\n",
    "smi_text": b"# gpu   pwr gtemp mtemp    sm\n# Idx     W     C     C     %\n    0    70\n",
    "dcgm_text": b"#Entity   SMACT\nID\nGPU 0     N/A\n",
    "prometheus": b"# HELP DCGM_FI_DEV_GPU_UTIL x\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n",
    "infiniband": b"CA 'mlx5_0'\n\tCA type: MT4123\n",
    "nccl_tests": b"# nThread 1 nGpus 8 minBytes 8\n",
    "training_log": b"iteration 10/100 | loss: 3.1 | elapsed time per iteration (ms): 12\n",
    "event_log": b'{"k": "proc", "t": 1}\n{"k": "step", "t": 2}\n',
    "json_lines": b'{"loss": 3.1}\n{"loss": 3.0}\n',
    "json": b'{"status": "ok"}',
    "text": b"Notes on what we did\n",
    "binary": bytes(range(1, 256)) * 4,
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_each_kind_is_named_with_what_to_do(kind):
    """A file of each kind is refused by its name, with a remedy."""
    with pytest.raises(NotATraceError) as error:
        read(SAMPLES[kind])
    assert error.value.kind == kind
    assert error.value.exit_code == 3
    assert KINDS[kind].name in error.value.what
    assert error.value.fix


def test_databases_are_told_apart(tmp_path):
    """An Nsight Systems export is an SQLite file with its tables; others are just SQLite."""
    for table, kind in (("NVTX_EVENTS", "nsys"), ("people", "sqlite")):
        path = tmp_path / f"{kind}.sqlite"
        connection = sqlite3.connect(path)
        connection.execute(f"create table {table} (a int)")
        connection.commit()
        connection.close()
        with pytest.raises(NotATraceError) as error:
            read_trace(str(path))
        assert error.value.kind == kind


def test_every_kind_has_a_sample():
    """The table of kinds and these tests grow together."""
    assert {*SAMPLES, "nsys", "sqlite"} == KINDS.keys()


def test_a_pickle_is_never_loaded():
    """A pickle that would run code when loaded is only named."""

    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was loaded",))

    with pytest.raises(NotATraceError):
        read(pickle.dumps(Evil()))


def test_the_name_does_not_matter(tmp_path):
    """A trace called .txt is read; a log called .json is refused."""
    trace, log = tmp_path / "trace.txt", tmp_path / "trace.json"
    trace.write_text(json.dumps(trace_of(kernel())))
    log.write_bytes(SAMPLES["training_log"])
    assert len(read_trace(str(trace)).device) == 1
    with pytest.raises(NotATraceError, match="training log"):
        read_trace(str(log))


def test_a_large_json_file_of_another_kind_is_named():
    """A JSON file without events is named as such, also when its end is out of sight."""
    other = {"config": {"a": ["word"] * 20_000}}
    for data in (other, [other, other], json.dumps(other)[:-9]):
        with pytest.raises(NotATraceError) as error:
            read(data)
        assert error.value.kind == "json"


def test_a_long_preamble_does_not_hide_the_events():
    """Events that start beyond the first bytes looked at are found."""
    trace = {"schemaVersion": 1, "metadata": {"errors": ["x" * 50] * 5000}} | trace_of(kernel())
    assert len(read(trace).device) == 1
    del trace["schemaVersion"]
    assert len(read(trace).device) == 1


def _shared_files():
    tops = [SHARED / "traces", SHARED / "cases" / "inputs"]
    return [p for top in tops for p in sorted(top.rglob("*")) if p.is_file()]


@pytest.mark.needs("shared")
@pytest.mark.parametrize("path", _shared_files(), ids=lambda p: str(p.relative_to(SHARED)))
def test_every_collected_file_is_read_or_refused_by_name(path):
    """Each file people handed in gives a trace, or an error that names its kind."""
    outcome = _outcome(path)
    if isinstance(outcome, str):
        assert outcome in KINDS
        assert path.parts[-2][:3] != "kt-" or outcome in EXPECTED_NOT_KINETO
    else:
        check(outcome)
        assert len(outcome.host) + len(outcome.device)
        assert outcome.partial == (path.name in PARTIAL)


def _outcome(path):
    try:
        return read_trace(str(path))
    except NotATraceError as error:
        return error.kind


EXPECTED_NOT_KINETO = {"text", "training_log", "execution_trace", "memory_timeline", "chrome_trace"}
PARTIAL = {"C06_bad_crc.json.gz", "C06_truncated.json.gz"}
