"""The recorded arguments of host rows, and each distinct call among them once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudiag.analyze.grouping import group_by
from gpudiag.analyze.host import Host
from gpudiag.analyze.trace_flops.call import Call, parse_call
from gpudiag.model.tables import I32, I64, OperatorArgs, Trace


@dataclass(frozen=True, slots=True)
class Signatures:
    """Distinct calls; ``of_row`` is the index of each asked row's call."""

    calls: list[Call]
    dims: list[str]  # as recorded
    recorded_flops: list[int]  # Inductor's own count, -1 where none
    of_row: I64


class Recorded:
    """Arguments by Host row."""

    def __init__(self, trace: Trace, host: Host) -> None:
        self._trace, self._host = trace, host
        self.args: OperatorArgs = trace.operator_args
        self._at = np.full(len(trace.host), -1, dtype=np.int64)
        self._at[self.args.row] = np.arange(len(self.args))

    def sequence(self, rows: I64) -> I64:
        """Return the autograd sequence number of each row, -1 where none is recorded."""
        return self._column(self.args.sequence_number, rows)

    def sequenced(self) -> I64:
        """Return the rows that ran with grad mode on: forward operators with a sequence number."""
        args = self.args
        at = (args.sequence_number >= 0) & (args.forward_thread <= 0)
        position = np.full(len(self._trace.host), -1, dtype=np.int64)
        position[self._host.row] = np.arange(len(self._host))
        rows: I64 = np.sort(position[args.row[at]])
        return rows[rows >= 0]

    def self_counted(self) -> I64:
        """Return the rows for which Inductor recorded a FLOP count."""
        counted = np.zeros(len(self._trace.host), dtype=bool)
        counted[self.args.row[self.args.kernel_flops > 0]] = True
        return np.flatnonzero(counted[self._host.row])

    def signatures(self, rows: I64) -> Signatures:
        """Parse each distinct (name, shapes, scalars, types, own count) of ``rows`` once."""
        args = self.args
        columns = [
            self._host.name[rows].astype(np.int64),
            *(self._column(c, rows) for c in (args.input_dims, args.concrete_inputs)),
            *(self._column(c, rows) for c in (args.input_types, args.kernel_flops)),
        ]
        groups = group_by(columns)
        texts = [tuple(map(self._text, key[:4])) for key in groups.keys]
        return Signatures(
            calls=[parse_call(*one) for one in texts],
            dims=[one[1] for one in texts],
            recorded_flops=[key[4] for key in groups.keys],
            of_row=groups.of_row,
        )

    def _column(self, column: I32 | I64, rows: I64) -> I64:
        at = self._at[self._host.row[rows]]
        if not len(column):
            return np.full(len(rows), -1, dtype=np.int64)
        return np.where(at >= 0, column[np.maximum(at, 0)], -1).astype(np.int64)

    def _text(self, code: int) -> str:
        return self._trace.strings[code] if code >= 0 else ""
