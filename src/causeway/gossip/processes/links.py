"""Links of a node: listener, dialler, and the handshake that authenticates both ends.

Each link has a secret shared by its two ends. Mutual authentication matters because a misbehaving
node is excluded for a while: a stranger must not be able to misbehave in its name. An
unauthenticated client learns only a nonce, never the connected or excluded peers.

```
dialler -> listener    hello: its number, the dialled number, a nonce
listener -> dialler    hello: the same of its own
dialler -> listener    proof of the dialler
listener -> dialler    proof of the listener, if it accepts the connection
```

A proof is HMAC-SHA-256 under the link's secret over its purpose, both hellos and both ports. It is
bound to one connection and one end: it cannot be replayed, reflected or relayed through a
man in the middle, whose ports differ.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from causeway.gossip.processes.connection import (
    HELLO_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    SESSION_BYTES,
    Bounds,
    Hello,
    PeerConnection,
    RateBudget,
    WireError,
    create_watched_task,
    decode_hello,
    encode_frame,
    read_frame,
)

DIALLER, LISTENER = b"causeway gossip dialler ", b"causeway gossip listener"
"""Purposes of a proof, by the end that makes it."""

_SESSION = b"causeway gossip session "


@dataclass(frozen=True)
class Handshake:
    """Shared view of a connection after both hellos.

    ``ports`` are the dialler's and the listener's.
    """

    secret: bytes
    dialler: Hello
    listener: Hello
    ports: tuple[int, int]

    def proof(self, purpose: bytes) -> bytes:
        """Compute the proof of one end (``DIALLER`` or ``LISTENER``)."""
        ports = b"".join(port.to_bytes(2, "little") for port in self.ports)
        return hmac.digest(self.secret, purpose + self.dialler.encode() + self.listener.encode() + ports, "sha256")

    def require(self, purpose: bytes, proof: bytes) -> None:
        """Verify the other end's proof for this connection.

        Raises:
            WireError: The proof is invalid.
        """
        if not hmac.compare_digest(self.proof(purpose), proof):
            speaker = self.dialler if purpose == DIALLER else self.listener
            raise WireError("stranger", f"who says to be node {speaker.node} does not prove it in {PROOF_BYTES} bytes")

    @property
    def session(self) -> bytes:
        """Identifier of the connection, equal at both ends."""
        return self.proof(_SESSION)[:SESSION_BYTES]


HOST = "127.0.0.1"

MOST_UNKNOWN = 64
"""Maximum number of unauthenticated connections; the oldest is closed, so silent clients block no one."""

SPARE_CONNECTIONS, CONNECTIONS = 8, 0.2
"""Connections a peer may open at once, and a second.

Each connection resets the peer's reputation and resends the pool, so frequent reconnects wait.
"""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to reach a peer."""


@dataclass(frozen=True)
class PeerLink:
    """Link to a peer: the shared ``secret``; ``dials`` is True if this node is the dialler."""

    secret: bytes
    dials: bool


class PeerLinks:
    """Links of a node to its peers.

    Args:
        node: Number of the node.
        network: Genesis hash of the network.
        links: Links by number of the peer.
        limit: Maximum size of a message in bytes.
        kept_out: Seconds for which a misbehaving peer stays excluded.
        bounds: Resource limits of a connection.
        heard: Callback for each arrival.
        joined: Callback for a new connection.
        left: Callback for an ended connection.
    """

    def __init__(
        self,
        node: int,
        network: bytes,
        links: Mapping[int, PeerLink],
        limit: int,
        kept_out: float,
        bounds: Bounds,
        heard: Callable[[], None],
        joined: Callable[[PeerConnection], None],
        left: Callable[[PeerConnection], None],
    ) -> None:
        self.connections: dict[int, PeerConnection] = {}
        self.refused: Counter[str] = Counter()
        """Refused or ended connections by reason."""
        self.put_out: Counter[tuple[int, str]] = Counter()
        """Exclusions by peer and reason."""
        self._node, self._network, self._links, self._limit, self._bounds = node, network, links, limit, bounds
        self._exclusion_time = kept_out
        self._heard, self._joined, self._left = heard, joined, left
        self._ports: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._excluded_until: dict[int, float] = {}
        self._joins = {peer: RateBudget(SPARE_CONNECTIONS, CONNECTIONS) for peer in links}
        self._unknown: dict[asyncio.StreamWriter, None] = {}
        self._order = 0
        self._paused = False
        self._server: asyncio.Server | None = None
        self._dialers: list[asyncio.Task[None]] = []

    async def listen(self) -> int:
        """Start listening and dialling.

        Returns:
            The port.
        """
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        self._dialers = [create_watched_task(self._dial(peer)) for peer, link in self._links.items() if link.dials]
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def found(self, peer: int, port: int) -> None:
        """Record the port of a peer."""
        self._ports[peer] = port
        self._changed.set()

    def exclude_peer(self, peer: int, why: str) -> None:
        """Disconnect a peer for misbehaviour and exclude it for a while."""
        self._exclude(peer, why)
        self.end(peer, why)

    def end(self, peer: int, why: str) -> None:
        """Disconnect a peer; it may reconnect."""
        if peer in self.connections:
            self.connections[peer].end(why)

    def pause(self, why: str) -> None:
        """Disconnect all peers and accept none until ``resume``."""
        self._paused = True
        for connection in [*self.connections.values()]:
            connection.end(why)

    def resume(self) -> None:
        """Accept connections again."""
        self._paused = False

    async def close(self) -> None:
        """Close the listener and all connections."""
        for task in self._dialers:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for connection in [*self.connections.values()]:
            connection.end("stopped")

    def _next_number(self) -> int:
        self._order += 1
        return self._order

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._unknown) >= MOST_UNKNOWN:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.transport.abort()
        self._unknown[writer] = None
        try:
            async with asyncio.timeout(self._bounds.hello):
                handshake = await self._accept_handshake(reader, writer)
                peer = handshake.dialler.node
                self._require(peer)
                if writer not in self._unknown:
                    raise EOFError
                writer.write(encode_frame(handshake.proof(LISTENER)))
                await writer.drain()
            self._require(peer)
        except (WireError, TimeoutError, EOFError, OSError) as error:
            self.refused[_reason(error) if writer in self._unknown else "too-many"] += 1
            writer.transport.abort()
            return
        finally:
            self._unknown.pop(writer, None)
        self._join(peer, handshake.session, reader, writer)

    async def _accept_handshake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Handshake:
        """Complete the handshake as the listener.

        Raises:
            WireError: The other end is no known dialler, or its proof is invalid.
        """
        hello = await self._read_hello(reader)
        link = self._links.get(hello.node)
        if link is None or link.dials or hello.peer != self._node:
            raise WireError("stranger", f"node {hello.node} is none that dials node {self._node}")
        mine = self._hello(hello.node)
        writer.write(encode_frame(mine.encode()))
        handshake = Handshake(link.secret, hello, mine, (_port(writer, "peername"), _port(writer, "sockname")))
        handshake.require(DIALLER, await self._read_proof(reader))
        return handshake

    async def _dial(self, peer: int) -> None:
        pause = FIRST_PAUSE
        while True:
            if peer in self.connections or peer not in self._ports:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LONGEST_PAUSE):
                        await self._changed.wait()
                continue
            try:
                await self._reach(peer, self._ports[peer])
                pause = FIRST_PAUSE
            except (WireError, TimeoutError, EOFError, OSError) as error:
                self.refused[_reason(error)] += 1
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _reach(self, peer: int, port: int) -> None:
        if self._excluded_until.get(peer, 0.0) > asyncio.get_running_loop().time():
            raise WireError("kept-out", f"node {peer} is kept out for a while")
        async with asyncio.timeout(self._bounds.hello):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                handshake = await self._dial_handshake(peer, reader, writer)
                self._require(peer)
            except BaseException:
                writer.transport.abort()
                raise
        self._join(peer, handshake.session, reader, writer)

    async def _dial_handshake(self, peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Handshake:
        """Complete the handshake as the dialler.

        Raises:
            WireError: The other end is not the dialled peer, or its proof is invalid.
        """
        mine = self._hello(peer)
        writer.write(encode_frame(mine.encode()))
        hello = await self._read_hello(reader)
        if (hello.node, hello.peer) != (peer, self._node):
            raise WireError("stranger", f"node {hello.node} answers where node {peer} was dialled")
        ports = _port(writer, "sockname"), _port(writer, "peername")
        handshake = Handshake(self._links[peer].secret, mine, hello, ports)
        writer.write(encode_frame(handshake.proof(DIALLER)))
        handshake.require(LISTENER, await self._read_proof(reader))
        return handshake

    async def _read_hello(self, reader: asyncio.StreamReader) -> Hello:
        return decode_hello(await read_frame(reader, HELLO_BYTES, self._bounds.hello), self._network)

    async def _read_proof(self, reader: asyncio.StreamReader) -> bytes:
        return await read_frame(reader, PROOF_BYTES, self._bounds.hello)

    def _hello(self, peer: int) -> Hello:
        return Hello(self._network, self._node, peer, os.urandom(NONCE_BYTES))

    def _require(self, peer: int) -> None:
        """Reject connected and excluded peers, and all peers during a pause.

        Raises:
            WireError: The peer is rejected.
        """
        if self._paused:
            raise WireError("late", "nobody is taken before the leaves of today are known")
        if peer in self.connections:
            raise WireError("twice", f"node {peer} is connected already")
        if self._excluded_until.get(peer, 0.0) > asyncio.get_running_loop().time():
            raise WireError("kept-out", f"node {peer} is kept out for a while")

    def _join(self, peer: int, session: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = PeerConnection(
            reader,
            writer,
            peer,
            session,
            self._limit,
            self._bounds,
            self._heard,
            self._next_number,
            self._connection_ended,
        )
        self.connections[peer] = connection
        now = asyncio.get_running_loop().time()
        self._excluded_until[peer] = now + self._joins[peer].wait(now)
        self._joined(connection)

    def _connection_ended(self, connection: PeerConnection, why: str) -> None:
        del self.connections[connection.peer]
        self.refused[why] += 1
        if why in BROKEN:
            self._exclude(connection.peer, why)
        self._changed.set()
        self._left(connection)

    def _exclude(self, peer: int, why: str) -> None:
        self.put_out[peer, why] += 1
        self._excluded_until[peer] = asyncio.get_running_loop().time() + self._exclusion_time


BROKEN = frozenset({"too-long", "chatter"})
"""Reasons of disconnection that only a protocol violation by the peer can cause."""


def _reason(error: BaseException) -> str:
    if isinstance(error, WireError):
        return error.reason
    return "silent" if isinstance(error, TimeoutError) else "closed"


def _port(writer: asyncio.StreamWriter, end: str) -> int:
    """Return the port of an end of a connection (``sockname`` or ``peername``).

    Raises:
        EOFError: The connection is closed.
    """
    name = writer.get_extra_info(end)
    if name is None:
        raise EOFError
    port: int = name[1]
    return port
