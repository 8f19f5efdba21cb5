"""The test's end of a handshake with a node."""

from __future__ import annotations

import asyncio

from causeway.service.icmp.connection import read_frame
from causeway.service.icmp.handshake import DIALLER, LISTENER, Handshake
from causeway.service.icmp.wire import Hello, decode_hello, frame

ENOUGH = 60.0


async def shaken(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, network: bytes, node: int, peer: int, secret: bytes
) -> bytes:
    """Dial as ``node``; return the session. Raises ``EOFError`` or ``OSError``: the other does not take it."""
    mine = Hello(network, node, peer, b"nonce of the test".ljust(32))
    writer.write(frame(mine.encode()))
    said = decode_hello(await read_frame(reader, 1_000, ENOUGH), network)
    ports = writer.get_extra_info("sockname")[1], writer.get_extra_info("peername")[1]
    both = Handshake(secret, mine, said, ports)
    writer.write(frame(both.proof(DIALLER)))
    both.require(LISTENER, await read_frame(reader, 1_000, ENOUGH))
    return both.session
