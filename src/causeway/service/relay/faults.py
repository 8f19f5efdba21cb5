"""Faults of a relay process's own transactions: loss, delay, duplication, by seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from causeway_proofs.errors import InvalidInput

Submitted = TypeVar("Submitted")

KINDS = ("loss", "delay", "duplicate")


@dataclass(frozen=True)
class FaultSettings:
    """Rates of faults.

    Attributes:
        loss: Probability that a transaction is not submitted.
        delay: Maximum delay in transactions, uniform.
        duplicate: Probability that a transaction is submitted twice.
    """

    loss: float = 0.0
    delay: int = 0
    duplicate: float = 0.0

    @classmethod
    def parse(cls, text: str) -> FaultSettings:
        """Parse settings like ``loss=0.1,delay=2,duplicate=0.2``.

        Args:
            text: The settings.

        Raises:
            InvalidInput: A kind is unknown, or a number is invalid.
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
    """Faults of one direction; ``late`` holds delayed transactions with their remaining delay."""

    settings: FaultSettings = field(default_factory=FaultSettings)
    seed: str = "0"
    late: list[tuple[int, Submitted]] = field(default_factory=list)
    lost: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def applied(self, submit: Submitted) -> list[Submitted]:
        """Return the transactions to submit in place of ``submit``."""
        draws = self._random.random(), self._random.random(), self._random.randint(0, self.settings.delay)
        due = self._due()
        if draws[0] < self.settings.loss:
            self.lost += 1
            return due
        copies = [submit] * (2 if draws[1] < self.settings.duplicate else 1)
        if draws[2]:
            self.late += [(draws[2], copy) for copy in copies]
            return due
        return [*copies, *due]

    def _due(self) -> list[Submitted]:
        """Pop the delayed transactions that are due, oldest first."""
        self.late = [(remaining - 1, submit) for remaining, submit in self.late]
        due = [submit for remaining, submit in self.late if remaining <= 0]
        self.late = [item for item in self.late if item[0] > 0]
        return due
