"""Bodies of requests: so few long ones at a time, bounded before they are parsed, parsed beside the event loop.

A body of a few kB is parsed where requests are answered. A longer one waits for its turn (``Turns``): a client has one
under way, all together ``MOST_LONG``; what waits is not read. How many values, digits and levels a body has is bounded,
so that the longest one costs little more than its copy.

What is held of bodies that come and of answers that go: so many bytes in all, whoever is slow.

A long answer goes out in pieces, each when those before it have gone, so that it is counted here and not in the buffers
of the system. One whose asker does not read is ended by its connection (``connections``), one that takes too long here.
Where more would be held than there may be, the slowest is cut off; if none has had its time, the new one is told to
come again.
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
"""Bytes that are sent at once; shorter bodies and answers are not counted."""

MOST_HELD = 8 * MAX_ANSWER_BYTES
"""Bytes of bodies and answers that are held at a time."""

LONGEST_ANSWER = 60.0
"""Seconds in which an answer must have gone; clients wait no longer (``http_client.DEADLINE``)."""

TIME = 1.0
"""Seconds that a transfer has before it is called slow."""


class Busy(CausewayError):
    """As many bytes of bodies and answers are under way as may be; that passes."""


@dataclass(eq=False)
class BodyTransfer:
    """A body or an answer under way. ``held``: its bytes in memory; ``moved``: how many have come, or gone;
    ``complete``: a body that has come, and is looked at; ``ended``: nothing of it is held any more."""

    connection: Any
    began: float = field(default_factory=time.monotonic)
    held: int = 0
    moved: int = 0
    complete: bool = False
    ended: bool = False

    def can_be_closed(self, now: float) -> bool:
        """Return whether it holds bytes for its other end, and has had its time."""
        return self.held > 0 and not self.complete and now - self.began > TIME

    def pace(self, now: float) -> float:
        """Return bytes a second."""
        return self.moved / (now - self.began)

    def cut(self) -> None:
        """End it: nothing of it is held any more."""
        self.ended = True
        self.held = 0
        if self.connection is not None:
            self.connection.cut()


class BodyTransfers:
    """All that is under way at a server. ``most``: bytes."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self.most = most
        self._under_way: dict[BodyTransfer, None] = {}

    @property
    def held(self) -> int:
        """Return how many bytes are held."""
        return sum(transfer.held for transfer in self._under_way)

    def begin(self, scope: Scope) -> BodyTransfer:
        """Return a new transfer of a request."""
        made = BodyTransfer(scope.get("state", {}).get(CONNECTION))
        self._under_way[made] = None
        return made

    def end(self, transfer: BodyTransfer) -> None:
        """Forget a transfer; one that is forgotten already is no error."""
        self._under_way.pop(transfer, None)

    def hold(self, transfer: BodyTransfer, size: int) -> None:
        """Let a transfer hold so many bytes, and cut slow ones off where they would be too many.

        Raises:
            Busy: they would be too many, and none is slow.
        """
        before, transfer.held = transfer.held, size
        while self.held > self.most:
            now = time.monotonic()
            slow = [one for one in self._under_way if one is not transfer and one.can_be_closed(now)]
            if not slow:
                transfer.held = before
                raise Busy("as many bytes of requests and answers are under way as may be; try again later")
            slowest = min(slow, key=lambda one: one.pace(now))
            slowest.cut()
            self.end(slowest)


class PacedResponses:
    """A layer of the application that sends answers in pieces, and counts them in ``transfers``."""

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
        """Send a long answer, or say that there is no place for it now."""
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
"""Bytes of a body that is read and parsed at once."""

MOST_LONG = 2
"""Longer bodies that are under way at a time."""

LONGEST_REST = 0.1
"""Seconds that the place of a long body is left empty afterwards at most; else as long as it took."""

LONGEST_BODY = 30.0
"""Seconds that a body may take to come."""

HURRIED_BODY = 2.0
"""Seconds that a long body may take to come while others wait for their turn, or another one of the same client."""

EXACT = 2**53
"""Below it every whole number is exact in what JSON's readers elsewhere take numbers for."""

MAX_NESTING = 64
"""Deepest nesting of a body."""

MAX_PARTS = 4_000
"""Marks and strings of a body: some four for each name with its value."""

MAX_NUMBER = 80
"""Characters of a number: none that is read has half as many."""

COPIES = 3
"""A body is held so often: as it came, as JSON, and as what is declared."""


class BodyTurns:
    """Whose long body comes next: one of each client, ``most`` of all together, in the order in which they came."""

    def __init__(self, most: int = MOST_LONG) -> None:
        self._places = asyncio.Semaphore(most)
        self._rested = deque([0.0] * most)
        self._clients: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting = 0
        self._behind: Counter[str] = Counter()
        self._coming: dict[asyncio.Timeout, str] = {}

    async def begin(self, client: str) -> Callable[[], None]:
        """Wait for a turn; return what ends it, which may be called more than once."""
        own = self._clients.setdefault(client, asyncio.Lock())
        await self._own_turn(client, own)
        try:
            begun = await self._place()
        except BaseException:
            own.release()
            raise
        held = [own]

        def end() -> None:
            if held:
                held.pop().release()
                # For as long again others are answered.
                self._leave(time.monotonic() + min(time.monotonic() - begun, LONGEST_REST))

        return end

    async def _own_turn(self, client: str, own: asyncio.Lock) -> None:
        """Wait until no other long body of the client is under way, and hurry the one that is."""
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
        """Shorten the deadlines of bodies for which others wait."""
        soon = asyncio.get_running_loop().time() + HURRIED_BODY
        for coming in bodies:
            if not coming.expired():
                coming.reschedule(min(coming.when() or soon, soon))

    async def _place(self) -> float:
        """Wait for one of the places, and hurry the bodies that hold them; return since when it is held."""
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
        """Give a place back, which is free again at a time."""
        self._rested.append(rested)
        self._places.release()

    @asynccontextmanager
    async def coming(self, client: str) -> AsyncIterator[None]:
        """Raise ``TimeoutError`` when the body of the client whose turn it is takes too long to come."""
        hurried = self._waiting or self._behind[client]
        async with asyncio.timeout(HURRIED_BODY if hurried else LONGEST_BODY) as deadline:
            self._coming[deadline] = client
            try:
                yield
            finally:
                del self._coming[deadline]


def require_json(request: Request) -> None:
    """Refuse a body that does not say that it is JSON: a form of another site's page cannot say so."""
    kinds = request.headers.getlist("content-type")
    if len(kinds) != 1 or kinds[0].split(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"content-type: {', '.join(kinds)[:80] or 'missing'}; allowed: {JSON}")


def client_address(request: Request) -> str:
    """Return who asks: an address, of one of version 6 the network, of which a client has all."""
    host = request.client.host if request.client is not None else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:  # a proxy may report any text (X-Forwarded-For)
        return host


def read_length(request: Request, most: int) -> int:
    """Return how many bytes the body of a request has at most: what it says, or ``most`` where it says nothing."""
    said = request.headers.get("content-length", "")
    length = int(said) if said.isascii() and said.isdigit() and len(said) < 20 else most
    if length > most:
        raise HTTPException(413, f"the body has more than {most} bytes")
    return length


async def read_body(
    request: Request, most: int, turns: BodyTurns, transfers: BodyTransfers, transfer: BodyTransfer
) -> bytes:
    """Return the body of a request; what is longer than ``most`` bytes is not read to its end.

    ``transfer``: is told what is held. Raises ``Busy`` when there is no room for it.
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
    """Return the JSON object that a body is. Raises ``InvalidInput`` when it is none, or none of which the parts are
    as few and as short as they must be."""
    if _parts(data) > MAX_PARTS:
        raise InvalidInput(f"the body has more than {MAX_PARTS} names and values")
    try:
        content = json.loads(
            data, object_pairs_hook=_once, parse_constant=_no_number, parse_int=_whole, parse_float=_number
        )
    except (ValueError, RecursionError):
        raise InvalidInput("the body is no JSON") from None
    if not isinstance(content, dict):
        raise InvalidInput("the body is no JSON object")
    if is_deep(content, MAX_NESTING):
        raise InvalidInput(f"the body is nested more than {MAX_NESTING} deep")
    return content


def _parts(data: bytes) -> int:
    """Return how many names and values a text of JSON has at most, without reading it: a string is one, and so are the
    mark before a value, and that before a table or list."""
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


def _whole(text: str) -> int:
    _require_short(text)
    return int(text)


def _number(text: str) -> int | float:
    """Return a number with a point or an exponent: a whole one is the same with and without (RFC 8785)."""
    _require_short(text)
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < EXACT else number


def _require_short(number: str) -> None:
    if len(number) > MAX_NUMBER:
        raise InvalidInput(f"{number[:40]}...: a number of {len(number)} characters; at most {MAX_NUMBER} are allowed")


def _no_number(text: str) -> None:
    raise InvalidInput(f"the body is no JSON: {text} is no number of JSON")
