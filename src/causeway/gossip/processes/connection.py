"""A connection to a peer: frames in and out, each bounded, each wait with a deadline.

What came waits in ``inbox`` until a step takes it; where that is full, nothing more is read, so that a peer that floods
slows itself down. What goes out waits in a bounded queue; a peer that does not read is disconnected, and nobody else
waits for it.

What a peer may do in a time, however long it is there: so much at once, and then as often as a rate says.

Bytes between two nodes: frames, the first of which says who speaks (ICMP reference 2.5, X-3).

```
frame      length (u32, little-endian), body; of length 0: the sender is still there
hello      "cwgossip" version (u16) network (32 bytes) node (u32) peer (u32) nonce (32 bytes)
proof      32 bytes (``handshake``)
message    "dot1" topic (32 bytes) packet        packet: 01 01 Vec<Hash>, topic zeros; 03 root Vec<Vec<u8>>
```

A queue's topic travels beside its bytes: in the topic mode ``block`` nobody could tell it from the root.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from causeway_proofs.errors import InvalidInput

from causeway.gossip.options import GossipOptions


class RateBudget:
    """``spare`` things at once, and ``rate`` a second. Who was slow for a while finds the spare ones again, and no
    more: what is allowed does not grow with time."""

    def __init__(self, spare: int, rate: float) -> None:
        self._step = 1 / rate
        self._spare = spare * self._step
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Take one at ``now`` (seconds, which never fall); return in how many seconds it is within the budget."""
        due = max(self._next, now - self._spare)
        self._next = due + self._step
        return max(0.0, self._next - now)


VERSION = 2

LENGTH = struct.Struct("<I")

SECRET_BYTES = 16
SESSION_BYTES = 8
NONCE_BYTES = 32
PROOF_BYTES = 32

_HELLO = struct.Struct(f"<8sH32sII{NONCE_BYTES}s")
_MAGIC = b"cwgossip"

HELLO_BYTES = _HELLO.size
"""Bytes of the body of the first frame; nothing longer is read before it."""

_ENGINE = b"dot1"
_TOPIC = slice(len(_ENGINE), len(_ENGINE) + 32)
HEADER_BYTES = len(_ENGINE) + 32

_NEIGHBOUR = b"\x01"

NO_TOPIC = bytes(32)
"""The topic of what has none: neighbour packets."""

_ROOT_AND_LENGTHS = 64
"""More than what a queue's kind, root and count of messages take."""


class WireError(InvalidInput):
    """What came is no message of this protocol; ``reason`` names why in a word."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Hello:
    """Who speaks, to whom: ``network`` (hash of genesis), ``node``, ``peer``; ``nonce``: drawn for this connection."""

    network: bytes
    node: int
    peer: int
    nonce: bytes

    def encode(self) -> bytes:
        """Return the body of the frame."""
        return _HELLO.pack(_MAGIC, VERSION, self.network, self.node, self.peer, self.nonce)


def decode_hello(body: bytes, network: bytes) -> Hello:
    """Return who speaks. Raises ``WireError``: it is no hello, of another version, or of another network."""
    if len(body) != HELLO_BYTES:
        raise WireError("no-hello", f"a hello has {HELLO_BYTES} bytes, this has {len(body)}")
    magic, version, of, node, peer, nonce = _HELLO.unpack(body)
    if magic != _MAGIC:
        raise WireError("no-hello", f"a hello begins with {_MAGIC!r}, this with {magic!r}")
    if version != VERSION:
        raise WireError("version", f"the peer speaks version {version}, this node {VERSION}")
    if of != network:
        raise WireError("network", f"the peer is of the network {of.hex()}, this node of {network.hex()}")
    return Hello(of, node, peer, nonce)


def encode_frame(body: bytes) -> bytes:
    """Return the bytes of a frame."""
    return LENGTH.pack(len(body)) + body


ALIVE = encode_frame(b"")
"""What a node says that has nothing to say."""


def message_limit(options: GossipOptions) -> int:
    """Return the most bytes that the body of a message has: of the longest queue of the most messages."""
    lengths = 4 * options.max_queue_messages
    return HEADER_BYTES + _ROOT_AND_LENGTHS + lengths + options.max_queue_bytes


def encode_message(topic: bytes, packet: bytes) -> bytes:
    """Return the body of a message."""
    return _ENGINE + topic + packet


def decode_message(body: bytes) -> tuple[bytes, bytes]:
    """Return topic and packet. Raises ``WireError``: the body is no message."""
    if len(body) <= HEADER_BYTES or body[: len(_ENGINE)] != _ENGINE:
        raise WireError("no-message", f"a message begins with {_ENGINE!r} and a topic, this with {body[:4]!r}")
    return body[_TOPIC], body[HEADER_BYTES:]


def is_declaration(body: bytes) -> bool:
    """Return whether the body of a message is a neighbour packet, or begins as one."""
    return body[HEADER_BYTES : HEADER_BYTES + 1] == _NEIGHBOUR


SPARE_SIGNS = 8
"""Signs of life that a peer may send at once beyond two where one is asked for."""

Waiting = tuple[int, bytes]
"""A body, and its place in the order in which all of a node's peers were heard."""


@dataclass(frozen=True)
class Bounds:
    """What one connection may cost, and how long it may take. Times in seconds, sizes in bytes.

    ``hello``: until the other has said who it is. ``idle``: without a sign of life; ``alive``: between two of ours;
    ``begun``: from the first byte of a frame to its last, and for a frame to go out. ``inbox``, ``inbox_bytes``: bodies
    that wait for a step, beyond which nothing is read; ``outbox``, ``outbox_bytes``: frames that wait to go out, beyond
    which the peer is disconnected. ``declared``, ``declared_spare``: declarations of leaves that are taken a second,
    and at once; what comes behind them waits. A relay chain with a block every 50 ms, and a fork, makes no more.
    """

    hello: float = 5.0
    idle: float = 30.0
    alive: float = 5.0
    begun: float = 10.0
    inbox: int = 4_096
    inbox_bytes: int = 4 << 20
    outbox: int = 1 << 18
    outbox_bytes: int = 64 << 20
    declared: float = 40.0
    declared_spare: int = 64

    @classmethod
    def for_pool(cls, most: int) -> Bounds:
        """Return the bounds of a node whose pool has so many bytes at most: who joins is sent all of it at once."""
        return cls(outbox_bytes=cls.outbox_bytes + most)

    def signs(self) -> RateBudget:
        """Return the budget of signs of life, twice as many as are asked for. Who was not read for a while (this
        process was stopped, say) has sent no more than until it took this one for dead."""
        unread = 2 * (self.idle + self.begun) / self.alive
        return RateBudget(SPARE_SIGNS + int(unread), 2 / self.alive)


async def read_frame(reader: asyncio.StreamReader, limit: int, begun: float | None) -> bytes:
    """Return the body of the next frame; waits for its first byte as long as it takes, for the rest ``begun`` seconds,
    as long as it takes without.

    Raises:
        WireError: it is longer than ``limit`` (the bytes are not read), or takes too long.
        EOFError, OSError: the connection has ended.
    """
    first = await reader.readexactly(1)
    try:
        async with asyncio.timeout(begun):
            (length,) = LENGTH.unpack(first + await reader.readexactly(LENGTH.size - 1))
            if length > limit:
                raise WireError("too-long", f"a frame of {length} bytes; at most {limit} are read")
            return await reader.readexactly(length)
    except TimeoutError:
        raise WireError("slow", f"a frame was not there {begun:g} s after its first byte") from None


def create_watched_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task that nobody waits for; what it fails with goes to the loop's exception handler at once."""
    task = asyncio.create_task(work)

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            task.get_loop().call_exception_handler({"message": "a task failed", "exception": error})

    task.add_done_callback(ended)
    return task


class PeerConnection:
    """A connection whose two ends know each other. ``limit``: bytes of a body; ``heard``: is called where something
    came; ``number``: gives the next place in the order of what came; ``ended``: is called once, with why."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: int,
        session: bytes,
        limit: int,
        bounds: Bounds,
        heard: Callable[[], None],
        number: Callable[[], int],
        ended: Callable[[PeerConnection, str], None],
    ) -> None:
        self.peer, self.session = peer, session
        self.inbox: deque[Waiting] = deque()
        self._reader, self._writer, self._limit, self._bounds = reader, writer, limit, bounds
        self._heard, self._number, self._ended = heard, number, ended
        self._inbox_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._waits = asyncio.Event()
        self._over = False
        self._tasks = [create_watched_task(self._guarded(work)) for work in (self._read, self._write)]

    def taken(self, count: int) -> list[Waiting]:
        """Return the first bodies of the inbox, and take them out."""
        found = [self.inbox.popleft() for _ in range(count)]
        self._inbox_bytes -= sum(len(body) for _, body in found)
        self._note_room()
        return found

    def send(self, body: bytes) -> None:
        """Put a body behind what waits to go out; a peer for whom too much waits is disconnected."""
        if self._over:
            return
        self._outbox.append(body)
        self._outbox_bytes += len(body)
        if len(self._outbox) > self._bounds.outbox or self._outbox_bytes > self._bounds.outbox_bytes:
            self.end("does-not-read")
            return
        self._waits.set()

    def end(self, why: str) -> None:
        """End the connection now; what waits in either direction is dropped."""
        if self._over:
            return
        self._over = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self.inbox.clear()
        self._outbox.clear()
        self._writer.transport.abort()
        self._ended(self, why)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except WireError as error:
            self.end(error.reason)
        except TimeoutError:
            self.end("silent")
        except (EOFError, OSError):
            self.end("closed")

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        signs, declarations = self._bounds.signs(), RateBudget(self._bounds.declared_spare, self._bounds.declared)
        while True:
            await self._room.wait()
            async with asyncio.timeout(self._bounds.idle + self._bounds.begun):
                body = await read_frame(self._reader, self._limit, self._bounds.begun)
            if not body:
                # One that says only that it is there, again and again, costs time for nothing.
                if signs.wait(loop.time()):
                    raise WireError("chatter", "signs of life come faster than they are asked for")
                continue
            if is_declaration(body):
                # Each has the node look through its pool, and costs its sender nothing: it waits, unpunished.
                await asyncio.sleep(declarations.wait(loop.time()))
            self.inbox.append((self._number(), body))
            self._inbox_bytes += len(body)
            self._note_room()
            self._heard()

    def _note_room(self) -> None:
        full = len(self.inbox) >= self._bounds.inbox or self._inbox_bytes >= self._bounds.inbox_bytes
        (self._room.clear if full else self._room.set)()

    async def _write(self) -> None:
        while True:
            if not self._outbox:
                self._waits.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._bounds.alive):
                        await self._waits.wait()
            if self._outbox:
                body = self._outbox.popleft()
                self._outbox_bytes -= len(body)
                self._writer.write(encode_frame(body))
            else:
                self._writer.write(ALIVE)
            try:
                async with asyncio.timeout(self._bounds.begun):
                    await self._writer.drain()
            except TimeoutError:
                raise WireError("does-not-read", "the peer does not read") from None
