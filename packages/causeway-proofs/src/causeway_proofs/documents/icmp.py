"""Proof documents of messages in egress queues, under a relay block's state root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from causeway_proofs.documents.document import ProofDocument, ProofPath, format_bytes, trusted_root
from causeway_proofs.documents.substrate import U32_MAX, Nodes, describe_repetitions, read_nodes
from causeway_proofs.documents.trust import IcmpHead, RootTrust, Trust
from causeway_proofs.documents.values import Bytes, Number
from causeway_proofs.errors import ProofError
from causeway_proofs.steps import Step
from causeway_proofs.substrate.errors import UnusedNodesInTheProof
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.ordered_lists import ordered_key
from causeway_proofs.substrate.parachains import unrouted_key, verify_posted_queue, verify_queued_message
from causeway_proofs.substrate.proof import read_storage_proof

U32 = Annotated[Number, Field(le=U32_MAX)]


class IcmpMessage(ProofDocument):
    """A pending message of one parachain to another.

    Trusted is the state root of a relay block, or its header. Under it the relay chain lists the root of the queue
    posted by block ``block``, and under that root ``message`` stands at ``index``. In a binary file, ``proof`` is the
    SCALE encoding of its list.

    Attributes:
        source: number of the sending parachain (ParaId).
        destination: number of the receiving parachain (ParaId).
        block: number of the relay block that posted the queue.
        index: position in the queue, from 0.
        message: the message.
        proof: nodes of the relay chain's state.
        queue_proof: nodes of the queue's trie.
    """

    kind: Literal["icmp_message"]
    source: U32
    destination: U32
    block: U32
    index: U32
    message: Bytes
    proof: Nodes
    queue_proof: Nodes
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust, IcmpHead)
    too_odd: ClassVar[type[ProofError]] = UnusedNodesInTheProof

    def claim(self) -> str:
        """Return the claim in one line."""
        queue = f"the queue from parachain {self.source} to {self.destination} that relay block {self.block} posted"
        return f"message {self.index} in {queue} is {format_bytes(self.message)}"

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return remarks on duplicated nodes in the two proofs."""
        return describe_repetitions(self.proof, self.queue_proof)

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path from the message to the state root.

        Args:
            trust: the trusted state root or relay header.

        Returns:
            One path.

        Raises:
            ProofError: as ``verify_posted_queue`` and ``verify_queued_message``.
        """
        root, above = self._posted(trust)
        steps = verify_queued_message(root, read_nodes(self.queue_proof), self.index, self.message)
        return (ProofPath(self.claim(), (*steps, *above)),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the computable part of the path, from the queue's root if shown."""
        try:
            root, above = self._posted(trust)
        except ProofError:
            key = unrouted_key(self.block, self.destination)
            read = read_storage_proof(trusted_root(trust), read_nodes(self.proof), [key])[0]
            return (ProofPath(f"{self.claim()} (the relay chain's entry: {read.status.value})", read.steps),)
        read = read_storage_proof(root, read_nodes(self.queue_proof), [ordered_key(self.index)], StateVersion.V0)[0]
        return (ProofPath(f"{self.claim()} (in the queue: {read.status.value})", (*read.steps, *above)),)

    def _posted(self, trust: Trust) -> tuple[bytes, tuple[Step, ...]]:
        return verify_posted_queue(
            trusted_root(trust), read_nodes(self.proof), self.block, self.source, self.destination
        )
