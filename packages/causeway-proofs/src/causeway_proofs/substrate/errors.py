"""The names that the deployed verifiers give to what is wrong with a storage proof (XDM reference 2.4)."""

from __future__ import annotations

from causeway_proofs.errors import MalformedProof, NotProven


class InvalidProof(NotProven):
    """A node that the walk from the root needs is missing from the proof, or is no node of a trie."""


class MissingValue(NotProven):
    """The proof shows that nothing is stored under the key."""


class FailedToDecode(MalformedProof):
    """A value or message is no canonical SCALE encoding of its type."""


class UnusedNodesInTheProof(NotProven):
    """The proof holds a node that no read visits, or repeats one where that is refused (``strict``)."""


class BadProof(NotProven):
    """An envelope names another message than its proof holds, or has a proof that does not fit its source."""


class InvalidCall(NotProven):
    """A request comes where a response is due, or the other way round (XDM reference 3.4, step 8, and 3.5)."""


class RootMismatch(NotProven):
    """The messages of a queue do not hash to the root that was stated for them (ICMP reference 3.7, 3.10)."""


class HeadMismatch(NotProven):
    """The messages of a channel do not lead from one head of its message queue chain to the other (ICMP, X-6)."""


class UnexpectedQueue(NotProven):
    """A queue is gossiped whose root no leaf lists as unrouted (ICMP reference 3.7)."""


class Malformed(MalformedProof):
    """A gossip message is no canonical encoding of its kind (ICMP reference 3.10)."""


class BadNeighborPacket(NotProven):
    """A neighbour declares more chain heads than a node keeps (ICMP reference 3.6)."""
