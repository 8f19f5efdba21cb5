"""Queues of candidates and gossip of Polkadot's first message passing: forms, errors and their order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import OverLimit, ProofError
from causeway.proofs.substrate.candidate import BlockQueues, BlockRoots, verify_incoming, verify_outgoing
from causeway.proofs.substrate.egress import (
    egress_queue_roots,
    egress_root,
    from_topic,
    queue_topic,
    to_topic,
    verify_queue,
)
from causeway.proofs.substrate.errors import (
    BadNeighborPacket,
    EgressRootMismatch,
    IngressChainMismatch,
    IngressCountMismatch,
    IngressRootMismatch,
    Malformed,
    MissingEgressRoot,
    NotAPrefix,
    RootMismatch,
    UnexpectedQueue,
)
from causeway.proofs.substrate.gossip import (
    GossipedQueue,
    NeighborPacket,
    decode_gossip,
    verify_gossiped_queue,
)
from causeway.proofs.substrate.node import EMPTY_ROOT
from tests.tiers import sized

CONSUMED: list[BlockQueues] = [(4, [(1, [b"a", b"b"]), (7, [b"c"])]), (9, [(2, [b"d" * 40] * 70)]), (12, [(1, [b"e"])])]
INGRESS: list[BlockRoots] = [
    (block, [(sender, egress_root(messages)) for sender, messages in queues]) for block, queues in CONSUMED
]


def test_a_prefix_is_consumed_whole() -> None:
    for watermark, blocks in ((3, 0), (4, 1), (8, 1), (9, 2), (11, 2), (12, 3), (99, 3)):
        steps = verify_incoming(INGRESS, watermark, CONSUMED[:blocks])
        assert [step.result for step in steps] == [root for _, roots in INGRESS[:blocks] for _, root in roots]
        for other in {0, 1, 2, 3} - {blocks}:
            with pytest.raises(NotAPrefix):
                verify_incoming(INGRESS, watermark, CONSUMED[:other])
    with pytest.raises(NotAPrefix):
        verify_incoming(INGRESS, 9, [CONSUMED[1], CONSUMED[0]])
    with pytest.raises(NotAPrefix):
        verify_incoming(INGRESS, 9, CONSUMED[1:2])


def test_what_is_wrong_with_a_block_has_its_own_error() -> None:
    (first, (one, other)), second, _ = CONSUMED
    cases: list[tuple[list[tuple[int, Sequence[bytes]]], type[ProofError]]] = [
        ([one], IngressCountMismatch),
        ([one, other, other], IngressCountMismatch),
        ([other, one], IngressChainMismatch),
        ([one, (8, [b"c"])], IngressChainMismatch),
        ([one, (7, [b"d"])], IngressRootMismatch),
        ([(1, [b"b", b"a"]), other], IngressRootMismatch),
        ([(1, [b"a"]), other], IngressRootMismatch),
        ([(1, [b"a", b"b", b"b"]), other], IngressRootMismatch),
        ([(1, []), other], IngressRootMismatch),
    ]
    for queues, error in cases:
        with pytest.raises(error):
            verify_incoming(INGRESS, 9, [(first, queues), second])
    # The first block is looked at whole before the second.
    with pytest.raises(IngressRootMismatch, match="block 4"):
        verify_incoming(INGRESS, 9, [(first, [(1, [b"x"]), other]), (9, [])])
    with pytest.raises(IngressCountMismatch, match="block 9"):
        verify_incoming(INGRESS, 9, [CONSUMED[0], (9, [])])
    with pytest.raises(OverLimit):
        verify_incoming(INGRESS, 9, CONSUMED[:2], limit=70 * 40)


def test_what_is_sent_is_what_is_posted() -> None:
    sent = [(9, b"x"), (2, b"y"), (9, b"z")]
    posted = egress_queue_roots(sent)
    steps = verify_outgoing(sent, posted)
    assert [step.result for step in steps] == [root for _, root in posted]
    assert verify_outgoing([], []) == ()
    for wrong in (posted[:1], posted[1:], posted[::-1], [*posted, (11, bytes(32))], [(1, posted[0][1]), posted[1]], []):
        with pytest.raises(MissingEgressRoot):
            verify_outgoing(sent, wrong)
    for messages in ([(9, b"z"), (2, b"y"), (9, b"x")], [(9, b"x"), (2, b"y")], [*sent, (2, b"y")]):
        with pytest.raises(EgressRootMismatch):
            verify_outgoing(messages, posted)
    with pytest.raises(OverLimit):
        verify_outgoing(sent, posted, limit=2)


def test_gossip_in_bytes() -> None:
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


def test_a_good_queue_is_expected_and_hashes_to_its_root() -> None:
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
