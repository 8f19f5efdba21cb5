"""A group of ticks that one commit covers, and how much of them is one."""

from __future__ import annotations

from dataclasses import dataclass, field

from causeway.pipeline.record import NOTHING, Outside
from causeway.protocols.contract import Tick

MOST_HEIGHTS = 4096
"""A commit has at most so many heights: its manifest has a line for each."""


@dataclass(frozen=True)
class CommitEvery:
    """When a group is full: after so many heights, bytes of what they logged in memory, or seconds of running it.

    What is lost when a run is killed is at most one group, which is run again.
    """

    heights: int = MOST_HEIGHTS
    bytes: int = 64 << 20
    seconds: float = 2.0

    def full(self, heights: int, held: int, seconds: float) -> bool:
        """Return whether a group that has so much is full."""
        return heights >= self.heights or held >= self.bytes or seconds >= self.seconds


EACH_HEIGHT = CommitEvery(heights=1)
"""Every height is a commit of its own."""


@dataclass(frozen=True)
class Group:
    """The ticks that are run at once: ``first``, into which comes what was recorded (``outside``), and then whatever is
    due, below the tick ``until``, as far as ``every`` allows."""

    first: Tick
    outside: Outside = field(default_factory=lambda: NOTHING)
    until: int | None = None
    every: CommitEvery = EACH_HEIGHT
