"""The queue of batches that consensus delivers to a subnet: one of each height, in order (IC reference 3.1, X-1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from causeway.model.errors import CausewayError

CAPACITY = 16
"""Batches that are delivered and not yet executed at most."""


class Ignored(CausewayError):
    """A batch that is not the next one: its state exists already, or that of the batch before it does not yet."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"Ignored: batch {actual}, expected {expected}")
        self.expected, self.actual = expected, actual


class QueueIsFull(CausewayError):
    """The queue holds as many batches as it may; the batch must be delivered again later."""


@dataclass
class BatchQueue:
    """Batches on their way to the state machine, by their numbers.

    ``latest_state``: the height of the newest state; ``last_delivered``: of the newest batch that was taken.
    """

    latest_state: int
    last_delivered: int = 0
    waiting: list[int] = field(default_factory=list)

    @property
    def expected(self) -> int:
        """Return the number of the batch that comes next."""
        return 1 + max(self.last_delivered, self.latest_state)

    def deliver(self, number: int) -> None:
        """Take a batch.

        Raises:
            Ignored: it is not the expected one; nothing changes.
            QueueIsFull: there is no room for it; nothing changes.
        """
        if number != self.expected:
            raise Ignored(self.expected, number)
        if len(self.waiting) >= CAPACITY:
            raise QueueIsFull(f"QueueIsFull: {CAPACITY} batches wait, batch {number} must be delivered again")
        self.waiting.append(number)
        self.last_delivered = number

    def executed(self) -> int:
        """Return the number of the oldest batch, which has been executed: its state exists now."""
        self.latest_state = self.waiting.pop(0)
        return self.latest_state
