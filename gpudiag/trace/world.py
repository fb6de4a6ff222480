"""What the traces of a job say of its size, and whether they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpudiag.trace.identify import Member

_LISTED = 16  # ranks named in one message
_MOST_RANKS = 1 << 20  # a recorded world larger than this is a damaged number


class Note(Protocol):
    """Takes a quality entry."""

    def __call__(self, kind: str, severity: str, count: int, message: str) -> None:
        """Add it."""


def told_world(members: Sequence[Member], note: Note) -> tuple[int | None, list[int]]:
    """Return the job's size, where recorded, and the ranks without a trace; note what is odd."""
    world_size = _world_size(members, note)
    ranks = [member.rank or 0 for member in members]
    missing = sorted(set(range(world_size or 0)) - set(ranks))
    if missing:
        named = ", ".join(map(str, missing[:_LISTED])) + (", ..." if len(missing) > _LISTED else "")
        note(
            "ranks_missing", "warning", len(missing),
            f"{len(ranks)} of {world_size} ranks given; missing: {named}",
        )  # fmt: skip
    beyond = [rank for rank in ranks if world_size is not None and rank >= world_size]
    if beyond:
        note(
            "rank_beyond_world", "warning", len(beyond),
            f"rank {beyond[0]} is recorded in a world of {world_size}: which is wrong isn't known",
        )  # fmt: skip
    backends = sorted({b for member in members if (b := member.trace.info.backend)})
    if len(backends) > 1:
        text = f"backends differ between ranks: {', '.join(backends)}"
        note("backends_differ", "warning", len(backends), text)
    return world_size, missing


def _world_size(members: Sequence[Member], note: Note) -> int | None:
    size = next((s for m in members if (s := m.trace.info.world_size) is not None), None)
    if size is None or size <= _MOST_RANKS:
        return size
    note(
        "world_size_disbelieved", "warning", 1,
        f"a world of {size:,} ranks is recorded; not believed, so missing ranks aren't told",
    )  # fmt: skip
    return None
