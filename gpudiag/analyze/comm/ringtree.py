"""What an all-reduce of no bytes costs in a ring and in a tree, by NCCL's own constants.

Source: NCCL ``src/graph/tuning.cc`` (2026-06), microseconds. With N ranks on M nodes of p each::

    ring   base + (nsteps - n_inter) x intra + n_inter x inter,  nsteps = 2 (N - 1), n_inter = 2 (M - 1)
    tree   base + 2 x ((p - 1) x intra + log2(M) x inter)

All-gather and reduce-scatter make half of the ring's steps, and have no tree. Inside a node NCCL's
tree is a chain: it wins across nodes only.
"""  # noqa: E501 - formulas

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.analyze.comm.kinds import Kind
from gpudiag.model.analysis import RingTreeRow

GROWTH = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class _Costs:
    """Base and cost of one hop, us."""

    base: float
    intra: float  # NVLink
    inter: float  # network


_RING = {
    "LL": _Costs(6.6, 0.6, 2.7),
    "LL128": _Costs(14.0, 1.9, 4.0),
    "Simple": _Costs(8.4, 3.4, 14.0),
}
_TREE = {
    "LL": _Costs(6.8, 0.6, 5.0),
    "LL128": _Costs(14.0, 1.25, 8.5),
    "Simple": _Costs(8.4, 4.0, 14.0),
}
PROTOCOLS = tuple(_RING)
_RING_ROUNDS = {Kind.ALL_REDUCE: 2, Kind.ALL_GATHER: 1, Kind.REDUCE_SCATTER: 1}


def ring_alpha_us(kind: Kind, ranks: int, nodes: int, protocol: str) -> float | None:
    """Return the ring's alpha; None for kinds that have no ring."""
    rounds = _RING_ROUNDS.get(kind)
    if rounds is None:
        return None
    costs = _RING[protocol]
    steps, across = rounds * (ranks - 1), rounds * (nodes - 1)
    return costs.base + (steps - across) * costs.intra + across * costs.inter


def tree_alpha_us(kind: Kind, ranks: int, nodes: int, protocol: str) -> float | None:
    """Return the tree's alpha; None for kinds other than all-reduce."""
    if kind != Kind.ALL_REDUCE:
        return None
    costs = _TREE[protocol]
    inside = (ranks / nodes - 1) * costs.intra
    return costs.base + 2 * (inside + math.log2(nodes) * costs.inter)


def ring_tree_rows(kinds: Sequence[Kind], ranks: int, nodes: int, basis: str) -> list[RingTreeRow]:
    """Return both alphas at the job's size and at 2, 4 and 8 times as many nodes."""
    return [
        RingTreeRow(
            op=kind.value,
            ranks=ranks * grown,
            nodes=nodes * grown,
            protocol=protocol,
            ring_alpha_us=round(ring, 3),
            tree_alpha_us=round(tree, 3) if tree is not None else None,
            nodes_basis=basis,
        )
        for kind in kinds
        for grown in GROWTH
        for protocol in PROTOCOLS
        if (ring := ring_alpha_us(kind, ranks * grown, nodes * grown, protocol)) is not None
        for tree in (tree_alpha_us(kind, ranks * grown, nodes * grown, protocol),)
    ]
