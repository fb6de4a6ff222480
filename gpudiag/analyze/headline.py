"""The one sentence that comes first: what is lost, to what, and what fixing it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.analyze.partition import UNSPLIT
from gpudiag.model import format as fmt
from gpudiag.model.thresholds import FEW_PERIODS, GUESSES, NOTABLE_COMM_FRAC

if TYPE_CHECKING:
    from gpudiag.analyze.losses import Scope
    from gpudiag.model.analysis import Finding

# Names of host buckets in a sentence.
_HOST_PHRASES = {
    "host.input": "waiting for the data loader",
    "host.collective": "in collectives or blocked on them",
    "host.checkpoint": "saving checkpoints",
    "host.eval": "evaluating",
    "host.compile": "compiling",
    "host.gc": "collecting garbage",
    "host.sync": "blocked on a device",
    "host.op": "in framework operators",
    "host.other": "outside any operator (Python, sleeping, I/O)",
}


def headline(
    scope: Scope,
    findings: list[Finding],
    buckets: dict[str, int],
    host_buckets: dict[str, int],
    mfu: float | None = None,
) -> str:
    """Return the sentence; its numbers share one base, the window."""
    lead = next((finding for finding in findings if finding.recoverable_ns), None)
    if scope.on_host:
        return _host_headline(scope, lead, host_buckets)
    comm = buckets.get(UNSPLIT, 0) / scope.window_ns
    parts = [] if mfu is None else [f"MFU {fmt.share(mfu)}."]
    parts.append(_lead(scope, lead, mfu) if lead else _nothing(scope, buckets))
    if comm >= NOTABLE_COMM_FRAC and (lead is None or comm > (lead.share or 0)):
        parts.append(
            f"{fmt.percent(comm)} is exposed communication: waiting for other ranks and transfer."
        )
    return " ".join(parts)


def _lead(scope: Scope, finding: Finding, mfu: float | None) -> str:
    text = f"{_who(scope, finding)}: {fmt.percent(finding.share or 0)} of GPU time is lost to it"
    if not scope.periods or finding.recoverable_ns is None:
        return f"{text}."
    step = scope.window_ns / scope.periods
    gain = finding.recoverable_ns / scope.periods
    scale = fmt.Scale.fitting(step)
    if len(scope.devices) > 1 and not scope.waits.get(finding.id):
        saved = f"{scale.text(gain)} of {scale.text(step)} {scale.unit}"
        return f"{text}, {saved} a step on average over the ranks."
    times = step / max(step - gain, 1)
    steps = max(window.periods for window in scope.windows)
    few = steps < FEW_PERIODS
    caution = f", seen in {fmt.counted(steps, 'step')} only" if few else ""
    after = f"{scale.text(step)} → {scale.text(step - gain)} {scale.unit} a step"
    after += f", up to {fmt.factor(times)}"
    if mfu is not None:
        after += f", MFU {fmt.share(mfu * times)}"
    return f"{text}; fix that: {after}{caution}."


def _who(scope: Scope, finding: Finding) -> str:
    """Return the finding's title as the start of a sentence, with its rank; a guess says so."""
    guess = "Possibly " if finding.id in GUESSES else ""
    title = finding.title if guess else finding.title[0].upper() + finding.title[1:]
    return guess + title + (f" on rank {finding.ranks[0]}" if _one_of_many(scope, finding) else "")


def _one_of_many(scope: Scope, finding: Finding) -> bool:
    return len(scope.ranks) > 1 and len(finding.ranks) == 1


def _nothing(scope: Scope, buckets: dict[str, int]) -> str:
    shares = {name: ns / scope.window_ns for name, ns in buckets.items()}
    tensor, other = shares.get("compute.tensor", 0), shares.get("compute.other", 0)
    idle = sum(share for name, share in shares.items() if name.startswith("idle."))
    copies = sum(share for name, share in shares.items() if name.startswith("copy."))
    comm = sum(share for name, share in shares.items() if name.startswith("comm."))
    if not tensor + other + comm:
        return (
            "No kernel is recorded, so nothing can be said of the GPU's work: "
            f"copies take {fmt.percent(copies)} of the time."
        )
    return (
        "No cause on the host costs enough to name: tensor kernels run "
        f"{fmt.percent(tensor)} of the time, other kernels {fmt.percent(other)}, "
        f"the GPU is idle {fmt.percent(idle)}."
    )


def _host_headline(scope: Scope, lead: Finding | None, host_buckets: dict[str, int]) -> str:
    total = sum(host_buckets.values())
    if not total:
        return "Device activity not recorded, and no host activity to account for."
    start = "Device activity not recorded: this is the host's view. "
    if lead:
        share = fmt.percent(lead.share or 0)
        return f"{start}{_who(scope, lead)}: {share} of the training threads' time."
    ranked = sorted(host_buckets.items(), key=lambda item: -item[1])
    parts = [f"{fmt.percent(ns / total)} {_HOST_PHRASES[name]}" for name, ns in ranked[:2]]
    return f"{start}Of its time the training thread spent {', '.join(parts)}."
