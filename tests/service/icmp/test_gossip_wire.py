"""Frames, connections and links of nodes against arbitrary peers."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from dataclasses import replace
from typing import Any

import cbor2
import pytest

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes import control
from causeway.gossip.processes.connection import (
    ALIVE,
    HELLO_BYTES,
    SPARE_SIGNS,
    Bounds,
    Hello,
    PeerConnection,
    RateBudget,
    WireError,
    decode_hello,
    decode_message,
    encode_frame,
    encode_message,
    message_limit,
    read_frame,
)
from causeway.gossip.processes.links import HOST
from tests.support.gossip.gossip_shaken import ENOUGH, SHORT, Ends, limited, until

NETWORK = b"n" * 32
HELLO = Hello(NETWORK, 2, 1, b"n" * 32)


def test_hello_identifies_the_speaker() -> None:
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
def test_invalid_hellos_are_rejected(body: bytes, reason: str) -> None:
    with pytest.raises(WireError) as found:
        decode_hello(body, NETWORK)
    assert found.value.reason == reason


def test_message_has_a_topic_and_a_packet() -> None:
    assert decode_message(encode_message(b"t" * 32, b"\x03...")) == (b"t" * 32, b"\x03...")
    for body in (b"", b"dot2" + b"t" * 33, b"dot1" + b"t" * 32):
        with pytest.raises(WireError):
            decode_message(body)


def read(data: bytes, limit: int = 100, end: bool = True) -> bytes:
    """Return the frame read from these bytes; without ``end`` the stream stays open and silent."""

    async def run() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        if end:
            reader.feed_eof()
        async with asyncio.timeout(ENOUGH):
            return await read_frame(reader, limit, SHORT if not end else ENOUGH)

    return asyncio.run(run())


def test_frame_is_read_completely() -> None:
    assert read(encode_frame(b"body") + b"more") == b"body" and read(ALIVE) == b""
    for cut in (0, 1, 3, 4, 7):
        with pytest.raises(EOFError):
            read(encode_frame(b"body")[:cut])


def test_length_is_checked_before_the_frame_is_read() -> None:
    for length in (101, 2**32 - 1):
        with pytest.raises(WireError) as found:
            read(struct.pack("<I", length), end=False)
        assert found.value.reason == "too-long"


@pytest.mark.parametrize("begun", [b"\x04", b"\x04\0\0\0", b"\x04\0\0\0bod"])
def test_started_frame_must_be_finished_in_time(begun: bytes) -> None:
    with pytest.raises(WireError) as found:
        read(begun, end=False)
    assert found.value.reason == "slow"


async def connect_pair(bounds: Bounds, limit: int = 1_000_000) -> tuple[PeerConnection, Ends, list[str]]:
    """Return a connection, its other end, and a holder for the reason of its end."""
    waiting: asyncio.Future[Ends] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *ends: waiting.set_result(ends), HOST, 0)
    mine = await asyncio.open_connection(*server.sockets[0].getsockname())
    theirs = await waiting
    server.close()
    ended: list[str] = []
    order = iter(range(1 << 30))
    connection = PeerConnection(
        *mine, 7, b"sessions", limit, bounds, lambda: None, lambda: next(order), lambda _, why: ended.append(why)
    )
    return connection, theirs, ended


def test_full_inbox_applies_backpressure_without_loss() -> None:
    async def run() -> None:
        connection, (_, writer), ended = await connect_pair(Bounds(inbox=8, inbox_bytes=1 << 20))
        for number in range(100):
            writer.write(encode_frame(bytes([number])))
        got: list[bytes] = []
        while len(got) < 100:
            await until(lambda: connection.inbox)
            await asyncio.sleep(0.001)
            assert len(connection.inbox) <= 8
            got += [body for _, body in connection.pop_bodies(len(connection.inbox))]
        assert got == [bytes([number]) for number in range(100)] and not ended
        connection.end("done")

    limited(run)


def test_buffered_bytes_are_bounded() -> None:
    async def run() -> None:
        connection, (_, writer), _ = await connect_pair(Bounds(inbox_bytes=3_000))
        for _ in range(50):
            writer.write(encode_frame(bytes(1_000)))
        await until(lambda: len(connection.inbox) == 3)
        await asyncio.sleep(SHORT)
        assert len(connection.inbox) == 3
        connection.end("done")

    limited(run)


@pytest.mark.parametrize(
    "bounds", [Bounds(outbox_bytes=10_000), Bounds(outbox=9), Bounds(begun=SHORT)], ids=["bytes", "frames", "time"]
)
def test_non_reading_peer_is_disconnected(bounds: Bounds) -> None:
    async def run() -> None:
        connection, _, ended = await connect_pair(bounds)
        for _ in range(64 if bounds.begun == SHORT else 10):
            connection.send(bytes(1 << 20))
        await until(lambda: ended)
        assert ended == ["does-not-read"]
        connection.send(b"nobody is there any more")

    limited(run)


def test_joining_peer_may_receive_the_whole_pool_at_once() -> None:
    async def run() -> None:
        connection, _, ended = await connect_pair(Bounds.for_pool(3 * Bounds.outbox_bytes))
        body = bytes(1 << 20)
        for _ in range(3 * Bounds.outbox_bytes >> 20):
            connection.send(body)
        assert not ended
        connection.end("done")

    limited(run)


def test_silent_peer_is_disconnected_but_keepalives_preserve_it() -> None:
    async def run() -> None:
        quick = Bounds(idle=SHORT, begun=SHORT)
        _, _, ended = await connect_pair(quick)
        await until(lambda: ended)
        assert ended == ["silent"]
        connection, (reader, _), ended = await connect_pair(Bounds(alive=SHORT))
        assert await read_frame(reader, 10, ENOUGH) == b"" and not ended
        connection.end("done")

    limited(run)


def test_keepalives_buffered_during_a_pause_are_not_excess_chatter() -> None:
    async def run() -> None:
        quick = Bounds(alive=SHORT)
        connection, (_, writer), ended = await connect_pair(quick)
        for _ in range(SPARE_SIGNS + 2):
            time.sleep(SHORT)  # nothing runs, as in a paused process; a keepalive is due after each
            writer.write(ALIVE)
        writer.write(encode_frame(b"body"))
        await until(lambda: connection.inbox or ended)
        assert not ended
        connection.end("done")

    limited(run)


@pytest.mark.parametrize(
    ("said", "why"), [(ALIVE * 30, "chatter"), (encode_frame(bytes(1_001)), "too-long"), (None, "closed")]
)
def test_protocol_violations_disconnect(said: bytes | None, why: str) -> None:
    async def run() -> None:
        _, (_, writer), ended = await connect_pair(Bounds(), limit=1_000)
        if said is None:
            writer.close()
        else:
            writer.write(said)
        await until(lambda: ended)
        assert ended == [why]

    limited(run)


def test_rate_budget_does_not_grow_with_time() -> None:
    budget = RateBudget(spare=3, rate=2.0)
    assert [budget.wait(10.0) for _ in range(5)] == [0, 0, 0, 0.5, 1.0]
    assert budget.wait(11.0) == 0.5 and budget.wait(12.0) == 0
    # The same holds after any time.
    assert [budget.wait(10_000.0) for _ in range(5)] == [0, 0, 0, 0.5, 1.0]


def test_keepalive_bursts_do_not_grow_with_connection_age() -> None:
    quick = Bounds()
    signs = quick.signs()
    unread = int((quick.idle + quick.begun) / quick.alive) + 1
    assert not any(signs.wait(0.0) for _ in range(2 * unread))
    assert not any(signs.wait(5_000.0 + quick.alive * n) for n in range(100))
    assert any(signs.wait(100_000.0) for _ in range(30))


DECLARATION = encode_frame(encode_message(bytes(32), b"\x01\x01\x00"))


def test_declarations_beyond_the_budget_wait_in_order() -> None:
    async def run() -> None:
        slow = Bounds(declared=0.001, declared_spare=4)
        connection, (_, writer), ended = await connect_pair(slow)
        writer.write(DECLARATION * 4 + encode_frame(b"a queue") + DECLARATION * 100 + encode_frame(b"another"))
        await until(lambda: len(connection.inbox) == 5)
        await asyncio.sleep(SHORT)
        assert len(connection.inbox) == 5 and not ended
        connection.end("done")
        # Declarations at a lower rate are not delayed.
        connection, (_, writer), ended = await connect_pair(Bounds(declared=200.0, declared_spare=4))
        writer.write(DECLARATION * 12 + encode_frame(b"a queue"))
        await until(lambda: len(connection.inbox) == 13)
        assert connection.inbox[-1][1] == b"a queue" and not ended
        connection.end("done")

    limited(run)


def test_longest_queue_fits_into_a_message() -> None:
    options = GossipOptions(max_queue_messages=3, max_queue_bytes=100)
    lengths = 3 * 4
    assert message_limit(options) >= 4 + 32 + 1 + 32 + 4 + lengths + 100


def test_paused_process_receives_all_messages_sent_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause each end of the socket pair between a node and its launcher within a message of the other."""
    monkeypatch.setattr(control, "SECONDS", SHORT, raising=False)

    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        ours, theirs = socket.socketpair()
        here = control.Control(*await asyncio.open_connection(sock=ours))
        reader, writer = await asyncio.open_connection(sock=theirs)
        there = control.Control(reader, writer)
        said = asyncio.create_task(here.say({"told": bytes(8 << 20)}))
        await asyncio.sleep(3 * SHORT)
        heard = await there.heard()
        await said
        body = encode_frame(cbor2.dumps({"status": 1}))
        writer.write(body[:-1])
        listening = asyncio.create_task(here.heard())
        await asyncio.sleep(3 * SHORT)
        writer.write(body[-1:])
        answer = await listening
        here.close()
        there.close()
        return heard, answer

    assert asyncio.run(run()) == ({"told": bytes(8 << 20)}, {"status": 1})
