"""Dictionary encoding: each distinct string of a trace is stored once and known by its index."""

from __future__ import annotations

from gpudiag.model.tables import Thread
from gpudiag.trace.categories import Scalar


def label(value: object) -> str:
    """Return an id as text: numbers as written in JSON, absent as the empty string."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


class Strings(dict[Scalar, int]):
    """Index by string; absent keys are added. Numbers used as names count as their text."""

    def __init__(self) -> None:
        super().__init__()
        self.values_in_order: list[str] = []

    def __missing__(self, key: Scalar) -> int:
        """Store the string and return its index."""
        if not isinstance(key, str):
            # not cached under its own value: 1, 1.0 and True are one key to a dict
            return self[label(key)]
        index = len(self.values_in_order)
        self.values_in_order.append(key)
        self[key] = index
        return index


class NumberLabels(dict[int, int]):
    """String index of a number's label, so that its text is made once."""

    def __init__(self, strings: Strings) -> None:
        super().__init__()
        self._strings = strings

    def __missing__(self, key: int) -> int:
        """Store the label and return its index."""
        index = self[key] = self._strings[label(key)]
        return index


class Threads(dict[tuple[Scalar, Scalar], int]):
    """Index by (pid, tid) as recorded; the same labels are the same thread."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[tuple[str, str], int] = {}

    def __missing__(self, key: tuple[Scalar, Scalar]) -> int:
        """Store the thread and return its index."""
        labels = (label(key[0]), label(key[1]))
        index = self.labels.setdefault(labels, len(self.labels))
        self[key] = index
        return index

    def table(self, names: dict[tuple[str, str], str]) -> list[Thread]:
        """Return the threads in index order, with the names that metadata rows gave them."""
        return [Thread(pid, tid, names.get((pid, tid))) for pid, tid in self.labels]
