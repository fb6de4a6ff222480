"""What the training thread did, instant by instant: the whole answer where there is no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpudiag.analyze.intervals import (
    Intervals,
    clip,
    complement,
    difference,
    merge,
    overlap,
    union,
    union_all,
)
from gpudiag.analyze.names import HostClass, is_collective_span, is_host_collective

if TYPE_CHECKING:
    from gpudiag.analyze.host import Host
    from gpudiag.analyze.window import Window


# Inside a framework operator, or in a runtime call, whatever it does there.
_OPERATOR_KINDS = (HostClass.LAUNCH, HostClass.ALLOCATOR, HostClass.BLOCKING_COPY)


# A collective's span may end this long after it woke the thread that waited for it.
_WAKE_UP_NS = 1_000_000


def host_leaves_ns(host: Host, window: Window) -> dict[str, int]:
    """Return ns per ``host.*`` bucket on the step thread; they sum to the window."""
    return {name: part.total for name, part in host_layers(host, window).items() if len(part)}


def host_layers(host: Host, window: Window) -> dict[str, Intervals]:
    """Return when the step thread was in each ``host.*`` bucket: disjoint, together the window."""
    layers: dict[str, Intervals] = {}
    rest = Intervals(np.array([window.start]), np.array([window.end]))
    for name, spans in _layers(host, window):
        layers[name] = overlap(rest, spans)
        rest = difference(rest, layers[name])
    return layers | {"host.other": rest}


def _layers(host: Host, window: Window) -> list[tuple[str, Intervals]]:
    """Return the buckets in order of priority, each with its spans on the step thread."""
    thread = host.step_thread

    def spans(kind: HostClass) -> Intervals:
        return clip(host.spans(thread, kind), window.start, window.end)

    operators = union_all([spans(kind) for kind in _OPERATOR_KINDS])
    return [
        ("host.checkpoint", spans(HostClass.CHECKPOINT)),
        ("host.eval", spans(HostClass.EVAL)),
        ("host.compile", spans(HostClass.COMPILE)),
        ("host.gc", spans(HostClass.GC)),
        ("host.input", spans(HostClass.INPUT)),
        ("host.collective", _in_collective(host, operators, window)),
        ("host.sync", spans(HostClass.SYNC)),
        ("host.op", operators),
    ]


def _in_collective(host: Host, operators: Intervals, window: Window) -> Intervals:
    """Return when the step thread was inside a collective, or blocked on one of another thread.

    Blocked: it runs no operator, and a collective of another thread ends before it runs the next,
    or within 1 ms after, as the span of a collective outlives the wake-up of who waits for it (one
    that is under way for longer did not hold the thread)::

        gloo thread      [=========)     [======)
        operators    [==]            [===]    [==]
        blocked          [=========)
    """
    thread = host.step_thread
    own = host.named(is_collective_span) & (host.thread == thread)
    inside = merge(union(host.starts[own], host.ends[own]), host.spans(thread, HostClass.HOST_COMM))
    other = host.named(is_host_collective) & (host.thread != thread)
    elsewhere = union(host.starts[other], host.ends[other])
    free = complement(operators, window.start, window.end)
    if not len(elsewhere) or not len(free):
        return clip(inside, window.start, window.end)
    finishes = np.sort(host.ends[other])
    last = np.searchsorted(finishes, free.ends + _WAKE_UP_NS, side="right") - 1
    until = np.where(last >= 0, finishes[np.maximum(last, 0)], free.starts)
    waiting = Intervals(free.starts, np.clip(until, free.starts, free.ends))
    blocked = overlap(union(waiting.starts, waiting.ends), elsewhere)
    return clip(merge(inside, blocked), window.start, window.end)
