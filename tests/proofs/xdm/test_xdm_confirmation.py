"""Whole carriers: public fixtures, their placeholder mountain range replaced by a local one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.hashing import HashFunction, digest_values
from causeway_proofs.mmr.columns import LeafProofs, verify_leaf_proofs
from causeway_proofs.mmr.mountain_range import leaf_hash
from causeway_proofs.substrate.errors import BadProof
from causeway_proofs.substrate.proof_columns import StorageProofs, read_values
from causeway_proofs.xdm.columns import ENVELOPES, LEAVES, RECEIPTS
from causeway_proofs.xdm.envelope import (
    CrossDomainMessage,
    MmrLeaf,
    message_storage_key,
    receipt_storage_key,
    verify_consensus_leaf,
    verify_cross_domain_message,
)

from tests.oracles.mmr import MountainRange, prove_leaves
from tests.vectors import load_vectors

ROOT_BYTES = 32
BLOCKS = 11


@pytest.fixture
def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load_vectors("substrate_proofs")["envelopes"]
    assert len(found) == 5
    return found


def confirmed(case: dict[str, Any], index: int) -> tuple[bytes, CrossDomainMessage]:
    """Return the root of a range in which leaf ``index`` holds the fixture's state root, and the envelope under it."""
    state_root = bytes.fromhex(case["state_root"])
    envelope = CrossDomainMessage.decode(bytes.fromhex(case["envelope"]))
    mountains = MountainRange()
    for block in range(BLOCKS):
        root = state_root if block == index else bytes([block]) * 32
        leaf = MmrLeaf(block, bytes([block]) * 32, root, bytes(32)).encode()
        mountains.append(leaf_hash(leaf))
        if block == index:
            proven = leaf
    made = prove_leaves(mountains, [index])
    mmr = dataclasses.replace(
        envelope.proof.consensus_chain_mmr_proof,
        opaque_mmr_leaf=proven,
        leaf_indices=made.leaf_indices,
        leaf_count=made.leaf_count,
        items=made.items,
    )
    proof = dataclasses.replace(envelope.proof, consensus_chain_mmr_proof=mmr)
    return mountains.root(), dataclasses.replace(envelope, proof=proof)


def options(case: dict[str, Any]) -> dict[str, bool]:
    return {
        "response": case["item"] == "InboxResponses",
        "strict_envelope": case["case"] != "between_domains_relay_message",
    }


@pytest.mark.parametrize("index", [0, 3, 7, 8, 10])
def test_from_the_mountain_range_to_the_message(cases: list[dict[str, Any]], index: int) -> None:
    for case in cases:
        root, envelope = confirmed(case, index)
        again = CrossDomainMessage.decode(envelope.encode())
        message, steps = verify_cross_domain_message(root, again, leaf_count=BLOCKS, **options(case))
        assert message.encode().hex() == case["message"]
        operations = [step.operation for step in steps]
        assert operations[0] == "message"
        assert operations[operations.index("state") :][:2] == ["state", "leaf"]
        assert (operations[-1], steps[-1].result) == ("root", root)


def test_all_carriers_in_columns(cases: list[dict[str, Any]]) -> None:
    """From envelopes to messages without a loop over them: leaves, state roots, receipts, messages, a call each."""
    confirmed_cases = [confirmed(case, number) for number, case in enumerate(cases)]
    encoded = [envelope.encode() for _, envelope in confirmed_cases]
    envelopes = ENVELOPES.decode(pa.array(encoded, pa.large_binary())).columns
    opaque = envelopes["opaque_mmr_leaf"]
    roots = np.frombuffer(b"".join(root for root, _ in confirmed_cases), dtype=np.uint8).reshape(-1, ROOT_BYTES)
    indices = envelopes["leaf_indices"].flatten().to_numpy()
    proofs = LeafProofs.from_lists(indices, envelopes["leaf_count"].to_numpy(), envelopes["items"])
    hashes = digest_values(HashFunction.KECCAK_256, opaque)
    assert not verify_leaf_proofs(proofs, hashes, roots, BLOCKS).codes.any()
    state_roots = LEAVES.decode(opaque).columns["state_root"]

    of_domain = envelopes["proof"].to_numpy() == 1
    kinds = pa.array(of_domain)
    domains = [receipt_storage_key(chain) for chain in envelopes["src_chain_id"].filter(kinds).to_pylist()]
    receipts = read_values(
        StorageProofs.of(state_roots.filter(kinds), envelopes["domain_proof"].filter(kinds)), domains
    )
    assert not receipts.codes.any()
    final = iter(RECEIPTS.decode(receipts.reads.values()).columns["final_state_root"].to_pylist())
    roots_by_row = zip(of_domain.tolist(), state_roots.to_pylist(), strict=True)
    message_roots = [next(final) if inner else root for inner, root in roots_by_row]

    keys = [
        message_storage_key(case["item"], sent.dst_chain_id, sent.channel_id, sent.nonce)
        for case, (_, sent) in zip(cases, confirmed_cases, strict=True)
    ]
    messages = read_values(StorageProofs.of(message_roots, envelopes["message_proof"]), keys)
    assert not messages.codes.any()
    expected = [case["message"] for case in cases]
    assert [value.hex() for value in messages.reads.values().to_pylist()] == expected


def test_flipped_bits_of_the_whole_carrier_are_detected(cases: list[dict[str, Any]]) -> None:
    """Only the named block, which selects the trusted root, and the weight tag may change."""
    case = cases[0]
    root, envelope = confirmed(case, 3)
    data = envelope.encode()
    for bit in range(0, 8 * len(data), 5):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            found = CrossDomainMessage.decode(bytes(changed))
            verify_cross_domain_message(root, found, leaf_count=BLOCKS, **options(case))
        except ProofError:
            continue
        mmr = dataclasses.replace(
            found.proof.consensus_chain_mmr_proof,
            consensus_block_number=envelope.proof.consensus_chain_mmr_proof.consensus_block_number,
            consensus_block_hash=envelope.proof.consensus_chain_mmr_proof.consensus_block_hash,
        )
        proof = dataclasses.replace(found.proof, consensus_chain_mmr_proof=mmr)
        assert dataclasses.replace(found, proof=proof, weight_tag=envelope.weight_tag) == envelope


def test_unproven_block_is_a_bad_proof(cases: list[dict[str, Any]]) -> None:
    root, envelope = confirmed(cases[0], 3)
    good = envelope.proof.consensus_chain_mmr_proof
    assert verify_consensus_leaf(root, good)[0].block_number == 3
    (index,) = good.leaf_indices
    for wrong in (
        dataclasses.replace(good, leaf_indices=()),
        dataclasses.replace(good, leaf_indices=(index, index + 1)),
        dataclasses.replace(good, leaf_indices=(index - 1,)),
        dataclasses.replace(good, leaf_count=0),
        dataclasses.replace(good, items=good.items[:-1]),
        dataclasses.replace(good, items=good.items[::-1]),
        dataclasses.replace(good, opaque_mmr_leaf=good.opaque_mmr_leaf + b"\x00"),
        dataclasses.replace(good, opaque_mmr_leaf=b""),
    ):
        with pytest.raises(BadProof):
            verify_consensus_leaf(root, wrong)
    with pytest.raises(BadProof):
        verify_consensus_leaf(bytes(32), good)
    with pytest.raises(BadProof):
        verify_consensus_leaf(root, good, BLOCKS + 1)
    # A malformed leaf with the right hash.
    mountains = MountainRange()
    mountains.append(leaf_hash(b"no leaf"))
    with pytest.raises(BadProof, match="no canonical SCALE encoding"):
        verify_consensus_leaf(
            mountains.root(),
            dataclasses.replace(good, opaque_mmr_leaf=b"no leaf", leaf_indices=(0,), leaf_count=1, items=()),
        )
