"""What a relay process remembers of a direction from one pass to the next (XDM reference 3.10, X-5).

What there is to bring follows from both chains alone. This is about what was brought and is not taken yet: it comes
again only after so many blocks of the target in which its lane has not gone on. A process that is started again has
lost nothing but its patience.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from causeway.service.xdm.steps import Lane

Key = tuple[int, bool]
"""A channel, and whether it is about responses."""


@dataclass
class Brought:
    """What was brought of a lane: messages below ``until``. The target has said since block ``since`` that it expects
    the nonce ``expected``."""

    until: int
    expected: int
    since: int


@dataclass(frozen=True)
class Limits:
    """The options of the network: nonces of a lane, channels in a pass, blocks until something is brought again."""

    nonces: int
    channels: int
    resubmit_after: int


@dataclass
class Memory:
    """The memory of one direction. ``turn``: passes so far, by which channels have their turns."""

    lanes: dict[Key, Brought] = field(default_factory=dict)
    turn: int = 0

    def wanted(self, due: Mapping[Key, tuple[int, int]], height: int, limits: Limits) -> list[Lane]:
        """Return from which nonce on lanes are to be brought now, of as many channels as have their turn.

        ``due``: of each lane that has something, the nonce that the target expects and the end of what the source has;
        ``height``: the target's.
        """
        self.lanes = {key: brought for key, brought in self.lanes.items() if key in due}
        found: dict[Key, int] = {}
        for key, (expected, end) in due.items():
            brought = self.lanes.get(key)
            if brought is not None and brought.expected != expected:
                brought.expected, brought.since = expected, height
            if brought is None or brought.until <= expected or brought.since + limits.resubmit_after <= height:
                first = expected
            else:
                first = brought.until
                if first >= expected + 2 * limits.nonces:
                    continue  # what is beyond what the target may keep is for nothing
            if first < end:
                found[key] = first
        channels = sorted({channel for channel, _ in found})
        start = self.turn * limits.channels % max(len(channels), 1)
        self.turn += 1
        chosen = {channels[(start + place) % len(channels)] for place in range(min(limits.channels, len(channels)))}
        return [Lane(*key, first) for key, first in sorted(found.items()) if key[0] in chosen]

    def handed_over(self, key: Key, until: int, expected: int, height: int) -> None:
        """Remember that messages of a lane below ``until`` were handed over."""
        self.lanes[key] = Brought(until, expected, height)
