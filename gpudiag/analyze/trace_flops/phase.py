"""What an operator ran for: forward, backward, recomputation, optimizer.

An operator is recomputation iff, inside the innermost backward node that holds it, it or an
operator around it carries a sequence number: the backward itself runs with grad mode off and gets
none, a forward run again gets fresh ones. Verified on reentrant, non-reentrant and selective
checkpointing of torch 2.13 (tests/trace_flops). A node whose every operator is numbered, with no
backward nested in it, runs with create_graph=True: that can't be told from recomputation by
numbers alone, and is marked ambiguous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.host import Host
from gpudiag.analyze.trace_flops.nesting import count_inside, holds_any, operators_named
from gpudiag.analyze.trace_flops.recorded import Recorded
from gpudiag.analyze.trace_flops.results import Phase
from gpudiag.model.tables import I8, I64, HostCategory, Mask

_NODE = re.compile(
    r"^autograd::engine::evaluate_function|^torch::autograd::|^(\w+::)?[A-Za-z]\w*Backward\d*$"
)
_DOUBLE_BACKWARD = re.compile(r"^aten::\w+_backward(_\w+)?$")
# What a backward node may run besides its own mathematics, with or without grad mode.
_NEUTRAL = re.compile(r"^(aten::)?(empty\w*|zeros\w*|ones\w*|fill_|zero_|detach|as_strided)$")
_COMPILED = "CompiledFunction"
_COMPILED_BACKWARD = "CompiledFunctionBackward"
_OPTIMIZER = "Optimizer.step#"
_SAVED_TENSOR = re.compile(r"^(aten::)?detach$")
_DISPATCH_MODE = "PythonDispatchMode"


@dataclass(frozen=True, slots=True)
class Phases:
    """Per operator; shape (n,) each."""

    phase: I8  # Phase
    compiled_forward: I64  # sequence number of the compiled forward that holds it, -1 for none
    compiled_backward: I64  # the same of the compiled backward
    phantom: Mask  # recorded, but cut short before it ran: the only proof where there is no kernel


def phases(host: Host, recorded: Recorded, rows: I64) -> Phases:
    """Tell the phase of each operator of ``rows`` (ascending)."""
    nodes = operators_named(host, lambda name: bool(_NODE.match(name)))
    numbered = recorded.sequenced()
    numbered = numbered[host.category[numbered] == HostCategory.OPERATOR]
    numbered = np.setdiff1d(numbered, nodes, assume_unique=True)
    node = host.enclosing(nodes, rows)
    again = _numbered_inside(host, nodes, numbered, rows, node)
    phase = np.where(node >= 0, Phase.BACKWARD, Phase.FORWARD).astype(np.int8)
    phase[again] = Phase.RECOMPUTE
    ambiguous = _ambiguous_nodes(host, nodes, numbered, np.unique(node[again]))
    phase[again & np.isin(node, ambiguous)] = Phase.AMBIGUOUS
    phase[_in_optimizer(host, numbered, rows) & (node < 0)] = Phase.OPTIMIZER
    forward, backward = _compiled(host, recorded, rows, node)
    phantom = _phantom(host, numbered, rows, np.where(again, node, -1))
    return Phases(phase, forward, backward, phantom)


def _numbered_inside(host: Host, nodes: I64, numbered: I64, rows: I64, node: I64) -> Mask:
    """Mask rows with a numbered operator, or themselves numbered, inside their own node."""
    node_of = host.enclosing(nodes, numbered)
    inside, node_of = numbered[node_of >= 0], node_of[node_of >= 0]
    nearest = host.enclosing(inside, rows)
    position = np.minimum(np.searchsorted(inside, nearest), max(len(inside) - 1, 0))
    if not len(inside):
        return np.zeros(len(rows), dtype=bool)
    same: Mask = (nearest >= 0) & (node >= 0) & (node_of[position] == node)
    return same


def _ambiguous_nodes(host: Host, nodes: I64, numbered: I64, suspects: I64) -> I64:
    """Return those of ``suspects`` (nodes with numbered operators) that look differentiated."""
    if not len(suspects):
        return suspects
    operators = np.flatnonzero(host.category == HostCategory.OPERATOR)
    operators = operators[host.enclosing(suspects, operators) >= 0]
    operators = np.setdiff1d(operators, nodes, assume_unique=True)
    node = host.enclosing(nodes, operators)
    again = _numbered_inside(host, nodes, numbered, operators, node)
    neutral = np.isin(operators, operators_named(host, lambda name: bool(_NEUTRAL.match(name))))
    plain = np.isin(suspects, node[~again & ~neutral])
    nested = holds_any(host, suspects, nodes)
    backwards = operators_named(host, lambda name: bool(_DOUBLE_BACKWARD.match(name)))
    twice = np.isin(suspects, node[np.isin(operators, np.intersect1d(backwards, numbered))])
    return suspects[(~plain & ~nested) | twice]


def _in_optimizer(host: Host, numbered: I64, rows: I64) -> Mask:
    """Mask rows in an optimizer's step without grad mode; with it, they are a closure's forward."""
    steps = np.flatnonzero(host.named(lambda name: name.startswith(_OPTIMIZER)))
    inside: Mask = host.enclosing(steps, rows) >= 0
    if inside.any():
        inside[inside] = host.enclosing(numbered, rows[inside]) < 0
    return inside


def _compiled(host: Host, recorded: Recorded, rows: I64, node: I64) -> tuple[I64, I64]:
    """Return the sequence number of the compiled forward and backward that hold each row."""
    forwards = operators_named(host, lambda name: name == _COMPILED)
    backwards = operators_named(host, lambda name: name == _COMPILED_BACKWARD)
    found = []
    for spans, holder in ((forwards, host.enclosing(forwards, rows)), (backwards, node)):
        inside = np.isin(holder, spans) & (holder >= 0)
        number = np.full(len(rows), -1, dtype=np.int64)
        number[inside] = recorded.sequence(holder[inside])
        found.append(number)
    return found[0], found[1]


def _phantom(host: Host, numbered: I64, rows: I64, node: I64) -> Mask:
    """Mask operators that were recorded and did not run.

    Selective checkpointing serves an operator from its cache inside the dispatch mode: the mode
    is entered and no operator is called from there (``rows`` being innermost). Early stop ends a
    recomputation inside its last operator, once that has saved its inputs: nothing but ``detach``
    is called from there, and no numbered operator follows in that node. ``node`` is the backward
    node that an operator is run again in, -1 for none.
    """
    modes = operators_named(host, lambda name: name == _DISPATCH_MODE)
    phantom = holds_any(host, rows, modes)
    last = np.flatnonzero(node >= 0)
    last = last[count_inside(host, rows[last], numbered, host.ends[node[last]]) == 0]
    if not len(last):
        return phantom
    operators = np.flatnonzero(host.category == HostCategory.OPERATOR)
    saved = operators_named(host, lambda name: bool(_SAVED_TENSOR.match(name)))
    saves = count_inside(host, rows[last], saved)
    calls = count_inside(host, rows[last], operators)
    phantom[last] |= (saves > 0) & (saves == calls)
    return phantom
