"""Connections of a server that ask nothing, or do not read: they are closed, so that others find a place.

Only so many connections are served at a time, and uvicorn waits for the head of a request, and until an answer is read,
as long as it takes. Whoever opens that many and sends half a line on each, or does not read, would keep everybody else
out for good, and answers in memory, at no cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from causeway_proofs.errors import CausewayError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

CHECK_SECONDS = 10.0
"""Seconds between two looks at a connection. From one look to the next a request must have come in full, head and all,
or one is being answered; and bytes of an answer must have gone, where any wait."""

CONNECTION = "connection"
"""Under which name the state of a request has its connection."""


class Crowded(CausewayError):
    """As many requests are served as may be at a time; that passes."""


class ConnectionLimits:
    """An ASGI application of which so many requests are served at a time, or connections kept; others are told to come
    again."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most, self._served = app, most, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        connection: HttpConnection | None = scope.get("state", {}).get(CONNECTION)
        open_now = 0 if connection is None else len(connection.connections)
        if max(open_now, self._served) >= self._most:
            crowded = Crowded(f"{self._most} requests are served at a time; come again")
            content = {"error": crowded.name, "text": str(crowded)}
            await JSONResponse(content, 503, {"Connection": "close"})(scope, receive, send)
            return
        self._served += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._served -= 1


class ConnectionState(NamedTuple):
    """How a connection was at a look.

    ``cycle``: the last request and its answer. ``stuck``: of an answer of which bytes wait, how often it went on; None
    where none wait. ``closing``: no more than what waits will be sent.
    """

    cycle: RequestResponseCycle | None
    stuck: int | None
    closing: bool


class HttpConnection(H11Protocol):
    """A connection, which is closed when no request comes on it, or its answer is not read."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION: self}, _loop)
        self._resumed = 0
        self._lost = False
        self._waits: set[asyncio.Timeout] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at a connection."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Take bytes of requests. Who sends the next one before it has the answer is answered once, and then closed:
        no client does that, and it would be asked for without end at the cost of one connection."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete and self.conn.trailing_data[0]:
            cycle.keep_alive = False

    def resume_writing(self) -> None:
        """Take notice that bytes have gone."""
        self._resumed += 1
        super().resume_writing()

    def cut(self) -> None:
        """End the connection now, and drop what waits to be sent: closing would wait until it is read."""
        self.transport.abort()

    @asynccontextmanager
    async def while_open(self) -> AsyncIterator[None]:
        """Raise ``ClientDisconnect`` in the body when the client disconnects: nobody waits for what nobody reads."""
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._waits.add(wait)
                if self._lost:
                    wait.reschedule(self.loop.time())
                try:
                    yield
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            if not wait.expired():
                raise
            raise ClientDisconnect from None

    def _seen(self) -> ConnectionState:
        return ConnectionState(
            self.cycle, self._resumed if self.flow.write_paused else None, self.transport.is_closing()
        )

    def _look(self) -> None:
        self._next_look = self.loop.call_later(CHECK_SECONDS, self._end_if_idle, self._seen())

    def _end_if_idle(self, before: ConnectionState) -> None:
        now = self._seen()
        answering = now.cycle is not None and not now.cycle.response_complete
        unread = now.stuck is not None and now.stuck == before.stuck
        if unread or (now.closing and before.closing):
            self.cut()
            return
        if now.cycle is before.cycle and not answering:
            self.transport.close()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more, and end the waits of requests."""
        self._next_look.cancel()
        self._lost = True
        for wait in self._waits:
            wait.reschedule(self.loop.time())
        super().connection_lost(exc)
