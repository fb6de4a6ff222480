"""Every threshold of findings, quality entries and the headline, with its reason."""

from __future__ import annotations

# Below this share of GPU time a clean run shows the same by chance.
SMALL_FRAC = 0.02
# Rare events that are never right in steady state are worth a line from this share on.
RARE_FRAC = 0.01
# Launch gaps are in every eager run; under this share nobody would act on them.
COMMON_FRAC = 0.05
# Where other kernels than matmul, convolution and attention fill this much of compute time,
# and of the window, memory bandwidth sets the pace.
MEMORY_BOUND_COMPUTE_FRAC = 0.5
MEMORY_BOUND_WINDOW_FRAC = 0.2
# Tensor kernels below this share of their peak have something wrong: shapes, alignment, dtype.
LOW_TENSOR_EFFICIENCY_FRAC = 0.4
# A rank computes more than its peers from this on (accounting.md 6 compares leaves; clocks of one
# GPU model differ by less).
MORE_COMPUTE_FRAC = 0.02
# A kernel is slower than on the peers, and a GPU is slow if most of its kernel time is.
SLOWER_KERNEL = 1.05
MOST_KERNELS_FRAC = 0.8
# What a well-written kernel reaches of its roof; the gain to be had is counted up to here.
REACHABLE_FRAC = 0.8
# Launch time that lies mostly in gaps this long is not made by short kernels.
LONG_LAUNCH_GAP_NS = 1_000_000
MOSTLY_FRAC = 0.5
# Fewer full periods than this make any share uncertain (accounting.md 2).
FEW_PERIODS = 3
# Launch calls without device records above this share of a step: records are missing there.
MISSING_RECORDS_FRAC = 0.01
# Below this the count's coverage of tensor kernel time is worth a warning.
LOW_COVERAGE_FRAC = 0.95
# Exposed communication above this share is named in the headline: it hides someone's lateness.
NOTABLE_COMM_FRAC = 0.10
# Severity by share of GPU time.
ERROR_FRAC = 0.20
WARNING_FRAC = 0.05
# Time slicing: at least this many gaps of one length (to 10 %), each this long.
SHARED_GAPS = 5
SHARED_TOLERANCE_FRAC = 0.10
SHARED_GAP_NS = 500_000
# Findings told by a pattern that something else may make too: always called a guess.
GUESSES = frozenset({"gpu_shared", "memory_bound"})
# Fewer transfers of a size class have no best decile worth comparing with.
FEW_COLLECTIVES = 8
# A size counts in the latency fit from this many transfers on, and sizes must be this far apart:
# between closer ones the noise of times is larger than the difference of bytes.
FEW_OF_A_SIZE = 2
SIZES_APART = 4
# Latency is seen where it makes this share of the smallest message's time.
LATENCY_SEEN_FRAC = 0.2
# A transfer this much slower than the job's own best is no jitter.
DEGRADED_TIMES = 1.5
# Gathering parameters for forward and backward makes two all-gathers a reduce-scatter; allow for
# layers that are kept.
GATHERS_PER_SCATTER = 1.5
# DDP's first bucket, the smallest, holds 1 MiB; activations of one size come at least this often a
# step, and make most of the group's reductions.
SMALL_BUCKET_BYTES = 2**20
LAYERS_PER_STEP = 4
SAME_SIZE_FRAC = 0.75
# Enqueued work that starts this late after its launch had to wait for the device; a clock that is
# off by more makes launch latency "not resolvable" (accounting.md 2).
LAUNCH_LATENCY_NS = 10_000
# Who was last changes from step to step, so no rank is to blame, above this entropy of the waits
# by culprit, as a share of the highest there can be.
CHANGING_CULPRIT = 0.7
# Host and device clocks of one process are found apart by tens of µs; a record that starts before
# its launch by more, as nearly none beside it does, is a damaged one.
CLOCK_JITTER_NS = 100_000
FEW_EARLY_FRAC = 0.01
# Two records that are early by amounts this close agree on their clock.
AGREEING_FRAC = 0.10
# Rows of a report below these shares: summed into one, and left to --json.
REST_FRAC = 0.005
TINY_FRAC = 0.001
# Messages of a pipeline with less work between them than this part of the step's longest chunk
# were issued together.
NO_WORK_FRAC = 0.02
# A stage that worked this much longer in a step than in its median step was delayed in it.
DELAYED_FRAC = 0.1
# Stages whose work differs less than this from the mean are equal: kernels vary by as much.
UNEVEN_FRAC = 0.02
# A stage's median has to differ from the mean by this many of its standard errors.
SURE_ERRORS = 3
# A rank is named beside a worse one from this share of what that one loses: below it, it has a
# little of what every rank has.
CULPRIT_FRAC = 0.25
