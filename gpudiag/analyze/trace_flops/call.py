"""One operator call as the trace recorded it: its shapes, scalars and types."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

Shape: TypeAlias = tuple[int, ...]

# Recorded type -> (label, bytes per element). fp4 packs two values into a byte.
_TYPES: dict[str, tuple[str, float]] = {
    "float": ("fp32", 4),
    "double": ("fp64", 8),
    "c10::BFloat16": ("bf16", 2),
    "c10::Half": ("fp16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
    "short": ("int16", 2),
    "short int": ("int16", 2),
    "int": ("int32", 4),
    "long": ("int64", 8),
    "long int": ("int64", 8),
    "long long": ("int64", 8),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
    "c10::Float4_e2m1fn_x2": ("fp4", 1),
}
_FP8 = "c10::Float8_"
_INTEGER = re.compile(r"-?\d+")


class UnknownFlopsError(Exception):
    """The recorded arguments don't tell the FLOPs of a call.

    Args:
        reason: why, for the user.
        bound: the most that it can be, where that is known.
    """

    def __init__(self, reason: str, bound: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.bound = bound


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of an operator; position in each is the position in its schema."""

    name: str
    dims: tuple[Any, ...]  # a shape per tensor, () for none; a tuple of shapes for a tensor list
    concrete: tuple[str, ...]  # scalars and lists as text, "" for tensors and None
    types: tuple[str, ...]

    def shape(self, index: int, rank: int | None = None) -> Shape:
        """Return the shape of a tensor argument, of ``rank`` dimensions if given; or raise."""
        found = self.optional_shape(index)
        if not found or (rank is not None and len(found) != rank):
            if not any(self.dims):
                raise UnknownFlopsError("no shapes recorded")
            raise UnknownFlopsError(f"argument {index} has no usable shape")
        return found

    def optional_shape(self, index: int) -> Shape | None:
        """Return the shape of a tensor argument, None where there is none."""
        found = self.dims[index] if index < len(self.dims) else ()
        return found if found and all(isinstance(size, int) for size in found) else None

    def shapes(self, index: int) -> list[Shape]:
        """Return the shapes of a tensor list, or raise."""
        found = self.dims[index] if index < len(self.dims) else ()
        if not found or not all(isinstance(one, tuple) for one in found):
            raise UnknownFlopsError(f"argument {index} is no list of shapes")
        return list(found)

    def lists(self) -> list[list[int]]:
        """Return the integer lists among the scalars, in order: strides, paddings, dilations."""
        texts = (text for text in self.concrete if text.startswith("["))
        parsed = (parse_list(text) for text in texts)
        return [one for one in parsed if one is not None]

    def flags(self, index: int) -> list[bool] | None:
        """Return a list of booleans such as an output mask, None where it is not recorded."""
        text = self.concrete[index] if -len(self.concrete) <= index < len(self.concrete) else ""
        words = re.findall(r"True|False|true|false", text)
        return [word.lower() == "true" for word in words] or None

    def booleans(self) -> list[tuple[int, bool]]:
        """Return (position, value) of every boolean scalar."""
        return [(i, c == "True") for i, c in enumerate(self.concrete) if c in {"True", "False"}]

    def integers(self) -> list[int]:
        """Return every integer scalar, in order."""
        return [int(text) for text in self.concrete if _INTEGER.fullmatch(text)]

    def integer(self, index: int) -> int | None:
        """Return an integer scalar, None where it is not recorded."""
        text = self.concrete[index] if index < len(self.concrete) else ""
        return int(text) if _INTEGER.fullmatch(text) else None

    def dtype(self, index: int) -> str | None:
        """Return the label of an argument's type, such as ``bf16``; None for no tensor."""
        return dtype_label(self.types[index]) if index < len(self.types) else None

    def element_bytes(self, index: int) -> float | None:
        """Return the bytes per element of an argument, None for no tensor."""
        return dtype_bytes(self.types[index]) if index < len(self.types) else None

    def bytes(self, *indices: int) -> int | None:
        """Return the bytes of tensor arguments, None where a type is unknown."""
        total = 0.0
        for index in indices:
            size, found = self.element_bytes(index), self.optional_shape(index)
            if size is None or found is None:
                return None
            total += prod(found) * size
        return int(total)


def parse_list(text: str) -> list[int] | None:
    """Return the integers of ``[1, 2]``, None for any other text."""
    inner = text.strip("[] ")
    words = [word.strip() for word in inner.split(",")] if inner else []
    return [int(word) for word in words] if all(map(_INTEGER.fullmatch, words)) else None


def dtype_label(recorded: str) -> str | None:
    """Return the short label of a recorded type, None for what is no number."""
    if recorded.startswith(_FP8):
        return "fp8"
    return _TYPES[recorded][0] if recorded in _TYPES else None


def dtype_bytes(recorded: str) -> float | None:
    """Return bytes per element of a recorded type, None for what is no number."""
    if recorded.startswith(_FP8):
        return 1
    return _TYPES[recorded][1] if recorded in _TYPES else None


def parse_call(name: str, dims: str, concrete: str, types: str) -> Call:
    """Build a call from the JSON texts of the trace; a text that isn't a list counts as absent."""
    return Call(
        name=name,
        dims=tuple(_frozen(one) if isinstance(one, list) else () for one in _list(dims)),
        concrete=tuple(one if isinstance(one, str) else "" for one in _list(concrete)),
        types=tuple(one if isinstance(one, str) else "" for one in _list(types)),
    )


def _list(text: str) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _frozen(nested: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_frozen(one) if isinstance(one, list) else one for one in nested)
