"""How often the leading finding is the fault put in: ``python tests/bench/fingerprints.py``.

Simulated data-parallel jobs of 4 to 16 ranks whose clocks are off by up to a second and drift, with
one or two faults each (tests/simulator/faults.py), and clean ones. The truth is what was put in,
never what the analyzer says. Prints a matrix of fault against leading finding, and:

* macro-F1 over all findings that are expected or made, "clean" among them
* how often a fault on one rank is found, and on exactly that rank
* the total variation between the analyzer's buckets and the simulator's, in points of the window
* the same of the waits, by the cause and the rank that they are charged to: what each fault truly
  made others wait is a difference of simulations (tests/simulator/charged.py)

And pipelines, of equal stages and of uneven ones, whose bubbles the simulator's stages tell.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from analyze.simulated import pipelines_joined
from simulator import charged, faults, pipeline, stages
from simulator.faults import ALL_RANKS, FAULTS, ONE_RANK, Fault, Injected
from simulator.job import Job

from gpudiag.analyze.job import analyze_job
from gpudiag.model.analysis import Analysis
from gpudiag.model.catalogue import CATALOGUE
from gpudiag.model.job import JobTraces, RankTrace
from gpudiag.trace.read import read_source
from gpudiag.trace.source import source_of

CLEAN = "clean"
SIZES = (4, 4, 8, 4, 16)  # ranks of a job, by seed
LEAST_NS, MOST_NS = 8_000_000, 24_000_000  # what the larger fault costs a step
SECOND_FRAC = (0.25, 0.5)  # of it, what the second one costs
NEAR_FRAC = 0.015  # of the window that attribution may be off by
MOST_STAGES = 8
NOISE_FRAC = 0.02  # a clean run has no finding above this
STEPS = 10
# Findings that say what is true of every job, whatever was put in.
ABOUT_KERNELS = frozenset({"low_tensor_efficiency", "memory_bound"})


@dataclass(frozen=True)
class Case:
    """One job to be made: its seed and what is put in, the larger fault first."""

    seed: int
    ranks: int
    injected: tuple[Injected, ...] = ()
    stages: tuple[int, ...] = ()  # layers of each, where the job is a pipeline
    microbatches: int = 0
    order: str = ""

    @property
    def name(self) -> str:
        """Name of the larger fault."""
        if self.stages:
            return "pipeline, uneven stages" if self.culprits else "pipeline"
        return self.injected[0].name if self.injected else CLEAN

    @property
    def expected(self) -> str:
        """The finding that should lead."""
        if self.stages:
            return "pipeline_imbalance" if self.culprits else "pipeline_bubble"
        return self.injected[0].fault.finding if self.injected else CLEAN

    @property
    def culprits(self) -> tuple[int, ...]:
        """The rank that has the larger fault; none where all have it."""
        if self.stages:
            heaviest = max(self.stages)
            return (self.stages.index(heaviest),) if heaviest > min(self.stages) else ()
        if not self.injected or self.injected[0].fault.everywhere:
            return ()
        return self.injected[0].ranks

    def job(self) -> Job:
        """Return the job, not yet run."""
        if not self.stages:
            return faults.build(self.seed, self.injected, self.ranks, STEPS)
        job = pipeline.build(
            "pipeline", self.seed, STEPS, self.microbatches, list(self.stages), order=self.order
        )
        rng = random.Random(self.seed)
        job.clocks = {rank: faults.random_clock(rng) for rank in job.clocks}
        return job


@dataclass(frozen=True)
class Outcome:
    """What the analyzer made of a case."""

    case: Case
    found: str
    culprits: tuple[int, ...]
    variation_frac: float
    waits_frac: float  # the same, of the waits by cause and culprit

    @property
    def culprit_right(self) -> bool:
        """Whether exactly the rank of the larger fault is named."""
        return self.found == self.case.expected and self.culprits == self.case.culprits


def cases(seeds: Iterable[int]) -> Iterator[Case]:
    """Yield per seed a clean job, every fault alone, and most with a smaller one on another rank.

    A fault of the host on all ranks stays alone: where a second one delays one rank, the others'
    hosts have time to catch up, and nothing is lost to the first there.
    """
    every = (*ONE_RANK, *ALL_RANKS)
    for seed in seeds:
        rng = random.Random(seed)
        ranks = SIZES[seed % len(SIZES)]
        yield Case(seed, ranks, ())
        for fault in every:
            first = _injected(fault, rng, ranks, taken=())
            yield Case(rng.randrange(10**6), ranks, (first,))
            if fault.everywhere and not fault.is_shared:
                continue
            second = rng.choice([one for one in ONE_RANK if one.finding != fault.finding])
            other = _injected(second, rng, ranks, taken=first.ranks, after=first)
            yield Case(rng.randrange(10**6), ranks, (first, other))
        yield from _pipelines(rng, min(ranks, MOST_STAGES))


def _pipelines(rng: random.Random, stages: int) -> Iterator[Case]:
    """Yield a pipeline of equal stages, and one in which a stage has twice the layers."""
    order = rng.choice(("1F1B", "GPipe"))
    seed = rng.randrange(10**6)
    yield Case(seed, stages, stages=(1,) * stages, microbatches=stages, order=order)
    heavy = rng.randrange(stages)
    uneven = tuple(2 if stage == heavy else 1 for stage in range(stages))
    yield Case(seed, stages, stages=uneven, microbatches=2 * stages, order=order)


def _injected(
    fault: Fault,
    rng: random.Random,
    ranks: int,
    taken: Sequence[int],
    after: Injected | None = None,
) -> Injected:
    free = [rank for rank in range(ranks) if rank not in taken] or list(range(ranks))
    hit = tuple(range(ranks)) if fault.everywhere else (rng.choice(free),)
    cost = rng.randint(LEAST_NS, MOST_NS)
    if after is not None:
        cost = round(after.cost_ns * rng.uniform(*SECOND_FRAC))
    return Injected(fault.name, hit, min(cost, fault.most_ns))


def run(case: Case) -> Outcome:
    """Simulate a case, analyse its traces, and compare."""
    job = case.job()
    analysis = analyse(job)
    if case.stages:
        off = pool_variation(job, analysis), bubble_variation(job, analysis)
    else:
        off = variation(job, analysis), waits_variation(case, job, analysis)
    leading = next((one for one in analysis.findings if one.id not in ABOUT_KERNELS), None)
    clean = case.expected == CLEAN
    if leading is None or (clean and (leading.share or 0) <= NOISE_FRAC):
        return Outcome(case, CLEAN, (), *off)
    return Outcome(case, leading.id, tuple(leading.ranks), *off)


def analyse(job: Job) -> Analysis:
    """Analyse the traces of a job as if they lay in a folder."""
    ranks = []
    for process in job.run().ranks:
        text = job.trace(process.rank).encode()
        trace = read_source(source_of(text, f"rank{process.rank}.json"))
        ranks.append(
            RankTrace(rank=process.rank, rank_source="file name", host=trace.info.host, trace=trace)
        )
    return analyze_job(JobTraces(ranks=ranks, world_size=len(ranks), missing_ranks=[], inputs=[]))


def variation(job: Job, analysis: Analysis) -> float:
    """Return half the summed difference of all buckets' shares, over all ranks together."""
    return apart(analysis.job_buckets_ns, _true_buckets(job))


def _true_buckets(job: Job) -> Counter[str]:
    truth: Counter[str] = Counter()
    for entry in job.truth()["ranks"]:
        truth.update(entry["buckets_ns"])
    return truth


def apart(mine: Mapping[str, int], truth: Mapping[str, int]) -> float:
    """Return the total variation of two divisions of the same time."""
    whole, own = sum(truth.values()), sum(mine.values())
    names = truth.keys() | mine.keys()
    return sum(abs(mine.get(n, 0) / own - truth.get(n, 0) / whole) for n in names) / 2


def pool_variation(job: Job, analysis: Analysis) -> float:
    """Return the same with what a pipeline may have taken from joined, where truth leaves it."""
    return apart(*pipelines_joined(analysis.job_buckets_ns, _true_buckets(job)))


def bubble_variation(job: Job, analysis: Analysis) -> float:
    """Return it of both parts of the bubble, by rank, against the stages' own times."""
    level, more = stages.parts(job.stages, stages.stage_times(job))
    difference = 0.0
    for stage, result in enumerate(analysis.ranks):
        got = result.buckets_ns or {}
        for bucket, per_step in (("pipeline.schedule", level), ("pipeline.imbalance", more)):
            difference += abs(got.get(bucket, 0) - result.periods * per_step[stage])
    return difference / 2 / sum(result.window_ns or 0 for result in analysis.ranks)


def waits_variation(case: Case, job: Job, analysis: Analysis) -> float:
    """Return half the summed difference of what ranks wait, by cause and culprit, as shares."""
    truth: Counter[tuple[str, int]] = Counter()
    for (name, rank), ns in charged.waits(case.seed, case.injected, job, STEPS).items():
        truth[_cause(FAULTS[name].finding) if name in FAULTS else name, rank] += ns
    mine = Counter({charged.CHANCE: analysis.unattributed_wait_ns or 0})
    for row in analysis.blame:
        key = _cause_of_bucket(row.cause), row.rank
        mine[key if key in truth else charged.CHANCE] += row.wait_ns
    window_ns = sum(result.window_ns or 0 for result in analysis.ranks)
    return sum(abs(mine[key] - truth[key]) for key in mine | truth) / 2 / window_ns


def _cause(finding: str) -> str:
    """Return a finding; those about the speed and the amount of computing have one bucket."""
    return "compute" if finding in ("slow_gpu", "workload_imbalance") else finding


def _cause_of_bucket(bucket: str) -> str:
    if bucket.startswith("compute."):
        return "compute"
    owners = (fault.finding for fault in FAULTS.values())
    return next((one for one in owners if bucket in CATALOGUE[one].buckets), bucket)


def macro_f1(outcomes: Sequence[Outcome]) -> float:
    """Return the mean over labels of 2 TP / (2 TP + FP + FN)."""
    labels = {one.case.expected for one in outcomes} | {one.found for one in outcomes}
    scores = []
    for label in labels:
        expected = sum(one.case.expected == label for one in outcomes)
        found = sum(one.found == label for one in outcomes)
        both = sum(one.case.expected == one.found == label for one in outcomes)
        scores.append(2 * both / (expected + found))
    return sum(scores) / len(scores)


def culprit_rate(outcomes: Sequence[Outcome]) -> float:
    """Return how often the fault is found on exactly the rank that it hit, if it hit one."""
    able = [one for one in outcomes if one.case.culprits]
    return sum(one.culprit_right for one in able) / len(able)


def matrix(outcomes: Sequence[Outcome]) -> str:
    """Return the matrix of fault (larger one) against leading finding, as a markdown table."""
    rows = list(dict.fromkeys(one.case.name for one in outcomes))
    columns = sorted({one.found for one in outcomes} | {one.case.expected for one in outcomes})
    cells = Counter((one.case.name, one.found) for one in outcomes)
    numbered = [f"{i}" for i in range(1, len(columns) + 1)]
    lines = [f"{number} {name}" for number, name in zip(numbered, columns, strict=True)]
    table = [f"| fault | {' | '.join(numbered)} |", "|---|" + "--:|" * len(columns)]
    for row in rows:
        counts = [str(cells[row, column] or "") for column in columns]
        table.append(f"| {row} | {' | '.join(counts)} |")
    return "Columns: " + ", ".join(lines) + ".\n\n" + "\n".join(table)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the figures under the matrix."""
    worst = max(outcomes, key=lambda one: one.variation_frac)
    waits = max(one.waits_frac for one in outcomes)
    clean = [one for one in outcomes if one.case.expected == CLEAN]
    wrong = sum(one.found != CLEAN for one in clean)
    lines = (
        f"{len(outcomes)} jobs, {len(clean)} of them clean",
        f"macro-F1 {macro_f1(outcomes):.3f}",
        f"faults on one rank found, and on that rank: {100 * culprit_rate(outcomes):.1f} %",
        f"buckets' total variation: at most {100 * worst.variation_frac:.2f} points",
        f"waits by cause and rank, bubbles: total variation at most {100 * waits:.2f} points",
        f"clean runs with a finding above {NOISE_FRAC:.0%}: {wrong}",
    )
    return "\n".join(f"- {line}" for line in lines)


def main() -> None:
    """Run all cases in processes and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--misses", action="store_true", help="print each case that is missed")
    asked = options.parse_args()
    with ProcessPoolExecutor(asked.processes) as pool:
        outcomes = list(pool.map(run, cases(range(asked.seeds)), chunksize=4))
    print(matrix(outcomes), summary(outcomes), sep="\n\n")
    for one in outcomes if asked.misses else ():
        missed = one.found != one.case.expected or (one.case.culprits and not one.culprit_right)
        if missed or max(one.variation_frac, one.waits_frac) > NEAR_FRAC:
            both = [(i.name, i.ranks[:4], i.cost_ns) for i in one.case.injected]
            print(
                one.case.seed, one.case.ranks, both or one.case.stages, "found", one.found, end=" "
            )
            print(one.culprits[:6], f"{one.variation_frac:.4f} {one.waits_frac:.4f}")


if __name__ == "__main__":
    main()
