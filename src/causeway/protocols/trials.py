"""Faults as every protocol knows them, for trials of one protocol beside others: what goes wrong is named here, and
each protocol knows which section of a scenario says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from causeway.protocols.interference import DROP, FORGE, GAP, HALT, REPLAY, TAMPER

LATE, LOST, DUPLICATED, OUT_OF_TURN = "late", "lost", "duplicated", "out of turn"
ALTERED, HALTED, FORGED = "altered", "halted", "forged"

TRIES: Mapping[str, str] = {
    LATE: "for a while nothing is carried from one chain to the other",
    LOST: "from then on nothing is carried from one chain to the other",
    DUPLICATED: "what was carried comes again",
    OUT_OF_TURN: "what comes later is carried first",
    ALTERED: "what is carried, or its proof, is altered on the way",
    HALTED: "the chain that receives makes no blocks for a while",
    FORGED: "the chain that sends, or one that carries, makes up a message",
}
"""What is tried, by name, in the order in which it is told."""

Keys = Mapping[str, Any]
"""A fault as in ``[[faults]]``."""


@dataclass(frozen=True)
class Between:
    """Where and when something goes wrong: between two chains, by name, from tick ``first`` to ``last``, when messages
    that were sent at ``sent`` and later would come. ``sender``: a program that is not on the source, ``receiver``: one
    on the destination; None where there is none."""

    source: str
    destination: str
    sent: int
    first: int
    last: int
    sender: int | None = None
    receiver: int | None = None

    @property
    def ends(self) -> dict[str, Any]:
        """Return the keys that name both chains."""
        return {"source": self.source, "destination": self.destination}

    @property
    def span(self) -> dict[str, Any]:
        """Return the keys of a fault that has a span."""
        return {"from": self.first, "until": self.last}

    @property
    def ticks(self) -> dict[str, Any]:
        """Return the same for a fault that is made anew at each tick."""
        return {"tick": self.first, "until": self.last}


def usual(name: str, between: Between) -> Keys | None:
    """Return the fault of a name in ``TRIES`` as a protocol has it that has the kinds of all protocols; None where it
    cannot be tried."""
    if name == LATE:
        return {"kind": DROP, **between.ends, **between.span}
    if name == LOST:
        return {"kind": DROP, **between.ends, "from": between.first}
    if name == HALTED:
        return {"kind": HALT, "chain": between.destination, **between.span}
    if name == FORGED:
        if between.sender is None or between.receiver is None:
            return None
        parties = {"sender": between.sender, "receiver": between.receiver}
        return {"kind": FORGE, "chain": between.source, "tick": between.sent, **parties, "text": "made up"}
    kind = {DUPLICATED: REPLAY, OUT_OF_TURN: GAP, ALTERED: TAMPER}[name]
    return {"kind": kind, **between.ends, **between.ticks}
