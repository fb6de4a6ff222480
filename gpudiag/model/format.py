"""The one place where numbers become text: durations, shares, counts, and what is missing."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNITS = ((1, "ns"), (1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
_NS_PER_SECOND = 1_000_000_000
# A share or time that rounds to nothing is printed as "<" the smallest one that doesn't.
_TINIEST_SHARE = 0.0005
_MOST_RUNS_OF_RANKS = 6
_SLOWEST_GB_S = 0.005


def duration(ns: int | None, reason: str = "") -> str:
    """Return a duration with three significant digits in the unit that suits it: "52.1 ms"."""
    if ns is None:
        return unavailable(reason)
    if ns < 0:
        return "-" + duration(-ns)
    for size, unit in _UNITS:
        value = ns / size
        if value < 999.5 or unit == "s":  # noqa: PLR2004 - 999.5 rounds up to the next unit
            return f"{_three_digits(value) if size > 1 else str(ns)} {unit}"
    raise AssertionError(ns)


def _three_digits(value: float) -> str:
    for limit, digits in ((9.995, 2), (99.95, 1)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def share(part: float | None, reason: str = "") -> str:
    """Return a fraction as a percentage with one digit: "41.5 %"."""
    if part is None:
        return unavailable(reason)
    if 0 < part < _TINIEST_SHARE:
        return "<0.1 %"
    return f"{100 * part:.1f} %"


def percent(part: float) -> str:
    """Return a fraction as a whole percentage, for sentences: "41 %"."""
    return f"{100 * part:.0f} %"


def share_range(low: float, high: float) -> str:
    """Return a percentage known only between two bounds: "19.1 to 22.4 %"."""
    return share(high) if share(low) == share(high) else f"{100 * low:.1f} to {100 * high:.1f} %"


def count(number: int | None, reason: str = "") -> str:
    """Return a count with its thousands set apart: "1,810"."""
    return unavailable(reason) if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return a count with its noun in the right number: "1 rank", "8 ranks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def times(each: int | None, total: int, noun: str, members: int, member: str) -> str:
    """Return how many of something each member has: "4 steps x 2 ranks", "5 steps on 1 GPU".

    ``each`` is None where members have different numbers of it: then the total is said.
    """
    if members == 1 or each is None:
        return f"{counted(total, noun)} on {counted(members, member)}"
    return f"{counted(each, noun)} × {counted(members, member)}"


def factor(number: float) -> str:
    """Return how many times as much something is: "1.29×"."""
    return f"{number:.2f}×"


def bandwidth(gb_s: float | None, reason: str = "") -> str:
    """Return a bandwidth in GB/s with three significant digits, without its unit: "291"."""
    if gb_s is None:
        return unavailable(reason)
    return "<0.01" if 0 < gb_s < _SLOWEST_GB_S else _three_digits(gb_s)


def tflops(flops_per_s: float) -> str:
    """Return a rate of FLOPs: "989.4 TFLOP/s"."""
    return f"{flops_per_s / 1e12:,.1f} TFLOP/s"


def size(n_bytes: int | None, reason: str = "") -> str:
    """Return a size in decimal units: "12.3 MB"."""
    if n_bytes is None:
        return unavailable(reason)
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:  # noqa: PLR2004 - 999.5 rounds up to the next unit
            return f"{_three_digits(value) if unit != 'B' else n_bytes} {unit}"
        value /= 1000
    return f"{_three_digits(value)} TB"


def amount(number: float | None, reason: str = "") -> str:
    """Return a number to four digits with a metric prefix: "8.030 G"; 4,096 stays as it is."""
    if number is None:
        return unavailable(reason)
    for size, prefix in _PREFIXES:
        if number >= size:
            return f"{number / size:.4g} {prefix}"
    return f"{number:g}"


def unavailable(reason: str = "") -> str:
    """Return what is printed for a value that can't be known here: "n/a (needs DCGM)"."""
    return f"n/a ({reason})" if reason else "n/a"


def ranks(numbers: Iterable[int]) -> str:
    """Return rank numbers as runs: "0-2, 4-7"; many runs are cut, with the count said."""
    wanted = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in wanted:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    if len(texts) > _MOST_RUNS_OF_RANKS:
        return ", ".join(texts[:_MOST_RUNS_OF_RANKS]) + f", … ({counted(len(wanted), 'rank')})"
    return ", ".join(texts)


def rank_list(numbers: Iterable[int]) -> str:
    """Return rank numbers with their noun: "rank 3", "ranks 0-2, 4-7"."""
    wanted = set(numbers)
    return f"rank{'' if len(wanted) == 1 else 's'} {ranks(wanted)}"


@dataclass(frozen=True, slots=True)
class Scale:
    """One unit and precision for a whole column of durations, so that they can be compared."""

    unit: str
    ns: int
    digits: int

    @classmethod
    def fitting(cls, longest_ns: float) -> Scale:
        """Return the scale in which the longest of the durations has a few digits."""
        if longest_ns >= 10 * _NS_PER_SECOND:
            return cls("s", _NS_PER_SECOND, 2)
        if longest_ns >= 10_000_000:  # noqa: PLR2004 - 10 ms
            return cls("ms", 1_000_000, 1)
        if longest_ns >= 1_000_000:  # noqa: PLR2004 - 1 ms
            return cls("ms", 1_000_000, 3)
        return cls("µs", 1_000, 1)

    def text(self, ns: float) -> str:
        """Return a duration in this scale, without the unit."""
        smallest = self.ns / 10**self.digits
        if 0 < ns < smallest / 2:
            return f"<{10**-self.digits:.{self.digits}f}"
        return f"{ns / self.ns:,.{self.digits}f}"


_ASCII = str.maketrans(
    {
        "µ": "u",
        "·": "*",
        "→": "->",
        "◀": "<--",
        "×": "x",
        "±": "+/-",
        "≠": "!=",
        "≤": "<=",
        "≥": ">=",
        "–": "-",
        "—": "-",
        "−": "-",  # noqa: RUF001 - the minus sign is meant
        "…": "...",
        "Σ": "sum",
        "δ": "delta",
        "•": "*",
        "“": '"',
        "”": '"',
        "’": "'",  # noqa: RUF001 - the apostrophe is meant
        "█": "#",
        "\N{REPLACEMENT CHARACTER}": "?",
    }
)


def to_ascii(text: str) -> str:
    """Return text in ASCII: our own signs spelt out, accents dropped, the rest as "?"."""
    spelt = unicodedata.normalize("NFKD", text.translate(_ASCII))
    bare = "".join(c for c in spelt if not unicodedata.combining(c))
    return bare.encode("ascii", "replace").decode("ascii")


# Control characters, surrogates, and marks that turn the direction of text: none of them may
# reach a terminal from a trace.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\ufff9-\ufffb\U000e0000-\U000e007f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)


def clean(text: str) -> str:
    """Return text from a trace without anything that a terminal would act upon."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


_LOADER_NEXT = re.compile(r"^(enumerate\(DataLoader\)#)?_\w*DataLoaderIter\.__next__$")


def host_span(name: str) -> str:
    """Return a host span's name as people say it; the loader's own is long and always the same."""
    return "DataLoader next" if _LOADER_NEXT.match(name) else clean(name)


def kernel_name(name: str) -> str:
    """Return a kernel's name without its return type and argument list; copies keep theirs."""
    bare = clean(name).removeprefix("void ")
    if bare.startswith(("Memcpy", "Memset")):
        return bare
    if bare.endswith(")"):
        start = _matching_open(bare)
        if start > 0 and bare[start:] != "(anonymous namespace)":
            bare = bare[:start]
    return bare.strip() or clean(name)


def kernel_names(names: Sequence[str]) -> list[str]:
    """Return the kernels' names, with their arguments where only those tell them apart."""
    short = [kernel_name(name) for name in names]
    return [
        one if short.count(one) == 1 else clean(name).removeprefix("void ")
        for one, name in zip(short, names, strict=True)
    ]


def _matching_open(text: str) -> int:
    """Return the index of the "(" that the final ")" closes, or -1."""
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return -1


def listed(items: Sequence[str]) -> str:
    """Return items as a list in a sentence: "a, b and c"."""
    if len(items) <= 1:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]
