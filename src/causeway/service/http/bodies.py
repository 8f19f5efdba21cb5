"""Request bodies and answers in bounded memory and processor time.

A body of a few kB is parsed on the event loop. A longer one waits for its turn (``BodyTurns``): one per
client, ``MOST_LONG`` in total, unread while it waits. The numbers of values, digits and levels are bounded
before parsing, so the longest body costs little more than its copy.

``BodyTransfers`` bounds the memory for bodies and answers in transfer, independent of slow clients. Long
answers are sent in pieces, so that they count here and not in the system's buffers. A client that does not
read is disconnected by its connection (``connections``), a slow transfer ends here. If memory runs out, the
slowest transfer is aborted; if none is slow, the new request is refused as busy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from causeway_proofs.errors import CausewayError, InvalidInput
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from causeway.config.document import is_deep
from causeway.protocols.shared.limits import MAX_ANSWER_BYTES
from causeway.service.http.connections import CONNECTION

PIECE = 64 << 10
"""Bytes sent at once; shorter bodies and answers are not counted."""

MOST_HELD = 8 * MAX_ANSWER_BYTES
"""Maximum memory in bytes for bodies and answers."""

LONGEST_ANSWER = 60.0
"""Seconds for sending an answer; clients wait no longer (``http.client.DEADLINE``)."""

TIME = 1.0
"""Seconds before a transfer may count as slow."""


class Busy(CausewayError):
    """Temporary lack of memory for bodies and answers."""


@dataclass(eq=False)
class BodyTransfer:
    """Body or answer in transfer.

    Attributes:
        connection: Its connection, if known.
        began: Start, in seconds of the monotonic clock.
        held: Bytes in memory.
        moved: Transferred bytes.
        complete: True for a received body.
        ended: True once its memory is released.
    """

    connection: Any
    began: float = field(default_factory=time.monotonic)
    held: int = 0
    moved: int = 0
    complete: bool = False
    ended: bool = False

    def can_be_closed(self, now: float) -> bool:
        """Return True if it is slow: it holds memory, is incomplete and had its minimum time."""
        return self.held > 0 and not self.complete and now - self.began > TIME

    def pace(self, now: float) -> float:
        """Return the rate in bytes a second."""
        return self.moved / (now - self.began)

    def cut(self) -> None:
        """Abort the transfer and release its memory."""
        self.ended = True
        self.held = 0
        if self.connection is not None:
            self.connection.cut()


class BodyTransfers:
    """All transfers of a server, with at most ``most`` bytes in memory."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self.most = most
        self._under_way: dict[BodyTransfer, None] = {}

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(transfer.held for transfer in self._under_way)

    def begin(self, scope: Scope) -> BodyTransfer:
        """Start a transfer for a request."""
        transfer = BodyTransfer(scope.get("state", {}).get(CONNECTION))
        self._under_way[transfer] = None
        return transfer

    def end(self, transfer: BodyTransfer) -> None:
        """Remove a transfer; repeated calls have no effect."""
        self._under_way.pop(transfer, None)

    def hold(self, transfer: BodyTransfer, size: int) -> None:
        """Set the memory of a transfer; abort slow transfers if the total is too large.

        Raises:
            Busy: The total is too large, and no transfer is slow.
        """
        before, transfer.held = transfer.held, size
        while self.size > self.most:
            now = time.monotonic()
            slow = [one for one in self._under_way if one is not transfer and one.can_be_closed(now)]
            if not slow:
                transfer.held = before
                raise Busy("as many bytes of requests and answers are under way as may be; try again later")
            slowest = min(slow, key=lambda one: one.pace(now))
            slowest.cut()
            self.end(slowest)


class PacedResponses:
    """ASGI middleware that sends answers in pieces and counts them in ``transfers``."""

    def __init__(self, app: ASGIApp, transfers: BodyTransfers) -> None:
        self._app, self._transfers = app, transfers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun: list[Message] = []

        async def paced(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            body = message.get("body", b"")
            if begun and len(body) > PIECE and not message.get("more_body", False):
                await self._answer(scope, receive, send, begun.pop(), body)
                return
            while begun:
                await send(begun.pop())
            await send(message)

        await self._app(scope, receive, paced)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, start: Message, body: bytes) -> None:
        """Send a long answer, or a busy error."""
        transfer = self._transfers.begin(scope)
        try:
            self._transfers.hold(transfer, len(body))
            async with asyncio.timeout(LONGEST_ANSWER):
                await send(start)
                while not transfer.ended:
                    piece = body[transfer.moved : transfer.moved + PIECE]
                    more = transfer.moved + len(piece) < len(body)
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
                    transfer.moved += len(piece)
                    transfer.ended = not more
        except Busy as busy:
            await JSONResponse({"error": busy.name, "text": str(busy)}, 503)(scope, receive, send)
        except TimeoutError:
            transfer.cut()
        finally:
            self._transfers.end(transfer)


JSON = "application/json"

SHORT = 8 << 10
"""Maximum size in bytes of a body that is parsed on the event loop."""

MOST_LONG = 2
"""Maximum number of longer bodies in transfer."""

LONGEST_REST = 0.1
"""Maximum pause in seconds of a long body's slot; by default as long as its transfer."""

LONGEST_BODY = 30.0
"""Seconds for receiving a body."""

HURRIED_BODY = 2.0
"""Seconds for receiving a long body while others wait, or another one of the same client."""

EXACT = 2**53
"""Bound below which integers are exact as floats of other JSON readers."""

MAX_NESTING = 64
"""Maximum nesting depth of a body."""

MAX_PARTS = 4_000
"""Maximum number of marks and strings in a body: about four a name with its value."""

MAX_NUMBER = 80
"""Maximum number of characters of a number."""

COPIES = 3
"""Copies of a body in memory: raw, JSON, and validated."""


class BodyTurns:
    """Queue of long bodies: one per client, ``most`` in total, in order of arrival."""

    def __init__(self, most: int = MOST_LONG) -> None:
        self._places = asyncio.Semaphore(most)
        self._rested = deque([0.0] * most)
        self._clients: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = 0
        self._behind: Counter[str] = Counter()
        self._coming: dict[asyncio.Timeout, str] = {}

    async def begin(self, client: str) -> Callable[[], None]:
        """Wait for a turn.

        Returns:
            The function that ends it; repeated calls have no effect.
        """
        own = self._clients.setdefault(client, asyncio.Lock())
        await self._own_turn(client, own)
        try:
            begun = await self._place()
        except BaseException:
            own.release()
            raise
        lock = [own]

        def end() -> None:
            if lock:
                lock.pop().release()
                # The slot pauses for the same time, so that other requests are answered.
                self._leave(time.monotonic() + min(time.monotonic() - begun, LONGEST_REST))

        return end

    async def _own_turn(self, client: str, own: asyncio.Lock) -> None:
        """Wait until the client has no other long body, and shorten the deadline of that one."""
        self._behind[client] += 1
        try:
            if own.locked():
                self._hurry([coming for coming, whose in self._coming.items() if whose == client])
            await own.acquire()
        finally:
            self._behind[client] -= 1
            if not self._behind[client]:
                del self._behind[client]

    def _hurry(self, bodies: Iterable[asyncio.Timeout]) -> None:
        """Shorten the deadlines of bodies that others wait for."""
        soon = asyncio.get_running_loop().time() + HURRIED_BODY
        for coming in bodies:
            if not coming.expired():
                coming.reschedule(min(coming.when() or soon, soon))

    async def _place(self) -> float:
        """Wait for a slot, and hurry the bodies that hold them; return the start of the turn."""
        self._waiting += 1
        try:
            if self._places.locked():
                self._hurry(self._coming)
            await self._places.acquire()
        finally:
            self._waiting -= 1
        rested = self._rested.popleft()
        try:
            await asyncio.sleep(rested - time.monotonic())
        except BaseException:
            self._leave(rested)
            raise
        return time.monotonic()

    def _leave(self, rested: float) -> None:
        """Release a slot that becomes free at a time."""
        self._rested.append(rested)
        self._places.release()

    @asynccontextmanager
    async def coming(self, client: str) -> AsyncIterator[None]:
        """Limit the time for receiving a body whose turn it is.

        Raises:
            TimeoutError: The body is too slow.
        """
        hurried = self._waiting or self._behind[client]
        async with asyncio.timeout(HURRIED_BODY if hurried else LONGEST_BODY) as deadline:
            self._coming[deadline] = client
            try:
                yield
            finally:
                del self._coming[deadline]


def require_json(request: Request) -> None:
    """Require the JSON media type; a form of another site cannot send it."""
    kinds = request.headers.getlist("content-type")
    if len(kinds) != 1 or kinds[0].split(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"content-type: {', '.join(kinds)[:80] or 'missing'}; allowed: {JSON}")


def client_address(request: Request) -> str:
    """Return the client's address; for IPv6 its /64 network, which one client can own."""
    host = request.client.host if request.client is not None else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:  # a proxy may report any text (X-Forwarded-For)
        return host


def read_length(request: Request, most: int) -> int:
    """Return the maximum size of a request's body: the declared one, or ``most``."""
    declared = request.headers.get("content-length", "")
    length = int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 20 else most
    if length > most:
        raise HTTPException(413, f"the body has more than {most} bytes")
    return length


async def read_body(
    request: Request, most: int, turns: BodyTurns, transfers: BodyTransfers, transfer: BodyTransfer
) -> bytes:
    """Read the body of a request up to ``most`` bytes.

    Args:
        request: The request.
        most: Maximum size in bytes.
        turns: Queue of long bodies.
        transfers: All transfers.
        transfer: This transfer.

    Raises:
        Busy: There is no memory for it.
    """
    pieces: list[bytes] = []
    try:
        async with turns.coming(client_address(request)) if most > SHORT else asyncio.timeout(LONGEST_BODY):
            async for piece in request.stream():
                transfer.moved += len(piece)
                if transfer.moved > most:
                    raise HTTPException(413, f"the body has more than {most} bytes")
                if transfer.ended:
                    raise ClientDisconnect
                if transfer.moved > PIECE:
                    transfers.hold(transfer, COPIES * transfer.moved)
                pieces.append(piece)
    except TimeoutError:
        raise HTTPException(408, "the body did not come in time") from None
    transfer.complete = True
    return b"".join(pieces)


def read_object(data: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object.

    Args:
        data: The body.

    Raises:
        InvalidInput: The body is no JSON object, or has too many or too long parts.
    """
    if _parts(data) > MAX_PARTS:
        raise InvalidInput(f"the body has more than {MAX_PARTS} names and values")
    try:
        content = json.loads(
            data,
            object_pairs_hook=_once,
            parse_constant=_reject_constant,
            parse_int=_parse_integer,
            parse_float=_parse_number,
        )
    except (ValueError, RecursionError):
        raise InvalidInput("the body is no JSON") from None
    if not isinstance(content, dict):
        raise InvalidInput("the body is no JSON object")
    if is_deep(content, MAX_NESTING):
        raise InvalidInput(f"the body is nested more than {MAX_NESTING} deep")
    return content


def _parts(data: bytes) -> int:
    """Return an upper bound for the number of names and values in JSON text, without parsing.

    A string counts once, as does each opening mark, comma and colon.
    """
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = bare.count(b'"') // 2
    if strings > MAX_PARTS:
        return strings
    outside = b"".join(bare.split(b'"')[::2])
    return strings + sum(outside.count(mark) for mark in (b"[", b"{", b",", b":"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidInput(f"{name[:80]}: stands twice in the body")
        found[name] = value
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        raise InvalidInput("the body is no JSON: half of a surrogate pair is no name") from None
    return found


def _parse_integer(text: str) -> int:
    _require_short(text)
    return int(text)


def _parse_number(text: str) -> int | float:
    """Parse a number with a point or an exponent; integral values become integers (RFC 8785)."""
    _require_short(text)
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < EXACT else number


def _require_short(number: str) -> None:
    if len(number) > MAX_NUMBER:
        raise InvalidInput(f"{number[:40]}...: a number of {len(number)} characters; at most {MAX_NUMBER} are allowed")


def _reject_constant(text: str) -> None:
    raise InvalidInput(f"the body is no JSON: {text} is no number of JSON")
