"""Figures with 2:4 sparsity, told when they are given as a peak."""

from __future__ import annotations

import pytest

from gpudiag.hardware import devices, sparse_of


@pytest.mark.parametrize(
    ("peak", "dtype", "key"),
    [(1979, "bf16", "h100-sxm"), (624, "bf16", "a100-sxm4-40gb"), (3958, "fp8", "h100-sxm")],
)
def test_a_sparse_figure_is_recognised(peak, dtype, key):
    """As data sheets print it."""
    assert sparse_of(peak, dtype)[0].key == key


@pytest.mark.parametrize("row", devices(), ids=lambda row: row.key)
def test_a_dense_peak_is_never_taken_for_a_sparse_one(row):
    """Though it may be one of another device: 125 is."""
    assert not any(sparse_of(peak, dtype) for dtype, peak in row.dense_tflops.items())


def test_other_figures_are_no_ones():
    """A measured peak, say."""
    assert sparse_of(794.5, "bf16") == ()
