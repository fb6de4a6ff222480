"""The interval algebra against brute force on small integers."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpudiag.analyze import intervals as iv

SPAN = 40
SPANS = st.lists(
    st.tuples(st.integers(0, SPAN), st.integers(0, 12)).map(lambda t: (t[0], t[0] + t[1])),
    max_size=12,
)


def as_set(spans: list[tuple[int, int]]) -> iv.Intervals:
    starts = np.array([s for s, _ in spans], dtype=np.int64)
    ends = np.array([e for _, e in spans], dtype=np.int64)
    return iv.union(starts, ends)


def instants(a: iv.Intervals | iv.Pieces) -> set[int]:
    return {t for s, e in zip(a.starts.tolist(), a.ends.tolist(), strict=True) for t in range(s, e)}


def brute(spans: list[tuple[int, int]]) -> set[int]:
    return {t for s, e in spans for t in range(s, e)}


def is_canonical(a: iv.Intervals) -> bool:
    return bool((a.ends > a.starts).all() and (a.starts[1:] > a.ends[:-1]).all())


@given(SPANS)
def test_union_holds_exactly_the_instants_of_its_parts(spans):
    """Merging keeps every instant once, sorted, disjoint, nothing empty."""
    merged = as_set(spans)
    assert instants(merged) == brute(spans)
    assert merged.total == len(brute(spans))
    assert is_canonical(merged)


@given(SPANS, SPANS)
def test_set_operations_equal_python_sets(a, b):
    """Union, intersection, difference and complement agree with sets of instants."""
    left, right = as_set(a), as_set(b)
    assert instants(iv.merge(left, right)) == brute(a) | brute(b)
    assert instants(iv.overlap(left, right)) == brute(a) & brute(b)
    assert instants(iv.difference(left, right)) == brute(a) - brute(b)
    assert instants(iv.complement(left, 5, 30)) == set(range(5, 30)) - brute(a)
    assert instants(iv.clip(left, 5, 30)) == brute(a) & set(range(5, 30))


@given(SPANS, SPANS)
def test_split_pieces_keep_their_owner_and_lose_nothing(a, b):
    """Both halves of a split together are the whole, and each piece lies inside its owner."""
    left = iv.as_pieces(as_set(a))
    inside, outside = iv.split(left, as_set(b))
    assert instants(inside) | instants(outside) == instants(left)
    assert not instants(inside) & instants(outside)
    for part in (inside, outside):
        assert (part.starts >= left.starts[part.owner]).all()
        assert (part.ends <= left.ends[part.owner]).all()
    total = iv.sum_by_owner(inside, len(left)) + iv.sum_by_owner(outside, len(left))
    assert total.tolist() == left.lengths.tolist()


@given(SPANS, SPANS)
def test_intersection_names_the_interval_it_was_cut_with(a, b):
    """The index that comes back with each piece points at the interval of b that holds it."""
    right = as_set(b)
    pieces, index = iv.intersect_with_index(iv.as_pieces(as_set(a)), right)
    assert (pieces.starts >= right.starts[index]).all()
    assert (pieces.ends <= right.ends[index]).all()


@st.composite
def nested_spans(draw):
    """Draw properly nested spans, as a call stack makes them."""
    spans: list[tuple[int, int]] = []

    def grow(start: int, end: int, depth: int) -> None:
        while start < end and depth < 4 and draw(st.booleans()):
            s = draw(st.integers(start, end - 1))
            e = draw(st.integers(s + 1, end))
            spans.append((s, e))
            grow(s, e, depth + 1)
            start = e

    grow(0, SPAN, 0)
    return spans


@given(nested_spans(), st.lists(st.integers(-2, SPAN + 2), max_size=10))
def test_innermost_is_the_shortest_span_that_holds_the_instant(spans, times):
    """Of properly nested spans, the innermost one at an instant is the shortest holding it."""
    starts = np.array([s for s, _ in spans], dtype=np.int64)
    ends = np.array([e for _, e in spans], dtype=np.int64)
    found = iv.innermost(starts, ends, np.array(times, dtype=np.int64))
    for at, index in zip(times, found.tolist(), strict=True):
        holding = [e - s for s, e in spans if s <= at < e]
        if holding:
            assert starts[index] <= at <= ends[index]
            assert ends[index] - starts[index] == min(holding)
        else:
            assert index == -1 or ends[index] == at


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=20),
    st.lists(st.integers(-2, 62), max_size=10),
)
def test_innermost_of_spans_that_cross_is_the_last_that_started(spans, times):
    """Whatever spans do, the one that holds an instant and started last is innermost."""
    starts = np.array([s for s, _ in spans], dtype=np.int64)
    ends = np.array([s + length for s, length in spans], dtype=np.int64)
    found = iv.innermost(starts, ends, np.array(times, dtype=np.int64))
    for at, index in zip(times, found.tolist(), strict=True):
        holding = [(s, -length) for s, length in spans if s <= at < s + length]
        if not holding:
            assert index == -1
        else:
            assert (starts[index], starts[index] - ends[index]) == max(holding)


def test_innermost_costs_the_same_at_any_depth():
    """A hundred thousand spans inside each other, asked as often: seconds, not minutes."""
    depth = 100_000
    starts = np.arange(depth)
    began = time.process_time()
    found = iv.innermost(starts, 4 * depth - starts, np.arange(4 * depth))
    assert time.process_time() - began < 5
    assert found[depth - 1] == depth - 1
    assert found[3 * depth] == depth - 1
    assert found[4 * depth - 1] == 0
