"""Cross-domain messages from the consensus chain's mountain range to the message (XDM reference 2.4 and 3.4).

The trusted root is the one that the consensus chain's Merkle mountain range had at the block that the proof names.
Under it lies the leaf of a block, in the leaf that block's state root, and under that what ``open_envelope`` reads.
"""

from __future__ import annotations

from causeway.proofs.errors import ProofError
from causeway.proofs.mmr.mountain_range import leaf_hash
from causeway.proofs.mmr.proof import LeafProof, verify_leaf_proof
from causeway.proofs.steps import Step
from causeway.proofs.substrate.errors import BadProof
from causeway.proofs.xdm.envelope import (
    ConsensusChainMmrProof,
    CrossDomainMessage,
    MmrLeaf,
    open_envelope,
)
from causeway.proofs.xdm.messages import Message


def verify_consensus_leaf(
    mmr_root: bytes, proof: ConsensusChainMmrProof, leaf_count: int | None = None
) -> tuple[MmrLeaf, tuple[Step, ...]]:
    """Return the leaf that a carrier's mountain range proof shows under ``mmr_root``, and the path to it.

    ``leaf_count`` is the number of leaves under that root, where it is known: a root does not say it.

    Raises:
        BadProof: it is no proof of exactly one leaf, it leads to another root, or the leaf is malformed.
    """
    if len(proof.leaf_indices) != 1:
        raise BadProof(f"the mountain range proof of a carrier is of {len(proof.leaf_indices)} leaves, one is due")
    shown = LeafProof(proof.leaf_indices, proof.leaf_count, proof.items)
    try:
        steps = verify_leaf_proof(shown, [leaf_hash(proof.opaque_mmr_leaf)], mmr_root, leaf_count)
        return MmrLeaf.decode(proof.opaque_mmr_leaf), steps
    except ProofError as error:
        raise BadProof(f"the consensus chain's block is not proven: {error}") from error


def verify_cross_domain_message(
    mmr_root: bytes,
    envelope: CrossDomainMessage,
    *,
    response: bool,
    strict_envelope: bool = True,
    leaf_count: int | None = None,
) -> tuple[Message, tuple[Step, ...]]:
    """Return the message that an envelope proves under a root of the consensus chain's mountain range, and the path.

    The caller knows the root as that of the block ``envelope.proof.consensus_chain_mmr_proof`` names; the other
    arguments are those of ``verify_consensus_leaf`` and ``open_envelope``.

    Raises:
        BadProof: the leaf of the block is not under the root; or as for ``open_envelope``.
        InvalidCall, InvalidProof, MissingValue, UnusedNodesInTheProof, OverLimit, FailedToDecode: as there.
    """
    leaf, above = verify_consensus_leaf(mmr_root, envelope.proof.consensus_chain_mmr_proof, leaf_count)
    message, path = open_envelope(leaf.state_root, envelope, response=response, strict_envelope=strict_envelope)
    state = Step("state", f"state root of consensus block {leaf.block_number}", leaf.state_root)
    return message, (*path, state, *above)
