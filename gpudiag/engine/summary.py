"""One rank read and summed up: what a process hands back of a trace of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudiag.analyze.rank import Options, RankAnalysis, analyze_rank, prepare, step_numbers
from gpudiag.engine.pack import pack
from gpudiag.model.analysis import Input
from gpudiag.trace.event_log import Process
from gpudiag.trace.identify import Member
from gpudiag.trace.job import load, rank_trace
from gpudiag.trace.logged import process_of, with_events


@dataclass(frozen=True, slots=True)
class Summary:
    """A rank's trace without its rows, and what they came to."""

    member: Member
    input: Input
    rank: RankAnalysis
    numbers: frozenset[int]  # of the steps that it recorded


def summarise(
    path: str, processes: Sequence[Process], options: Options, numbers: set[int] | None
) -> bytes:
    """Read one file and return, packed, its Summary, or the event log or the error that it is.

    Args:
        path: the file.
        processes: what the event logs of the job tell.
        options: of the analysis.
        numbers: the steps that all ranks recorded; None for all of this one's.
    """
    found = load(path)
    return pack(
        found if not isinstance(found, tuple) else _summed(found, processes, options, numbers)
    )


def _summed(
    found: tuple[Member, Input],
    processes: Sequence[Process],
    options: Options,
    numbers: set[int] | None,
) -> Summary:
    member, line = found
    mine = process_of(member, processes)
    if mine is not None:
        member = with_events(member, mine)
    prepared = prepare(rank_trace(member), options)
    return Summary(
        member=member.without_rows(),
        input=line,
        rank=analyze_rank(prepared, numbers, options),
        numbers=frozenset(step_numbers(prepared)),
    )
