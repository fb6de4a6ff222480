"""What each process group is for: dp, fsdp, tp, pp, ep or cp, inferred; None where not clear.

A trace records no role. The group's description says it where the framework names its groups;
else the kinds of its collectives, the stride of its ranks and how often a size comes back do.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpudiag.analyze.comm.kinds import POINT_TO_POINT, Kind
from gpudiag.analyze.comm.match import Matched
from gpudiag.analyze.comm.records import GroupKey
from gpudiag.analyze.comm.split import RankSplit
from gpudiag.model import thresholds
from gpudiag.model.analysis import Parallelism

UNKNOWN = "unknown"
# Words of a description (Megatron's DATA_PARALLEL_GROUP, a mesh's mesh_dp_shard), first match:
# groups that shard or replicate data over experts or context are data parallel.
_WORDS: tuple[tuple[str, str], ...] = (
    ("fsdp", r"fsdp|shard"),
    ("dp", r"data|dp|ddp|replicate"),
    ("ep", r"expert|ep"),
    ("tp", r"tensor|tp"),
    ("pp", r"pipeline|pp"),
    ("cp", r"context|cp"),
)
_COMPILED = tuple(
    (role, re.compile(rf"(?:^|[^a-z])(?:{words})(?:[^a-z]|$)")) for role, words in _WORDS
)


@dataclass(frozen=True, slots=True)
class Role:
    """The inferred role of a group, and from what."""

    name: str
    because: str


def roles_of(matched: Sequence[Matched]) -> dict[GroupKey, Role]:
    """Return the role of every group where it is clear."""
    groups: dict[GroupKey, list[Matched]] = defaultdict(list)
    for one in matched:
        if one.group is not None:
            groups[one.group].append(one)
    world = {rank for one in matched for rank in (*one.records, *one.missing)}
    found = {}
    for group, mine in groups.items():
        role = _by_description(group.description) or _by_use(group, mine, world)
        if role:
            found[group] = role
    return found


def _by_description(description: str | None) -> Role | None:
    text = (description or "").lower()
    for role, words in _COMPILED:
        if words.search(text):
            return Role(role, f"the group is described as {description}")
    return None


def described_role(group: GroupKey) -> str | None:
    """Return the role that a group's description names; None where it names none."""
    role = _by_description(group.description)
    return role.name if role else None


def _by_use(group: GroupKey, mine: Sequence[Matched], world: set[int]) -> Role | None:
    kinds = Counter(one.kind for one in mine)
    whole = group.ranks is None or world <= set(group.ranks)
    stride = rank_stride(group.ranks)
    if all(kind in POINT_TO_POINT for kind in kinds):
        return Role("pp", "its ranks only send and receive")
    if set(kinds) == {Kind.ALL_TO_ALL} and not whole:
        return Role("ep", "a part of the job that only does all-to-alls")
    replicates = whole or (stride is not None and stride > 1)
    if kinds[Kind.ALL_GATHER] and kinds[Kind.REDUCE_SCATTER]:
        return _of_shards(kinds) if replicates else None
    if set(kinds) <= {Kind.ALL_REDUCE, Kind.BROADCAST, Kind.BARRIER} and kinds[Kind.ALL_REDUCE]:
        reduces = [one for one in mine if one.kind == Kind.ALL_REDUCE]
        return _of_reductions(reduces, replicates=replicates)
    return None


def _of_shards(kinds: Counter[Kind]) -> Role:
    if kinds[Kind.ALL_GATHER] >= thresholds.GATHERS_PER_SCATTER * kinds[Kind.REDUCE_SCATTER]:
        return Role("fsdp", "parameters are gathered again for the backward")
    return Role("dp", "gradients are reduce-scattered, parameters gathered once")


def _of_reductions(reduces: Sequence[Matched], *, replicates: bool) -> Role | None:
    """Tell activations from gradients by size; large ones of one size may be either."""
    small = max(one.bytes or 0 for one in reduces) < thresholds.SMALL_BUCKET_BYTES
    if _per_layer(reduces):
        return Role("tp", "one small size is reduced again and again") if small else None
    return Role("dp", "buckets of gradients are reduced") if replicates and not small else None


def _per_layer(reduces: Sequence[Matched]) -> bool:
    """Tell what is all of one size, many to a step: activations, or the buckets of equal layers."""
    sizes = Counter(one.bytes for one in reduces)
    count = sizes.most_common(1)[0][1]
    steps = {record.step for one in reduces for record in one.records.values()}
    often = count >= thresholds.LAYERS_PER_STEP * max(len(steps), 1)
    same = count >= thresholds.SAME_SIZE_FRAC * len(reduces)
    return often and same


def rank_stride(ranks: tuple[int, ...] | None) -> int | None:
    """Return how far apart a group's ranks are; None if not evenly."""
    ordered = sorted(ranks or ())
    gaps = {b - a for a, b in pairwise(ordered)}
    return gaps.pop() if len(gaps) == 1 else None


def comm_by_role_ns(
    split: RankSplit, matched: Sequence[Matched], roles: Mapping[GroupKey, Role]
) -> dict[str, int]:
    """Return a rank's exposed communication by role; what has none, or isn't split, is unknown."""
    total: Counter[str] = Counter()
    for part in split.parts:
        group = matched[part.collective].group
        role = roles.get(group) if group else None
        total[role.name if role else UNKNOWN] += part.exposed_ns
    total[UNKNOWN] += sum(split.leaves_ns.values()) - total.total()
    return {role: ns for role, ns in total.items() if ns}


def parallelism(roles: Mapping[GroupKey, Role]) -> Parallelism:
    """Return the sizes of the dimensions whose groups all agree; fsdp shards over dp."""
    sizes: dict[str, set[int | None]] = defaultdict(set)
    for group, role in roles.items():
        sizes["dp" if role.name == "fsdp" else role.name].add(_size(group))
    return Parallelism(
        dp=_only(sizes["dp"]),
        tp=_only(sizes["tp"]),
        pp=_only(sizes["pp"]),
        ep=_only(sizes["ep"]),
        cp=_only(sizes["cp"]),
    )


def _size(group: GroupKey) -> int | None:
    return group.size or (len(group.ranks) if group.ranks else None)


def _only(values: Iterable[int | None]) -> int | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None
