"""A witness of signals: a process of our group that tells whether it, too, was sent one.

A signal that a terminal, ``timeout``, a scheduler or ``kill -- -PGID`` sends to the whole group
reaches the user's command without us; forwarding it would double it. One that is sent to gpudiag
alone must be forwarded. Neither the sender nor ``si_code`` tells the two apart; a second process
of the group does.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

# A signal to the group reaches all of its processes within this time; one to us alone is held
# back for as long.
_GRACE_S = 0.05


@dataclass(slots=True)
class Witness:
    """The process, and the pipe on which it says which signals it got."""

    pid: int
    reports: int
    alive: int  # closed when we end, however we end

    def saw(self, number: int) -> bool:
        """Tell whether the witness was sent a signal at about this moment."""
        until = time.monotonic() + _GRACE_S
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self.reports], [], [], left)
            if not ready:
                return False
            said = os.read(self.reports, 64)
            if not said:  # it is gone: better twice than never
                return False
            if number in said:
                return True
        return False

    def dismiss(self) -> None:
        """End the witness."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.reports)
        os.close(self.alive)


def call_witness(signals: Iterable[int]) -> Witness:
    """Start a witness of these signals, which must be blocked. It ends when we do."""
    watched = set(signals)
    reports, says = os.pipe()
    alive, ours = os.pipe()
    pid = os.fork()
    if pid:
        os.close(says)
        os.close(alive)
        return Witness(pid, reports, ours)
    try:
        os.close(reports)
        os.close(ours)
        _testify(watched, says, alive)
    finally:
        os._exit(0)


def _testify(watched: set[int], says: int, alive: int) -> None:
    """Report each signal until the other end of ``alive`` is closed."""
    for stream in (0, 1, 2):  # whoever waits for the end of our streams must not wait for us
        os.close(stream)
    while not select.select([alive], [], [], 0)[0]:
        got = signal.sigtimedwait(watched, 1.0)
        if got is not None:
            os.write(says, bytes([got.si_signo]))
