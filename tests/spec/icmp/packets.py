"""What gossip nodes say to each other, what that costs them (X-1), and what comes of an event."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.spec.icmp.events import NodeId, Row
from tests.spec.icmp.node import Label
from tests.spec.icmp.reconcile import Ask, More, Sketch
from tests.spec.icmp.relay import Hash, ParaId

REPUTATION = {"good": 50, "UnexpectedQueue": -100, "RootMismatch": -150, "BadNeighborPacket": -300, "Malformed": -500}
"""X-1. RootMismatch is per message, of at least one (D-14)."""


def size(messages: Sequence[bytes]) -> int:
    return sum(map(len, messages))


@dataclass(frozen=True)
class Declaration:
    """A neighbour packet."""

    heads: tuple[Hash, ...]


@dataclass(frozen=True)
class Envelope:
    """A queue on a topic."""

    topic: Hash
    root: Hash
    messages: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return size(self.messages)


@dataclass(frozen=True)
class Subscriptions:
    """All that a node subscribes to."""

    labels: tuple[Label, ...]


@dataclass(frozen=True)
class Garbled:
    """Bytes that are no packet."""


Packet = Declaration | Envelope | Subscriptions | Sketch | Ask | More | Garbled
Wanted = tuple[int, ParaId, Hash]
"""A queue that is missing: number of its block, sender, root."""


@dataclass
class Out:
    packets: list[tuple[NodeId, Packet]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    dropped: list[NodeId] = field(default_factory=list)
    """Peers to disconnect from."""

    def __iadd__(self, other: "Out") -> "Out":
        self.packets += other.packets
        self.rows += other.rows
        self.dropped += other.dropped
        return self
