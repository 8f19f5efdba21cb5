"""Errors of ICMP by name, and reasons for refusing a program's call.

Reference: ICMP, section 3.10.
"""

from __future__ import annotations

from enum import IntEnum


class Inclusion(IntEnum):
    """Result of ``include`` for a receipt (ICMP 3.1)."""

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
    """Result of validating a candidate's consumed and posted queues (ICMP 3.4)."""

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
"""Reason for dropping a message in a closed channel."""
CHAIN_HALTED = "ChainHalted"
"""Reason for refusing a message from a user to a permanently halted parachain."""
REASONS = ["", NO_DESTINATION, NO_HANDLER, TOO_LARGE]
"""Reasons for refusing a program's call before it enters a queue."""


class DropReason(IntEnum):
    """Reason of the event DROPPED for a posted queue that is never routed."""

    DestinationDoesNotExist = 0
    """The recipient was deregistered (ICMP D-3)."""
    Censored = 1
    """The recipient censors the sender (ICMP 5.1 (2))."""
    Skipped = 2
    """The recipient's watermark moved past the queue (ICMP D-12)."""


REJECTED = 16
"""Code of a chain's own answer to a call without a handler."""


class PeerVerdict(IntEnum):
    """Verdict of a node on a peer's message (ICMP 3.7, 3.10), or reason against a connection."""

    OK = 0
    BadNeighborPacket = 1
    UnexpectedQueue = 2
    RootMismatch = 3
    Malformed = 4
    Impolite = 5
    Duplicate = 6
    """A valid queue that the node had sent to the peer (ICMP hazard 13)."""
    PoolFull = 7
    """A valid queue without space in the pool."""
    NotConnected = 8
    TooManyPeers = 9
    Banned = 10
    """The peer was disconnected recently for its messages."""
    Unimplied = 11
    """Valid queues of topics that the peer's heads do not imply.

    They cost the peer all its reputation (``mistrust_unimplied``).
    """
