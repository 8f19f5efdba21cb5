"""Errors of storage proofs and queues, named as deployed (XDM reference 2.4)."""

from __future__ import annotations

from causeway_proofs.errors import MalformedProof, NotProven
from causeway_proofs.errors import RootMismatch as RootMismatch


class InvalidProof(NotProven):
    """A node on the path from the root is missing from the proof, or malformed."""


class MissingValue(NotProven):
    """The proof shows that no value is stored under the key."""


class FailedToDecode(MalformedProof):
    """A value or message is not a canonical SCALE encoding of its type."""


class UnusedNodesInTheProof(NotProven):
    """No read visits a node of the proof, or a node is duplicated with ``strict``."""


class BadProof(NotProven):
    """An envelope's message or source does not match its proof."""


class InvalidCall(NotProven):
    """A request relayed as a response, or the reverse (XDM reference 3.4, step 8, and 3.5)."""


class HeadMismatch(NotProven):
    """The messages do not link the heads of their message queue chain (ICMP, X-6)."""


class UnexpectedQueue(NotProven):
    """No leaf lists the root of a gossiped queue as unrouted (ICMP reference 3.7)."""


class Malformed(MalformedProof):
    """A gossip message is not a canonical encoding of its kind (ICMP reference 3.10)."""


class BadNeighborPacket(NotProven):
    """A neighbor declares more chain heads than a node considers (ICMP reference 3.6)."""
