"""A node process with an honest peer, a hostile peer and strangers over real sockets."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable

import psutil
import pytest
from causeway_proofs.substrate.egress import GossipedQueue, NeighborPacket, decode_gossip

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.connection import (
    NO_TOPIC,
    Hello,
    decode_message,
    encode_frame,
    encode_message,
    message_limit,
    read_frame,
)
from causeway.gossip.processes.links import HOST
from causeway.gossip.processes.network import NodeHandle
from causeway.gossip.processes.relay_chain import GeneratedRelayChain, RelayBlock, RelayChainClient
from tests.oracles.topics import queue_topic
from tests.support.gossip.gossip_cores import RELAY
from tests.support.gossip.gossip_shaken import shaken

ENOUGH = 120.0
HONEST, HOSTILE = 8, 9
SECRETS = {HONEST: b"h" * 16, HOSTILE: b"x" * 16}
OPTIONS = GossipOptions(impolite_limit=3, max_queue_bytes=1 << 16, max_queue_messages=64)


class Peer:
    """The test's end of a link to the node."""

    def __init__(self, number: int, network: bytes, port: int) -> None:
        self._number, self._network, self._port = number, network, port

    async def connect(self) -> Peer:
        self.reader, self.writer = await asyncio.open_connection(HOST, self._port)
        await shaken(self.reader, self.writer, self._network, self._number, 0, SECRETS[self._number])
        return self

    def declare(self, *heads: bytes) -> None:
        self.writer.write(encode_frame(encode_message(NO_TOPIC, NeighborPacket(heads).encode())))

    def send(self, topic: bytes, queue: GossipedQueue) -> None:
        self.writer.write(encode_frame(encode_message(topic, queue.encode())))

    async def hears(self) -> NeighborPacket | GossipedQueue:
        """Return the next packet with content."""
        while not (body := await read_frame(self.reader, message_limit(OPTIONS), ENOUGH)):
            pass
        return decode_gossip(decode_message(body)[1])

    async def ended(self) -> None:
        """Wait until the node has ended the connection."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except OSError:
            return


async def stranger(port: int, data: bytes) -> None:
    """Send data and wait until the node has ended the connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(data)
    try:
        while await reader.read(1 << 16):
            pass
    except OSError:
        return


def test_node_survives_strangers_and_a_hostile_peer_and_serves_the_honest_one() -> None:
    async def scene() -> None:
        chain = GeneratedRelayChain(0, 2, RELAY, lambda leaf, para: None)
        client, news = RelayChainClient(chain, 4), asyncio.Event()
        node = NodeHandle(0, (1,), client, news.set)

        async def until(true: Callable[[], object]) -> None:
            while not true():
                assert node.died is None, node.died
                news.clear()
                await news.wait()

        links = [(peer, secret, False) for peer, secret in SECRETS.items()]
        settings = {"network": chain.genesis.hash, "options": OPTIONS.model_dump(), "links": links}
        await node.start({**settings, "epoch": time.monotonic(), "trace": None, "metrics": None})
        assert node.port is not None and node.pid is not None
        process, network, port = psutil.Process(node.pid), chain.genesis.hash, node.port
        blocks: list[RelayBlock] = []
        while not blocks or not blocks[-1].listed:
            blocks += chain.generate_blocks()[:1]
            chain.best = blocks[-1]
        for block in blocks:
            client.imports(block)
        node.send_leaves(chain, 0)
        leaf = blocks[-1]
        mine, theirs = (next(one for one in leaf.listed if one.source == para) for para in (1, 2))
        posted = {entry.root: block.posted[entry.source, entry.destination] for block in blocks for entry in block.own}

        honest = await Peer(HONEST, network, port).connect()
        assert await honest.hears() == NeighborPacket((leaf.hash,))
        hello = Hello(network, HOSTILE, 0, bytes(32)).encode()
        unproved = encode_frame(hello) + encode_frame(bytes(32))
        for data in (struct.pack("<I", 2**32 - 1), unproved, encode_frame(b"GET / HTTP/1.1"), encode_frame(hello[:20])):
            await stranger(port, data)

        # Checked packets cost reputation until the node disconnects this peer.
        hostile = await Peer(HOSTILE, network, port).connect()
        hostile.declare(*(bytes([n]) * 32 for n in range(6)))
        hostile.send(queue_topic(theirs.issued), GossipedQueue(theirs.root, (b"another body",)))
        for n in range(5_000):
            hostile.send(bytes(32), GossipedQueue(n.to_bytes(32, "big"), (b"junk" * 10,)))
        await hostile.ended()
        await until(lambda: node.standing.get("UnexpectedQueue", 0) >= 90 and node.standing["peers"] == 1)
        before = process.memory_info().rss
        assert node.standing["BadNeighborPacket"] == 1 and node.standing["RootMismatch"] == 1
        with pytest.raises(EOFError):
            await Peer(HOSTILE, network, port).connect()
        await stranger(port, encode_frame(hello) + bytes(1 << 20))
        assert process.memory_info().rss < before + (64 << 20)

        # The node serves the honest peer as before: it sends its own queue, and accepts the other.
        honest.declare(leaf.hash)
        heard = await honest.hears()
        assert isinstance(heard, GossipedQueue) and heard.root in {one.root for one in leaf.listed if one.source == 1}
        assert heard.messages == posted[heard.root] and posted[mine.root]
        honest.send(queue_topic(theirs.issued), GossipedQueue(theirs.root, posted[theirs.root]))
        await until(lambda: node.standing.get("OK") and node.standing["there"])
        assert node.status["refused"]["stranger"] == 2 and node.status["refused"]["too-long"] == 1
        assert node.status["refused"]["no-hello"] == 2 and node.status["refused"]["kept-out"] == 1
        [[peer, why, times]] = node.status["put_out"]
        assert (peer, times) == (HOSTILE, 1) and node.status["refused"][why] == 1
        await node.end()
        assert not process.is_running()

    async def limited() -> None:
        async with asyncio.timeout(ENOUGH):
            await scene()

    asyncio.run(limited())
