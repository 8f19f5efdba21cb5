"""A node's links: it listens, dials, and lets in only whom it knows, each once.

A link has a secret that both its ends are given and prove to each other (``handshake``), so that nobody takes another's
place: who misbehaves is kept out for a while, and that must not hit somebody in whose name a stranger speaks. Who has
proved nothing is told nothing but a nonce, and not who is connected or kept out.

How the two ends of a link show each other that they know its secret, without saying it.

```
dialler -> listener    hello: who it is, whom it dials, a nonce
listener -> dialler    hello: the same of its own
dialler -> listener    proof of the dialler
listener -> dialler    proof of the listener, where it takes the connection
```

A proof is HMAC-SHA-256 under the link's secret of what it is for, both hellos and the ports of both ends. So it is good
for this one connection, from this end: it can neither be said again, nor be given back to who made it, nor be passed on
by somebody between them, who has other ports.
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
"""What a proof is for: which end makes it."""

_SESSION = b"causeway gossip session "


@dataclass(frozen=True)
class Handshake:
    """What both ends know once both hellos are said. ``ports``: the dialler's and the listener's."""

    secret: bytes
    dialler: Hello
    listener: Hello
    ports: tuple[int, int]

    def proof(self, purpose: bytes) -> bytes:
        """Return what one end says (``DIALLER``, ``LISTENER``)."""
        ports = b"".join(port.to_bytes(2, "little") for port in self.ports)
        return hmac.digest(self.secret, purpose + self.dialler.encode() + self.listener.encode() + ports, "sha256")

    def require(self, purpose: bytes, proof: bytes) -> None:
        """Refuse a proof that the other end did not make for this connection. Raises ``WireError``."""
        if not hmac.compare_digest(self.proof(purpose), proof):
            who = self.dialler if purpose == DIALLER else self.listener
            raise WireError("stranger", f"who says to be node {who.node} does not prove it in {PROOF_BYTES} bytes")

    @property
    def session(self) -> bytes:
        """A name of this connection that both ends have."""
        return self.proof(_SESSION)[:SESSION_BYTES]


HOST = "127.0.0.1"

MOST_UNKNOWN = 64
"""Connections whose other end has not proved yet who it is; of more the oldest are closed, so that who says nothing
keeps nobody out."""

SPARE_CONNECTIONS, CONNECTIONS = 8, 0.2
"""How often a peer may connect at once, and a second: with each connection its reputation begins anew, and it is sent
what it had before. Who comes back more often waits."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts to reach a peer."""


@dataclass(frozen=True)
class PeerLink:
    """A peer: the ``secret`` of the link, and whether this node ``dials``."""

    secret: bytes
    dials: bool


class PeerLinks:
    """The links of ``node``. ``limit``: bytes of a message; ``kept_out``: seconds for which nobody is connected who was
    disconnected for what it sent; ``heard`` is called where something came, ``joined`` and ``left`` where a peer is
    there, and is no more."""

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
        """How many connections were refused or ended, by why."""
        self.put_out: Counter[tuple[int, str]] = Counter()
        """How often a peer was put out for a while for what it sent, by why."""
        self._node, self._network, self._links, self._limit, self._bounds = node, network, links, limit, bounds
        self._kept_out = kept_out
        self._heard, self._joined, self._left = heard, joined, left
        self._ports: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._out_until: dict[int, float] = {}
        self._joins = {peer: RateBudget(SPARE_CONNECTIONS, CONNECTIONS) for peer in links}
        self._unknown: dict[asyncio.StreamWriter, None] = {}
        self._order = 0
        self._paused = False
        self._server: asyncio.Server | None = None
        self._dialers: list[asyncio.Task[None]] = []

    async def listen(self) -> int:
        """Listen, dial whom this node dials, and return the port."""
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        self._dialers = [create_watched_task(self._dial(peer)) for peer, link in self._links.items() if link.dials]
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def found(self, peer: int, port: int) -> None:
        """Take notice that a peer listens at a port now."""
        self._ports[peer] = port
        self._changed.set()

    def exclude_peer(self, peer: int, why: str) -> None:
        """End the connection to a peer for what it sent, and take none from it for a while."""
        self._put_out(peer, why)
        self.end(peer, why)

    def end(self, peer: int, why: str) -> None:
        """End the connection to a peer, which may connect again."""
        if peer in self.connections:
            self.connections[peer].end(why)

    def pause(self, why: str) -> None:
        """End all connections, and take none until ``resume``."""
        self._paused = True
        for connection in [*self.connections.values()]:
            connection.end(why)

    def resume(self) -> None:
        """Take connections again."""
        self._paused = False

    async def close(self) -> None:
        """End all connections."""
        for task in self._dialers:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for connection in [*self.connections.values()]:
            connection.end("stopped")

    def _next(self) -> int:
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
                shaken = await self._answered(reader, writer)
                peer = shaken.dialler.node
                self._require(peer)
                if writer not in self._unknown:
                    raise EOFError
                writer.write(encode_frame(shaken.proof(LISTENER)))
                await writer.drain()
            self._require(peer)
        except (WireError, TimeoutError, EOFError, OSError) as error:
            self.refused[_why(error) if writer in self._unknown else "too-many"] += 1
            writer.transport.abort()
            return
        finally:
            self._unknown.pop(writer, None)
        self._join(peer, shaken.session, reader, writer)

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Handshake:
        """Return the handshake of whom the other end has proved to be. Raises ``WireError``: it has not."""
        said = await self._read_hello(reader)
        link = self._links.get(said.node)
        if link is None or link.dials or said.peer != self._node:
            raise WireError("stranger", f"node {said.node} is none that dials node {self._node}")
        mine = self._hello(said.node)
        writer.write(encode_frame(mine.encode()))
        shaken = Handshake(link.secret, said, mine, (_port(writer, "peername"), _port(writer, "sockname")))
        shaken.require(DIALLER, await self._read_proof(reader))
        return shaken

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
                self.refused[_why(error)] += 1
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _reach(self, peer: int, port: int) -> None:
        if self._out_until.get(peer, 0.0) > asyncio.get_running_loop().time():
            raise WireError("kept-out", f"node {peer} is kept out for a while")
        async with asyncio.timeout(self._bounds.hello):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                shaken = await self._asked(peer, reader, writer)
                self._require(peer)
            except BaseException:
                writer.transport.abort()
                raise
        self._join(peer, shaken.session, reader, writer)

    async def _asked(self, peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Handshake:
        """Return the handshake of a peer that has proved to be the one that was dialled. Raises ``WireError``."""
        mine = self._hello(peer)
        writer.write(encode_frame(mine.encode()))
        said = await self._read_hello(reader)
        if (said.node, said.peer) != (peer, self._node):
            raise WireError("stranger", f"node {said.node} answers where node {peer} was dialled")
        ports = _port(writer, "sockname"), _port(writer, "peername")
        shaken = Handshake(self._links[peer].secret, mine, said, ports)
        writer.write(encode_frame(shaken.proof(DIALLER)))
        shaken.require(LISTENER, await self._read_proof(reader))
        return shaken

    async def _read_hello(self, reader: asyncio.StreamReader) -> Hello:
        return decode_hello(await read_frame(reader, HELLO_BYTES, self._bounds.hello), self._network)

    async def _read_proof(self, reader: asyncio.StreamReader) -> bytes:
        return await read_frame(reader, PROOF_BYTES, self._bounds.hello)

    def _hello(self, peer: int) -> Hello:
        return Hello(self._network, self._node, peer, os.urandom(NONCE_BYTES))

    def _require(self, peer: int) -> None:
        """Refuse who is connected, or kept out, and everybody in a pause. Raises ``WireError``."""
        if self._paused:
            raise WireError("late", "nobody is taken before the leaves of today are known")
        if peer in self.connections:
            raise WireError("twice", f"node {peer} is connected already")
        if self._out_until.get(peer, 0.0) > asyncio.get_running_loop().time():
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
            self._next,
            self._gone,
        )
        self.connections[peer] = connection
        now = asyncio.get_running_loop().time()
        self._out_until[peer] = now + self._joins[peer].wait(now)
        self._joined(connection)

    def _gone(self, connection: PeerConnection, why: str) -> None:
        del self.connections[connection.peer]
        self.refused[why] += 1
        if why in BROKEN:
            self._put_out(connection.peer, why)
        self._changed.set()
        self._left(connection)

    def _put_out(self, peer: int, why: str) -> None:
        self.put_out[peer, why] += 1
        self._out_until[peer] = asyncio.get_running_loop().time() + self._kept_out


BROKEN = frozenset({"too-long", "chatter"})
"""Why a connection ends that only a peer that does not keep to the protocol is the reason of."""


def _why(error: BaseException) -> str:
    if isinstance(error, WireError):
        return error.reason
    return "silent" if isinstance(error, TimeoutError) else "closed"


def _port(writer: asyncio.StreamWriter, end: str) -> int:
    """Return the port of an end of a connection (``sockname``, ``peername``). Raises ``EOFError``: it is gone."""
    name = writer.get_extra_info(end)
    if name is None:
        raise EOFError
    port: int = name[1]
    return port
