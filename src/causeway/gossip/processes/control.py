"""Control channel between a node process and its parent: CBOR in frames over a socket pair.

Both ends trust each other; message sizes are bounded nevertheless. Reads have no deadline: a dead
process closes the stream, and a suspended one resumes in place.
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
"""Maximum size of a message in bytes."""


class Control:
    """One end of the control channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def heard(self) -> dict[str, Any]:
        """Receive the next message.

        Raises:
            EOFError: The other process ended.
            OSError: The connection failed.
        """
        body = await read_frame(self._reader, MOST_BYTES, None)
        message: dict[str, Any] = cbor2.loads(body)
        return message

    async def say(self, message: dict[str, Any]) -> None:
        """Send a message and wait until the stream's buffer has drained.

        Raises:
            OSError: The other process ended.
        """
        self._writer.write(encode_frame(cbor2.dumps(message)))
        await self._writer.drain()

    def close(self) -> None:
        """Abort the channel; the other process sees its end."""
        self._writer.transport.abort()


def encode_leaves(update: LeavesUpdate) -> dict[str, Any]:
    """Convert an update of leaves to a control message."""
    return asdict(update)


def decode_leaves(plain: dict[str, Any]) -> LeavesUpdate:
    """Convert a control message to an update of leaves."""
    blocks = tuple(
        ImportedBlock(
            block["hash"], block["number"], tuple(block["ancestors"]), tuple((a, b) for a, b in block["unrouted"])
        )
        for block in plain["blocks"]
    )
    own_queues = {root: tuple(messages) for root, messages in plain["kept"].items()}
    wanted = {leaf: tuple((p, n, h, r) for p, n, h, r in rows) for leaf, rows in plain["wanted"].items()}
    return LeavesUpdate(tuple(plain["leaves"]), blocks, own_queues, wanted)
