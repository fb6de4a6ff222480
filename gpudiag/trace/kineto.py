"""The reader of PyTorch profiler (Kineto) traces that needs nothing compiled of our own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpudiag.errors import InputError
from gpudiag.model.tables import Quality, Trace
from gpudiag.trace.builder import TableBuilder
from gpudiag.trace.columns import integer
from gpudiag.trace.detect import KINETO, OWN_CATEGORIES, NotATraceError
from gpudiag.trace.events import EventWalk
from gpudiag.trace.faults import LOSSES, Faults, line_numbers, quality_of
from gpudiag.trace.info import trace_info
from gpudiag.trace.metadata import KINETO_KEYS, base_time_ns, parse_metadata
from gpudiag.trace.outlying import without_outlying
from gpudiag.trace.source import BLOCK_BYTES, open_source

if TYPE_CHECKING:
    from gpudiag.model.tables import TraceInfo
    from gpudiag.trace.source import ByteSource

_SHOWN = 40  # characters of a damaged value in a message


def read_kineto(
    source: ByteSource, *, shapes: bool = True, block_bytes: int = BLOCK_BYTES
) -> Trace:
    """Read a trace as columns, in one pass, in memory bounded by the columns."""
    builder = TableBuilder(shapes=shapes)
    faults = Faults()
    walk = EventWalk(source, builder.add, faults, block_bytes)
    walk.run()
    metadata = parse_metadata(walk.head, walk.tail, walk.tail_at, faults) if walk.found else {}
    _refuse_others(source, walk, builder, metadata, faults)
    return _trace(source, builder, metadata, faults)


def _refuse_others(
    source: ByteSource,
    walk: EventWalk,
    builder: TableBuilder,
    metadata: dict[str, object],
    faults: Faults,
) -> None:
    """Refuse what turned out to be no trace, or one of another tool, or one without any row."""
    if not walk.found:
        if not any(key.encode() in walk.head for key in KINETO_KEYS):
            raise NotATraceError(source.path, "json")
        raise _no_events(source)
    own = builder.legacy_rows or OWN_CATEGORIES & builder.categories.keys()
    if not own and builder.events and not metadata.keys() & KINETO_KEYS:
        raise NotATraceError(source.path, "chrome_trace")
    if not builder.rows:
        raise _no_spans(source, builder, faults)


def _no_spans(source: ByteSource, builder: TableBuilder, faults: Faults) -> InputError:
    why = "The profiler recorded nothing, or the file was cut off."
    if source.notes:
        why = source.notes[0].message
    elif "events_lost" in faults.by_kind:
        lost = faults.by_kind["events_lost"]
        why = f"{lost.count:,} damaged events can't be read, the first at byte {lost.at:,}."
    return InputError(
        f"{source.path}: the trace holds no spans ({builder.events:,} events of other kinds)",
        why,
        "Record again: profile at least one step, with activities CPU and CUDA.",
    )


def _no_events(source: ByteSource) -> InputError:
    what = f"{source.path}: no traceEvents in {source.text_bytes:,} bytes of text"
    why = (
        "It starts like a PyTorch profiler trace, but is cut off or damaged before the first event."
    )
    if source.notes:
        why = source.notes[0].message
    return InputError(what, why, "Copy or record it again.")


def _trace(
    source: ByteSource, builder: TableBuilder, metadata: dict[str, object], faults: Faults
) -> Trace:
    base_ns = base_time_ns(metadata)
    threads = builder.threads.table(builder.thread_names)
    host, device = builder.host_table(base_ns), builder.device_table(base_ns)
    info = trace_info(metadata, base_ns, builder, host, threads)
    host, device, outlying = without_outlying(host, device, base_ns)
    partial = any(kind in faults.by_kind for kind in LOSSES) or bool(source.notes)
    return Trace(
        path=source.path,
        format=KINETO,
        info=info,
        strings=builder.strings.values_in_order,
        threads=threads,
        host=host,
        device=device,
        collectives=builder.collectives.table(),
        operator_args=builder.shape_table(),
        events=builder.events,
        bytes=source.text_bytes,
        quality=(
            *_damage(source, faults, builder.events),
            *_gaps(builder, info, len(device)),
            *_no_rank(metadata),
            *outlying,
        ),
        partial=partial,
    )


def _damage(source: ByteSource, faults: Faults, events: int) -> list[Quality]:
    """Describe what was wrong with the bytes and with the events."""
    wrapping = [
        Quality(n.id, "warning", 1, f"{n.message}; {n.at:,} bytes of text were read")
        for n in source.notes
    ]
    return wrapping + quality_of(faults, events, _lines(source, faults))


def _gaps(builder: TableBuilder, info: TraceInfo, device_rows: int) -> list[Quality]:
    """Describe what the writer leaves out."""
    out = []
    if info.vendor == "mtia" and not device_rows:
        message = "MTIA traces hold no kernels: device activity is not recorded"
        out.append(Quality("device_not_recorded", "warning", 1, message))
    if count := builder.device_assumed:
        message = f"{count:,} device rows name no device: taken as device 0"
        out.append(Quality("device_assumed", "info", count, message))
    return out


def _no_rank(metadata: dict[str, object]) -> list[Quality]:
    """Say that the recorded rank is none; it is read as not recorded."""
    distributed = metadata.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    if rank is None or integer(rank) >= 0:
        return []
    message = f"rank {str(rank)[:_SHOWN]} is recorded, which no job has: taken as not recorded"
    return [Quality("rank_beyond_world", "warning", 1, message)]


def _lines(source: ByteSource, faults: Faults) -> dict[int, int]:
    """Find the lines of faults by reading the file again, where it is a file."""
    if not faults.by_kind or not Path(source.path).is_file():
        return {}
    with open_source(source.path) as again:
        return line_numbers(again.blocks(), (f.at for f in faults.by_kind.values()))
