"""Handshake of nodes: an intermediary or impersonator learns nothing that authenticates it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from causeway.gossip.processes.connection import Bounds, Hello, decode_hello, encode_frame, read_frame
from causeway.gossip.processes.links import DIALLER, HOST, LISTENER, Handshake, PeerLink, PeerLinks

NETWORK, SECRET = b"n" * 32, b"secret of a link"
ENOUGH = 20.0
LOW, HIGH = 1, 2
"""Of a link the node with the lower number dials."""

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Node:
    """Links of one of the two nodes."""

    def __init__(self, number: int) -> None:
        self.joined: list[bytes] = []
        links = {LOW + HIGH - number: PeerLink(SECRET, dials=number == LOW)}
        self.links = PeerLinks(
            number,
            NETWORK,
            links,
            1_000,
            60.0,
            Bounds(),
            lambda: None,
            lambda one: self.joined.append(one.session),
            lambda one: None,
        )


def scene(work: Callable[[Node, Node], Awaitable[None]]) -> None:
    async def run() -> None:
        low, high = Node(LOW), Node(HIGH)
        async with asyncio.timeout(ENOUGH):
            await work(low, high)
        await low.links.close()
        await high.links.close()

    asyncio.run(run())


async def instead_of_high(
    low: Node, attack: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> None:
    """Impersonate the other node towards ``low``; return its arrival and the end of the attack."""
    over = asyncio.Event()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not over.is_set():
            with contextlib.suppress(EOFError, OSError):
                await attack(reader, writer)
            over.set()
        writer.transport.abort()

    server = await asyncio.start_server(accepted, HOST, 0)
    await low.links.listen()
    low.links.found(HIGH, server.sockets[0].getsockname()[1])
    await over.wait()
    server.close()


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.005)


async def read_next(reader: asyncio.StreamReader) -> bytes:
    return await read_frame(reader, 1_000, ENOUGH)


def test_ends_with_the_shared_secret_derive_one_session() -> None:
    async def work(low: Node, high: Node) -> None:
        await low.links.listen()
        low.links.found(HIGH, await high.links.listen())
        await until(lambda: low.joined and high.joined)
        assert low.joined == high.joined and len(low.joined[0]) == 8

    scene(work)


def test_listener_on_a_dead_nodes_port_learns_nothing_reusable() -> None:
    async def work(low: Node, high: Node) -> None:
        said: list[bytes] = []

        async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            said.append(await read_next(reader))
            hello = decode_hello(said[0], NETWORK)
            writer.write(encode_frame(Hello(NETWORK, HIGH, LOW, hello.nonce).encode()))
            said.append(await read_next(reader))
            # Its message differs from the other end's: neither its hello nor its proof, reflected.
            writer.write(encode_frame(said[1]))
            assert await reader.read() == b""

        await instead_of_high(low, attack)
        assert not low.joined and low.links.refused["stranger"] == 1
        assert SECRET not in b"".join(said)
        # It repeats the same to the node it impersonates.
        reader, writer = await asyncio.open_connection(HOST, await high.links.listen())
        for part in said:
            writer.write(encode_frame(part))
        await read_next(reader)
        assert await reader.read() == b"" and not high.joined and high.links.refused == {"stranger": 1}

    scene(work)


def test_reflected_hello_is_rejected() -> None:
    async def work(low: Node, high: Node) -> None:
        async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(encode_frame(await read_next(reader)))
            assert await reader.read() == b""

        await instead_of_high(low, attack)
        assert not low.joined and low.links.refused["stranger"] == 1

    scene(work)


def test_proof_covers_all_handshake_inputs() -> None:
    one, other = Hello(NETWORK, LOW, HIGH, bytes(32)), Hello(NETWORK, HIGH, LOW, bytes(32))
    base = Handshake(SECRET, one, other, (7, 8))
    others = [replace(hello, nonce=b"x" * 32) for hello in (one, other)]
    altered = [
        base,
        replace(base, secret=b"another"),
        replace(base, dialler=others[0]),
        replace(base, dialler=replace(one, node=3)),
        replace(base, listener=others[1]),
        replace(base, ports=(9, 8)),
        replace(base, ports=(7, 9)),
    ]
    assert (
        len({shaken.proof(end) for shaken in altered for end in (DIALLER, LISTENER)} | {base.session})
        == 2 * len(altered) + 1
    )


def test_listeners_nonce_invalidates_replayed_handshakes() -> None:
    async def work(low: Node, high: Node) -> None:
        port = await high.links.listen()
        nonces = set()
        for _ in range(3):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(encode_frame(Hello(NETWORK, LOW, HIGH, bytes(32)).encode()))
            nonces.add(decode_hello(await read_next(reader), NETWORK).nonce)
            writer.close()
        assert len(nonces) == 3

    scene(work)


def test_man_in_the_middle_is_rejected_by_both_nodes() -> None:
    async def work(low: Node, high: Node) -> None:
        port = await high.links.listen()

        async def attack(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, here = await asyncio.open_connection(HOST, port)
            here.write(encode_frame(await read_next(reader)))
            writer.write(encode_frame(await read_next(there)))
            here.write(encode_frame(await read_next(reader)))
            writer.write(encode_frame(await read_next(there)))

        await instead_of_high(low, attack)
        assert not high.joined and high.links.refused == {"stranger": 1} and not low.joined

    scene(work)
