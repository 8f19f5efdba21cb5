"""Links of nodes: strangers, duplicate, frequent and early connections, and silent peers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from causeway.gossip.processes.connection import Bounds, Hello, decode_hello, encode_frame
from causeway.gossip.processes.links import HOST, MOST_UNKNOWN, SPARE_CONNECTIONS, PeerLink, PeerLinks
from tests.support.gossip.gossip_shaken import ENOUGH, SHORT, Ends, limited, shaken, until

NETWORK, SECRET = b"n" * 32, b"s" * 16
HELLO = Hello(NETWORK, 2, 1, b"n" * 32)


class End:
    """Links of a node with records of joined and left peers."""

    def __init__(
        self, node: int, links: dict[int, PeerLink], bounds: Bounds | None = None, kept_out: float = 60.0
    ) -> None:
        self.joined: list[int] = []
        self.left: list[int] = []
        self.links = PeerLinks(
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


def test_known_nodes_reconnect() -> None:
    async def run() -> None:
        one, two = End(1, {2: PeerLink(SECRET, dials=True)}), End(2, {1: PeerLink(SECRET, dials=False)})
        await one.links.listen()
        one.links.found(2, await two.links.listen())
        await until(lambda: one.joined and two.joined)
        one.links.connections[2].send(b"hello")
        await until(lambda: two.links.connections[1].inbox)
        assert two.links.connections[1].session == one.links.connections[2].session
        await two.links.close()
        await until(lambda: one.left)
        # It returns at another address.
        again = End(2, {1: PeerLink(SECRET, dials=False)})
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
def test_strangers_are_rejected(name: str) -> None:
    hello, reason = STRANGERS[name]

    async def run() -> None:
        node = End(1, {2: PeerLink(SECRET, dials=False), 4: PeerLink(SECRET, dials=True)})
        reader, writer = await asyncio.open_connection(HOST, await node.links.listen())
        writer.write(encode_frame(hello.encode()) + encode_frame(b"dot1 and more".ljust(32)))
        said = await reader.read()
        # The node answers a claimed peer with a hello only, and others with nothing.
        assert not said if hello != HELLO else decode_hello(said[4:], NETWORK).peer == 2
        assert node.links.refused == {reason: 1} and not node.joined
        await node.links.close()

    limited(run)


async def dial_node(port: int) -> Ends:
    """Connect as node 2 to node 1."""
    reader, writer = await asyncio.open_connection(HOST, port)
    await shaken(reader, writer, NETWORK, 2, 1, SECRET)
    return reader, writer


def test_second_connection_of_a_node_is_rejected_and_the_first_remains() -> None:
    async def run() -> None:
        node = End(1, {2: PeerLink(SECRET, dials=False)})
        port = await node.links.listen()
        ends = await dial_node(port)
        with pytest.raises(EOFError):
            await dial_node(port)
        assert node.joined == [2] and node.links.refused == {"twice": 1} and not node.left
        ends[1].close()
        await node.links.close()

    limited(run)


def test_banned_peer_stays_banned() -> None:
    async def run() -> None:
        node = End(1, {2: PeerLink(SECRET, dials=False)})
        port = await node.links.listen()
        ends = await dial_node(port)
        await until(lambda: node.joined)
        node.links.exclude_peer(2, "Impolite")
        await until(lambda: node.left)
        with pytest.raises(EOFError):
            await dial_node(port)
        await until(lambda: node.links.refused["kept-out"])
        assert node.joined == [2] and node.links.refused == {"Impolite": 1, "kept-out": 1}
        assert node.links.put_out == {(2, "Impolite"): 1}
        ends[1].close()
        await node.links.close()

    limited(run)


def test_banned_peer_returns_after_the_ban() -> None:
    async def run() -> None:
        one, two = End(1, {2: PeerLink(SECRET, dials=True)}), End(2, {1: PeerLink(SECRET, dials=False)}, kept_out=SHORT)
        await one.links.listen()
        one.links.found(2, await two.links.listen())
        await until(lambda: two.joined == [1])
        two.links.exclude_peer(1, "Impolite")
        await until(lambda: two.joined == [1, 1] and one.joined == [2, 2])
        await one.links.close()
        await two.links.close()

    limited(run)


def test_frequently_reconnecting_peer_is_rate_limited() -> None:
    async def run() -> None:
        node = End(1, {2: PeerLink(SECRET, dials=False)})
        port = await node.links.listen()
        for _ in range(SPARE_CONNECTIONS + 1):
            _, writer = await dial_node(port)
            await until(lambda: 2 in node.links.connections)
            writer.close()
            await until(lambda: 2 not in node.links.connections)
        with pytest.raises(EOFError):
            await dial_node(port)
        assert node.links.refused == {"closed": SPARE_CONNECTIONS + 1, "kept-out": 1}
        await node.links.close()

    limited(run)


def test_silent_connections_release_their_slot_soon() -> None:
    async def run() -> None:
        node = End(1, {2: PeerLink(SECRET, dials=False)}, Bounds(hello=1.0))
        port = await node.links.listen()
        silent = [await asyncio.open_connection(HOST, port) for _ in range(MOST_UNKNOWN + 10)]
        await until(lambda: sum(node.links.refused.values()) == len(silent))
        assert node.links.refused["too-many"] >= 1
        await dial_node(port)
        await until(lambda: node.joined)
        await node.links.close()

    limited(run)


def test_silent_connections_do_not_exclude_known_peers() -> None:
    async def run() -> None:
        node = End(1, {2: PeerLink(SECRET, dials=False)}, Bounds(hello=10 * ENOUGH))
        port = await node.links.listen()
        silent = [await asyncio.open_connection(HOST, port) for _ in range(MOST_UNKNOWN + 3)]
        _, writer = await dial_node(port)
        await until(lambda: node.joined)
        assert await silent[0][0].read() == b"" and node.links.refused == {"too-many": 4}
        await node.links.close()
        for _, writer in silent:
            writer.close()

    limited(run)
