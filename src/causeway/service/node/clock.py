"""Bounds of the clock of a served lake.

A lake's time is its ticks, one a block. A header of another lake may come from its future; once verified by its
client, it moves the clock forward, so an effect is never earlier than its cause. A chain with arbitrary header times
must not expire other chains' clients and packets, so both the step and the sum are bounded:

- A block is at most ``max_step`` later than its predecessor: 30 seconds, the longest block time that relayers allow
  for (IBC reference X-4). A header further ahead waits for several blocks.
- The clock is at most ``max_lead`` ahead of the lake's own time: its blocks' ticks, or the real time since its
  creation, whichever is more. Lakes started at different times thus converge, a suspended lake catches up, and no
  header moves the clock further. Headers beyond are refused on submission.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput

SECOND = 10**9

MAX_STEP_SECONDS = 30.0
MAX_LEAD_SECONDS = 3_600.0
"""One hour: the lakes of a network are started within it, and packets that expire later are safe."""


class HeaderTooFarAhead(InvalidInput):
    """Header beyond the bounds of this lake's clock."""


@dataclass(frozen=True)
class ClockBounds:
    """Bounds of the clock, in seconds of block time."""

    max_step: float = MAX_STEP_SECONDS
    max_lead: float = MAX_LEAD_SECONDS


class Clock:
    """Clock of a lake.

    Args:
        tick_ns: Length of a tick in ns.
        made: Creation time of the lake, in seconds of the Unix epoch.
        bounds: Bounds of the clock.
        now: Source of the current time, in seconds of the Unix epoch.
    """

    def __init__(
        self, tick_ns: int, made: float, bounds: ClockBounds | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._tick_ns, self._made, self._now = tick_ns, made, now
        self._bounds = bounds or ClockBounds()

    def longest_step(self) -> int:
        """Return the maximum number of ticks between two blocks, at least one."""
        return max(1, int(self._bounds.max_step * SECOND) // self._tick_ns)

    def latest(self, height: int) -> int:
        """Return the last tick to which a header may move the clock after the block of a height."""
        own = max(height * self._tick_ns, int((self._now() - self._made) * SECOND))
        return (own + int(self._bounds.max_lead * SECOND)) // self._tick_ns

    def require(self, tick: int, height: int) -> None:
        """Validate the earliest tick of a message.

        Args:
            tick: Earliest tick of the message.
            height: Last height.

        Raises:
            HeaderTooFarAhead: The tick is too far ahead.
        """
        latest = self.latest(height)
        if tick > latest:
            seconds = (tick - latest) * self._tick_ns // SECOND
            raise HeaderTooFarAhead(
                f"header: its time is {seconds} s beyond what this lake's clock may be moved to,"
                f" {self._bounds.max_lead:.0f} s ahead of its own"
            )
