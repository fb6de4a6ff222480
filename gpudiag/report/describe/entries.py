"""What ``gpudiag explain`` says: one entry of the catalogue, or the list of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.report.view import Line, Lines, Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpudiag.model.catalogue import Entry


def entry_report(entry: Entry) -> Report:
    """Return everything there is to know of one finding or bucket."""
    paragraphs = [("means", entry.meaning), ("measured", entry.measured)]
    if entry.threshold:
        paragraphs.append(("reported", entry.threshold))
    if entry.buckets:
        paragraphs.append(("buckets", ", ".join(entry.buckets)))
    lines = [Line(label=label, text=text, indent=2) for label, text in paragraphs]
    lines += [
        Line(label="" if index else "do", text=text, indent=2)
        for index, text in enumerate(entry.advice)
    ]
    headline = f"{entry.id} ({entry.kind}): {entry.title}"
    return Report(headline=headline, context="", sections=(Lines(title="", lines=tuple(lines)),))


def list_report(catalogue: Mapping[str, Entry]) -> Report:
    """Return the identifier and title of every finding and bucket."""
    return Report(
        headline="gpudiag explain ID says more of each.",
        context="",
        sections=(_titles(catalogue, "finding"), _titles(catalogue, "bucket")),
    )


def _titles(catalogue: Mapping[str, Entry], kind: str) -> Lines:
    entries = [entry for entry in catalogue.values() if entry.kind == kind]
    lines = [Line(label=entry.id, text=entry.title, indent=2) for entry in entries]
    return Lines(title=f"{kind}s", lines=tuple(lines))
