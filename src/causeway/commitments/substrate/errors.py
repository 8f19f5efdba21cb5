"""The names that the deployed verifiers give to what is wrong with a storage proof (XDM reference 2.4)."""

from __future__ import annotations

from causeway.commitments.errors import MalformedProof, ProofRefused


class InvalidProof(ProofRefused):
    """A node that the walk from the root needs is missing from the proof, or is no node of a trie."""


class MissingValue(ProofRefused):
    """The proof shows that nothing is stored under the key."""


class FailedToDecode(MalformedProof):
    """A value or message is no canonical SCALE encoding of its type."""


class UnusedNodesInTheProof(ProofRefused):
    """The proof holds a node that no read visits, or holds one twice."""


class BadProof(ProofRefused):
    """An envelope names another message than its proof holds, or has a proof that does not fit its source."""


class InvalidCall(ProofRefused):
    """A request comes where a response is due, or the other way round (XDM reference 3.4, step 8, and 3.5)."""


class RootMismatch(ProofRefused):
    """The messages of a queue do not hash to the root that was stated for them (ICMP reference 3.7, 3.10)."""


class HeadMismatch(ProofRefused):
    """The messages of a channel do not lead from one head of its message queue chain to the other (ICMP, X-6)."""
