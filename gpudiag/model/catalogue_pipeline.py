"""Findings about pipeline parallelism: what its schedule costs, and stages that are not equal."""

from __future__ import annotations

from gpudiag.model.entry import Entry, at_least
from gpudiag.model.thresholds import SMALL_FRAC, WARNING_FRAC

PIPELINE_FINDINGS = (
    Entry(
        id="pipeline_bubble",
        kind="finding",
        title="stages idle while the pipeline fills and drains",
        meaning=(
            "With p stages and m micro-batches a step, every stage of GPipe and 1F1B idles "
            "(p - 1)/(m + p - 1) of the time, however equal the stages are."
        ),
        measured=(
            "Exposed sends and receives, gaps after them and the wait at the flush, up to what "
            "the schedule, simulated with the stages' mean times, idles in each step. What can "
            "come back is what twice the micro-batches of half the size give: half of it."
        ),
        threshold=at_least(WARNING_FRAC),
        min_share=WARNING_FRAC,
        buckets=("pipeline.schedule",),
        advice=(
            "More micro-batches a step, smaller ones: the bubble shrinks in proportion.",
            "Interleaved 1F1B with v chunks a stage divides the bubble by v; ZB-H1 by about 3.",
        ),
    ),
    Entry(
        id="pipeline_imbalance",
        kind="finding",
        title="one stage of the pipeline has more work, the others wait for it",
        meaning="Every micro-batch passes every stage, so the slowest stage sets the pace of all.",
        measured=(
            "As pipeline_bubble, simulated with each stage's own median forward and backward, "
            "less what equal stages idle. A stage that is late in single steps is a straggler."
        ),
        threshold=at_least(SMALL_FRAC),
        min_share=SMALL_FRAC,
        buckets=("pipeline.imbalance",),
        advice=(
            "Move layers from the slow stage to the others; an embedding or a loss counts as some.",
            "Recompute activations, or interleave chunks, where single layers are too coarse.",
        ),
    ),
)
