"""Frames, connections and links of nodes against peers that do what they like."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.service.icmp.connection import SPARE_SIGNS, Bounds, Connection, read_frame
from causeway.service.icmp.links import HOST, MOST_UNKNOWN, Link, Links
from causeway.service.icmp.wire import (
    ALIVE,
    HELLO_BYTES,
    Hello,
    WireError,
    decode_hello,
    decode_message,
    encode_message,
    frame,
    message_limit,
)
from tests.service.gossip_shaken import shaken

NETWORK, SECRET = b"n" * 32, b"s" * 16
HELLO = Hello(NETWORK, 2, 1, b"n" * 32)
ENOUGH = 20.0
"""Seconds after which a test has failed; nothing is measured."""

SHORT = 0.05


def limited(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(ENOUGH):
            await work()

    asyncio.run(run())


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def test_a_hello_says_who_speaks() -> None:
    assert len(HELLO.encode()) == HELLO_BYTES and decode_hello(HELLO.encode(), NETWORK) == HELLO


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no-hello"),
        (HELLO.encode()[:-1], "no-hello"),
        (HELLO.encode() + b"x", "no-hello"),
        (b"GET / HTTP/1.1\r\n".ljust(HELLO_BYTES, b" "), "no-hello"),
        (HELLO.encode()[:8] + b"\x01\x00" + HELLO.encode()[10:], "version"),
        (replace(HELLO, network=b"m" * 32).encode(), "network"),
    ],
)
def test_no_hello_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(WireError) as found:
        decode_hello(body, NETWORK)
    assert found.value.reason == reason


def test_a_message_has_a_topic_and_a_packet() -> None:
    assert decode_message(encode_message(b"t" * 32, b"\x03...")) == (b"t" * 32, b"\x03...")
    for body in (b"", b"dot2" + b"t" * 33, b"dot1" + b"t" * 32):
        with pytest.raises(WireError):
            decode_message(body)


def read(data: bytes, limit: int = 100, end: bool = True) -> bytes:
    """Return the frame that a reader makes of these bytes; without ``end`` nothing follows, and nothing ends."""

    async def run() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        if end:
            reader.feed_eof()
        async with asyncio.timeout(ENOUGH):
            return await read_frame(reader, limit, SHORT if not end else ENOUGH)

    return asyncio.run(run())


def test_a_frame_is_read_whole() -> None:
    assert read(frame(b"body") + b"more") == b"body" and read(ALIVE) == b""
    for cut in (0, 1, 3, 4, 7):
        with pytest.raises(EOFError):
            read(frame(b"body")[:cut])


def test_the_length_decides_before_anything_is_read() -> None:
    for length in (101, 2**32 - 1):
        with pytest.raises(WireError) as found:
            read(struct.pack("<I", length), end=False)
        assert found.value.reason == "too-long"


@pytest.mark.parametrize("begun", [b"\x04", b"\x04\0\0\0", b"\x04\0\0\0bod"])
def test_who_begins_a_frame_must_end_it(begun: bytes) -> None:
    with pytest.raises(WireError) as found:
        read(begun, end=False)
    assert found.value.reason == "slow"


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(bounds: Bounds, limit: int = 1_000_000) -> tuple[Connection, Peer, list[str]]:
    """Return a connection, the other end of it, and where the reason of its end will be."""
    waiting: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *ends: waiting.set_result(ends), HOST, 0)
    mine = await asyncio.open_connection(*server.sockets[0].getsockname())
    theirs = await waiting
    server.close()
    ended: list[str] = []
    order = iter(range(1 << 30))
    connection = Connection(
        *mine, 7, b"sessions", limit, bounds, lambda: None, lambda: next(order), lambda _, why: ended.append(why)
    )
    return connection, theirs, ended


def test_a_full_inbox_stops_the_sender_and_loses_nothing() -> None:
    async def run() -> None:
        connection, (_, writer), ended = await connected(Bounds(inbox=8, inbox_bytes=1 << 20))
        for number in range(100):
            writer.write(frame(bytes([number])))
        got: list[bytes] = []
        while len(got) < 100:
            await until(lambda: connection.inbox)
            await asyncio.sleep(0.001)
            assert len(connection.inbox) <= 8
            got += [body for _, body in connection.taken(len(connection.inbox))]
        assert got == [bytes([number]) for number in range(100)] and not ended
        connection.end("done")

    limited(run)


def test_bytes_that_wait_are_bounded_too() -> None:
    async def run() -> None:
        connection, (_, writer), _ = await connected(Bounds(inbox_bytes=3_000))
        for _ in range(50):
            writer.write(frame(bytes(1_000)))
        await until(lambda: len(connection.inbox) == 3)
        await asyncio.sleep(SHORT)
        assert len(connection.inbox) == 3
        connection.end("done")

    limited(run)


@pytest.mark.parametrize(
    "bounds", [Bounds(outbox_bytes=10_000), Bounds(outbox=9), Bounds(begun=SHORT)], ids=["bytes", "frames", "time"]
)
def test_who_does_not_read_is_disconnected(bounds: Bounds) -> None:
    async def run() -> None:
        connection, _, ended = await connected(bounds)
        for _ in range(64 if bounds.begun == SHORT else 10):
            connection.send(bytes(1 << 20))
        await until(lambda: ended)
        assert ended == ["does-not-read"]
        connection.send(b"nobody is there any more")

    limited(run)


def test_who_is_silent_is_disconnected_and_who_says_that_it_is_there_is_not() -> None:
    async def run() -> None:
        quick = Bounds(idle=SHORT, begun=SHORT)
        _, _, ended = await connected(quick)
        await until(lambda: ended)
        assert ended == ["silent"]
        connection, (reader, _), ended = await connected(Bounds(alive=SHORT))
        assert await read_frame(reader, 10, ENOUGH) == b"" and not ended
        connection.end("done")

    limited(run)


def test_who_read_nothing_for_a_while_does_not_take_the_signs_that_waited_for_chatter() -> None:
    async def run() -> None:
        quick = Bounds(alive=SHORT)
        connection, (_, writer), ended = await connected(quick)
        for _ in range(SPARE_SIGNS + 2):
            time.sleep(SHORT)  # nothing runs, as in a process that was stopped; a sign is due after each
            writer.write(ALIVE)
        writer.write(frame(b"body"))
        await until(lambda: connection.inbox or ended)
        assert not ended
        connection.end("done")

    limited(run)


@pytest.mark.parametrize(("said", "why"), [(ALIVE * 9, "chatter"), (frame(bytes(1_001)), "too-long"), (None, "closed")])
def test_who_does_not_keep_to_the_protocol_is_disconnected(said: bytes | None, why: str) -> None:
    async def run() -> None:
        _, (_, writer), ended = await connected(Bounds(), limit=1_000)
        if said is None:
            writer.close()
        else:
            writer.write(said)
        await until(lambda: ended)
        assert ended == [why]

    limited(run)


class End:
    """Links of a node, and who joined and left."""

    def __init__(self, node: int, links: dict[int, Link], bounds: Bounds | None = None, kept_out: float = 60.0) -> None:
        self.joined: list[int] = []
        self.left: list[int] = []
        self.links = Links(
            node,
            NETWORK,
            links,
            1_000,
            kept_out,
            bounds or Bounds(),
            lambda: None,
            lambda one: self.joined.append(one.peer),
            lambda one: self.left.append(one.peer),
        )


def test_two_nodes_that_know_each_other_find_each_other_again() -> None:
    async def run() -> None:
        one, two = End(1, {2: Link(SECRET, dials=True)}), End(2, {1: Link(SECRET, dials=False)})
        await one.links.listen()
        one.links.found(2, await two.links.listen())
        await until(lambda: one.joined and two.joined)
        one.links.connections[2].send(b"hello")
        await until(lambda: two.links.connections[1].inbox)
        assert two.links.connections[1].session == one.links.connections[2].session
        await two.links.close()
        await until(lambda: one.left)
        # It comes back elsewhere.
        again = End(2, {1: Link(SECRET, dials=False)})
        one.links.found(2, await again.links.listen())
        await until(lambda: again.joined)
        assert again.joined == [1]
        await one.links.close()
        await again.links.close()

    limited(run)


STRANGERS = {
    "another network": (replace(HELLO, network=b"m" * 32), "network"),
    "a node that is not known": (replace(HELLO, node=3), "stranger"),
    "another's name": (HELLO, "stranger"),
    "the node itself": (replace(HELLO, node=1), "stranger"),
    "a node that is dialled": (replace(HELLO, node=4), "stranger"),
    "who dials another": (replace(HELLO, peer=4), "stranger"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_not_let_in(name: str) -> None:
    hello, reason = STRANGERS[name]

    async def run() -> None:
        node = End(1, {2: Link(SECRET, dials=False), 4: Link(SECRET, dials=True)})
        reader, writer = await asyncio.open_connection(HOST, await node.links.listen())
        writer.write(frame(hello.encode()) + frame(b"dot1 and more".ljust(32)))
        said = await reader.read()
        # Nothing but a hello is said to who says to be a peer, nothing at all to others.
        assert not said if hello != HELLO else decode_hello(said[4:], NETWORK).peer == 2
        assert node.links.refused == {reason: 1} and not node.joined
        await node.links.close()

    limited(run)


async def dialled(port: int) -> Peer:
    """Connect as node 2 to node 1."""
    reader, writer = await asyncio.open_connection(HOST, port)
    await shaken(reader, writer, NETWORK, 2, 1, SECRET)
    return reader, writer


def test_a_second_connection_of_a_node_is_refused_and_the_first_stays() -> None:
    async def run() -> None:
        node = End(1, {2: Link(SECRET, dials=False)})
        port = await node.links.listen()
        ends = await dialled(port)
        with pytest.raises(EOFError):
            await dialled(port)
        assert node.joined == [2] and node.links.refused == {"twice": 1} and not node.left
        ends[1].close()
        await node.links.close()

    limited(run)


def test_who_is_kept_out_stays_out() -> None:
    async def run() -> None:
        node = End(1, {2: Link(SECRET, dials=False)})
        port = await node.links.listen()
        ends = await dialled(port)
        await until(lambda: node.joined)
        node.links.keep_out(2, "Impolite")
        await until(lambda: node.left)
        with pytest.raises(EOFError):
            await dialled(port)
        await until(lambda: node.links.refused["kept-out"])
        assert node.joined == [2] and node.links.refused == {"Impolite": 1, "kept-out": 1}
        ends[1].close()
        await node.links.close()

    limited(run)


def test_who_was_kept_out_comes_back_after_a_while() -> None:
    async def run() -> None:
        one, two = End(1, {2: Link(SECRET, dials=True)}), End(2, {1: Link(SECRET, dials=False)}, kept_out=SHORT)
        await one.links.listen()
        one.links.found(2, await two.links.listen())
        await until(lambda: two.joined == [1])
        two.links.keep_out(1, "Impolite")
        await until(lambda: two.joined == [1, 1] and one.joined == [2, 2])
        await one.links.close()
        await two.links.close()

    limited(run)


def test_who_says_nothing_takes_no_place_for_long() -> None:
    async def run() -> None:
        node = End(1, {2: Link(SECRET, dials=False)}, Bounds(hello=1.0))
        port = await node.links.listen()
        silent = [await asyncio.open_connection(HOST, port) for _ in range(MOST_UNKNOWN + 10)]
        await until(lambda: sum(node.links.refused.values()) == len(silent))
        assert node.links.refused["too-many"] >= 1
        await dialled(port)
        await until(lambda: node.joined)
        await node.links.close()

    limited(run)


def test_who_says_nothing_keeps_no_known_peer_out() -> None:
    async def run() -> None:
        node = End(1, {2: Link(SECRET, dials=False)}, Bounds(hello=10 * ENOUGH))
        port = await node.links.listen()
        silent = [await asyncio.open_connection(HOST, port) for _ in range(MOST_UNKNOWN + 3)]
        _, writer = await dialled(port)
        await until(lambda: node.joined)
        assert await silent[0][0].read() == b"" and node.links.refused == {"too-many": 4}
        await node.links.close()
        for _, writer in silent:
            writer.close()

    limited(run)


def test_the_longest_queue_fits_into_a_message() -> None:
    options = GossipOptions(max_queue_messages=3, max_queue_bytes=100)
    lengths = 3 * 4
    assert message_limit(options) >= 4 + 32 + 1 + 32 + 4 + lengths + 100
