"""What a peer may do in a time, however long it is there: so much at once, and then as often as a rate says."""

from __future__ import annotations


class Budget:
    """``spare`` things at once, and ``rate`` a second. Who was slow for a while finds the spare ones again, and no
    more: what is allowed does not grow with time."""

    def __init__(self, spare: int, rate: float) -> None:
        self._step = 1 / rate
        self._spare = spare * self._step
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Take one at ``now`` (seconds, which never fall); return in how many seconds it is within the budget."""
        due = max(self._next, now - self._spare)
        self._next = due + self._step
        return max(0.0, self._next - now)
