"""A node without sockets: real bodies among nodes, and arbitrary bytes of hostile peers."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from causeway_proofs.substrate import egress_root
from causeway_proofs.substrate.egress import GossipedQueue, NeighborPacket

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.connection import NO_TOPIC, encode_message
from causeway.gossip.processes.node import GossipNode, LeavesUpdate, StepFrames
from causeway.gossip.processes.step_trace import ImportedBlock
from tests.oracles.topics import queue_topic
from tests.support.gossip.gossip_cores import Cores

OPTIONS = GossipOptions(impolite_limit=4)
MESSAGES = (b"one", b"two" * 50, b"")
ROOT = egress_root(MESSAGES)
OTHERS = ((b"another",), (b"and", b"another"))
ISSUED = b"i" * 32
LEAF = ImportedBlock(b"l" * 32, 9, (), tuple((ISSUED, egress_root(one)) for one in (MESSAGES, *OTHERS)))
TOPIC = queue_topic(ISSUED)
HONEST, HOSTILE = 1, 2


def declaration(*heads: bytes) -> bytes:
    return encode_message(NO_TOPIC, NeighborPacket(heads).encode())


def queue(messages: tuple[bytes, ...], root: bytes | None = None, topic: bytes = TOPIC) -> bytes:
    return encode_message(topic, GossipedQueue(root or egress_root(messages), messages).encode())


def node(options: GossipOptions = OPTIONS, kept: tuple[tuple[bytes, ...], ...] = ()) -> GossipNode:
    """Return a node with a leaf and two peers, which have the same leaf."""
    found = GossipNode(0, options, 0, lambda *_: None)
    for peer in (HONEST, HOSTILE):
        found.joined(peer, bytes(8))
    found.record_leaves(LeavesUpdate((LEAF.hash,), (LEAF,), {egress_root(one): one for one in kept}))
    found.step(1, [(HONEST, declaration(LEAF.hash)), (HOSTILE, declaration(LEAF.hash))])
    return found


def test_body_is_forwarded_byte_for_byte() -> None:
    body = queue(MESSAGES)
    assert node().step(2, [(HONEST, body)]) == StepFrames([(HOSTILE, body)], [], [(TOPIC, ROOT)])


def test_own_queues_are_sent_only_to_peers_with_the_leaf() -> None:
    found = GossipNode(0, OPTIONS, 0, lambda *_: None)
    for peer in (HONEST, HOSTILE):
        found.joined(peer, bytes(8))
    found.record_leaves(LeavesUpdate((LEAF.hash,), (LEAF,), {ROOT: MESSAGES}))
    made = found.step(1)
    assert made.got == [(TOPIC, ROOT)] and made.sends == [
        (HONEST, declaration(LEAF.hash)),
        (HOSTILE, declaration(LEAF.hash)),
    ]
    assert found.step(2, [(HONEST, declaration(b"x" * 32))]).sends == []
    assert found.step(3, [(HONEST, declaration(LEAF.hash))]).sends == [(HONEST, queue(MESSAGES))]


def test_message_pending_for_several_peers_is_stored_once() -> None:
    found = GossipNode(0, OPTIONS, 0, lambda *_: None)
    found.record_leaves(LeavesUpdate((LEAF.hash,), (LEAF,), {ROOT: MESSAGES}))
    sends: list[tuple[int, bytes]] = []
    for peer in range(1, 9):
        found.joined(peer, bytes(8))
        sends += found.step(peer, [(peer, declaration(LEAF.hash))]).sends
    bodies = [body for _, body in sends if body == queue(MESSAGES)]
    assert len(bodies) == 8 and all(body is bodies[0] for body in bodies)


def test_sent_queue_is_sent_again_only_over_a_new_connection() -> None:
    found = node(kept=(MESSAGES,))
    assert found.step(2, [(HONEST, declaration(LEAF.hash))]).sends == []
    found.left(HONEST)
    found.joined(HONEST, b"another ")
    made = found.step(3, [(HONEST, declaration(LEAF.hash))])
    assert made.sends == [(HONEST, declaration(LEAF.hash)), (HONEST, queue(MESSAGES))]


def test_peer_joining_and_leaving_within_a_step_is_no_peer() -> None:
    found = node()
    found.joined(5, bytes(8))
    found.left(5)
    found.step(2)
    assert found.standing()["peers"] == 2


MALFORMED = {
    "nothing": b"",
    "no topic": b"dot1",
    "no packet": b"dot1" + bytes(32),
    "another engine": b"dot2" + queue(MESSAGES)[4:],
    "a statement": encode_message(TOPIC, b"\x02" + bytes(40)),
    "version 2 of the packet": encode_message(NO_TOPIC, b"\x01\x02\x04" + bytes(32)),
    "a head cut off": declaration(LEAF.hash)[:-1],
    "a queue cut off": queue(MESSAGES)[:-1],
    "bytes behind a queue": queue(MESSAGES) + b"\0",
    "a count of messages that cannot be": encode_message(TOPIC, b"\x03" + ROOT + b"\x03\xff\xff\xff\xff"),
    "a count not in its shortest form": encode_message(TOPIC, b"\x03" + ROOT + b"\x01\x00"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_undecodable_packet_only_penalizes_its_sender(name: str) -> None:
    found = node()
    made = found.step(2, [(HOSTILE, MALFORMED[name]), (HONEST, queue(MESSAGES))])
    assert found.counts["Malformed"] == 1 and made.got == [(TOPIC, ROOT)] and made.disconnected == []
    made = found.step(3, [(HOSTILE, MALFORMED[name])] * 30)
    assert made.disconnected == [(HOSTILE, "Malformed")] and found.standing()["peers"] == 1


def six_heads(_: random.Random) -> bytes:
    return declaration(*(bytes([n]) * 32 for n in range(6)))


def unknown_topic(draw: random.Random) -> bytes:
    return queue((draw.randbytes(20),), topic=draw.randbytes(32))


def unknown_root(draw: random.Random) -> bytes:
    return queue((draw.randbytes(20),))


def wrong_body(draw: random.Random) -> bytes:
    return queue((draw.randbytes(20), b""), ROOT)


def echo(_: random.Random) -> bytes:
    return queue(OTHERS[0])


HOSTILE_PEERS: dict[str, tuple[Callable[[random.Random], bytes], str]] = {
    "six heads": (six_heads, "BadNeighborPacket"),
    "unknown topics": (unknown_topic, "UnexpectedQueue"),
    "roots that nobody posted": (unknown_root, "UnexpectedQueue"),
    "wrong bodies": (wrong_body, "RootMismatch"),
    "echoes": (echo, "Impolite"),
}


@pytest.mark.parametrize("name", HOSTILE_PEERS)
def test_hostile_peer_is_disconnected_and_honest_queues_arrive(name: str) -> None:
    said, verdict = HOSTILE_PEERS[name]
    found, draw = node(kept=OTHERS[:1]), random.Random(name)
    gone = False
    for time in range(2, 40):
        sends = [] if gone else [(HOSTILE, said(draw)) for _ in range(10)]
        honest = [(HONEST, queue(OTHERS[1]))] if time == 3 else [(HONEST, queue(MESSAGES))] if time == 30 else []
        made = found.step(time, [*sends, *honest])
        standing = found.standing()
        assert standing["pool"] <= len(LEAF.unrouted) and standing["pool_bytes"] < 1_000
        assert made.got == [(TOPIC, ROOT if time == 30 else egress_root(OTHERS[1]))] * bool(honest)
        gone = gone or made.disconnected == [(HOSTILE, verdict)]
    assert gone and found.counts[verdict] > 3


def test_step_takes_the_configured_quota_of_each_peer() -> None:
    found = node(GossipOptions(max_step_packets=2, max_step_bytes=100))
    waiting = [(HOSTILE, 60), (HOSTILE, 60), (HONEST, 1), (HOSTILE, 1), (HONEST, 1), (HONEST, 1)]
    assert found.admits(waiting) == [True, False, True, False, True, False] and found.admits([]) == []


def test_purges_occur_at_interval_multiples_before_other_events() -> None:
    times = []
    found = GossipNode(0, GossipOptions(purge_interval=100), 250, lambda taken, got, bodies: times.append(taken.time))
    assert found.purge_due == 300
    found.step(299)
    found.step(520)
    found.step(600)
    assert times == [299, 300, 400, 500, 520, 600, 600]


def test_queues_routed_before_arrival_are_counted() -> None:
    found = node(kept=(MESSAGES,))
    found.record_leaves(LeavesUpdate((b"m" * 32,), (ImportedBlock(b"m" * 32, 10, (), ()),)))
    found.step(2)
    assert found.counts["passed"] == 2


def test_bodies_are_dropped_with_the_pool() -> None:
    cores = Cores(2, GossipOptions(purge_interval=14))
    kept = []
    for _ in range(30):
        cores.block()
        cores.run()
        own = (len(core._bodies) + len(core._kept) + len(core._messages) for core in cores.cores.values())
        kept.append(max(own))
    assert max(kept[10:20]) * 1.5 > max(kept[20:]) and cores.chain.posted > 2 * max(kept)


@pytest.mark.parametrize("mode", ["block", "root"])
def test_collator_reports_its_consumable_prefix(mode: str) -> None:
    posted = [(3, b"3" * 32), (5, b"5" * 32)]
    first, second = ((hash_, egress_root(one)) for (_, hash_), one in zip(posted, OTHERS, strict=True))
    leaf = ImportedBlock(b"l" * 32, 9, (), (first, second))
    wanted = ((7, 3, *first), (7, 5, *second))
    found = GossipNode(0, GossipOptions.model_validate({"topic_mode": mode}), 0, lambda *_: None)
    found.record_leaves(LeavesUpdate((leaf.hash,), (leaf,), {second[1]: OTHERS[1]}, {leaf.hash: wanted}))
    found.step(1)
    assert found.prefixes() == {}  # the first is missing: never the second alone (hazard 1)
    found.record_leaves(LeavesUpdate((leaf.hash,), (), {first[1]: OTHERS[0]}))
    found.step(2)
    assert found.prefixes() == {leaf.hash: {7: 5}}


def test_nodes_deliver_every_queue_to_all() -> None:
    cores = Cores(4, GossipOptions())
    for _ in range(6):
        cores.block()
        cores.run()
        standings = [core.standing() for core in cores.cores.values()]
        assert all(one["there"] == one["expected"] for one in standings)
    assert cores.chain.posted >= 12 and all(len(got) > 8 for got in cores.got)
    # Queues before the last posted one await their parachain's next block; older ones were consumed.
    assert {entry.number for entry in cores.chain.best.unrouted} <= {5, 6}
