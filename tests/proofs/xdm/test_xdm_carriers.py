"""A complete locally built carrier of a domain; hazards 4 to 8 of XDM section 6."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.mmr.mountain_range import leaf_hash
from causeway_proofs.substrate.errors import (
    BadProof,
    FailedToDecode,
    InvalidCall,
    InvalidProof,
    MissingValue,
    UnusedNodesInTheProof,
)
from causeway_proofs.substrate.trie import Trie, prove
from causeway_proofs.xdm.envelope import (
    INBOX_RESPONSES,
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    EnvelopeProof,
    ExecutionReceipt,
    MmrLeaf,
    message_storage_key,
    receipt_storage_key,
    verify_cross_domain_message,
)
from causeway_proofs.xdm.messages import (
    CONSENSUS,
    XDM_TYPES,
    ChainId,
    CollectedFee,
    EndpointRequest,
    EndpointResponse,
    Message,
    WeightTag,
)

from tests.oracles.mmr import MountainRange, prove_leaves

SOURCE, CHANNEL, NONCE = ChainId(7), 1 << 65, (1 << 64) + 3
REQUEST = Message(SOURCE, CONSENSUS, CHANNEL, NONCE, EndpointRequest(1, 2, b"pay" * 20, CollectedFee(3, 4)), 2)
RESPONSE = Message(SOURCE, CONSENSUS, CHANNEL, NONCE, EndpointResponse(b"paid"))
REQUEST_KEY = message_storage_key(OUTBOX, CONSENSUS, CHANNEL, NONCE)
RESPONSE_KEY = message_storage_key(INBOX_RESPONSES, CONSENSUS, CHANNEL, NONCE)
LEAVES = 6


def receipt(state_root: bytes) -> bytes:
    fields = dict(ExecutionReceipt.decode(bytes(256)).fields, final_state_root=state_root)
    return ExecutionReceipt(0, b"", 0, b"", b"", fields).encode()


def carriers() -> tuple[bytes, dict[bool, CrossDomainMessage]]:
    """Return the root of the mountain range, and the carriers of the request (False) and of the response (True)."""
    others = [message_storage_key(OUTBOX, CONSENSUS, CHANNEL, nonce) for nonce in range(5)]
    domain = Trie.build(
        [REQUEST_KEY, RESPONSE_KEY, *others], [REQUEST.encode(), RESPONSE.encode(), *[b"\x01" * 90] * 5]
    )
    key = receipt_storage_key(7)
    consensus = Trie.build([key, receipt_storage_key(8), b"other"], [receipt(domain.root), receipt(bytes(32)), b"\x01"])
    leaves = [
        MmrLeaf(block, bytes(32), consensus.root if block == 3 else bytes(32), bytes(32)).encode()
        for block in range(LEAVES)
    ]
    mountains = MountainRange()
    for leaf in leaves:
        mountains.append(leaf_hash(leaf))
    made = prove_leaves(mountains, [3])
    mmr = ConsensusChainMmrProof(LEAVES, bytes(32), leaves[3], made.leaf_indices, made.leaf_count, made.items)
    found = {}
    for response, stored in ((False, REQUEST_KEY), (True, RESPONSE_KEY)):
        proof = EnvelopeProof(mmr, tuple(prove(domain, [stored])), tuple(prove(consensus, [key])))
        found[response] = CrossDomainMessage(SOURCE, CONSENSUS, CHANNEL, NONCE, proof, WeightTag())
    return mountains.root(), found


ROOT, CARRIERS = carriers()
GOOD = CARRIERS[False]


def verified(envelope: CrossDomainMessage, *, response: bool = False, root: bytes = ROOT) -> Message:
    return verify_cross_domain_message(root, envelope, response=response, leaf_count=LEAVES)[0]


def with_nodes(**nodes: Any) -> CrossDomainMessage:
    return replace(GOOD, proof=replace(GOOD.proof, **nodes))


def test_request_and_response_of_a_domain() -> None:
    for response, message in ((False, REQUEST), (True, RESPONSE)):
        again = CrossDomainMessage.decode(CARRIERS[response].encode())
        assert verified(again, response=response) == message
        with pytest.raises(MissingValue if response else ProofError):
            verified(replace(again, nonce=NONCE + 1), response=response)
    _, steps = verify_cross_domain_message(ROOT, GOOD, response=False)
    operations = [step.operation for step in steps]
    assert operations[0] == "message" and operations[-1] == "root"
    order = [operations.index(operation) for operation in ("message", "receipt", "state")]
    assert order == sorted(order)


def test_envelope_fields_must_be_proven() -> None:
    for changed in (
        replace(GOOD, src_chain_id=ChainId(8)),
        replace(GOOD, src_chain_id=CONSENSUS),
        replace(GOOD, dst_chain_id=ChainId(7)),
        replace(GOOD, channel_id=CHANNEL + 1),
        replace(GOOD, nonce=3),
    ):
        with pytest.raises(ProofError):
            verified(changed)
    # The proof does not cover the tag.
    assert verified(replace(GOOD, weight_tag=WeightTag("EndpointRequest", 9))) == REQUEST


def test_proof_kind_must_fit_the_source() -> None:
    for changed in (with_nodes(domain_proof=None), replace(GOOD, src_chain_id=CONSENSUS)):
        with pytest.raises(BadProof, match="does not fit the source"):
            verified(changed)


def test_message_is_read_from_the_item_of_its_call() -> None:
    with pytest.raises(ProofError):
        verified(GOOD, response=True)
    swapped = Trie.build([RESPONSE_KEY], [REQUEST.encode()])
    consensus = Trie.build([receipt_storage_key(7)], [receipt(swapped.root)])
    leaf = MmrLeaf(0, bytes(32), consensus.root, bytes(32)).encode()
    mmr = ConsensusChainMmrProof(1, bytes(32), leaf, (0,), 1, ())
    proof = EnvelopeProof(mmr, tuple(prove(swapped, [RESPONSE_KEY])), tuple(prove(consensus, [receipt_storage_key(7)])))
    with pytest.raises(InvalidCall):
        verify_cross_domain_message(leaf_hash(leaf), replace(GOOD, proof=proof), response=True)


def test_additional_missing_and_repeated_nodes() -> None:
    message_nodes, domain_nodes = GOOD.proof.message_proof, GOOD.proof.domain_proof
    assert domain_nodes is not None and len(message_nodes) > 1 and len(domain_nodes) > 1
    for name, nodes in (("message_proof", message_nodes), ("domain_proof", domain_nodes)):
        with pytest.raises(UnusedNodesInTheProof):
            verified(with_nodes(**{name: (*nodes, b"\xff" * 40)}))
        for place, part in enumerate(nodes):
            with pytest.raises(InvalidProof):
                verified(with_nodes(**{name: nodes[:place] + nodes[place + 1 :]}))
            with pytest.raises(UnusedNodesInTheProof):
                verified(with_nodes(**{name: (*nodes, part)}))
        for changed in ((nodes[0], *nodes), nodes[::-1]):
            written, instead = (XDM_TYPES.encode("Vec<Vec<u8>>", each) for each in (nodes, changed))
            with pytest.raises(FailedToDecode, match="does not ascend"):
                CrossDomainMessage.decode(GOOD.encode().replace(written, instead))


def test_another_root_or_count_of_the_mountain_range() -> None:
    with pytest.raises(BadProof):
        verified(GOOD, root=bytes(32))
    with pytest.raises(BadProof, match="is of a range of 6 leaves"):
        verify_cross_domain_message(ROOT, GOOD, response=False, leaf_count=LEAVES + 1)
    mmr = GOOD.proof.consensus_chain_mmr_proof
    for wrong in (
        replace(mmr, leaf_indices=()),
        replace(mmr, leaf_indices=(3, 4)),
        replace(mmr, leaf_indices=(2,)),
        replace(mmr, items=mmr.items[1:]),
        replace(mmr, opaque_mmr_leaf=mmr.opaque_mmr_leaf[:-1]),
    ):
        with pytest.raises(BadProof):
            verified(replace(GOOD, proof=replace(GOOD.proof, consensus_chain_mmr_proof=wrong)))


def test_flipped_bits_are_detected() -> None:
    data = GOOD.encode()
    for bit in range(0, 8 * len(data), 13):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            found = CrossDomainMessage.decode(bytes(changed))
            verified(found)
        except ProofError:
            continue
        # The proof covers neither the block of the root nor the tag.
        mmr = replace(
            found.proof.consensus_chain_mmr_proof, consensus_block_number=LEAVES, consensus_block_hash=bytes(32)
        )
        same = replace(found, proof=replace(found.proof, consensus_chain_mmr_proof=mmr), weight_tag=WeightTag())
        assert same == GOOD
