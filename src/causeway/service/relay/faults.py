"""What goes wrong with a relay process's own transactions, on purpose: they are lost, come late or twice.

The same seed gives the same faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from causeway_proofs.errors import InvalidInput

Submitted = TypeVar("Submitted")

KINDS = ("loss", "delay", "duplicate")


@dataclass(frozen=True)
class FaultSettings:
    """How often what happens.

    Attributes:
        loss: the probability that a transaction is never submitted.
        duplicate: the probability that it is submitted twice.
        delay: it is submitted up to so many transactions later, each number as likely.
    """

    loss: float = 0.0
    delay: int = 0
    duplicate: float = 0.0

    @classmethod
    def parse(cls, text: str) -> FaultSettings:
        """Return the settings of a text like ``loss=0.1,delay=2,duplicate=0.2``.

        Raises:
            InvalidInput: a kind is unknown, or a number is none or not allowed.
        """
        found: dict[str, float] = {}
        for item in filter(None, text.split(",")):
            kind, _, number = item.partition("=")
            if kind not in KINDS:
                raise InvalidInput(f"fault: {kind!r}; allowed: {', '.join(KINDS)}, as in loss=0.1,delay=2")
            try:
                found[kind] = float(number)
            except ValueError:
                raise InvalidInput(f"fault: {item!r}: {number!r} is no number") from None
            whole = kind == "delay"
            if not 0 <= found[kind] <= (1_000 if whole else 1) or (whole and found[kind] % 1):
                raise InvalidInput(f"fault: {item!r}: allowed: {'0 to 1000, whole' if whole else '0 to 1'}")
        return cls(found.get("loss", 0.0), int(found.get("delay", 0)), found.get("duplicate", 0.0))


@dataclass
class TransactionFaults(Generic[Submitted]):
    """The faults of one direction. ``late``: transactions held back, with how many more go before them."""

    settings: FaultSettings = field(default_factory=FaultSettings)
    seed: str = "0"
    late: list[tuple[int, Submitted]] = field(default_factory=list)
    lost: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def applied(self, submit: Submitted) -> list[Submitted]:
        """Return what is submitted when ``submit`` is to be."""
        draws = self._random.random(), self._random.random(), self._random.randint(0, self.settings.delay)
        now = self._due()
        if draws[0] < self.settings.loss:
            self.lost += 1
            return now
        copies = [submit] * (2 if draws[1] < self.settings.duplicate else 1)
        if draws[2]:
            self.late += [(draws[2], copy) for copy in copies]
            return now
        return [*copies, *now]

    def _due(self) -> list[Submitted]:
        """Return those held back whose time has come, oldest first."""
        self.late = [(left - 1, submit) for left, submit in self.late]
        due = [submit for left, submit in self.late if left <= 0]
        self.late = [item for item in self.late if item[0] > 0]
        return due
