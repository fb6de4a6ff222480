"""``gpudiag explain``: every entry of the catalogue, in words."""

from __future__ import annotations

import re

import pytest
import require
from cli.tiny import gpudiag

from gpudiag.model.catalogue import CATALOGUE
from gpudiag.model.quality import QUALITY
from gpudiag.report.describe.entries import entry_report
from gpudiag.report.terminal import Style, render
from gpudiag.trace.faults import LOSSES, MESSAGES

PACKAGE = require.REPO / "gpudiag"


def test_without_an_id_all_are_listed():
    """One line or more per finding and bucket."""
    done = gpudiag("explain")
    assert done.returncode == 0
    words = done.stdout.split()
    assert set(CATALOGUE) <= set(words)
    assert set(QUALITY) <= set(words)


def test_an_entry_says_what_it_means_and_what_to_do():
    """The text that a finding's pointer leads to."""
    text = gpudiag("explain", "input_stall").stdout
    assert text.startswith("input_stall (finding): ")
    for label in ("means", "measured", "reported", "do"):
        assert f"\n  {label} " in text


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_entry_can_be_shown_on_any_terminal(name):
    """At 40 columns, in ASCII."""
    text = render(entry_report(CATALOGUE[name], CATALOGUE), Style(width=40, ascii=True))
    assert text.isascii()
    assert all(len(line) <= 40 for line in text.splitlines())


@pytest.mark.parametrize(
    ("name", "found"),
    [("idle.input", "input_stall"), ("host.gc", "gc_pause"), ("idle.gc", "gc_pause")],
)
def test_a_bucket_says_which_findings_own_it(name, found):
    """From a row of the table to what can be done about it."""
    text = gpudiag("explain", name).stdout
    assert f"  findings  {found}" in text


def test_a_bucket_says_more_than_its_title():
    """Nothing is printed twice."""
    for entry in CATALOGUE.values():
        text = render(entry_report(entry, CATALOGUE), Style(width=10_000))
        assert text.count(f" {entry.title}\n") == 1, entry.id


def test_data_quality_is_explained_too():
    """Every entry that an analysis may make has its sentence."""
    assert gpudiag("explain", "few_periods").stdout.startswith("few_periods (data quality): ")
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    made = set(re.findall(r"(?:Quality|\bnote|_note)\(\s*\"(\w+)\"", source))
    made |= {kind if kind in LOSSES else f"repaired_{kind}" for kind in MESSAGES}
    assert len(made) > 20
    assert made <= set(QUALITY)


@pytest.mark.parametrize("name", ["comm.wait", "comm.transfer", "comm.unsplit"])
def test_every_bucket_of_communication_is_explained(name):
    """Those of one rank alone, and those of several."""
    assert name in gpudiag("explain", name).stdout
