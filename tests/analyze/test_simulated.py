"""The accounting on simulated ranks, whose truth the simulator knows from its own state."""

from __future__ import annotations

import json

import pytest
from simulator import scenarios

from analyze.simulated import pipelines_joined
from gpudiag.analyze.job import analyze_job
from gpudiag.model.catalogue import CATALOGUE
from gpudiag.trace import read_job

# Every bucket within this share of the window.
TOLERANCE = 0.001


def simulate(tmp_path, name):
    scenarios.build(name).write(tmp_path)
    files = sorted(str(path) for path in tmp_path.glob("rank*.json.gz"))
    return analyze_job(read_job(files)), json.loads((tmp_path / "truth.json").read_text())


@pytest.mark.parametrize("name", scenarios.names())
def test_every_bucket_is_within_a_thousandth_of_the_truth(tmp_path, name):
    """Device buckets, level 1 and the host's buckets of every rank agree with the simulation."""
    analysis, truth = simulate(tmp_path, name)
    assert truth["ranks"]
    for want in truth["ranks"]:
        (got,) = (r for r in analysis.ranks if (r.rank, r.device) == (want["rank"], want["device"]))
        allowed = TOLERANCE * want["window_ns"]
        assert got.window_ns == pytest.approx(want["window_ns"], abs=allowed)
        assert got.level1_ns == pytest.approx(want["level1_ns"], abs=allowed)
        mine, theirs = pipelines_joined(got.buckets_ns, want["buckets_ns"])
        for bucket in mine.keys() | theirs.keys():
            assert mine.get(bucket, 0) == pytest.approx(theirs.get(bucket, 0), abs=allowed), bucket
        for bucket, ns in (got.host_buckets_ns or {}).items():
            assert ns == pytest.approx(want["host_buckets_ns"].get(bucket, 0), abs=allowed), bucket


@pytest.mark.parametrize("name", scenarios.names())
def test_the_leading_finding_is_the_fault_that_was_put_in(tmp_path, name):
    """The first finding names the injected fault; nothing is promised twice."""
    analysis, truth = simulate(tmp_path, name)
    expected = truth["expected"]
    found = [finding.id for finding in analysis.findings]
    window = sum(result.window_ns for result in analysis.ranks)
    assert sum(finding.recoverable_ns or 0 for finding in analysis.findings) <= window
    if expected["finding"] is None:
        assert found == []
    elif expected["finding"] in CATALOGUE:
        assert found[0] in {expected["finding"], *expected.get("accept", ())}
        assert analysis.findings[0].ranks == expected["ranks"]
