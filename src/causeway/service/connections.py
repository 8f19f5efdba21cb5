"""Connections of a served lake that ask nothing: they are closed, so that others find a place.

Only so many connections are served at a time, and uvicorn waits for the head of a request as long as it takes. Whoever
opens that many and sends half a line on each would keep everybody else out for good, at no cost.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

LONGEST_HEAD = 10.0
"""Seconds between two looks at a connection. One on which no request has come in full, head and all, from one look to
the next, and none is being answered, is closed."""


class Connection(H11Protocol):
    """A connection, which is closed when no request comes on it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at a connection."""
        super().connection_made(transport)
        self._look()

    def _look(self) -> None:
        self._next_look = self.loop.call_later(LONGEST_HEAD, self._close_if_idle, self.cycle)

    def _close_if_idle(self, before: object) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if cycle is before and not answering:
            self.transport.close()
        else:
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        self._next_look.cancel()
        super().connection_lost(exc)
