"""What ``gpudiag explain`` says: one finding, bucket or data-quality entry, or the list of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.report.view import Line, Lines, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpudiag.model.entry import Entry

_INDENT = 2


def owners(name: str, catalogue: Mapping[str, Entry]) -> list[str]:
    """Return the findings that a bucket's time is reported by."""
    return [
        entry.id
        for entry in catalogue.values()
        if entry.kind == "finding" and (name in entry.buckets or name == entry.host_bucket)
    ]


def entry_report(entry: Entry, catalogue: Mapping[str, Entry]) -> Report:
    """Return everything there is to know of one finding or bucket."""
    paragraphs = [("measured", entry.measured)]
    if entry.meaning != entry.title:
        paragraphs.insert(0, ("means", entry.meaning))
    if entry.threshold:
        paragraphs.append(("reported", entry.threshold))
    if entry.buckets:
        paragraphs.append(("buckets", ", ".join(entry.buckets)))
    if entry.kind == "bucket":
        found = ", ".join(owners(entry.id, catalogue)) or "none"
        paragraphs.append(("findings", found))
    lines = [Line(label=label, text=text, indent=_INDENT) for label, text in paragraphs]
    lines += [
        Line(label="" if index else "do", text=text, indent=_INDENT)
        for index, text in enumerate(entry.advice)
    ]
    headline = f"{entry.id} ({entry.kind}): {entry.title}"
    return Report(headline=headline, context="", sections=(Lines(title="", lines=tuple(lines)),))


def quality_report(name: str, sentence: str) -> Report:
    """Return what one data-quality entry means."""
    return Report(headline=f"{name} (data quality): {sentence}", context="", sections=())


def list_report(catalogue: Mapping[str, Entry], quality: Mapping[str, str]) -> Report:
    """Return the identifier and title of every finding, bucket and data-quality entry."""
    entries = catalogue.values()
    return Report(
        headline="gpudiag explain ID says more of each.",
        context="",
        sections=(
            _titles("findings", ((e.id, e.title) for e in entries if e.kind == "finding")),
            _titles("buckets", ((e.id, e.title) for e in entries if e.kind == "bucket")),
            _titles("data quality", quality.items()),
        ),
    )


def _titles(title: str, entries: Iterable[tuple[str, str]]) -> Lines:
    lines = [Line(label=name, text=text, indent=_INDENT) for name, text in entries]
    return Lines(title=title, lines=tuple(lines))
