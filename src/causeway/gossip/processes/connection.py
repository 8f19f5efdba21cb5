"""Connections of gossip nodes: wire format, queues, deadlines (ICMP reference 2.5, X-3).

Messages from a peer wait in ``inbox`` until a step takes them. A full inbox stops reading, so a
flooding peer slows down only itself. Outgoing frames wait in a bounded queue: a peer that does not
read is disconnected, and no other peer waits for it. A ``RateBudget`` limits keep-alives and
declarations per connection, independent of its age.

Wire format:

```
frame      length (u32, little-endian), body; length 0 is a keep-alive
hello      "cwgossip" version (u16) network (32 bytes) node (u32) peer (u32) nonce (32 bytes)
proof      32 bytes (``handshake``)
message    "dot1" topic (32 bytes) packet        packet: 01 01 Vec<Hash>, topic zeros; 03 root Vec<Vec<u8>>
```

A queue's topic travels beside its bytes: in the topic mode ``block`` it does not follow from the root.
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
    """Token bucket of ``spare`` tokens, refilled at ``rate`` tokens a second.

    Unused tokens do not accumulate beyond ``spare``, so the allowance does not grow with time.
    """

    def __init__(self, spare: int, rate: float) -> None:
        self._step = 1 / rate
        self._spare = spare * self._step
        self._next = float("-inf")

    def wait(self, now: float) -> float:
        """Consume one token and return the delay until it is within the budget.

        Args:
            now: Monotonic time in seconds.

        Returns:
            Seconds to wait; 0 if a token was available.
        """
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
"""Size of a hello frame's body; a longer first frame is rejected unread."""

_ENGINE = b"dot1"
_TOPIC = slice(len(_ENGINE), len(_ENGINE) + 32)
HEADER_BYTES = len(_ENGINE) + 32

_NEIGHBOUR = b"\x01"

NO_TOPIC = bytes(32)
"""Topic of neighbour packets."""

_ROOT_AND_LENGTHS = 64
"""Upper bound in bytes for a queue's kind, root and message count."""


class WireError(InvalidInput):
    """Violation of the wire protocol; ``reason`` is its short code."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Hello:
    """First frame of each end: genesis hash, sender, recipient and a fresh nonce."""

    network: bytes
    node: int
    peer: int
    nonce: bytes

    def encode(self) -> bytes:
        """Encode the frame's body."""
        return _HELLO.pack(_MAGIC, VERSION, self.network, self.node, self.peer, self.nonce)


def decode_hello(body: bytes, network: bytes) -> Hello:
    """Decode a hello frame.

    Args:
        body: The frame's body.
        network: The genesis hash of this node's network.

    Raises:
        WireError: The body is no hello, or of another version or network.
    """
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
    """Prefix a body with its length."""
    return LENGTH.pack(len(body)) + body


ALIVE = encode_frame(b"")
"""Keep-alive frame."""


def message_limit(options: GossipOptions) -> int:
    """Return the maximum size in bytes of a message body under these options."""
    lengths = 4 * options.max_queue_messages
    return HEADER_BYTES + _ROOT_AND_LENGTHS + lengths + options.max_queue_bytes


def encode_message(topic: bytes, packet: bytes) -> bytes:
    """Encode the body of a message."""
    return _ENGINE + topic + packet


def decode_message(body: bytes) -> tuple[bytes, bytes]:
    """Split the body of a message into topic and packet.

    Raises:
        WireError: The body is no message.
    """
    if len(body) <= HEADER_BYTES or body[: len(_ENGINE)] != _ENGINE:
        raise WireError("no-message", f"a message begins with {_ENGINE!r} and a topic, this with {body[:4]!r}")
    return body[_TOPIC], body[HEADER_BYTES:]


SPARE_SIGNS = 8
"""Keep-alives a peer may send at once beyond twice the expected number."""

Waiting = tuple[int, bytes]
"""Arrival number (over all peers of a node) and body of a pending message."""


@dataclass(frozen=True)
class Bounds:
    """Resource limits of one connection; times in seconds, sizes in bytes.

    Attributes:
        hello: Deadline of the handshake.
        idle: Maximum silence of the peer.
        alive: Interval between our keep-alives.
        begun: Deadline from a frame's first to its last byte, and for writing a frame.
        inbox: Pending incoming bodies; reading stops above it.
        inbox_bytes: Size of the pending incoming bodies; reading stops above it.
        outbox: Pending outgoing frames; the peer is disconnected above it.
        outbox_bytes: Size of the pending outgoing frames; the peer is disconnected above it.
        declared: Declarations of leaves accepted a second; later bodies wait. A relay chain with a
            block every 50 ms and a fork stays below it.
        declared_spare: Declarations of leaves accepted at once.
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
        """Create bounds for a node's pool size; a new peer receives the whole pool at once.

        Args:
            most: Maximum pool size in bytes.
        """
        return cls(outbox_bytes=cls.outbox_bytes + most)

    def signs(self) -> RateBudget:
        """Create the budget for keep-alives: twice the expected rate.

        A stopped process may find all keep-alives that a peer sent until its idle deadline.
        """
        unread = 2 * (self.idle + self.begun) / self.alive
        return RateBudget(SPARE_SIGNS + int(unread), 2 / self.alive)


async def read_frame(reader: asyncio.StreamReader, limit: int, begun: float | None) -> bytes:
    """Read the next frame's body; the wait for its first byte is unbounded.

    Args:
        reader: The stream.
        limit: Maximum length in bytes.
        begun: Deadline in seconds from the first to the last byte; None for no deadline.

    Raises:
        WireError: The frame is too long (its body is not read) or too slow.
        EOFError: The stream ended.
        OSError: The connection failed.
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
    """Start a task without an awaiter; report its failure to the loop's exception handler."""
    task = asyncio.create_task(work)

    def report_failure(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            task.get_loop().call_exception_handler({"message": "a task failed", "exception": error})

    task.add_done_callback(report_failure)
    return task


class PeerConnection:
    """Authenticated connection to a peer.

    Args:
        reader: The incoming stream.
        writer: The outgoing stream.
        peer: Number of the peer.
        session: Identifier of the connection, equal at both ends.
        limit: Maximum size of a body in bytes.
        bounds: Resource limits.
        heard: Callback for each arrival.
        number: Source of arrival numbers.
        ended: Callback for the end of the connection, with its reason; called once.
    """

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
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._has_output = asyncio.Event()
        self._closed = False
        self._tasks = [create_watched_task(self._run_guarded(work)) for work in (self._read, self._write)]

    def pop_bodies(self, count: int) -> list[Waiting]:
        """Pop the first ``count`` bodies of the inbox."""
        found = [self.inbox.popleft() for _ in range(count)]
        self._inbox_bytes -= sum(len(body) for _, body in found)
        self._update_read_gate()
        return found

    def send(self, body: bytes) -> None:
        """Queue a body for sending; disconnect a peer whose queue is full."""
        if self._closed:
            return
        self._outbox.append(body)
        self._outbox_bytes += len(body)
        if len(self._outbox) > self._bounds.outbox or self._outbox_bytes > self._bounds.outbox_bytes:
            self.end("does-not-read")
            return
        self._has_output.set()

    def end(self, why: str) -> None:
        """Abort the connection and drop all pending messages."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self.inbox.clear()
        self._outbox.clear()
        self._writer.transport.abort()
        self._ended(self, why)

    async def _run_guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
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
            await self._may_read.wait()
            async with asyncio.timeout(self._bounds.idle + self._bounds.begun):
                body = await read_frame(self._reader, self._limit, self._bounds.begun)
            if not body:
                # Frequent keep-alives cost time without work: disconnect the peer.
                if signs.wait(loop.time()):
                    raise WireError("chatter", "keep-alive frames exceed the allowed rate")
                continue
            if body[HEADER_BYTES : HEADER_BYTES + 1] == _NEIGHBOUR:
                # A declaration makes the node scan its pool at no cost to the sender: delay it, without a penalty.
                await asyncio.sleep(declarations.wait(loop.time()))
            self.inbox.append((self._number(), body))
            self._inbox_bytes += len(body)
            self._update_read_gate()
            self._heard()

    def _update_read_gate(self) -> None:
        full = len(self.inbox) >= self._bounds.inbox or self._inbox_bytes >= self._bounds.inbox_bytes
        (self._may_read.clear if full else self._may_read.set)()

    async def _write(self) -> None:
        while True:
            if not self._outbox:
                self._has_output.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._bounds.alive):
                        await self._has_output.wait()
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
