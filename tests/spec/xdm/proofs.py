"""How a relayed item proves its message: MMR, confirmed receipt, storage (3.4 steps 1, 6 and 7; D-6, D-7)."""

from typing import Literal

from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.keys import confirmed_key, outbox_key, responses_key
from tests.spec.xdm.mmr import keccak256, root_of
from tests.spec.xdm.state import ChainNode
from tests.spec.xdm.trie import read_storage
from tests.spec.xdm.values import (
    CONSENSUS,
    Chain,
    ConsensusProof,
    CrossDomainMessage,
    Message,
    MmrLeaf,
    StorageProof,
    decode_leaf,
    decode_message,
    require_receipt,
)

Kind = Literal["request", "response"]


def verify_mmr(c: ChainNode, p: ConsensusProof) -> MmrLeaf:
    """3.4 step 1.

    Decisions. The hash in the proof must be that of the named block. A block has as many leaves as there are blocks
    before it, and the leaf of a block comes behind theirs: another leaf_count of the same shape would verify as well,
    and then one byte could be altered.
    """
    n = p.consensus_block_number
    if not c.view.proves(n, c.chain_id, c.options):
        raise XdmError("BadProof")
    count = c.view.leaves[n]
    if p.consensus_block_hash != c.view.hashes[n] or p.proof.leaf_count != count or len(p.proof.leaf_indices) != 1:
        raise XdmError("BadProof")
    index = p.proof.leaf_indices[0]
    if root_of({index: keccak256(p.opaque_mmr_leaf)}, count, p.proof.items) != c.view.roots[n]:
        raise XdmError("BadProof")
    try:
        leaf = decode_leaf(p.opaque_mmr_leaf)
    except XdmError as error:
        raise XdmError("BadProof") from error
    if c.view.leaves.get(leaf.block_number) != index:
        raise XdmError("BadProof")
    return leaf


def read(root: bytes, proof: StorageProof, key: bytes) -> bytes:
    """A storage value, or BadProof for whatever is wrong with its proof."""
    try:
        return read_storage(root, proof, key)
    except XdmError as error:
        raise XdmError("BadProof") from error


def message_root(state_root: bytes, x: CrossDomainMessage, strict: bool) -> bytes:
    """3.4 step 6: the root under which the message is read. Not strict: a domain's message with no domain proof is read
    under the consensus root, as the deployed validator was understood (D-7)."""
    if strict and (x.proof.domain_proof is None) != (x.src == CONSENSUS):
        raise XdmError("BadProof")
    if x.proof.domain_proof is None or x.src == CONSENSUS:
        return state_root
    return require_receipt(read(state_root, x.proof.domain_proof, confirmed_key(x.src))).final_state_root


def read_message(self_id: Chain, root: bytes, x: CrossDomainMessage, kind: Kind, strict: bool) -> Message:
    """3.4 step 7: the message that the proof shows; the envelope must tell the same of it."""
    key = outbox_key if kind == "request" else responses_key
    value = read(root, x.proof.message_proof, key(self_id, x.channel_id, x.nonce))
    try:
        m = decode_message(value)
    except XdmError as error:
        raise XdmError("BadProof") from error
    if strict and (m.src, m.dst, m.channel_id, m.nonce) != (x.src, self_id, x.channel_id, x.nonce):
        raise XdmError("BadProof")
    return m
