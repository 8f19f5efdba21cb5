"""Bodies of requests: so few long ones at a time, bounded before they are parsed, parsed beside the event loop.

A body of a few kB is parsed where requests are answered. A longer one waits for its turn (``Turns``): a client has one
under way, all together ``MOST_LONG``; what waits is not read. How many values, digits and levels a body has is bounded,
so that the longest one costs little more than its copy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from causeway.model.document import is_deep
from causeway.model.errors import InvalidInput
from causeway.service.transfers import PIECE, Transfer, Transfers

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


class Turns:
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


def client_of(request: Request) -> str:
    """Return who asks: an address, of one of version 6 the network, of which a client has all."""
    host = request.client.host if request.client is not None else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:  # a proxy may report any text (X-Forwarded-For)
        return host


def length_of(request: Request, most: int) -> int:
    """Return how many bytes the body of a request has at most: what it says, or ``most`` where it says nothing."""
    said = request.headers.get("content-length", "")
    length = int(said) if said.isascii() and said.isdigit() and len(said) < 20 else most
    if length > most:
        raise HTTPException(413, f"the body has more than {most} bytes")
    return length


async def body_of(request: Request, most: int, turns: Turns, transfers: Transfers, transfer: Transfer) -> bytes:
    """Return the body of a request; what is longer than ``most`` bytes is not read to its end.

    ``transfer``: is told what is held. Raises ``Busy`` when there is no room for it.
    """
    pieces: list[bytes] = []
    try:
        async with turns.coming(client_of(request)) if most > SHORT else asyncio.timeout(LONGEST_BODY):
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


def object_of(data: bytes) -> dict[str, Any]:
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
