"""Args that few rows have: collectives and shapes, kept sparse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from gpudiag.model.tables import CollectiveTable, OperatorArgs
from gpudiag.trace.columns import Column, integers
from gpudiag.trace.schema import NO_ARGS, NO_TEXT, CollectiveArgs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudiag.model.tables import I32, I64
    from gpudiag.trace.intern import Strings
    from gpudiag.trace.schema import OperatorArgsRow

T = TypeVar("T")
_DECODERS: dict[type, tuple[Any, Any]] = {}


def decode_each(texts: Sequence[msgspec.Raw], kind: type[T]) -> list[T]:
    """Decode each args text; args that aren't an object count as absent."""
    if kind not in _DECODERS:
        _DECODERS[kind] = (msgspec.json.Decoder(list[kind]), msgspec.json.Decoder(kind))  # type: ignore[valid-type]
    many, one = _DECODERS[kind]
    try:
        decoded: list[T] = many.decode(b"[" + b",".join(texts) + b"]")
    except msgspec.DecodeError:
        return [_decode_one(text, one) for text in texts]
    return decoded


def _decode_one(text: msgspec.Raw, decoder: Any) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.DecodeError:
        return decoder.decode(NO_ARGS)


class CollectiveRows:
    """Collective metadata of device and host rows."""

    _INTEGERS = ("in_elements", "out_elements", "group_size", "src_rank", "dst_rank", "seq")
    _STRINGS = ("op", "group", "group_description", "group_ranks", "dtype")

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._on_device = Column(np.bool_)
        self._row = Column("i4")
        wide = {"in_elements", "out_elements", "seq"}
        self._columns = {k: Column("i8" if k in wide else "i4") for k in self._INTEGERS}
        self._columns |= {k: Column("i4") for k in self._STRINGS}

    def add(
        self, raw: Sequence[msgspec.Raw], names: Sequence[object], rows: I64, *, on_device: bool
    ) -> None:
        """Add the rows whose args have a "Collective name"."""
        at = [i for i, name in enumerate(names) if name is not None]
        if not at:
            return
        args = decode_each([raw[i] for i in at], CollectiveArgs)
        self._on_device.add(np.full(len(at), on_device))
        self._row.add(rows[at])
        for key in self._INTEGERS:
            self._columns[key].add(integers([getattr(a, key) for a in args]))
        for key in self._STRINGS:
            texts = (
                [a.group_id if a.group is None else a.group for a in args]
                if key == "group"
                else None
            )
            self._columns[key].add(self._encode(texts or [getattr(a, key) for a in args]))

    def _encode(self, values: Sequence[Any]) -> list[int]:
        return [-1 if v is None else self._strings[_text(v)] for v in values]

    def table(self) -> CollectiveTable:
        """Return the columns."""
        c = {k: v.join() for k, v in self._columns.items()}
        return CollectiveTable(on_device=self._on_device.join(), row=self._row.join(), **c)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


class _Texts(dict[bytes, int]):
    """String index by raw JSON text; -1 for none."""

    def __init__(self, strings: Strings) -> None:
        super().__init__({b"": -1})
        self._strings = strings

    def __missing__(self, key: bytes) -> int:
        """Store the text, without white space, and return its index."""
        index = self[key] = self._strings[compact(key)]
        return index


class ShapeRows:
    """Shapes and autograd links of operators; texts dictionary-encoded as compact JSON."""

    def __init__(self, strings: Strings) -> None:
        self._known = _Texts(strings)
        self._row = Column("i4")
        self._texts = {k: Column("i4") for k in ("dims", "types", "concrete")}
        self._integers = {k: Column("i8") for k in ("sequence", "forward_thread", "flops")}

    def add(self, args: Sequence[OperatorArgsRow], rows: I64) -> None:
        """Add the rows that recorded any."""
        none = NO_TEXT
        at = [
            i
            for i, a in enumerate(args)
            if a.dims is not none
            or a.sequence != -1
            or a.types is not none
            or a.concrete is not none
            or a.flops != -1
            or a.old_dims is not none
        ]
        if not at:
            return
        kept = [args[i] for i in at]
        dims = self._encode([a.dims for a in kept])
        if (dims < 0).any():
            dims = np.maximum(dims, self._encode([a.old_dims for a in kept]))
        self._row.add(rows[at])
        self._texts["dims"].add(dims)
        self._texts["types"].add(self._encode([a.types for a in kept]))
        self._texts["concrete"].add(self._encode([a.concrete for a in kept]))
        self._integers["sequence"].add(integers([a.sequence for a in kept]))
        self._integers["forward_thread"].add(integers([a.forward_thread for a in kept]))
        self._integers["flops"].add(integers([a.flops for a in kept]))

    def _encode(self, texts: Sequence[msgspec.Raw]) -> I32:
        known = self._known
        return np.array([known[t] for t in map(bytes, texts)], np.int32)

    def table(self) -> OperatorArgs:
        """Return the columns."""
        texts = {k: v.join() for k, v in self._texts.items()}
        numbers = {k: v.join() for k, v in self._integers.items()}
        return OperatorArgs(
            row=self._row.join(), input_dims=texts["dims"], input_types=texts["types"],
            concrete_inputs=texts["concrete"], sequence_number=numbers["sequence"],
            forward_thread=numbers["forward_thread"], kernel_flops=numbers["flops"],
        )  # fmt: skip


def compact(raw: bytes) -> str:
    """Return JSON text without white space; text that was itself quoted JSON is unquoted (XPU)."""
    if raw.startswith(b'"'):
        inner = msgspec.json.decode(raw)
        if inner[:1] in ("[", "{"):
            try:
                return str(msgspec.json.format(inner, indent=-1))
            except msgspec.DecodeError:
                return str(inner)
    return msgspec.json.format(raw, indent=-1).decode()
