"""Positions of an event, one for each of some messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from causeway.audit.arrays import Array, Codes, Ints, Words
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools

NO_TICK = NO_HEIGHT


@dataclass(frozen=True)
class EventPositions:
    """Chain, height and time of an event of each message.

    ``chain`` -1, others ``NO_...``: unknown. ``happened``: mask of the messages with the event.
    """

    happened: Bools
    chain: Codes
    height: Words
    tick: Words
    time: Ints

    def at(self, chosen: Array) -> EventPositions:
        """Return the positions of some messages, by number."""
        return EventPositions(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def then(self, other: EventPositions) -> EventPositions:
        """Return these positions, and the others for messages without the event."""
        if not other.happened.any() or self.happened.all():
            return self
        return EventPositions(
            self.happened | other.happened,
            *(
                np.where(self.happened, getattr(self, name), getattr(other, name))
                for name in ("chain", "height", "tick", "time")
            ),
        )

    def of(self, chosen: Bools) -> EventPositions:
        """Return these positions as if only selected messages had the event."""
        elsewhere = no_positions(len(chosen))
        return EventPositions(
            *(np.where(chosen, getattr(self, name), getattr(elsewhere, name)) for name in self.__dataclass_fields__)
        )


def no_positions(count: int) -> EventPositions:
    """Return positions of an event that no message has.

    Args:
        count: number of messages.

    Returns:
        The positions.
    """
    return EventPositions(
        np.zeros(count, bool),
        np.full(count, -1, np.int32),
        np.full(count, NO_HEIGHT, np.uint64),
        np.full(count, NO_TICK, np.uint64),
        np.full(count, NO_TIME, np.int64),
    )


__all__ = ["NO_TICK", "EventPositions", "no_positions"]
