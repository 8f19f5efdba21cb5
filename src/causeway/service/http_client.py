"""Requests to a served lake, with bounds on time and size, and what every served lake answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import httpx

from causeway.model.errors import CausewayError, InvalidInput

MAX_ANSWER_BYTES = 128 << 20
"""Longest answer that is read: a hundred packets of the default limit, hexadecimal, with their proofs."""

FIRST_PAUSE = 0.2
"""Seconds before a request is tried again; twice as long each time."""

Answer = TypeVar("Answer")

RETRIED = {502, 503, 504}


class ServiceError(CausewayError):
    """A served lake cannot be reached, or does not answer as it should; the text says which and how."""


class Refused(ServiceError):
    """A served lake refuses a request: it says why."""


class ServiceClient:
    """The client of one served lake of any protocol. ``seconds``: how long an answer may take; ``tries``: of a request
    in all.
    """

    def __init__(
        self, url: str, *, seconds: float = 10.0, tries: int = 4, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(f"{url}: no address of a served lake; write it as http://HOST:PORT")
        self.url = url.rstrip("/")
        self._seconds, self._tries = seconds, tries
        self._client = httpx.AsyncClient(base_url=self.url, timeout=httpx.Timeout(seconds), transport=transport)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        return await self.ask("GET", "/v1/status")

    async def submit(self, chain: str, relayer: int, transaction: bytes, wait: int) -> tuple[int, int | None]:
        """Submit a transaction; return its ticket, and the height of the block that has it after ``wait`` seconds."""
        path = f"/v1/chains/{path_part(chain)}/transactions"
        content = await self.ask("POST", path, {"relayer": relayer, "wait": wait}, transaction, seconds=wait)
        return self.understood(path, ticket_of, content)

    async def height_of(self, ticket: int, wait: int) -> int | None:
        """Return the height of the block that has what a ticket was given for, None if none has after ``wait``
        seconds."""
        path = f"/v1/tickets/{ticket}"
        content = await self.ask("GET", path, {"wait": wait}, seconds=wait)
        return self.understood(path, ticket_of, content)[1]

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, int] | None = None,
        body: bytes | None = None,
        *,
        again: bool = False,
        seconds: float = 0.0,
    ) -> dict[str, Any]:
        """Return the JSON object that answers a request; it is made again when it fails in a way that may pass.

        A request that changes something is made again only if it never reached the lake, or the lake said so.
        """
        pause = FIRST_PAUSE
        for tried in range(1, self._tries + 1):
            try:
                return await self._once(method, path, query, body, seconds)
            except httpx.HTTPError as error:
                safe = method == "GET" or again or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if tried == self._tries or not safe:
                    raise ServiceError(f"{self.url}{path}: {str(error) or type(error).__name__}") from None
            except _ComeAgain as error:
                if tried == self._tries:
                    raise ServiceError(f"{self.url}{path}: {error}") from None
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("a request is tried once at least")

    async def _once(
        self, method: str, path: str, query: Mapping[str, int] | None, body: bytes | None, seconds: float
    ) -> dict[str, Any]:
        timeout = httpx.Timeout(self._seconds + seconds)
        async with self._client.stream(method, path, params=query, content=body, timeout=timeout) as response:
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise ServiceError(f"{self.url}{path}: the answer has more than {MAX_ANSWER_BYTES} bytes")
                pieces.append(piece)
        try:
            content = json.loads(b"".join(pieces))
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ServiceError(f"{self.url}{path}: status {response.status_code}, and no JSON object: no served lake")
        if response.status_code in RETRIED:
            raise _ComeAgain(str(content.get("text", response.status_code)))
        if response.status_code >= 400:
            raise Refused(f"{self.url}{path}: {content.get('error')}: {content.get('text')}")
        return content

    def understood(self, path: str, read: Callable[[dict[str, Any]], Answer], content: dict[str, Any]) -> Answer:
        """Return what ``read`` makes of an answer. Raises ``ServiceError`` when it cannot."""
        try:
            return read(content)
        except (KeyError, ValueError, TypeError) as error:
            raise ServiceError(f"{self.url}{path}: not the answer that was to come: {error}") from None


class _ComeAgain(Exception):
    """The lake cannot answer now."""


def ticket_of(content: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the ticket of an answer, and the height of the block that has what it is for, None as long as none has."""
    height = content["height"]
    return int(content["ticket"]), None if height is None else int(height)


def path_part(name: str) -> str:
    """Return a chain's name as a part of a path."""
    return "".join(f"%{byte:02X}" if chr(byte) in "#[]<>+%?/" else chr(byte) for byte in name.encode())
