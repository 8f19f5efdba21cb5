"""Protection against requests of other web sites and DNS rebinding.

A page of another site can make a browser send requests to any reachable address; they carry ``Origin``. The
owner of a domain can also resolve it to 127.0.0.1 (DNS rebinding), so that the browser takes the server for
the page's own. Requests with an origin or with an unknown host name are therefore refused. A numeric address
cannot be rebound.

Subresources (images, scripts, frames) are requested without an origin, and the page cannot read them, but they
cost work. Browsers label each request with its context (``Sec-Fetch-*``, Fetch Metadata Request Headers, W3C):
from other sites only links are followed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from causeway_proofs.errors import InvalidInput
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL = "localhost"

OTHER_SITES = ("cross-site", "same-site")
FOLLOWED = ("navigate", "document")

_NAME = re.compile(r"[0-9A-Za-z]([0-9A-Za-z._-]{0,251}[0-9A-Za-z])?")


class HostGuard:
    """Outermost ASGI middleware.

    Args:
        app: The application.
        hosts: Allowed host names.
        loopback: If True, a numeric address must be a loopback address.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] = (), *, loopback: bool = False) -> None:
        self._app, self._hosts, self._loopback = app, {LOCAL, *(host.lower() for host in hosts)}, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refused(Headers(scope=scope))
        await (refused or self._app)(scope, receive, send)

    def _refused(self, headers: Headers) -> JSONResponse | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            text = f"host: {', '.join(hosts)[:80] or 'missing'}; allowed: {', '.join(sorted(self._hosts))}"
            digits = "127.0.0.1, [::1]" if self._loopback else "an address in digits"
            return _answer(421, "WrongHost", f"{text}, {digits}")
        origin = headers.get("origin")
        if origin is not None:
            return _answer(403, "WrongOrigin", f"origin: {origin[:80]}; what another site's page asks is not answered")
        site, use = headers.get("sec-fetch-site"), (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        if site in OTHER_SITES and use != FOLLOWED:
            return _answer(
                403, "WrongOrigin", f"sec-fetch-site: {site}; of another site's page only links are answered"
            )
        return None

    def _is_own(self, host: str) -> bool:
        name = host_name(host)
        if name is None or name in self._hosts:
            return name is not None
        return is_address(name) and (not self._loopback or ipaddress.ip_address(name).is_loopback)


def _answer(status: int, name: str, text: str) -> JSONResponse:
    return JSONResponse({"error": name, "text": text}, status)


def host_name(host: str) -> str | None:
    """Return the name in a ``Host`` header without its port, or None if it is invalid."""
    name, bracket, port = host.partition("]")
    if bracket:
        name, port = name.removeprefix("["), port.removeprefix(":")
    else:
        name, _, port = host.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        return None
    return name.lower().rstrip(".") or None


def require_host_name(text: str) -> None:
    """Validate a host name.

    Args:
        text: The name.

    Raises:
        InvalidInput: The name is invalid.
    """
    if not _NAME.fullmatch(text) or host_name(text) != text.lower():
        raise InvalidInput(f"--name: {text[:80]!r}; allowed: the name of a host, as lake.example, without a port")


def is_address(name: str) -> bool:
    """Return True for a numeric address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
