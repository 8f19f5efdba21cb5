"""Who connects and asks nothing takes nobody's place for long."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from causeway.service import connections

SECONDS = 60.0
"""After so long something hangs."""

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


async def slow(request: Request) -> PlainTextResponse:
    """Answer long after an idle connection would have been closed."""
    await asyncio.sleep(10 * connections.LONGEST_HEAD)
    return PlainTextResponse("late")


async def answer_to(data: bytes) -> bytes:
    """Return all that a server answers to ``data`` and silence, up to when it closes the connection."""
    config = uvicorn.Config(Starlette(routes=[Route("/", slow)]), http=connections.Connection, lifespan="off")
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: config.http_protocol_class(config, state, {}), "127.0.0.1", 0)  # type: ignore[call-arg]
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        await asyncio.sleep(0.01)
        assert not state.connections
    return answer


@pytest.mark.parametrize("data", [b"", b"GET / HT", HEAD + b"X: "])
def test_a_connection_on_which_no_request_comes_is_closed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(connections, "LONGEST_HEAD", 0.05)
    assert asyncio.run(answer_to(data)) == b""


def test_a_request_is_answered_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LONGEST_HEAD", 0.05)
    assert asyncio.run(answer_to(HEAD + b"\r\n")).endswith(b"late")
    # The next one stops in the middle of its head.
    assert asyncio.run(answer_to(HEAD + b"\r\n" + HEAD)).endswith(b"late")
