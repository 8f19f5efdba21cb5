"""The test's end of connections to nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from causeway.gossip.processes.connection import Hello, decode_hello, encode_frame, read_frame
from causeway.gossip.processes.links import DIALLER, LISTENER, Handshake

ENOUGH = 20.0
"""Seconds after which a test has failed; nothing is measured."""

SHORT = 0.05

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def limited(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(ENOUGH):
            await work()

    asyncio.run(run())


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.005)


async def shaken(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, network: bytes, node: int, peer: int, secret: bytes
) -> bytes:
    """Dial as ``node``; return the session. Raises ``EOFError`` or ``OSError``: the other does not take it."""
    mine = Hello(network, node, peer, b"nonce of the test".ljust(32))
    writer.write(encode_frame(mine.encode()))
    said = decode_hello(await read_frame(reader, 1_000, ENOUGH), network)
    ports = writer.get_extra_info("sockname")[1], writer.get_extra_info("peername")[1]
    both = Handshake(secret, mine, said, ports)
    writer.write(encode_frame(both.proof(DIALLER)))
    both.require(LISTENER, await read_frame(reader, 1_000, ENOUGH))
    return both.session
