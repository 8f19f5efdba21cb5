"""The errors of the reference (3.10), by name, and the reasons for which a program's call is refused."""

from __future__ import annotations

from enum import IntEnum


class Inclusion(IntEnum):
    """What ``include`` says of a receipt (3.1)."""

    OK = 0
    DuplicateCandidate = 1
    ParentMismatch = 2
    EgressOutOfOrder = 3
    SelfAddressed = 4
    EmptyTrieRoot = 5
    DestinationDoesNotExist = 6
    WatermarkRegressed = 7
    WatermarkNotAncestor = 8
    LandsOnBlockWithNoMessages = 9


class Validation(IntEnum):
    """What validators say of what a candidate consumed and posted (3.4)."""

    OK = 0
    NotAPrefix = 1
    IngressCountMismatch = 2
    IngressChainMismatch = 3
    IngressRootMismatch = 4
    MissingEgressRoot = 5
    EgressRootMismatch = 6


NO_DESTINATION = "DestinationDoesNotExist"
NO_HANDLER = "NoMessageHandler"
TOO_LARGE = "MaxMessageSizeExceeded"
CHANNEL_CLOSED = "ChannelClosed"
"""Reason of a message that was in a channel when the channel closed."""
CHAIN_HALTED = "ChainHalted"
"""Why a message from a user is refused whose parachain makes no block any more."""
REASONS = ["", NO_DESTINATION, NO_HANDLER, TOO_LARGE]
"""Why a call of a program is refused before it is in any queue."""


class DropReason(IntEnum):
    """Why a queue that was posted is not routed, and never will be: the reason of the event DROPPED."""

    DestinationDoesNotExist = 0
    """Its recipient was deregistered (D-3)."""
    Censored = 1
    """Its recipient did not want to hear its sender (5.1 (2))."""
    Skipped = 2
    """Its recipient's watermark was moved past it (D-12)."""


REJECTED = 16
"""The code of an answer that a chain itself made, because nobody could take the call."""


class PeerVerdict(IntEnum):
    """What a node says of what a peer sent (3.7, 3.10), and why a peer is not connected."""

    OK = 0
    BadNeighborPacket = 1
    UnexpectedQueue = 2
    RootMismatch = 3
    Malformed = 4
    Impolite = 5
    Duplicate = 6
    """A good queue that the node itself had sent to the peer (hazard 13)."""
    PoolFull = 7
    """A good queue for which the pool has no room."""
    NotConnected = 8
    TooManyPeers = 9
    Banned = 10
    """It was disconnected for what it sent, not long ago."""
    Unimplied = 11
    """Good queues of topics that its heads do not imply cost it all its reputation (``mistrust_unimplied``)."""
