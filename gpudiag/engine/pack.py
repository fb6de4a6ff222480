"""Objects with many ascending integers as few bytes: what a rank's summary travels in.

A pickle in which each long int64 array is replaced by its first value and its differences in the
narrowest type that holds them; deflated. Read only what this program has written.
"""

from __future__ import annotations

import io
import pickle
import zlib
from typing import Any

import numpy as np

# Shorter arrays gain nothing.
_LONG = 16
_LEVEL = 3
_NARROWER = (np.int8, np.int16, np.int32)


class _Packer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Replace long int64 arrays; all else is pickled as ever."""
        if type(obj) is not np.ndarray or obj.dtype != np.int64 or obj.size < _LONG:
            return NotImplemented
        flat = obj.reshape(-1)
        steps = np.diff(flat)
        low, high = int(steps.min()), int(steps.max())
        for narrow in _NARROWER:
            limits = np.iinfo(narrow)
            if limits.min <= low and high <= limits.max:
                return _restored, (int(flat[0]), steps.astype(narrow), obj.shape)
        return NotImplemented


def _restored(first: int, steps: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Any:
    flat = np.empty(len(steps) + 1, dtype=np.int64)
    flat[0] = first
    np.cumsum(steps, dtype=np.int64, out=flat[1:])
    flat[1:] += first
    return flat.reshape(shape)


def pack(thing: object) -> bytes:
    """Return anything that can be pickled as bytes."""
    buffer = io.BytesIO()
    _Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    return zlib.compress(buffer.getvalue(), _LEVEL)


def unpack(packed: bytes) -> Any:
    """Return what was packed, in this process or another of this program."""
    return pickle.loads(zlib.decompress(packed))  # noqa: S301 - our own bytes, never a file's
