"""Documents of messages between parachains: a message in an egress queue, under a relay block's state root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from causeway.proofs.documents.document import ProofDocument, Track, hexed, root_in
from causeway.proofs.documents.substrate import U32_MAX, Nodes, nodes_in, repetitions_in
from causeway.proofs.documents.trust import IcmpHead, RootTrust, Trust
from causeway.proofs.documents.values import Bytes, Number
from causeway.proofs.errors import ProofError
from causeway.proofs.steps import Step
from causeway.proofs.substrate.errors import UnusedNodesInTheProof
from causeway.proofs.substrate.node import StateVersion
from causeway.proofs.substrate.ordered import ordered_key
from causeway.proofs.substrate.parachains import unrouted_key, verify_posted_queue, verify_queued_message
from causeway.proofs.substrate.proof import read_storage_proof

U32 = Annotated[Number, Field(le=U32_MAX)]


class IcmpMessage(ProofDocument):
    """A message of one parachain to another, which is not consumed yet: ``proof`` is a list of nodes of the relay
    chain's state, ``queue_proof`` of the queue's trie.

    Trusted is the state root of a relay block, or its header. Under it the relay chain lists the root of the queue from
    ``source`` to ``destination`` (ParaIds) that its block number ``block`` posted, and under that root ``message`` is
    at place ``index``, counted from 0. In a binary file, ``proof`` is the SCALE encoding of its list.
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
        """Return what is claimed, in one line."""
        queue = f"the queue from parachain {self.source} to {self.destination} that relay block {self.block} posted"
        return f"message {self.index} in {queue} is {hexed(self.message)}"

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return that nodes are repeated in one of the two proofs, where they are."""
        return repetitions_in(self.proof, self.queue_proof)

    def verify(self, trust: Trust) -> tuple[Track, ...]:
        """Return the way from the message to the state root; errors as of ``verify_posted_queue`` and
        ``verify_queued_message``."""
        root, above = self._posted(trust)
        steps = verify_queued_message(root, nodes_in(self.queue_proof), self.index, self.message)
        return (Track(self.claim(), (*steps, *above)),)

    def sketch(self, trust: Trust) -> tuple[Track, ...]:
        """Return the way as far as the proofs have it: from the queue's root, if the relay chain's state shows one."""
        try:
            root, above = self._posted(trust)
        except ProofError:
            key = unrouted_key(self.block, self.destination)
            read = read_storage_proof(root_in(trust), nodes_in(self.proof), [key])[0]
            return (Track(f"{self.claim()} (the relay chain's entry: {read.status.value})", read.steps),)
        read = read_storage_proof(root, nodes_in(self.queue_proof), [ordered_key(self.index)], StateVersion.V0)[0]
        return (Track(f"{self.claim()} (in the queue: {read.status.value})", (*read.steps, *above)),)

    def _posted(self, trust: Trust) -> tuple[bytes, tuple[Step, ...]]:
        return verify_posted_queue(root_in(trust), nodes_in(self.proof), self.block, self.source, self.destination)
