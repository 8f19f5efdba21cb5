"""How far others may move the clock of a served lake: the headers of chains that other lakes run.

A lake's time is its ticks. Every block moves it on by one; a header from its future, verified by the client that it is
for, moves it on further, so that what has an effect here has its time after its cause. A chain that signs what it likes
must not thereby expire the clients and packets of all others, so both the step and the sum are bounded:

- One block is at most ``max_step`` later than the one before: 30 seconds, the longest block time that relayers allow
  for (IBC reference X-4). A header further ahead waits for several blocks.
- The clock is at most ``max_lead`` ahead of the lake's own: what its blocks have counted, or the real time since it was
  made, whichever is more. So lakes that were started at different times meet, one that stood still comes after, and no
  header whatever takes the clock further. Headers beyond are refused before they wait for a block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput

SECOND = 10**9

MAX_STEP_SECONDS = 30.0
MAX_LEAD_SECONDS = 3_600.0
"""An hour: lakes of one network are started within it; packets that expire later than that are safe from others."""


class HeaderTooFarAhead(InvalidInput):
    """A header is from so far in this lake's future that its clock does not follow."""


@dataclass(frozen=True)
class ClockBounds:
    """The bounds, in seconds of block time."""

    max_step: float = MAX_STEP_SECONDS
    max_lead: float = MAX_LEAD_SECONDS


class Clock:
    """The clock of a lake that has ``tick_ns`` a tick and was made at ``made`` (seconds of the Unix epoch)."""

    def __init__(
        self, tick_ns: int, made: float, bounds: ClockBounds | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._tick_ns, self._made, self._now = tick_ns, made, now
        self._bounds = bounds or ClockBounds()

    def longest_step(self) -> int:
        """Return how many ticks a block may be later than the one before: one at least."""
        return max(1, int(self._bounds.max_step * SECOND) // self._tick_ns)

    def latest(self, height: int) -> int:
        """Return the last tick that a header may move the clock on to, after the block of a height."""
        own = max(height * self._tick_ns, int((self._now() - self._made) * SECOND))
        return (own + int(self._bounds.max_lead * SECOND)) // self._tick_ns

    def require(self, tick: int, height: int) -> None:
        """Refuse what may be in no block before ``tick``, if that is too far ahead of the block of a height.

        Raises:
            HeaderTooFarAhead: it is.
        """
        latest = self.latest(height)
        if tick > latest:
            seconds = (tick - latest) * self._tick_ns // SECOND
            raise HeaderTooFarAhead(
                f"header: its time is {seconds} s beyond what this lake's clock may be moved to,"
                f" {self._bounds.max_lead:.0f} s ahead of its own"
            )
