"""HTTP client for possibly hostile servers, and the client of a served lake.

Redirects are not followed, cookies are not stored, compressed content is not requested (few bytes could
become many), and closing does not wait for an open connection. A request to a lake has a deadline for all of
it, so slow answers block nobody; answers are bounded in size and validated by strict schemas.
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
from causeway.service.http import answers
from causeway.service.keys.key_files import AccountKey
from causeway.service.keys.signing import MAX_NONCE, MESSAGE, TRANSACTION, sign_message

CLOSING = 2.0
"""Maximum time in seconds for closing connections."""

PLAIN = "identity"
"""The only accepted content encoding."""

MAX_PORT = 2**16 - 1


def create_untrusted_client(
    accept: str,
    seconds: float,
    *,
    base_url: str = "",
    transport: httpx.AsyncBaseTransport | None = None,
    ca: Path | None = None,
) -> httpx.AsyncClient:
    """Create a client for a possibly hostile server; close it with ``close_client``.

    Deadlines for whole answers and their size are the caller's.

    Args:
        accept: Accepted media type.
        seconds: Maximum silence in seconds.
        base_url: Prefix of all URLs.
        transport: Transport, for tests.
        ca: File of trusted certificates instead of the system's.

    Raises:
        InvalidInput: The file holds no certificates.
    """
    return httpx.AsyncClient(
        base_url=base_url,
        timeout=httpx.Timeout(seconds),
        transport=transport,
        verify=_tls_context(ca),
        follow_redirects=False,
        headers={"accept": accept, "accept-encoding": PLAIN},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # cookies would grow without bound and leak
        event_hooks={"response": [_drop_location]},
    )


async def close_client(client: httpx.AsyncClient) -> None:
    """Close all connections within ``CLOSING`` seconds."""
    try:
        async with asyncio.timeout(CLOSING):
            await client.aclose()
    except TimeoutError:
        return  # the process ends, and its sockets with it


def is_plain(response: httpx.Response) -> bool:
    """Return True if an answer is not compressed."""
    return bool(response.headers.get("content-encoding", PLAIN) == PLAIN)


def is_address(url: str) -> bool:
    """Return True for a server's URL: http or https, a host, an optional port."""
    try:
        found = httpx.URL(url)
        return found.scheme in ("http", "https") and bool(found.host) and (found.port or 1) <= MAX_PORT
    except (httpx.InvalidURL, UnicodeError):
        return False


async def _drop_location(response: httpx.Response) -> None:
    """Drop the redirect target: httpx would build a request from it, and fail on an invalid URL."""
    response.headers.pop("location", None)


def _tls_context(ca: Path | None) -> ssl.SSLContext:
    """Load the trusted certificates: the system's, or those of a file.

    Raises:
        InvalidInput: The file holds no certificates.
    """
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # that of TLS is one
        raise InvalidInput(f"--ca {ca}: no certificates can be read from it: {error.strerror or error}") from None


FIRST_PAUSE = 0.2
"""Seconds before the first retry; doubled each time."""

DEADLINE = 60.0
"""Seconds for a request, without the requested wait: the longest answer passes at 150 kB a second."""

RETRIED = {429, 502, 503, 504}

USED = 409
"""Status of a used nonce."""

FORBIDDEN = 403
"""Status of a request that no retry with the same key can fix."""

NUMBER_TAKEN = "NumberTaken"
"""Error of a key whose account number belongs to another key (``service.node.mempool``)."""

OK = {200, 202}


class ServiceError(CausewayError):
    """Invalid behaviour of a served lake; the text names the lake and the fault."""


class Unreachable(ServiceError):
    """Served lake that does not answer, or not in time; may pass."""


class RequestRefused(ServiceError):
    """Refusal of a request by a served lake, with its reason."""


class NonceUsed(RequestRefused):
    """Refusal of a used nonce, or of a sender with another key's number."""


class RefusedForGood(RequestRefused):
    """Permanent refusal of this key by a served lake."""


class ServiceClient:
    """Client of one served lake of any protocol.

    Args:
        url: Address of the lake.
        seconds: Maximum silence in seconds.
        tries: Attempts per request.
        deadline: Seconds per attempt.
        transport: Transport, for tests.
        key: Signing key; a new one by default.
        ca: File of trusted certificates instead of the system's.
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
        self.key = key or AccountKey.generate()
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
        return (await self.ask(answers.StatusAnswer, "GET", "/v1/status")).protocol

    async def identity(self) -> str:
        """Return the lake's identity, a part of all signed messages."""
        if self._identity is None:
            self._identity = (await self.ask(answers.StatusAnswer, "GET", "/v1/status")).lake
        return self._identity

    async def submit(self, chain: str, transaction: bytes, wait: int) -> tuple[str, int | None]:
        """Submit a signed transaction.

        Args:
            chain: Name of the chain.
            transaction: The transaction.
            wait: Seconds to wait for a block.

        Returns:
            The message's name, and the height of its block if it has one.
        """
        path = f"/v1/chains/{path_part(chain)}/transactions"
        return await self._post_signed(path, TRANSACTION, chain, {"transaction": transaction.hex()}, wait)

    async def send(self, content: Mapping[str, Any], wait: int) -> tuple[str, int | None]:
        """Send a signed user message.

        Args:
            content: Keys of ``[[traffic.send]]`` without tick and sender.
            wait: Seconds to wait for a block.

        Returns:
            The message's name, and the height of its block if it has one.
        """
        return await self._post_signed("/v1/messages", MESSAGE, "", content, wait)

    async def _post_signed(
        self, path: str, kind: str, chain: str, content: Mapping[str, Any], wait: int
    ) -> tuple[str, int | None]:
        """Sign a message with the next nonce and post it.

        A possibly lost message is posted again unchanged; the lake accepts it once.
        """
        for _ in range(self._tries):
            signed = sign_message(self.key, await self.identity(), kind, chain, await self._next_nonce(), content)
            body = json.dumps(signed.body()).encode()
            try:
                found = await self.ask(
                    answers.MessageStateAnswer, "POST", path, {"wait": wait}, body, again=True, seconds=wait
                )
            except NonceUsed as error:
                if self._chosen:
                    raise
                # Another process uses the same key.
                refused, self._nonce = error, None
                continue
            if found.hash != signed.hash:
                raise ServiceError(f"{self.url}{path}: the answer is about another message")
            return found.hash, found.height
        raise refused

    async def _next_nonce(self) -> int:
        if self._nonce is None:
            path = f"/v1/senders/{self.key.public.hex()}"
            self._nonce = (await self.ask(answers.SenderAnswer, "GET", path)).nonce
        self._nonce += 1
        return self._nonce

    @property
    def nonce(self) -> int:
        """Last used nonce, 0 before the first."""
        return self._nonce or 0

    def use_nonce(self, nonce: int | None) -> None:
        """Use a fixed nonce for the next message, or with None the lake's next one.

        Args:
            nonce: The nonce.

        Raises:
            InvalidInput: The nonce is out of range.
        """
        if nonce is not None and not 1 <= nonce <= MAX_NONCE:
            raise InvalidInput(f"nonce: {nonce}; allowed: 1 to {MAX_NONCE}")
        self._nonce, self._chosen = None if nonce is None else nonce - 1, nonce is not None

    async def height_of(self, name: str, wait: int) -> int | None:
        """Return the height of a message's block, or None if it has none after ``wait`` seconds."""
        return (
            await self.ask(answers.MessageStateAnswer, "GET", f"/v1/messages/{name}", {"wait": wait}, seconds=wait)
        ).height

    async def faults(self, name: str) -> list[answers.FaultAnswer]:
        """Return the faults of a message in its block."""
        return (await self.ask(answers.OutcomeAnswer, "GET", f"/v1/messages/{name}/outcome")).faults

    async def ask(
        self,
        answer: type[answers.Model],
        method: str,
        path: str,
        query: Mapping[str, int] | None = None,
        body: bytes | None = None,
        *,
        most: int = MAX_SMALL_ANSWER_BYTES,
        again: bool = False,
        seconds: float = 0.0,
    ) -> answers.Model:
        """Request and validate an answer, with retries after temporary failures.

        A request with effects is retried only if it did not reach the lake, or the lake asks for it.

        Args:
            answer: Schema of the answer.
            method: HTTP method.
            path: Path.
            query: Query parameters.
            body: Body.
            most: Maximum size of the answer in bytes.
            again: True if repeating the request is harmless.
            seconds: Time that the lake is asked to wait.

        Raises:
            Unreachable: The lake does not answer, or not in time.
            RequestRefused: The lake refuses the request.
            ServiceError: The answer is invalid.
        """
        pause = FIRST_PAUSE
        for attempt in range(1, self._tries + 1):
            try:
                return self._read(answer, path, *await self._request_once(method, path, query, body, most, seconds))
            except (httpx.HTTPError, TimeoutError) as error:
                safe = method == "GET" or again or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if attempt == self._tries or not safe:
                    raise Unreachable(f"{self.url}{path}: {_describe_failure(error)}") from None
            except _ComeAgain as error:
                if attempt == self._tries:
                    raise Unreachable(f"{self.url}{path}: {error}") from None
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("a request is tried once at least")

    async def _request_once(
        self, method: str, path: str, query: Mapping[str, int] | None, body: bytes | None, most: int, seconds: float
    ) -> tuple[int, bytearray]:
        """Return status and body of one attempt."""
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

    def _read(self, answer: type[answers.Model], path: str, status: int, content: bytearray) -> answers.Model:
        """Parse an answer, or raise its error."""
        try:
            if status in OK:
                return answers.read_answer(answer, content)
            refused = answers.read_answer(answers.ErrorAnswer, content)
        except ValueError as error:
            problem = "no served lake" if not content.lstrip().startswith(b"{") else "not the answer that was to come"
            raise ServiceError(f"{self.url}{path}: status {status}: {problem}: {error}") from None
        text = f"{refused.error}: {refused.text}"[:1_000]
        if status in RETRIED:
            raise _ComeAgain(text)
        text = f"{self.url}{path}: {text}"
        if status == FORBIDDEN or refused.error == NUMBER_TAKEN:
            key = f"this process signs with the key {self.key.public.hex()}"
            do = "ask who serves the lake to take it (causeway serve --relayer), or use another (causeway key new)"
            raise RefusedForGood(f"{text}; {key}: {do}")
        raise (NonceUsed if status == USED else RequestRefused)(text)


class _ComeAgain(Exception):
    """Temporary refusal."""


def _describe_failure(error: Exception) -> str:
    if isinstance(error, TimeoutError | httpx.TimeoutException) and not str(error):
        return f"no answer in time ({type(error).__name__})"
    return str(error) or type(error).__name__


def path_part(name: str) -> str:
    """Encode a chain's name as a part of a path."""
    return "".join(f"%{byte:02X}" if chr(byte) in "#[]<>+%?/" else chr(byte) for byte in name.encode())
