"""The public cross-domain envelopes: every byte decoded, proofs followed to the message."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.substrate.errors import BadProof, FailedToDecode, UnusedNodesInTheProof
from causeway_proofs.substrate.proof_columns import StorageProofs, StorageVerdict, read_values
from causeway_proofs.xdm.columns import ENVELOPES, MESSAGES, RECEIPTS
from causeway_proofs.xdm.envelope import (
    CrossDomainMessage,
    ExecutionReceipt,
    message_storage_key,
    open_envelope,
    receipt_storage_key,
)
from causeway_proofs.xdm.messages import XDM_TYPES, ChainId, ChannelClose, ChannelOpen, Message, ProtocolResponse

from tests.support.properties import scale_values
from tests.vectors import decode_all, load_vectors

NAMES = (
    "from_consensus_relay_message_channel_open",
    "from_consensus_relay_message_response",
    "from_domains_relay_message",
    "from_domains_relay_message_channel_open",
    "between_domains_relay_message",
)
ROOT_BYTES = 32


@pytest.fixture
def cases() -> dict[str, Any]:
    return {case["case"]: case for case in load_vectors("substrate_proofs")["envelopes"]}


@pytest.fixture(params=NAMES)
def case(request: pytest.FixtureRequest, cases: dict[str, Any]) -> Any:
    return cases[request.param]


def open_case(case: Any, envelope: CrossDomainMessage | None = None, root: bytes | None = None) -> Message:
    """Follow the proofs of a fixture, or of an altered one."""
    message, _ = open_envelope(
        bytes.fromhex(case["state_root"]) if root is None else root,
        CrossDomainMessage.decode(bytes.fromhex(case["envelope"])) if envelope is None else envelope,
        response=case["item"] == "InboxResponses",
        # The one with a proof of the kind Consensus and a domain as its source.
        strict_envelope=case["case"] != "between_domains_relay_message",
    )
    return message


def test_every_byte_is_decoded(case: Any) -> None:
    data = bytes.fromhex(case["envelope"])
    envelope = CrossDomainMessage.decode(data)
    assert envelope.encode() == data
    assert (envelope.src_chain_id, envelope.dst_chain_id) == (ChainId(case["source"]), ChainId(case["destination"]))
    assert (envelope.channel_id, envelope.nonce) == (case["channel"], case["nonce"])
    assert envelope.proof.kind == case["proof_kind"]
    assert list(envelope.proof.message_proof) == decode_all(case["message_nodes"])
    nodes = case["domain_nodes"]
    assert envelope.proof.domain_proof == (None if nodes is None else tuple(decode_all(nodes)))
    assert envelope.weight_tag.kind == case["weight_tag"]
    mmr = envelope.proof.consensus_chain_mmr_proof
    assert [mmr.consensus_block_number, mmr.consensus_block_hash.hex()] == case["block"]
    assert (mmr.leaf_indices, mmr.leaf_count, mmr.items) == ((), 0, ())


def test_proofs_lead_to_the_message(case: Any) -> None:
    message = open_case(case)
    assert message.encode().hex() == case["message"]
    assert Message.decode(bytes.fromhex(case["message"])) == message
    key = message_storage_key(case["item"], message.dst_chain_id, message.channel_id, message.nonce)
    assert key.hex() == case["message_key"]
    assert message.version == case["version"]
    assert message.last_delivered_message_response_nonce == case["last_delivered"]
    match case["payload"]:
        case {"open": limit}:
            assert message.payload == ChannelOpen(limit)
        case {"close": True}:
            assert message.payload == ChannelClose()
        case payload:
            assert payload == {"response": "ok"} and message.payload == ProtocolResponse(None)


def test_columns_equal_single_reads(cases: dict[str, Any]) -> None:
    fixtures = [bytes.fromhex(case["envelope"]) for case in cases.values()]
    messages = [bytes.fromhex(case["message"]) for case in cases.values()]
    nodes = [decode_all(case["domain_nodes"] or []) for case in cases.values()]
    receipts = [max(proof, key=len) for proof in nodes if proof]
    for columns, encodings, rows in (
        (ENVELOPES, fixtures, [scale_values.of_envelope(CrossDomainMessage.decode(data)) for data in fixtures]),
        (MESSAGES, messages, [scale_values.of_message(Message.decode(data)) for data in messages]),
        (RECEIPTS, receipts, [scale_values.of_receipt(ExecutionReceipt.decode(data)) for data in receipts]),
    ):
        decoded = columns.decode(pa.array(encodings, pa.binary())).require_all()
        assert decoded.equals(pa.RecordBatch.from_pylist(rows, columns.schema))
        assert columns.encode(decoded).to_pylist() == encodings


def test_root_of_a_domain_comes_from_its_receipt(cases: dict[str, Any]) -> None:
    for case in cases.values():
        if case["proof_kind"] != "Domain":
            assert case["message_root"] == case["state_root"]
            continue
        assert receipt_storage_key(case["source"]).hex() == case["receipt_key"]
        receipt_value = max(decode_all(case["domain_nodes"]), key=len)
        receipt = ExecutionReceipt.decode(receipt_value)
        assert receipt.final_state_root.hex() == case["message_root"]
        assert receipt.encode() == receipt_value


def test_storage_proofs_of_all_envelopes_are_read_together(cases: dict[str, Any]) -> None:
    """Two calls for any number of envelopes: roots of domains from receipts, then messages under all roots."""
    roots = [bytes.fromhex(cases[name]["state_root"]) for name in NAMES]
    envelopes = [CrossDomainMessage.decode(bytes.fromhex(cases[name]["envelope"])) for name in NAMES]
    domains = [row for row, envelope in enumerate(envelopes) if envelope.proof.domain_proof is not None]
    receipts = read_values(
        StorageProofs.of([roots[row] for row in domains], [envelopes[row].proof.domain_proof or () for row in domains]),
        [receipt_storage_key(envelopes[row].src_chain_id.domain or 0) for row in domains],
    )
    assert len(domains) == 2
    assert not receipts.codes.any()
    for row, receipt in zip(domains, receipts.reads.values().to_pylist(), strict=True):
        roots[row] = ExecutionReceipt.decode(receipt).final_state_root
    keys = [
        message_storage_key(cases[name]["item"], sent.dst_chain_id, sent.channel_id, sent.nonce)
        for name, sent in zip(NAMES, envelopes, strict=True)
    ]
    nodes = [list(envelope.proof.message_proof) for envelope in envelopes]
    messages = read_values(StorageProofs.of(roots, nodes), keys)
    assert not messages.codes.any()
    expected = [cases[name]["message"] for name in NAMES]
    assert [value.hex() for value in messages.reads.values().to_pylist()] == expected
    # A node of another envelope, none, and another envelope's root: each is refused separately.
    nodes[1].append(nodes[0][0] if nodes[0][0] not in nodes[1] else b"other")
    nodes[2].pop()
    roots[3] = roots[0]
    again = read_values(StorageProofs.of(roots, nodes), keys)
    assert [StorageVerdict(code).name for code in again.codes] == [
        "HOLDS",
        "UNUSED_NODES",
        "INVALID_PROOF",
        "INVALID_PROOF",
        "HOLDS",
    ]


def test_envelope_must_match_the_proven_message(case: Any) -> None:
    envelope = CrossDomainMessage.decode(bytes.fromhex(case["envelope"]))
    for change in (
        {"src_chain_id": ChainId(3)},
        {"dst_chain_id": ChainId(3)},
        {"channel_id": envelope.channel_id + 1},
        {"nonce": envelope.nonce + (1 << 64)},
    ):
        with pytest.raises(ProofError):
            open_case(case, dataclasses.replace(envelope, **change))


def test_domain_with_a_proof_of_the_kind_consensus_is_refused(cases: dict[str, Any]) -> None:
    case = cases["between_domains_relay_message"]
    envelope = CrossDomainMessage.decode(bytes.fromhex(case["envelope"]))
    with pytest.raises(BadProof):
        open_envelope(bytes.fromhex(case["state_root"]), envelope, response=False)


def test_request_is_no_response(case: Any) -> None:
    items = {"Outbox": "InboxResponses", "InboxResponses": "Outbox"}
    with pytest.raises(ProofError):
        open_case({**case, "item": items[case["item"]]})


def test_flipped_bits_are_detected(case: Any) -> None:
    """Only parts without a proof may change: the placeholder of the mountain range, and the weight tag."""
    fixture = bytes.fromhex(case["state_root"] + case["envelope"])
    good = CrossDomainMessage.decode(fixture[ROOT_BYTES:])
    for bit in range(0, 8 * len(fixture), 11):
        changed = bytearray(fixture)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            envelope = CrossDomainMessage.decode(bytes(changed[ROOT_BYTES:]))
            open_case(case, envelope, bytes(changed[:ROOT_BYTES]))
        except ProofError:
            continue
        mmr = envelope.proof.consensus_chain_mmr_proof
        proof = dataclasses.replace(good.proof, consensus_chain_mmr_proof=mmr)
        assert envelope == dataclasses.replace(good, proof=proof, weight_tag=envelope.weight_tag)
        assert envelope != good or changed[:ROOT_BYTES] == fixture[:ROOT_BYTES]


def test_missing_and_additional_bytes_are_detected(case: Any) -> None:
    data = bytes.fromhex(case["envelope"])
    for end in range(0, len(data), 7):
        with pytest.raises(FailedToDecode):
            CrossDomainMessage.decode(data[:end])
    with pytest.raises(FailedToDecode):
        CrossDomainMessage.decode(data + b"\x00")
    message = bytes.fromhex(case["message"])
    for end in range(len(message)):
        with pytest.raises(FailedToDecode):
            Message.decode(message[:end])
    with pytest.raises(FailedToDecode):
        Message.decode(message + b"\x00")


def test_envelope_nodes_are_a_set_and_all_are_needed(case: Any) -> None:
    envelope = CrossDomainMessage.decode(bytes.fromhex(case["envelope"]))
    nodes = envelope.proof.message_proof

    def with_nodes(*given: bytes) -> CrossDomainMessage:
        return dataclasses.replace(envelope, proof=dataclasses.replace(envelope.proof, message_proof=given))

    encoding = envelope.encode()
    for given in ((nodes[0], *nodes), nodes[::-1]):
        with pytest.raises(InvalidInput, match="no list that ascends"):
            with_nodes(*given).encode()
        written, instead = (XDM_TYPES.encode("Vec<Vec<u8>>", each) for each in (nodes, given))
        with pytest.raises(FailedToDecode, match="does not ascend"):
            CrossDomainMessage.decode(encoding.replace(written, instead))
    with pytest.raises(UnusedNodesInTheProof):
        open_case(case, with_nodes(*nodes, nodes[-1]))
    with pytest.raises(UnusedNodesInTheProof):
        open_case(case, with_nodes(*nodes, b"\xff" * 40))
