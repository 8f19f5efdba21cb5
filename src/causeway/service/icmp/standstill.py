"""Whether this process stood still: stopped by a signal, or given no processor, while its peers went on."""

from __future__ import annotations

import time
from collections.abc import Callable

LATE = 5.0
"""Seconds of standing still after which nothing is judged that came meanwhile."""


class Standstill:
    """``most``: seconds; ``clock`` and ``worked``: seconds that passed, and that this process has worked.

    Time that it works does not count: who keeps a node busy must not have it drop its connections.
    """

    def __init__(
        self,
        most: float = LATE,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.process_time,
    ) -> None:
        self._most, self._clock, self._worked = most, clock, worked
        self._idle = clock() - worked()

    def noticed(self) -> bool:
        """Return whether it stood still for more than ``most`` since the call before; that must not be longer ago
        where it only waits."""
        before, self._idle = self._idle, self._clock() - self._worked()
        return self._idle - before > self._most
