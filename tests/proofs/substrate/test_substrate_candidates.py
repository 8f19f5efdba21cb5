"""Gossip of Polkadot's first message passing: forms, errors and their order."""

from __future__ import annotations

import hashlib

import pytest
from causeway_proofs.errors import InvalidInput, OverLimit, ProofError, RootMismatch
from causeway_proofs.substrate.egress import (
    GossipedQueue,
    NeighborPacket,
    decode_gossip,
    egress_root,
    verify_gossiped_queue,
    verify_queue,
)
from causeway_proofs.substrate.errors import BadNeighborPacket, Malformed, UnexpectedQueue
from causeway_proofs.substrate.node import EMPTY_ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.topics import from_topic, queue_topic, to_topic
from tests.tiers import sized


def test_gossip_encodings() -> None:
    """ICMP reference 2.5: 01 01 Vec<Hash>; 03 root Vec<Vec<u8>>."""
    packet = NeighborPacket((b"\x0a" * 32, b"\x0b" * 32))
    assert packet.encode().hex() == "0101" + "08" + "0a" * 32 + "0b" * 32
    assert decode_gossip(packet.encode()) == packet
    queue = GossipedQueue(b"\x0c" * 32, (b"", b"\x01\x02"))
    assert queue.encode().hex() == "03" + "0c" * 32 + "08" + "00" + "080102"
    assert decode_gossip(queue.encode()) == queue
    for good in (packet.encode(), queue.encode()):
        for wrong in (*(good[:end] for end in range(len(good))), good + b"\x00"):
            with pytest.raises(Malformed):
                decode_gossip(wrong)
    for wrong in (b"\x01\x02\x00", b"\x02", b"\x04", b"\x00", b"\x01\x01\x01\x00", b"\x03" + bytes(32) + b"\x01\x00"):
        with pytest.raises(Malformed):
            decode_gossip(wrong)
    for encode in (NeighborPacket((bytes(31),)).encode, GossipedQueue(bytes(33), ()).encode):
        with pytest.raises(InvalidInput):
            encode()


def test_limits_of_gossip() -> None:
    five = NeighborPacket((bytes(32),) * 5)
    assert decode_gossip(five.encode()) == five
    with pytest.raises(BadNeighborPacket):
        decode_gossip(NeighborPacket((bytes(32),) * 6).encode())
    with pytest.raises(OverLimit):
        decode_gossip(b"\x03" + bytes(100), limit=99)
    with pytest.raises(OverLimit):
        decode_gossip(b"\x03" + bytes(32) + (70_000 << 2 | 2).to_bytes(4, "little") + bytes(70_000))


def test_valid_queue_is_expected_and_hashes_to_its_root() -> None:
    """ICMP reference 6, hazards 8 to 10."""
    messages = (b"one", b"two")
    root = egress_root(messages)
    assert verify_gossiped_queue(GossipedQueue(root, messages), {root})[-1].result == root
    for queue, error in (
        (GossipedQueue(root, messages), UnexpectedQueue),
        (GossipedQueue(EMPTY_ROOT, ()), UnexpectedQueue),
    ):
        with pytest.raises(error):
            verify_gossiped_queue(queue, {bytes(32)})
    for wrong in (messages[::-1], messages[:1], (*messages, b"two"), ()):
        with pytest.raises(RootMismatch):
            verify_gossiped_queue(GossipedQueue(root, wrong), {root})
    with pytest.raises(OverLimit):
        verify_gossiped_queue(GossipedQueue(root, messages), {root}, limit=5)
    with pytest.raises(OverLimit):
        verify_queue(root, messages, limit=5)


def test_topics_per_parachain() -> None:
    """ICMP reference 5.1 (3)."""
    block = bytes(range(32))
    expected = hashlib.blake2b(block + b"from" + bytes.fromhex("d0070000"), digest_size=32).digest()
    assert from_topic(block, 2000) == expected
    assert to_topic(block, 2000) == hashlib.blake2b(block + b"to\xd0\x07\x00\x00", digest_size=32).digest()
    assert len({from_topic(block, 1), to_topic(block, 1), from_topic(block, 2), queue_topic(block)}) == 4
    for wrong in (-1, 1 << 32):
        with pytest.raises(InvalidInput):
            from_topic(block, wrong)


@settings(deadline=None, max_examples=sized(90, 1000), derandomize=True)
@given(
    st.binary(max_size=80)
    | st.binary(max_size=80).map(lambda rest: b"\x01\x01" + rest)
    | st.binary(max_size=80).map(lambda rest: b"\x03" + bytes(32) + rest)
)
def test_any_bytes_are_gossip_or_refused(data: bytes) -> None:
    try:
        decoded = decode_gossip(data)
    except ProofError:
        return
    assert decoded.encode() == data
