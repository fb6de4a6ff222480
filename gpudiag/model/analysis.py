"""The analysis: what `analyze` returns, what every report shows, what `--json` prints.

Field names are the JSON keys of schema version 1 (docs/reference/json.md). Durations are integer
nanoseconds. ``None`` is "can't be known here", and a quality entry says why. Bucket names are
those of docs/concepts/accounting.md; a bucket is absent when it is zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudiag.model.tables import Quality

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input file and what became of it."""

    path: str
    format: str | None
    rank: int | None = None
    host: str | None = None
    pid: str | None = None
    device: int | None = None
    events: int | None = None  # None for a file that was not read
    bytes: int | None = None
    status: str = "ok"  # ok, partial, skipped
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Sizes of the parallel dimensions; None where not inferred."""

    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    cp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job as a whole."""

    world_size: int | None
    ranks: list[int]
    missing_ranks: list[int]
    gpu_name: str | None
    dtype: str | None = None
    peak_tflops: float | None = None
    peak_source: str | None = None
    parallelism: Parallelism = field(default_factory=Parallelism)
    mfu: float | None = None
    hfu: float | None = None
    flops_convention: str | None = None
    step_ns_p50: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Alignment of the ranks' clocks."""

    aligned: bool = False
    offsets_ns: dict[str, int] = field(default_factory=dict)
    half_width_ns: int | None = None
    drift_ppm: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTokens:
    """What one rank reads in a step, and how that is known."""

    per_step: int | None  # median over the recorded steps
    source: str  # "embedding": the shapes of its lookups; "events": the run's own
    sequence: int | None = None  # length of a sequence, where all lookups agree
    vocabulary: int | None = None  # rows of the embedding
    samples_per_step: int | None = None  # sequences, where the run's events tell those
    own_data: bool = False  # DDP or FSDP over all ranks: none reads the same as another
    told_per_step: int | None = None  # by the events, where the shapes tell another number
    why_not: str | None = None  # where per_step is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """One device of one rank; ``device`` is None where no device activity was recorded."""

    rank: int
    device: int | None
    window_ns: int | None
    window_basis: str | None  # steps, steps_skewed, device_span, all
    periods: int
    step_ns_p50: int | None
    host_device_offset_ns: int | None
    level1_ns: dict[str, int] | None  # compute, comm, copy, idle
    buckets_ns: dict[str, int] | None
    host_window_ns: int | None
    host_window_basis: str | None
    host_buckets_ns: dict[str, int] | None
    # Part of a bucket that removing its cause can't give back, or may be the profiler's own.
    unrecoverable_ns: dict[str, int] = field(default_factory=dict)
    host_late_ns: int | None = None
    tokens: RankTokens | None = None  # None: neither shapes nor the run's events tell anything
    steps_ns: list[int] = field(default_factory=list)
    host_steps_ns: list[int] = field(default_factory=list)
    comm_by_role_ns: dict[str, int] = field(default_factory=dict)
    launches: int = 0
    launches_without_device_record: int = 0
    busy_any_ns: int | None = None  # any device activity: what nvidia-smi calls utilization
    waterfall: list[WaterfallTerm] | None = None
    model_flops: int | None = None
    hw_flops: int | None = None
    mfu: float | None = None
    hfu: float | None = None
    flops_convention: str | None = None
    flops_coverage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallTerm:
    """One term between peak and MFU, as a share of peak x time."""

    id: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel name over all ranks and windows."""

    name: str
    category: str  # compute.tensor, compute.other, comm, copy.*
    count: int
    total_ns: int
    mean_ns: int
    flops: int | None = None
    bytes: int | None = None
    tflops: float | None = None
    gb_s: float | None = None
    pct_of_peak: float | None = None
    bound: str | None = None  # compute or memory: the roof that pct_of_peak is measured against
    gain_ns: int | None = None  # time that 80 % of the roof would give back, over all calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One of the longest stretches in which a device had nothing to run."""

    rank: int
    device: int
    start_ns: int  # from the start of the window
    dur_ns: int
    cause: str  # the bucket that holds most of it
    host_span: str | None
    file_line: str | None
    ended_by: str | None
    host_op: str | None = None  # innermost operator or runtime call, where no annotation is open


@dataclass(frozen=True, slots=True, kw_only=True)
class GapCause:
    """All gaps of one cause under one host span: what the host was doing, summed."""

    cause: str
    host_span: str | None
    file_line: str | None
    count: int
    total_ns: int
    longest_ns: int
    ranks: list[int]
    host_op: str | None = None  # innermost operator or runtime call, where no annotation is open


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """The collectives of one kind, group size and message size, over all ranks and windows."""

    op: str
    role: str | None = None  # dp, fsdp, tp, ...; None where not inferred
    role_inferred: bool = False  # traces record no role: every role is inferred
    group_size: int
    bytes: int | None
    dtype: str | None
    count: int
    wait_ns: int
    wait_unresolved_ns: int = 0  # part of it that is shorter than the clocks can tell
    transfer_ns: int
    latency_ns: int | None = None
    bandwidth_ns: int | None = None
    degraded_ns: int | None = None
    unsplit_ns: int = 0  # exposed time of collectives that nobody could be aligned in
    pipeline_ns: int = 0  # exposed, and charged to pipeline.*
    exposed_ns: int
    hidden_ns: int
    host_late_ns: int | None = None
    algbw_gb_s: float | None = None
    busbw_gb_s: float | None = None
    best_busbw_gb_s: float | None = None  # best decile of its size class, without alpha if known
    alpha_us: float | None = None
    last_rank_counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingTreeRow:
    """What a collective of no bytes costs in a ring and in a tree, by NCCL's constants."""

    op: str
    ranks: int
    nodes: int
    protocol: str  # LL, LL128, Simple
    ring_alpha_us: float
    tree_alpha_us: float | None  # None where NCCL has no tree
    nodes_basis: str  # how the nodes were counted


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameRow:
    """What one rank made the others wait, for one cause."""

    rank: int
    host: str | None
    cause: str
    host_span: str | None
    wait_ns: int
    affected: list[int]
    ambiguous_ns: int
    guaranteed_gain_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One stage of a pipeline: its median chunks, and what its rank waited in the window, ns."""

    stage: int
    rank: int
    forward_ns: int  # of one micro-batch in one chunk
    backward_ns: int
    samples: int  # chunks behind the medians
    pool_ns: int  # waiting that the pipeline may explain
    schedule_ns: int
    imbalance_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The job's pipeline; of several (data parallel) ones the first's counts, and all stages."""

    p: int  # stages
    m: int  # micro-batches of a step
    schedule: str  # gpipe, 1f1b, interleaved, zb-h1, zb-h2
    schedule_basis: str  # given, inferred, assumed
    chunks: int  # of a stage
    pipelines: int
    structural_share: float  # of the schedule's wall time, stages being equal
    structural_share_of_useful: float
    imbalance_share: float  # of the simulated step: what equal stages would save
    slow_stage: int | None  # None where the stages are equal
    slow_rank: int | None
    lighten_ns: int | None  # a micro-batch of the slow stage over the mean stage's
    gain_ns_per_step: int | None
    stages: list[StageRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A named loss, with what it costs and how we know."""

    id: str
    severity: str  # info, warning, error
    share: float | None  # of the job's window time
    recoverable_ns_per_step: int | None  # mean over the window's GPU-steps; None without steps
    confidence: str  # high, medium, low
    ranks: list[int]
    affected: list[int]
    title: str
    evidence: list[str]
    advice: list[str]
    buckets: list[str] = field(default_factory=list)
    recoverable_ns: int | None = None  # over the whole window, all ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything known of a job from its traces."""

    schema_version: int = SCHEMA_VERSION
    gpudiag_version: str
    inputs: list[Input]
    job: Job
    clock: Clock
    ranks: list[RankResult]
    job_buckets_ns: dict[str, int]
    job_host_buckets_ns: dict[str, int]
    collectives: list[CollectiveRow] = field(default_factory=list)
    ring_tree: list[RingTreeRow] = field(default_factory=list)
    kernels: list[KernelRow]
    gaps: list[Gap]
    gap_causes: list[GapCause]
    wait_matrix_ns: dict[str, list[int]] = field(default_factory=dict)
    waits_shared: bool | None = None  # who is late changes from step to step: all share a limit
    pipeline: PipelineResult | None = None
    telemetry: dict[str, object] | None = None
    waterfall: list[WaterfallTerm] | None = None
    blame: list[BlameRow] = field(default_factory=list)
    unattributed_wait_ns: int | None = None
    findings: list[Finding]
    quality: list[Quality]
    headline: str
