"""Wait for a user's command, hand on the signals that it would have got, and end as it ended."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpudiag.collect.launch.witness import Witness

# What is handed on; everything else does to gpudiag what it does to any program.
FORWARDED = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
        signal.SIGWINCH,
    }
)
# Until gpudiag waits for them, signals are held back.
BLOCKED = FORWARDED | {signal.SIGCHLD}
# A second copy of a signal that the whole group was sent comes within this time (timeout sends one
# to us, then one to the group).
_COPY_S = 0.1


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: with a code, or by a signal."""

    code: int | None = None
    signal: int | None = None

    @property
    def shell_code(self) -> int:
        """The code that a shell shows: 128 + the signal's number for a death by signal."""
        return 128 + self.signal if self.signal is not None else self.code or 0


@dataclass(slots=True)
class Supervisor:
    """Waits for one child; the signals of BLOCKED must be blocked."""

    child: int
    witness: Witness
    each_second: Callable[[], None] = lambda: None
    _seen_at: dict[int, float] = field(default_factory=dict)

    def wait(self) -> Ended:
        """Wait until the child has ended, handing signals on and calling ``each_second``."""
        while True:
            got = signal.sigtimedwait(BLOCKED, 1.0)
            if got is None:
                self.each_second()
            elif got.si_signo != signal.SIGCHLD:
                self._hand_on(got.si_signo)
            ended = self._reap()
            if ended is not None:
                return ended

    def _hand_on(self, number: int) -> None:
        now = time.monotonic()
        if self.witness.saw(number):
            self._seen_at[number] = now
        elif now - self._seen_at.get(number, -_COPY_S) >= _COPY_S:
            os.kill(self.child, number)

    def _reap(self) -> Ended | None:
        """Return how the child ended, None while it lives; stop with it where it is stopped."""
        options = os.WEXITED | os.WSTOPPED | os.WNOHANG
        told = os.waitid(os.P_PID, self.child, options)
        if told is None:
            return None
        if told.si_code == os.CLD_EXITED:
            return Ended(code=told.si_status)
        if told.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            return Ended(signal=told.si_status)
        os.kill(os.getpid(), signal.SIGSTOP)  # so that the shell sees the job stopped
        return None


def end_as(ended: Ended) -> None:
    """End this process as the child ended; does not return."""
    if ended.signal is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left its own core
        signal.signal(ended.signal, signal.SIG_DFL) if ended.signal != signal.SIGKILL else None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
        os.kill(os.getpid(), ended.signal)
    os._exit(ended.shell_code)
