"""What is held of bodies that come and of answers that go: so many bytes in all, whoever is slow.

A long answer goes out in pieces, each when those before it have gone, so that it is counted here and not in the buffers
of the system. One whose asker does not read is ended by its connection (``connections``), one that takes too long here.
Where more would be held than there may be, the slowest is cut off; if none has had its time, the new one is told to
come again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from causeway.model.errors import CausewayError
from causeway.protocols.limits import MAX_ANSWER_BYTES
from causeway.web.connections import CONNECTION

PIECE = 64 << 10
"""Bytes that are sent at once; shorter bodies and answers are not counted."""

MOST_HELD = 8 * MAX_ANSWER_BYTES
"""Bytes of bodies and answers that are held at a time."""

LONGEST_ANSWER = 60.0
"""Seconds in which an answer must have gone; clients wait no longer (``http_client.DEADLINE``)."""

TIME = 1.0
"""Seconds that a transfer has before it is called slow."""


class Busy(CausewayError):
    """As many bytes of bodies and answers are under way as may be; that passes."""


@dataclass(eq=False)
class Transfer:
    """A body or an answer under way. ``held``: its bytes in memory; ``moved``: how many have come, or gone;
    ``complete``: a body that has come, and is looked at; ``ended``: nothing of it is held any more."""

    connection: Any
    began: float = field(default_factory=time.monotonic)
    held: int = 0
    moved: int = 0
    complete: bool = False
    ended: bool = False

    def may_be_cut(self, now: float) -> bool:
        """Return whether it holds bytes for its other end, and has had its time."""
        return self.held > 0 and not self.complete and now - self.began > TIME

    def pace(self, now: float) -> float:
        """Return bytes a second."""
        return self.moved / (now - self.began)

    def cut(self) -> None:
        """End it: nothing of it is held any more."""
        self.ended = True
        self.held = 0
        if self.connection is not None:
            self.connection.cut()


class Transfers:
    """All that is under way at a server. ``most``: bytes."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self.most = most
        self._under_way: dict[Transfer, None] = {}

    @property
    def held(self) -> int:
        """Return how many bytes are held."""
        return sum(transfer.held for transfer in self._under_way)

    def begin(self, scope: Scope) -> Transfer:
        """Return a new transfer of a request."""
        made = Transfer(scope.get("state", {}).get(CONNECTION))
        self._under_way[made] = None
        return made

    def end(self, transfer: Transfer) -> None:
        """Forget a transfer; one that is forgotten already is no error."""
        self._under_way.pop(transfer, None)

    def hold(self, transfer: Transfer, size: int) -> None:
        """Let a transfer hold so many bytes, and cut slow ones off where they would be too many.

        Raises:
            Busy: they would be too many, and none is slow.
        """
        before, transfer.held = transfer.held, size
        while self.held > self.most:
            now = time.monotonic()
            slow = [one for one in self._under_way if one is not transfer and one.may_be_cut(now)]
            if not slow:
                transfer.held = before
                raise Busy("as many bytes of requests and answers are under way as may be; try again later")
            slowest = min(slow, key=lambda one: one.pace(now))
            slowest.cut()
            self.end(slowest)


class Paced:
    """A layer of the application that sends answers in pieces, and counts them in ``transfers``."""

    def __init__(self, app: ASGIApp, transfers: Transfers) -> None:
        self._app, self._transfers = app, transfers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun: list[Message] = []

        async def paced(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
                return
            body = message.get("body", b"")
            if begun and len(body) > PIECE and not message.get("more_body", False):
                await self._answer(scope, receive, send, begun.pop(), body)
                return
            while begun:
                await send(begun.pop())
            await send(message)

        await self._app(scope, receive, paced)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, start: Message, body: bytes) -> None:
        """Send a long answer, or say that there is no place for it now."""
        transfer = self._transfers.begin(scope)
        try:
            self._transfers.hold(transfer, len(body))
            async with asyncio.timeout(LONGEST_ANSWER):
                await send(start)
                while not transfer.ended:
                    piece = body[transfer.moved : transfer.moved + PIECE]
                    more = transfer.moved + len(piece) < len(body)
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
                    transfer.moved += len(piece)
                    transfer.ended = not more
        except Busy as busy:
            await JSONResponse({"error": busy.name, "text": str(busy)}, 503)(scope, receive, send)
        except TimeoutError:
            transfer.cut()
        finally:
            self._transfers.end(transfer)
