"""Collectives of several ranks that are one and the same (accounting.md 5).

Two ranks' records are one collective if they agree in (group, Seq). Without Seq: in the step that
holds the launch, group, kind, elements, dtype and their ordinal among such, in launch order. Where
the ranks of a key disagree in how many there are, none of that key is matched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from gpudiag.analyze.comm.kinds import POINT_TO_POINT, Kind
from gpudiag.analyze.comm.records import GroupKey, Record


@dataclass(frozen=True, slots=True)
class Matched:
    """One collective with the record of every rank that took part and is here."""

    kind: Kind
    group: GroupKey | None
    records: Mapping[int, Record]  # by rank
    missing: tuple[int, ...]  # members without a trace

    @property
    def bytes(self) -> int | None:
        """Size as nccl-tests count it; None where not recorded."""
        sizes = [one.bytes for one in self.records.values() if one.bytes is not None]
        return max(sizes, default=None)

    @property
    def size(self) -> int:
        """Ranks that take part, as far as known."""
        known = self.group.size if self.group and self.group.size else 0
        return max(known, len(self.records) + len(self.missing))


@dataclass(frozen=True, slots=True)
class Matching:
    """What was matched, and how many records were not, by reason."""

    matched: list[Matched]
    unmatched: dict[str, int]


def match(records: Mapping[int, Sequence[Record]]) -> Matching:
    """Match the collectives of all ranks."""
    keyed: dict[Hashable, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for rank, mine in records.items():
        for record in mine:
            keyed[_key(rank, record)][rank].append(record)
    matched: list[Matched] = []
    unmatched: dict[str, int] = defaultdict(int)
    for by_rank in keyed.values():
        found, reason = _pair(by_rank, set(records))
        matched += found
        if reason:
            unmatched[reason] += sum(len(mine) for mine in by_rank.values())
    return Matching(sorted(matched, key=_first_start), dict(unmatched))


def _first_start(one: Matched) -> tuple[int, str]:
    return min(record.start for record in one.records.values()), one.kind.value


def _key(rank: int, record: Record) -> Hashable:
    """Return what two records must share to be the same collective."""
    if record.kind in POINT_TO_POINT and record.peer is not None:
        ends = (record.peer, rank) if record.kind == Kind.RECV else (rank, record.peer)
        pair = ("p2p", record.group, ends)
        return (*pair, "seq", record.seq) if record.seq is not None else (*pair, record.step)
    if record.seq is not None and record.group is not None:
        return ("seq", record.group, record.seq)
    # What a rank sends in an all-to-all differs by rank.
    elements = None if record.kind == Kind.ALL_TO_ALL else record.elements
    return ("ordinal", record.step, record.group, record.kind, elements, record.dtype)


def _pair(by_rank: Mapping[int, list[Record]], here: set[int]) -> tuple[list[Matched], str]:
    """Match the k-th record of each rank; or say why the key can't be matched."""
    first = next(iter(by_rank.values()))[0]
    members = first.group.ranks if first.group and first.group.ranks else None
    counts = {len(mine) for mine in by_rank.values()}
    expected = set(members) & here if members else here
    if first.kind in POINT_TO_POINT:
        expected = set(by_rank)
        members = None
    if len(by_rank) < 2:  # noqa: PLR2004 - nobody to compare with
        return [], "recorded on one rank only"
    if len(counts) > 1 or (members is not None and set(by_rank) != expected):
        return [], "the ranks recorded different numbers of them"
    missing = tuple(sorted(set(members) - set(by_rank))) if members else ()
    return [
        Matched(first.kind, first.group, dict(zip(by_rank, records, strict=True)), missing)
        for records in zip(*by_rank.values(), strict=True)
    ], ""
