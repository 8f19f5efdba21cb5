"""The HTTP client of servers that may be hostile: what holds whatever is asked.

Redirects are not followed and cookies are not kept; nothing is asked for compressed, which would make few bytes many;
and closing does not wait for a server that keeps its connection open.
"""

from __future__ import annotations

import asyncio
import ssl
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path

import httpx

from causeway.model.errors import InvalidInput

CLOSING = 2.0
"""Seconds that closing connections takes at most."""

PLAIN = "identity"
"""The encoding of content that is asked for, and the only one that is read."""

MAX_PORT = 2**16 - 1


def client_of_strangers(
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


async def close(client: httpx.AsyncClient) -> None:
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
