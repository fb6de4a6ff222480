"""``gpudiag explain``: every entry of the catalogue, in words."""

from __future__ import annotations

import pytest
from cli.tiny import gpudiag

from gpudiag.model.catalogue import CATALOGUE
from gpudiag.report.describe.entries import entry_report
from gpudiag.report.terminal import Style, render


def test_without_an_id_all_are_listed():
    """One line or more per finding and bucket."""
    done = gpudiag("explain")
    assert done.returncode == 0
    words = done.stdout.split()
    assert set(CATALOGUE) <= set(words)


def test_an_entry_says_what_it_means_and_what_to_do():
    """The text that a finding's pointer leads to."""
    text = gpudiag("explain", "input_stall").stdout
    assert text.startswith("input_stall (finding): ")
    for label in ("means", "measured", "reported", "do"):
        assert f"\n  {label} " in text


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_entry_can_be_shown_on_any_terminal(name):
    """At 40 columns, in ASCII."""
    text = render(entry_report(CATALOGUE[name]), Style(width=40, ascii=True))
    assert text.isascii()
    assert all(len(line) <= 40 for line in text.splitlines())
