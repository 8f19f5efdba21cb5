"""Paused nodes (for example by a signal): honest peers are not penalized for messages sent meanwhile."""

from __future__ import annotations

import asyncio
import socket

import pytest
from causeway_proofs.substrate import egress_root
from causeway_proofs.substrate.egress import GossipedQueue, NeighborPacket, decode_gossip

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.connection import NO_TOPIC, decode_message, encode_frame, encode_message, read_frame
from causeway.gossip.processes.control import Control, encode_leaves
from causeway.gossip.processes.links import HOST
from causeway.gossip.processes.node import LeavesUpdate
from causeway.gossip.processes.node_process import LATE, NodeProcess, StallClock
from causeway.gossip.processes.step_trace import ImportedBlock
from tests.oracles.topics import queue_topic
from tests.support.gossip.gossip_shaken import ENOUGH, Ends, limited, shaken, until

NETWORK, SECRET, PEER = b"n" * 32, b"s" * 16, 1
OPTIONS = GossipOptions(least_reputation=-2_000)
ISSUED = b"i" * 32
QUEUES = [(number.to_bytes(2, "little"),) for number in range(40)]
OLD = ImportedBlock(b"o" * 32, 9, (), tuple((ISSUED, egress_root(queue)) for queue in QUEUES[:-1]))
NEW = ImportedBlock(b"w" * 32, 30, (), ((ISSUED, egress_root(QUEUES[-1])),))


class Node:
    """In-process node with test-controlled clocks."""

    def __init__(self) -> None:
        self.passed = self.worked = 0.0
        self.answers = True

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        self.control = Control(*await asyncio.open_connection(sock=ours))
        settings = {
            **{"epoch": 0.0, "metrics": None, "node": 0, "life": 1, "trace": None, "network": NETWORK},
            **{"options": OPTIONS.model_dump(), "links": [(PEER, SECRET, False)]},
        }
        control = Control(*await asyncio.open_connection(sock=theirs))
        standstill = StallClock(LATE, lambda: self.passed, lambda: self.worked)
        self.process = NodeProcess(control, settings, standstill)
        self.node, self.links = self.process._node, self.process._links
        self._tasks = [asyncio.create_task(self.process.run())]
        self.port = (await self.control.heard())["ready"]
        self._tasks.append(asyncio.create_task(self._client()))

    async def _client(self) -> None:
        """Relay chain client that delivers its updates in order."""
        while True:
            message = await self.control.heard()
            if "late" in message:
                await until(lambda: self.answers)
                await self.control.say({"now": message["late"]})

    async def tell(self, block: ImportedBlock) -> None:
        await self.control.say({"told": encode_leaves(LeavesUpdate((block.hash,), (block,)))})

    async def dialled(self) -> Ends:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        await shaken(reader, writer, NETWORK, PEER, 0, SECRET)
        return reader, writer

    def leaves(self) -> tuple[bytes, ...]:
        return self.node.leaves()

    async def end(self) -> None:
        self.control.close()
        self._tasks[1].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def queue_frame(queue: tuple[bytes, ...]) -> bytes:
    packet = GossipedQueue(egress_root(queue), queue).encode()
    return encode_frame(encode_message(queue_topic(ISSUED), packet))


def declaration_frame(block: ImportedBlock) -> bytes:
    return encode_frame(encode_message(NO_TOPIC, NeighborPacket((block.hash,)).encode()))


def test_input_during_a_pause_is_dropped_and_requested_again() -> None:
    async def run() -> None:
        node = Node()
        await node.start()
        await node.tell(OLD)
        await until(lambda: node.leaves() == (OLD.hash,))
        reader, writer = await node.dialled()
        writer.write(declaration_frame(OLD))
        await until(lambda: node.node.standing()["peers"] == 1)
        # During the pause its peer sends the queues of its last leaf, and the chain continues.
        node.answers = False
        for queue in QUEUES[:-1]:
            writer.write(queue_frame(queue))
        await node.tell(NEW)
        node.passed += 2 * LATE
        await until(lambda: node.links.refused["late"])
        with pytest.raises(EOFError):
            await node.dialled()  # no earlier node knows the current leaves
        node.answers = True
        await until(lambda: not node.links._paused)
        reader, writer = await node.dialled()
        said = b""
        while not said:
            said = await read_frame(reader, 1_000, ENOUGH)
        assert decode_gossip(decode_message(said)[1]) == NeighborPacket((NEW.hash,))
        writer.write(declaration_frame(NEW) + queue_frame(QUEUES[-1]))
        await until(lambda: node.node.standing()["there"] == 1)
        assert not node.node.counts["UnexpectedQueue"] and node.links.refused["UnexpectedQueue"] == 0
        await node.end()

    limited(run)


def test_peer_that_overloads_a_node_is_penalized() -> None:
    """Busy time is no pause: no peer can have it forget the messages of others."""

    async def run() -> None:
        node = Node()
        await node.start()
        await node.tell(NEW)
        await until(lambda: node.leaves() == (NEW.hash,))
        _, writer = await node.dialled()
        for queue in QUEUES[:-1]:
            writer.write(queue_frame(queue))
        node.passed, node.worked = 2 * LATE, 2 * LATE
        await until(lambda: node.links.refused)
        assert node.links.refused == {"UnexpectedQueue": 1} and node.node.counts["UnexpectedQueue"] == 20
        await node.end()

    limited(run)
