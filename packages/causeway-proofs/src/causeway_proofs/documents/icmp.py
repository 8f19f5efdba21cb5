"""Documents of messages between parachains: a message in an egress queue, under a relay block's state root."""

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
        return f"message {self.index} in {queue} is {format_bytes(self.message)}"

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return that nodes are repeated in one of the two proofs, where they are."""
        return describe_repetitions(self.proof, self.queue_proof)

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the way from the message to the state root; errors as of ``verify_posted_queue`` and
        ``verify_queued_message``."""
        root, above = self._posted(trust)
        steps = verify_queued_message(root, read_nodes(self.queue_proof), self.index, self.message)
        return (ProofPath(self.claim(), (*steps, *above)),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the way as far as the proofs have it: from the queue's root, if the relay chain's state shows one."""
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
