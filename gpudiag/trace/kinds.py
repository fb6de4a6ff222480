"""Every kind of file that people hand in, its name for people, and what to do with it."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of file that is no PyTorch profiler trace."""

    name: str
    fix: str


_EXPORT = (
    "Give the file that torch.profiler wrote (export_chrome_trace, tensorboard_trace_handler)."
)
_NOT_YET = "This format is not read yet. " + _EXPORT
_TELEMETRY = "Telemetry without a trace is not read yet. " + _EXPORT
_UNPACK = "Unpack it first, then give the trace inside."

# The one table of kinds: id -> name, what to do.
KINDS: dict[str, Kind] = {
    "empty": Kind("an empty file", "The writer was probably killed; record the trace again."),
    "git_lfs": Kind("a Git LFS pointer, not the file itself", "Run: git lfs pull"),
    "symlink": Kind(
        "the text of a symbolic link, not the file itself", "Give the file that it names."
    ),
    "utf16": Kind("UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8"),
    "execution_trace": Kind(
        "a PyTorch execution trace (nodes, for Chakra/PARAM replay)",
        "It has no kernel times. Give the Kineto trace of the same run, from torch.profiler.",
    ),
    "memory_timeline": Kind("a PyTorch memory timeline", "It has no kernels. " + _EXPORT),
    "memory_snapshot": Kind(
        "a PyTorch CUDA memory snapshot", "View it at https://pytorch.org/memory_viz. " + _EXPORT
    ),
    "flight_recorder": Kind("an NCCL flight recorder dump", _NOT_YET),
    "pickle": Kind(
        "a Python pickle",
        "gpudiag never loads pickles: loading one can run any code. " + _EXPORT,
    ),
    "event_log": Kind("an event log of gpudiag run", "Give its run's folder, with the traces."),
    "jax": Kind("a JAX/XLA profile (Chrome trace)", "This format is not read yet."),
    "xplane": Kind("a JAX/XLA profile (xplane.pb)", "This format is not read yet."),
    "chrome_trace": Kind("a Chrome trace of another tool, not PyTorch's profiler", _EXPORT),
    "nsys": Kind("an Nsight Systems export (SQLite)", _NOT_YET),
    "sqlite": Kind("an SQLite database", _EXPORT),
    "parquet": Kind("a Parquet file", _NOT_YET),
    "zip": Kind("a zip archive (torch.save writes those too)", _UNPACK),
    "tar": Kind("a tar archive", _UNPACK),
    "zstd": Kind("Zstandard-compressed data", "Decompress it first: zstd -d FILE"),
    "bzip2": Kind("bzip2-compressed data", "Decompress it first: bunzip2 FILE"),
    "xz": Kind("xz-compressed data", "Decompress it first: unxz FILE"),
    "html": Kind(
        "a web page", "The download probably needs a login, or the raw link: fetch it again."
    ),
    "xml": Kind("an XML file", _EXPORT),
    "smi_csv": Kind("an nvidia-smi (or similar) CSV log", _TELEMETRY),
    "smi_text": Kind("nvidia-smi text output", _TELEMETRY),
    "dcgm_text": Kind("dcgmi dmon output", _TELEMETRY),
    "prometheus": Kind("Prometheus metrics (DCGM exporter or similar)", _TELEMETRY),
    "infiniband": Kind("InfiniBand counters (ibstat, perfquery)", _TELEMETRY),
    "nccl_tests": Kind("the output of nccl-tests", _NOT_YET),
    "training_log": Kind("a training log", "Logs without a trace are not read yet. " + _EXPORT),
    "json_lines": Kind("a JSON Lines file", _EXPORT),
    "json": Kind("a JSON file without traceEvents", _EXPORT),
    "text": Kind("a text file (a log or notes)", _EXPORT),
    "binary": Kind("a binary file of unknown kind", _EXPORT),
}
