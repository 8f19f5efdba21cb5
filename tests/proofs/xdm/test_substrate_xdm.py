"""Cross-domain messages, channels and receipts in bytes, and refusals."""

from __future__ import annotations

import dataclasses

import pytest
from causeway_proofs.errors import InvalidInput, OverLimit
from causeway_proofs.substrate.byte_columns import encode_compact
from causeway_proofs.substrate.errors import BadProof, FailedToDecode, InvalidCall
from causeway_proofs.substrate.trie import Trie, prove
from causeway_proofs.xdm.envelope import (
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    EnvelopeProof,
    ExecutionReceipt,
    MmrLeaf,
    message_storage_key,
    open_envelope,
)
from causeway_proofs.xdm.messages import (
    CONSENSUS,
    XDM_TYPES,
    ChainId,
    ChannelOpen,
    CollectedFee,
    DispatchError,
    EndpointRequest,
    EndpointResponse,
    Message,
    Payload,
    ProtocolResponse,
    WeightTag,
)

from tests.oracles.xdm.channels import Channel


def test_limits_of_lists_in_receipts_and_envelopes() -> None:
    receipt = ExecutionReceipt.decode(bytes(256))
    assert receipt.encode() == bytes(256)
    many = bytes(137) + encode_compact(1025)
    with pytest.raises(OverLimit):
        ExecutionReceipt.decode(many + bytes(1 << 17))
    with pytest.raises(OverLimit):
        CrossDomainMessage.decode(bytes((5 << 20) + 1))
    with pytest.raises(FailedToDecode):
        ExecutionReceipt.decode(bytes(170) + encode_compact(60_000) + bytes(100))


def test_maps_of_a_receipt_are_in_order() -> None:
    amounts = [{"chain_id": "Consensus", "amount": 1}, {"chain_id": {"Domain": 7}, "amount": 2}]
    fields = ExecutionReceipt.decode(bytes(256)).fields
    fields["transfers"]["transfers_in"] = amounts
    data = ExecutionReceipt(0, b"", 0, b"", b"", fields).encode()
    assert ExecutionReceipt.decode(data).fields == fields
    for listed in (amounts[::-1], amounts[:1] * 2):
        written, instead = (XDM_TYPES.encode("Vec<ChainAmount>", each) for each in (amounts, listed))
        with pytest.raises(FailedToDecode, match="does not ascend"):
            ExecutionReceipt.decode(data.replace(written, instead))


def test_outbox_holds_requests() -> None:
    chain = ChainId(1)
    key = message_storage_key(OUTBOX, CONSENSUS, 0, 0)
    mmr = ConsensusChainMmrProof(0, bytes(32), b"", (), 0, ())
    for payload, good in ((ChannelOpen(1), True), (ProtocolResponse(), False)):
        message = Message(chain, CONSENSUS, 0, 0, payload)
        outbox = Trie.build([key], [message.encode()])
        envelope = CrossDomainMessage(
            chain, CONSENSUS, 0, 0, EnvelopeProof(mmr, tuple(prove(outbox, [key]))), WeightTag()
        )
        if good:
            assert open_envelope(outbox.root, envelope, response=False, strict_envelope=False)[0] == message
            continue
        with pytest.raises(InvalidCall):
            open_envelope(outbox.root, envelope, response=False, strict_envelope=False)
        other = dataclasses.replace(envelope, nonce=1)
        moved = Trie.build([message_storage_key(OUTBOX, CONSENSUS, 0, 1)], [message.encode()])
        other = dataclasses.replace(
            other, proof=EnvelopeProof(mmr, tuple(prove(moved, [message_storage_key(OUTBOX, CONSENSUS, 0, 1)])))
        )
        with pytest.raises(BadProof, match="nonce 1, the proof holds"):
            open_envelope(moved.root, other, response=False, strict_envelope=False)


def test_only_the_canonical_form_is_read() -> None:
    message = Message(CONSENSUS, ChainId(1), 0, 0, ChannelOpen(1), 5).encode()
    assert Message.decode(message).last_delivered_message_response_nonce == 5
    option = len(message) - 33
    with pytest.raises(FailedToDecode, match="canonical"):
        Message.decode(message[:option] + b"\x02" + message[option + 1 :])
    empty = Message(CONSENSUS, ChainId(1), 0, 0, EndpointResponse(b"")).encode()
    with pytest.raises(FailedToDecode, match="canonical"):
        Message.decode(empty[:-2] + b"\x01\x00" + empty[-1:])


def test_open_message_of_the_reference() -> None:
    """XDM reference 2.3: ChannelOpen(25) from Domain 1 to Domain 0, 83 bytes."""
    message = Message(ChainId(1), ChainId(0), 0, 0, ChannelOpen(25))
    assert message.encode().hex() == "0101000000" + "0100000000" + "00" * 64 + "0100000019000000" + "00"
    assert len(message.encode()) == 83


PAYLOADS: list[tuple[int, Payload]] = [
    (0, ChannelOpen(25, relay_fee=10**18)),
    (0, EndpointRequest(1, (1 << 64) - 1, b"0x41")),
    (1, EndpointRequest(1, 2, b"", CollectedFee((1 << 128) - 1, 0))),
    (1, ProtocolResponse(DispatchError("Module", b"\x01\x02\x00\x00\x00"))),
    (1, ProtocolResponse(DispatchError("Arithmetic", "Overflow"))),
    (0, EndpointResponse(b"text")),
    (1, EndpointResponse(b"\xff\x00")),
    (1, EndpointResponse(DispatchError("BadOrigin"))),
]


@pytest.mark.parametrize(("version", "payload"), PAYLOADS)
def test_messages_round_trip(version: int, payload: Payload) -> None:
    message = Message(CONSENSUS, ChainId((1 << 32) - 1), 1 << 255, 1 << 64, payload, 5, version)
    assert Message.decode(message.encode()) == message
    assert message.is_response == isinstance(payload, ProtocolResponse | EndpointResponse)


def test_payloads_of_the_wrong_version() -> None:
    for version, payload in ((1, ChannelOpen(25, relay_fee=1)), (0, ChannelOpen(25)), (1, EndpointRequest(1, 2, b""))):
        with pytest.raises(InvalidInput):
            Message(CONSENSUS, ChainId(1), 0, 0, payload, None, version).encode()
    good = bytearray(Message(CONSENSUS, ChainId(1), 0, 0, ChannelOpen(25)).encode())
    good[70] = 2
    with pytest.raises(FailedToDecode):
        Message.decode(bytes(good))


@pytest.mark.parametrize(
    "error",
    [
        DispatchError("Module", b""),
        DispatchError("Module", bytes(4)),
        DispatchError("Module"),
        DispatchError("Module", "index"),
        DispatchError("Token"),
        DispatchError("Token", bytes(5)),
        DispatchError("Token", "Elsewhere"),
        DispatchError("Other", "said"),
        DispatchError("Unheard"),
    ],
)
def test_errors_that_no_call_returns_are_refused(error: DispatchError) -> None:
    with pytest.raises(InvalidInput):
        Message(CONSENSUS, ChainId(1), 0, 0, ProtocolResponse(error)).encode()


def test_weight_tags_have_an_endpoint_or_none() -> None:
    for tag in (WeightTag("EndpointRequest"), WeightTag("None", 3), WeightTag("ProtocolChannelOpen", 0)):
        with pytest.raises(InvalidInput):
            tag.to_plain()


def test_channels_and_leaves_round_trip() -> None:
    for channel in (
        Channel(0),
        Channel(1 << 255, "Closed", 1, 2, 3, 4, None, b"\x01" * 32, 5),
        Channel(1, "Open", relay_fee=7),
    ):
        assert Channel.decode(channel.encode(), version=int(channel.relay_fee is None)) == channel
    short = Channel(1, maybe_owner=b"\x02" * 20)
    assert Channel.decode(short.encode(), account_bytes=20) == short
    leaf = MmrLeaf(7, b"\x01" * 32, b"\x02" * 32, b"\x03" * 32)
    assert len(leaf.encode()) == 101
    assert MmrLeaf.decode(leaf.encode()) == leaf
    with pytest.raises(FailedToDecode):
        MmrLeaf.decode(leaf.encode()[:-1])
