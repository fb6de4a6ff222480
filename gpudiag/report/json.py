"""An analysis, or the figures of ``gpudiag mfu``, as JSON (docs/reference/json.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from gpudiag.model.analysis import Analysis
    from gpudiag.model.mfu import ModelMfu

_BUCKETS = frozenset({"buckets_ns", "job_buckets_ns", "host_buckets_ns", "job_host_buckets_ns"})


def to_json(found: Analysis | ModelMfu) -> bytes:
    """Return the result as indented UTF-8 JSON that ends in a newline.

    Zero buckets are left out, as the schema says; NaN and infinities, which JSON can't hold,
    become null.
    """
    data = _tidy(msgspec.to_builtins(found, enc_hook=_numpy_scalar, str_keys=True))
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def _numpy_scalar(value: Any) -> Any:
    """Return the Python number in a numpy scalar, which msgspec doesn't know."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"no JSON for {type(value).__name__}")


def _tidy(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _text(key): _without_zeros(item) if key in _BUCKETS else _tidy(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return _text(value) if isinstance(value, str) else value


def _without_zeros(buckets: dict[str, int] | None) -> dict[str, int] | None:
    return None if buckets is None else {name: ns for name, ns in buckets.items() if ns}


def _text(text: str) -> str:
    """Return text that UTF-8 can hold: lone surrogates (bytes of odd file names) are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
