"""Limits for connections that send no requests or do not read answers.

The number of concurrent connections is bounded, and uvicorn waits without limit for the head of a request and
for the reader of an answer. Without these checks, a client with enough half-open requests would block all
others at no cost.
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
"""Interval in seconds between two checks of a connection.

Between two checks a whole request head must arrive, or a request be in progress; and pending bytes of an
answer must be sent.
"""

CONNECTION = "connection"
"""Key of the connection in a request's state."""


class Crowded(CausewayError):
    """Temporary excess of concurrent requests."""


class ConnectionLimits:
    """ASGI middleware that bounds concurrent requests and connections."""

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
    """State of a connection at a check.

    Attributes:
        cycle: Last request and its answer.
        stuck: Count of resumed writes while bytes are pending, else None.
        closing: True if only pending bytes will be sent.
    """

    cycle: RequestResponseCycle | None
    stuck: int | None
    closing: bool


class HttpConnection(H11Protocol):
    """Connection that closes when idle or unread."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION: self}, _loop)
        self._resumed = 0
        self._lost = False
        self._waits: set[asyncio.Timeout] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the checks."""
        super().connection_made(transport)
        self._schedule_check()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; a client that pipelines requests is disconnected after one answer.

        No ordinary client does, and it would occupy the server at the cost of one connection.
        """
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete and self.conn.trailing_data[0]:
            cycle.keep_alive = False

    def resume_writing(self) -> None:
        """Count progress of an answer."""
        self._resumed += 1
        super().resume_writing()

    def cut(self) -> None:
        """Abort the connection; closing would wait for the reader."""
        self.transport.abort()

    @asynccontextmanager
    async def while_open(self) -> AsyncIterator[None]:
        """Cancel the body when the client disconnects.

        Raises:
            ClientDisconnect: The client disconnected.
        """
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

    def _current_state(self) -> ConnectionState:
        return ConnectionState(
            self.cycle, self._resumed if self.flow.write_paused else None, self.transport.is_closing()
        )

    def _schedule_check(self) -> None:
        self._next_check = self.loop.call_later(CHECK_SECONDS, self._end_if_idle, self._current_state())

    def _end_if_idle(self, before: ConnectionState) -> None:
        now = self._current_state()
        answering = now.cycle is not None and not now.cycle.response_complete
        unread = now.stuck is not None and now.stuck == before.stuck
        if unread or (now.closing and before.closing):
            self.cut()
            return
        if now.cycle is before.cycle and not answering:
            self.transport.close()
        self._schedule_check()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the checks and cancel waiting requests."""
        self._next_check.cancel()
        self._lost = True
        for wait in self._waits:
            wait.reschedule(self.loop.time())
        super().connection_lost(exc)
