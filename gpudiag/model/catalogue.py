"""Every finding and bucket: what it means, how it is measured, its threshold, what to do.

`gpudiag explain`, docs/reference/findings.md and the analyzer all look entries up here; they are
written by subject in the modules catalogue_*.py, and buckets.py. A finding is reported when its
share of the window reaches ``min_share``; thresholds.py says why.
"""

from __future__ import annotations

from gpudiag.model.buckets import BUCKETS
from gpudiag.model.catalogue_comm import COMM_FINDINGS
from gpudiag.model.catalogue_compute import COMPUTE_FINDINGS
from gpudiag.model.catalogue_host import HOST_FINDINGS
from gpudiag.model.catalogue_pipeline import PIPELINE_FINDINGS
from gpudiag.model.entry import Entry

_RECORD_FINDINGS = (
    Entry(
        id="records_missing",
        kind="finding",
        title="device records are missing from the trace",
        meaning="Launch calls have no device record, so the idle time there may have been work.",
        measured="Launch calls without a device record, and graph replays cut short, per step.",
        threshold="more than 1 % of a step's launches",
        advice=(
            (
                "Record again with a warm-up step in the schedule, and a shorter window; no idle "
                "finding is given for the steps concerned."
            ),
        ),
    ),
    Entry(
        id="ranks_missing",
        kind="finding",
        title="traces of some ranks are missing",
        meaning="The job has more ranks than traces, so the slowest rank may not be among them.",
        measured="World size as recorded against the ranks read.",
        threshold="any",
        advice=("Record all ranks; waits can be charged only to ranks that are there.",),
    ),
)

CATALOGUE: dict[str, Entry] = {
    entry.id: entry
    for entry in (
        *HOST_FINDINGS,
        *COMPUTE_FINDINGS,
        *COMM_FINDINGS,
        *PIPELINE_FINDINGS,
        *_RECORD_FINDINGS,
        *BUCKETS,
    )
}
