"""What the relay loop asks for and hands over, as data: whoever runs it answers (XDM reference 3.10, X-5)."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.service import relay_steps
from causeway.service.relay_steps import Submit


@dataclass(frozen=True)
class Direction(relay_steps.Direction):
    """From chain ``source`` to chain ``target``.

    ``what``: "messages" of one to the other; "blocks" of the consensus chain ``source`` to the lake that follows it;
    "receipts" of the domain ``source`` to the consensus chain ``target``.
    """

    what: str = "messages"

    def __str__(self) -> str:
        return super().__str__() if self.what == "messages" else f"{self.what} of {self.source}"


@dataclass(frozen=True)
class ReadFollowed:
    """Asks what is known of the consensus chain at the lake that follows it."""

    end: str
    chain: str


@dataclass(frozen=True)
class ReadBlocks:
    """Asks for headers of the consensus chain after a block, with its author's signature on the last."""

    end: str
    chain: str
    after: int | None


@dataclass(frozen=True)
class ReadAnchor:
    """Asks for the leaf of the block before ``under`` in the mountain range of that one, and with a ``domain`` for its
    confirmed receipt."""

    end: str
    chain: str
    under: int
    domain: str | None


@dataclass(frozen=True)
class ReadReceipted:
    """Asks for the last receipt of a domain that the consensus chain has taken in."""

    end: str
    chain: str
    domain: str


@dataclass(frozen=True)
class ReadReceipts:
    """Asks for a domain's receipts after that of a block."""

    end: str
    chain: str
    after: int | None


@dataclass(frozen=True)
class ReadChannels:
    """Asks for the channels of a chain with another, and what it knows of the consensus chain."""

    end: str
    chain: str
    counterparty: str


@dataclass(frozen=True)
class Lane:
    """Messages of one direction of a channel from a nonce on."""

    channel: int
    response: bool
    first: int


@dataclass(frozen=True)
class ReadMessages:
    """Asks for messages of a chain to another in the storage of its block of a number, with their proofs; of a lane at
    most so many."""

    end: str
    chain: str
    counterparty: str
    block: int
    lanes: tuple[Lane, ...]
    most: int


Step = ReadFollowed | ReadBlocks | ReadAnchor | ReadReceipted | ReadReceipts | ReadChannels | ReadMessages | Submit
