"""Several applications behind one server: each at ports of its own."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class ByPort:
    """An ASGI application that hands a request to the one at the port that it came to, ``app`` at all others."""

    def __init__(self, app: ASGIApp, others: Mapping[int, ASGIApp]) -> None:
        self._app, self._others = app, dict(others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        server = scope.get("server")
        app = self._others.get(server[1], self._app) if server else self._app
        await app(scope, receive, send)
