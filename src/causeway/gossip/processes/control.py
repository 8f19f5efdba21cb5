"""What a node process and the process that started it say to each other: CBOR in frames, over a pair of sockets that
only the two have. Each is the other's own; still nothing is taken that is longer than it may be.

No wait has a deadline: the end of a process ends the stream, and one that is stopped for a while (with its machine,
say) goes on where it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import cbor2

from causeway.gossip.processes.connection import encode_frame, read_frame
from causeway.gossip.processes.node import LeavesUpdate
from causeway.gossip.processes.step_trace import ImportedBlock

MOST_BYTES = 256 << 20
"""Bytes of one message."""


class Control:
    """One end of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def heard(self) -> dict[str, Any]:
        """Return the next message. Raises ``EOFError`` or ``OSError``: the other process is gone."""
        body = await read_frame(self._reader, MOST_BYTES, None)
        message: dict[str, Any] = cbor2.loads(body)
        return message

    async def say(self, message: dict[str, Any]) -> None:
        """Send a message; return when all but a little has gone. Raises ``OSError``: the other process is gone."""
        self._writer.write(encode_frame(cbor2.dumps(message)))
        await self._writer.drain()

    def close(self) -> None:
        """End it; the other process takes that as the end."""
        self._writer.transport.abort()


def encode_leaves(told: LeavesUpdate) -> dict[str, Any]:
    """Return leaves as a message has them."""
    return asdict(told)


def decode_leaves(plain: dict[str, Any]) -> LeavesUpdate:
    """Return leaves of a message."""
    blocks = tuple(
        ImportedBlock(
            block["hash"], block["number"], tuple(block["ancestors"]), tuple((a, b) for a, b in block["unrouted"])
        )
        for block in plain["blocks"]
    )
    kept = {root: tuple(messages) for root, messages in plain["kept"].items()}
    wanted = {leaf: tuple((p, n, h, r) for p, n, h, r in rows) for leaf, rows in plain["wanted"].items()}
    return LeavesUpdate(tuple(plain["leaves"]), blocks, kept, wanted)
