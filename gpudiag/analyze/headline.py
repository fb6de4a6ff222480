"""The one sentence that comes first: what is lost, to what, and what fixing it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpudiag.analyze.findings import Scope
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
# Exposed communication above this share is named in the sentence: it hides someone's lateness.
_NOTABLE_COMM_FRAC = 0.10


def headline(
    scope: Scope,
    findings: list[Finding],
    buckets: dict[str, int],
    host_buckets: dict[str, int],
) -> str:
    """Return the sentence; its numbers share one base, the window."""
    if scope.on_host:
        return _host_headline(host_buckets)
    lead = next((finding for finding in findings if finding.recoverable_ns), None)
    comm = buckets.get("comm.unsplit", 0) / scope.window_ns
    parts = [_lead(scope, lead) if lead else _nothing(scope, buckets)]
    if comm >= _NOTABLE_COMM_FRAC and (lead is None or comm > (lead.share or 0)):
        parts.append(
            f"{_percent(comm)} % is exposed communication: waiting for other ranks and transfer."
        )
    return " ".join(parts)


def _lead(scope: Scope, finding: Finding) -> str:
    title = finding.title[0].upper() + finding.title[1:]
    who = f" on rank {finding.ranks[0]}" if _one_of_many(scope, finding) else ""
    text = f"{title}{who}: {_percent(finding.share or 0)} % of GPU time is lost to it."
    if not scope.periods or finding.recoverable_ns is None:
        return text
    step = scope.window_ns / scope.periods / 1e6
    if len(scope.devices) > 1:
        gain = finding.recoverable_ns / scope.periods / 1e6
        return f"{text[:-1]}, {gain:.1f} of {step:.1f} ms a step and GPU."
    fixed = step - finding.recoverable_ns / scope.periods / 1e6
    times = step / max(fixed, 1e-9)
    return f"{text[:-1]}; fix that: {step:.1f} → {fixed:.1f} ms a step ({times:.2f}×)."


def _one_of_many(scope: Scope, finding: Finding) -> bool:
    return len(scope.ranks) > 1 and len(finding.ranks) == 1


def _nothing(scope: Scope, buckets: dict[str, int]) -> str:
    tensor = buckets.get("compute.tensor", 0) / scope.window_ns
    other = buckets.get("compute.other", 0) / scope.window_ns
    idle = sum(ns for name, ns in buckets.items() if name.startswith("idle.")) / scope.window_ns
    return (
        "No cause on the host costs enough to name: tensor kernels run "
        f"{_percent(tensor)} % of the time, other kernels {_percent(other)} %, "
        f"the GPU is idle {_percent(idle)} %."
    )


def _host_headline(host_buckets: dict[str, int]) -> str:
    total = sum(host_buckets.values())
    if not total:
        return "Device activity not recorded, and no host activity to account for."
    ranked = sorted(host_buckets.items(), key=lambda item: -item[1])
    name, ns = ranked[0]
    second = ""
    if len(ranked) > 1:
        second = f", {_percent(ranked[1][1] / total)} % {_HOST_PHRASES[ranked[1][0]]}"
    return (
        "Device activity not recorded: this is the host's view. The training thread spent "
        f"{_percent(ns / total)} % of its time {_HOST_PHRASES[name]}{second}."
    )


def _percent(frac: float) -> str:
    return f"{100 * frac:.0f}"
