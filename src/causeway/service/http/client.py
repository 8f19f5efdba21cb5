"""The HTTP client of servers that may be hostile: what holds whatever is asked.

Redirects are not followed and cookies are not kept; nothing is asked for compressed, which would make few bytes many;
and closing does not wait for a server that keeps its connection open.

Requests to a served lake that may be hostile: bounded in time and size, read by strict schemas.

A request has a deadline for all of it, so a lake that sends a byte now and then holds nobody up. Answers are read up to
a number of bytes; what holds for all servers that may be hostile is in ``strangers``.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Self

import httpx
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.protocols.shared.limits import MAX_SMALL_ANSWER_BYTES
from causeway.service.http.answers import (
    ErrorAnswer,
    FaultAnswer,
    Model,
    OutcomeAnswer,
    SenderAnswer,
    StatusAnswer,
    TakenAnswer,
    read_answer,
)
from causeway.service.keys.key_files import AccountKey
from causeway.service.keys.signing import MAX_NONCE, MESSAGE, TRANSACTION, sign_message

CLOSING = 2.0
"""Seconds that closing connections takes at most."""

PLAIN = "identity"
"""The encoding of content that is asked for, and the only one that is read."""

MAX_PORT = 2**16 - 1


def create_untrusted_client(
    accept: str,
    seconds: float,
    *,
    base_url: str = "",
    transport: httpx.AsyncBaseTransport | None = None,
    ca: Path | None = None,
) -> httpx.AsyncClient:
    """Return a client that asks for content of the type ``accept``; to be closed with ``close``.

    ``seconds``: for how long nothing may come; a deadline for a whole answer, and how long it may be, are whoever's who
    reads it. ``transport``: what carries requests, for tests. ``ca``: a file of certificates that are believed instead
    of the system's.

    Raises:
        InvalidInput: the file holds none.
    """
    return httpx.AsyncClient(
        base_url=base_url,
        timeout=httpx.Timeout(seconds),
        transport=transport,
        verify=_believed(ca),
        follow_redirects=False,
        headers={"accept": accept, "accept-encoding": PLAIN},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # would grow without end, and be shown to others
        event_hooks={"response": [_no_redirect]},
    )


async def close_client(client: httpx.AsyncClient) -> None:
    """Close all connections, in ``CLOSING`` seconds at most."""
    try:
        async with asyncio.timeout(CLOSING):
            await client.aclose()
    except TimeoutError:
        return  # the process ends, and its sockets with it


def is_plain(response: httpx.Response) -> bool:
    """Return whether the content of an answer comes as it is, not compressed."""
    return bool(response.headers.get("content-encoding", PLAIN) == PLAIN)


def is_address(url: str) -> bool:
    """Return whether a text is the address of a server: http or https, a host, and a port if any."""
    try:
        found = httpx.URL(url)
        return found.scheme in ("http", "https") and bool(found.host) and (found.port or 1) <= MAX_PORT
    except (httpx.InvalidURL, UnicodeError):
        return False


async def _no_redirect(response: httpx.Response) -> None:
    """Let go of where an answer redirects to: that is not followed, and httpx would build a request of it, which fails
    with errors of no request at all where it is no address."""
    response.headers.pop("location", None)


def _believed(ca: Path | None) -> ssl.SSLContext:
    """Return which certificates of servers are believed: those of the system, or those in a file. Raises
    ``InvalidInput``."""
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # that of TLS is one
        raise InvalidInput(f"--ca {ca}: no certificates can be read from it: {error.strerror or error}") from None


FIRST_PAUSE = 0.2
"""Seconds before a request is tried again; twice as long each time."""

DEADLINE = 60.0
"""Seconds that a request takes at most in all, besides those that it asks the lake to wait: the longest answer passes
at 150 kB a second."""

RETRIED = {429, 502, 503, 504}

USED = 409
"""The status of a nonce that was used before."""

FORBIDDEN = 403
"""The status of what a lake takes from nobody with the same key."""

NUMBER_TAKEN = "NumberTaken"
"""The error of a key whose number is another key's (``service.senders``)."""

OK = {200, 202}


class ServiceError(CausewayError):
    """A served lake does not answer as it should; the text says which and how."""


class Unreachable(ServiceError):
    """A served lake cannot be reached now, or not in time: that may pass."""


class Refused(ServiceError):
    """A served lake refuses a request: it says why."""


class NonceUsed(Refused):
    """A served lake has had the nonce of a message, or a later one, or the sender's number is another's."""


class RefusedForGood(Refused):
    """A served lake takes nothing from whoever signs with this key: asking again does not help."""


class ServiceClient:
    """The client of one served lake of any protocol.

    Args:
        url: its address.
        seconds: for how long nothing may come.
        tries: of a request in all.
        deadline: seconds that one try takes at most.
        transport: what carries requests, for tests.
        key: signs what is submitted; a new one if not given.
        ca: a file of certificates that are believed instead of the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        seconds: float = 10.0,
        tries: int = 4,
        deadline: float = DEADLINE,
        transport: httpx.AsyncBaseTransport | None = None,
        key: AccountKey | None = None,
        ca: Path | None = None,
    ) -> None:
        if not is_address(url):
            raise InvalidInput(f"{url}: no address of a served lake; write it as http://HOST:PORT")
        self.url = url.rstrip("/")
        self._seconds, self._tries, self._deadline = seconds, tries, deadline
        self.key = key or AccountKey.made()
        self._nonce: int | None = None
        self._chosen = False
        self._identity: str | None = None
        self._client = create_untrusted_client(
            "application/json", seconds, base_url=self.url, transport=transport, ca=ca
        )

    async def close(self) -> None:
        """Close all connections."""
        await close_client(self._client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def protocol(self) -> str:
        """Return the name of the lake's protocol."""
        return (await self.ask(StatusAnswer, "GET", "/v1/status")).protocol

    async def identity(self) -> str:
        """Return the lake's identity, which is part of what is signed for it."""
        if self._identity is None:
            self._identity = (await self.ask(StatusAnswer, "GET", "/v1/status")).lake
        return self._identity

    async def submit(self, chain: str, transaction: bytes, wait: int) -> tuple[str, int | None]:
        """Submit a transaction, signed; return its name, and the height of the block that has it after ``wait``
        seconds."""
        path = f"/v1/chains/{path_part(chain)}/transactions"
        return await self._post_signed(path, TRANSACTION, chain, {"transaction": transaction.hex()}, wait)

    async def send(self, content: Mapping[str, Any], wait: int) -> tuple[str, int | None]:
        """Send a user's message to a program, signed: what of ``[[traffic.send]]`` is no tick and no sender."""
        return await self._post_signed("/v1/messages", MESSAGE, "", content, wait)

    async def _post_signed(
        self, path: str, kind: str, chain: str, content: Mapping[str, Any], wait: int
    ) -> tuple[str, int | None]:
        """Sign a message with the next nonce, and post it; return its name and the height of its block.

        What may have been lost on its way is posted again as it is: it is taken once.
        """
        for _ in range(self._tries):
            made = sign_message(self.key, await self.identity(), kind, chain, await self._next_nonce(), content)
            body = json.dumps(made.body()).encode()
            try:
                found = await self.ask(TakenAnswer, "POST", path, {"wait": wait}, body, again=True, seconds=wait)
            except NonceUsed as error:
                if self._chosen:
                    raise
                # Another process signs with the same key.
                refused, self._nonce = error, None
                continue
            if found.hash != made.hash:
                raise ServiceError(f"{self.url}{path}: the answer is about another message")
            return found.hash, found.height
        raise refused

    async def _next_nonce(self) -> int:
        if self._nonce is None:
            path = f"/v1/senders/{self.key.public.hex()}"
            self._nonce = (await self.ask(SenderAnswer, "GET", path)).nonce
        self._nonce += 1
        return self._nonce

    @property
    def nonce(self) -> int:
        """Return the nonce that was used last, 0 before the first."""
        return self._nonce or 0

    def use_nonce(self, nonce: int | None) -> None:
        """Sign the next message with a nonce and with no other; with None, with the one that the lake says is next.

        Raises:
            InvalidInput: it is no nonce.
        """
        if nonce is not None and not 1 <= nonce <= MAX_NONCE:
            raise InvalidInput(f"nonce: {nonce}; allowed: 1 to {MAX_NONCE}")
        self._nonce, self._chosen = None if nonce is None else nonce - 1, nonce is not None

    async def height_of(self, name: str, wait: int) -> int | None:
        """Return the height of the block that has a message, None if none has after ``wait`` seconds."""
        return (await self.ask(TakenAnswer, "GET", f"/v1/messages/{name}", {"wait": wait}, seconds=wait)).height

    async def faults(self, name: str) -> list[FaultAnswer]:
        """Return what the block that has a message refused of it, or programs failed on."""
        return (await self.ask(OutcomeAnswer, "GET", f"/v1/messages/{name}/outcome")).faults

    async def ask(
        self,
        answer: type[Model],
        method: str,
        path: str,
        query: Mapping[str, int] | None = None,
        body: bytes | None = None,
        *,
        most: int = MAX_SMALL_ANSWER_BYTES,
        again: bool = False,
        seconds: float = 0.0,
    ) -> Model:
        """Return what a lake answers; a request is made again when it fails in a way that may pass.

        A request that changes something is made again only if it never reached the lake, or the lake said so.

        Args:
            answer: the schema of what is to come.
            method, path, query, body: the request.
            most: bytes of the answer at most.
            again: whether making it twice does no harm.
            seconds: for how long the lake is asked to wait.

        Raises:
            Unreachable: the lake cannot be reached, or does not answer in time.
            Refused: it refuses the request.
            ServiceError: its answer is not what was to come.
        """
        pause = FIRST_PAUSE
        for tried in range(1, self._tries + 1):
            try:
                return self._read(answer, path, *await self._once(method, path, query, body, most, seconds))
            except (httpx.HTTPError, TimeoutError) as error:
                safe = method == "GET" or again or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if tried == self._tries or not safe:
                    raise Unreachable(f"{self.url}{path}: {_why(error)}") from None
            except _ComeAgain as error:
                if tried == self._tries:
                    raise Unreachable(f"{self.url}{path}: {error}") from None
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("a request is tried once at least")

    async def _once(
        self, method: str, path: str, query: Mapping[str, int] | None, body: bytes | None, most: int, seconds: float
    ) -> tuple[int, bytearray]:
        """Return status and body of one answer."""
        timeout = httpx.Timeout(self._seconds + seconds)
        kind = {} if body is None else {"content-type": "application/json"}
        content = bytearray()
        async with (
            asyncio.timeout(self._deadline + seconds),
            self._client.stream(method, path, params=query, content=body, headers=kind, timeout=timeout) as response,
        ):
            if not is_plain(response):
                raise ServiceError(f"{self.url}{path}: the answer is compressed, which was not asked for")
            if response.is_redirect:
                raise ServiceError(f"{self.url}{path}: status {response.status_code}: redirects are not followed")
            async for piece in response.aiter_bytes():
                if len(content) + len(piece) > most:
                    raise ServiceError(f"{self.url}{path}: the answer has more than {most} bytes")
                content += piece
        return response.status_code, content

    def _read(self, answer: type[Model], path: str, status: int, content: bytearray) -> Model:
        """Return what one answer says."""
        try:
            if status in OK:
                return read_answer(answer, content)
            refused = read_answer(ErrorAnswer, content)
        except ValueError as error:
            what = "no served lake" if not content.lstrip().startswith(b"{") else "not the answer that was to come"
            raise ServiceError(f"{self.url}{path}: status {status}: {what}: {error}") from None
        text = f"{refused.error}: {refused.text}"[:1_000]
        if status in RETRIED:
            raise _ComeAgain(text)
        text = f"{self.url}{path}: {text}"
        if status == FORBIDDEN or refused.error == NUMBER_TAKEN:
            key = f"this process signs with the key {self.key.public.hex()}"
            do = "ask who serves the lake to take it (causeway serve --relayer), or use another (causeway key new)"
            raise RefusedForGood(f"{text}; {key}: {do}")
        raise (NonceUsed if status == USED else Refused)(text)


class _ComeAgain(Exception):
    """The lake cannot answer now."""


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError | httpx.TimeoutException) and not str(error):
        return f"no answer in time ({type(error).__name__})"
    return str(error) or type(error).__name__


def path_part(name: str) -> str:
    """Return a chain's name as a part of a path."""
    return "".join(f"%{byte:02X}" if chr(byte) in "#[]<>+%?/" else chr(byte) for byte in name.encode())
