"""The event loop: processes are generators that yield a delay in ns or a signal to wait for."""

from __future__ import annotations

import heapq
from collections.abc import Generator


class Signal:
    """Something that happens once; whoever yields it resumes when it has."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.waiting: list[Steps] = []


Steps = Generator[int | Signal, None, None]


class Engine:
    """Runs generators in the order of simulated time; ties in the order of scheduling."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Steps]] = []
        self._scheduled = 0

    def spawn(self, steps: Steps, after_ns: int = 0) -> None:
        """Start a process `after_ns` from now."""
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + after_ns, self._scheduled, steps))

    def fire(self, signal: Signal) -> None:
        """Let `signal` happen now."""
        assert signal.at is None, "a signal happens once"
        signal.at = self.now
        for steps in signal.waiting:
            self.spawn(steps)
        signal.waiting.clear()

    def run(self) -> None:
        """Run until nothing is scheduled; who still waits then (idle streams) waits forever."""
        while self._queue:
            self.now, _, steps = heapq.heappop(self._queue)
            self._resume(steps)

    def _resume(self, steps: Steps) -> None:
        try:
            wanted = next(steps)
        except StopIteration:
            return
        if isinstance(wanted, int):
            assert wanted >= 0, "time does not run backwards"
            self.spawn(steps, wanted)
        elif wanted.at is not None:
            self.spawn(steps)
        else:
            wanted.waiting.append(steps)
