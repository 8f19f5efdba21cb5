"""Idle and non-reading connections: bounded slots, time and memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from causeway.protocols.shared.limits import MAX_ANSWER_BYTES
from causeway.service.http import bodies, connections, listening
from causeway.service.http.bodies import BodyTransfers, BodyTurns, Busy, PacedResponses, read_body
from causeway.service.http.client import ServiceClient, Unreachable
from causeway.service.node.server import route_by_port, serve
from tests.support.common.certificates import certificate
from tests.support.common.lakes import both

MOST = 12
"""Connections that are served."""

SECONDS = 60.0
"""After so long something hangs."""

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
HELD = b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n"
TURN = b"GET /turn HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHORT = b"GET /short HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROBE = b"GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

TEXT = "0123456789abcdef" * (MAX_ANSWER_BYTES // 16)
"""As long as answers may be: more than the system holds for a reader with a small window."""

ANY_STATUS = '{"protocol": "any", "lake": "any", "height": 0, "tick": 0, "time": 0, "tick_ns": 1}'


@pytest.fixture(autouse=True)
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.05)


class Server:
    """Server with a slow answer, one waiting for ``go``, and a long one.

    ``state`` has its connections, ``transfers`` its buffers.
    """

    def __init__(self, most: int = bodies.MOST_HELD) -> None:
        self.state = ServerState()
        self.transfers, self.turns = BodyTransfers(most), BodyTurns()
        self.go, self.waiting = asyncio.Event(), 0
        self.socket = listening.bind_socket("127.0.0.1", 0)
        routes = [Route(f"/{name}", answer, methods=["GET", "POST"]) for name, answer in self._answers().items()]
        self._app = Starlette(routes=routes, middleware=[Middleware(PacedResponses, transfers=self.transfers)])

    def _answers(self) -> dict[str, Any]:
        async def slow(request: Request) -> PlainTextResponse:
            await asyncio.sleep(10 * connections.CHECK_SECONDS)
            return PlainTextResponse("late")

        async def held(request: Request) -> PlainTextResponse:
            await self.go.wait()
            return PlainTextResponse("late")

        async def turn(request: Request) -> PlainTextResponse:
            self.waiting += 1
            try:
                async with request.scope["state"][connections.CONNECTION].while_open():
                    await self.go.wait()
            finally:
                self.waiting -= 1
            return PlainTextResponse("turn")

        async def long(request: Request) -> PlainTextResponse:
            return PlainTextResponse(TEXT)

        async def short(request: Request) -> PlainTextResponse:
            return PlainTextResponse(TEXT[: bodies.PIECE])

        async def body(request: Request) -> PlainTextResponse:
            transfer = self.transfers.begin(request.scope)
            try:
                await read_body(request, MAX_ANSWER_BYTES, self.turns, self.transfers, transfer)
            except Busy:
                return PlainTextResponse("busy", 503)
            finally:
                self.transfers.end(transfer)
            return PlainTextResponse("taken")

        async def status(request: Request) -> PlainTextResponse:
            return PlainTextResponse(ANY_STATUS)

        return {"": slow, "held": held, "turn": turn, "v1/status": status, "long": long, "short": short, "body": body}

    @asynccontextmanager
    async def run(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        config = uvicorn.Config(
            connections.ConnectionLimits(self._app, MOST), http=connections.HttpConnection, lifespan="off"
        )
        config.load()
        loop = asyncio.get_running_loop()
        made: Any = lambda: config.http_protocol_class(config, self.state, {})  # type: ignore[call-arg]  # noqa: E731
        async with await loop.create_server(made, sock=self.socket, ssl=tls):
            yield self

    async def connected(
        self, data: bytes = b"", tls: ssl.SSLContext | None = None, window: int = 4096
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect with a small window, and send ``data``."""
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, self.socket.getsockname())
        name = None if tls is None else "localhost"
        reader, writer = await asyncio.open_connection(sock=plain, ssl=tls, server_hostname=name, limit=4096)
        writer.write(data)
        return reader, writer

    async def emptied(self) -> None:
        """Wait until the server has no connections and no buffers."""
        async with asyncio.timeout(SECONDS):
            while self.state.connections or self.transfers.size:
                await asyncio.sleep(0.01)


async def answer_to(data: bytes) -> bytes:
    """Return the full server answer to ``data`` and silence until the connection closes."""
    async with Server().run() as server:
        reader, writer = await server.connected(data)
        answer = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        await server.emptied()
    return answer


@pytest.mark.parametrize("data", [b"", b"GET / HT", HEAD + b"X: "])
def test_idle_connection_is_closed(data: bytes) -> None:
    assert asyncio.run(answer_to(data)) == b""


def test_slow_request_is_answered() -> None:
    assert asyncio.run(answer_to(HEAD + b"\r\n")).endswith(b"late")
    # The next one stops within its head.
    assert asyncio.run(answer_to(HEAD + b"\r\n" + HEAD)).endswith(b"late")


@pytest.mark.parametrize("encrypted", [False, True])
def test_non_reading_client_is_disconnected(tmp_path: Path, encrypted: bool) -> None:
    own, believed = certificate(tmp_path).contexts() if encrypted else (None, None)

    async def run() -> None:
        async with Server().run(own) as server:
            # Many short answers fill the system's buffers like a long one.
            asked = [await server.connected(data, believed) for data in (LONG, LONG + LONG, SHORT * 500)]
            await server.emptied()
            del asked

    asyncio.run(run())


def test_client_beyond_the_connection_limit_gets_a_json_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", SECONDS)

    async def ask() -> list[bytes]:
        async with Server().run() as server:
            held = [await server.connected(HELD) for _ in range(MOST - 1)]
            async with asyncio.timeout(SECONDS):
                while len(server.state.connections) < MOST - 1:
                    await asyncio.sleep(0)
                reader, writer = await server.connected(PROBE)
                refused = await reader.read()
                server.go.set()
                answers = [await reader.readline() for reader, _ in held]
            for _, other in [*held, (reader, writer)]:
                other.close()
            await server.emptied()
            reader, writer = await server.connected(PROBE)
            return [refused, *{*answers}, await reader.readline()]

    refused, *others = asyncio.run(ask())
    head, _, body = refused.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"content-type: application/json" in head
    assert json.loads(body) == {"error": "Crowded", "text": f"{MOST} requests are served at a time; come again"}
    assert others == [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 404 Not Found\r\n"], "those before, and those after"


def test_client_disconnecting_while_waiting_frees_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", SECONDS)

    async def ask() -> list[bytes]:
        async with Server().run() as server, asyncio.timeout(SECONDS):
            waiting = [await server.connected(TURN) for _ in range(MOST - 2)]
            while server.waiting < MOST - 2:
                await asyncio.sleep(0.01)
            for _, writer in waiting[1:]:
                writer.close()
            while server.waiting > 1:
                await asyncio.sleep(0.01)
            reader, writer = await server.connected(PROBE)
            answers = [await reader.readline()]
            server.go.set()
            answers.append(await waiting[0][0].readline())
            waiting[0][1].close()
            await server.emptied()
            return answers

    assert asyncio.run(ask()) == [b"HTTP/1.1 404 Not Found\r\n", b"HTTP/1.1 200 OK\r\n"]


def test_pipelined_request_is_answered_once() -> None:
    assert asyncio.run(answer_to(2 * (HEAD + b"\r\n"))).count(b"late") == 1


def test_slow_reader_gets_the_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", 0.5)

    async def run() -> None:
        async with Server().run() as server:
            reader, writer = await server.connected(LONG, window=1 << 16)
            assert await _long(reader, pause=0.01) >= len(TEXT)
            writer.close()

    asyncio.run(run())


def test_answer_that_takes_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LONGEST_ANSWER", 0.2)
    monkeypatch.setattr(connections, "CHECK_SECONDS", SECONDS)

    async def run() -> None:
        async with Server().run() as server:
            kept = await server.connected(LONG)
            await server.emptied()
            del kept

    asyncio.run(run())


def test_buffered_answers_are_bounded_and_the_slowest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CHECK_SECONDS", SECONDS)
    monkeypatch.setattr(bodies, "TIME", SECONDS)

    async def run() -> None:
        most = 3 * len(TEXT)
        async with Server(most).run() as server:
            idle = [await server.connected(LONG) for _ in range(3)]
            async with asyncio.timeout(SECONDS):
                while server.transfers.size < most:
                    await asyncio.sleep(0.01)
            # All is buffered, and none of it for long.
            busy, writer = await server.connected(LONG)
            assert (await busy.readline()).startswith(b"HTTP/1.1 503")
            assert server.transfers.size == most
            writer.close()
            monkeypatch.setattr(bodies, "TIME", 0.0)
            reader, writer = await server.connected(LONG, window=1 << 20)
            assert await asyncio.wait_for(_long(reader), SECONDS) >= len(TEXT)
            assert server.transfers.size <= most
            writer.close()
            del idle

    asyncio.run(run())


def test_answers_at_other_addresses_are_counted_too() -> None:
    held, sizes = bodies.BodyTransfers(), []
    app = Starlette()
    app.state.transfers = held

    async def long(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(TEXT)(scope, receive, send)

    async def sent(message: Any) -> None:
        sizes.append(len(message.get("body", b"")))
        assert held.size == len(TEXT)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")], "server": ("", 9001)}
    asyncio.run(route_by_port(app, {9001: long}, ())(scope, lambda: None, sent))  # type: ignore[arg-type,return-value]
    assert sum(sizes) == len(TEXT) and max(sizes) == bodies.PIECE


async def _long(reader: asyncio.StreamReader, pause: float = 0.0) -> int:
    """Read the long answer; return the number of received bytes."""
    got = 0
    while got < len(TEXT) and (piece := await reader.read(1 << 18)):
        got += len(piece)
        await asyncio.sleep(pause)
    return got


def test_stalled_bodies_are_buffered_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 20
    head = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

    async def run() -> None:
        async with Server(8 * size).run() as server:
            slow = [await server.connected(head % size + b'{"a": "' + b"0" * (size // 2)) for _ in range(4)]
            async with asyncio.timeout(SECONDS):
                while server.transfers.size < 4 * size:
                    await asyncio.sleep(0.01)
            assert server.transfers.size <= 8 * size
            monkeypatch.setattr(bodies, "TIME", 0.0)
            whole = b'{"a": "' + b"0" * (size - 9) + b'"}'
            reader, writer = await server.connected(head % size + whole)
            assert (await asyncio.wait_for(reader.readline(), SECONDS)).startswith(b"HTTP/1.1 200")
            writer.close()
            del slow

    asyncio.run(run())


@pytest.mark.parametrize(
    ("shown", "believed", "error"),
    [
        ({}, True, None),
        ({}, False, "self-signed certificate"),
        ({"days": (-9, -1)}, True, "certificate has expired"),
        ({"days": (1, 9)}, True, "certificate is not yet valid"),
        ({"name": "other.example"}, True, "Hostname mismatch"),
    ],
)
def test_client_trusts_the_given_certificate_and_explains_rejections(
    tmp_path: Path, shown: dict[str, Any], believed: bool, error: str | None
) -> None:
    files = certificate(tmp_path, **shown)

    async def run() -> str:
        async with Server().run(files.contexts()[0]) as server:
            port = server.socket.getsockname()[1]
            ca = files.certificate if believed else None
            async with ServiceClient(f"https://localhost:{port}", ca=ca, tries=1) as client:
                return await client.protocol()

    if error is None:
        assert asyncio.run(run()) == "any"
    else:
        with pytest.raises(Unreachable, match=error):
            asyncio.run(run())


def test_all_addresses_of_a_process_share_its_connection_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_descriptors", lambda: 1024)
    with ExitStack() as stack:
        sockets = [stack.enter_context(listening.bind_socket("127.0.0.1", 0)) for _ in range(5)]
        assert sockets[0].most == 512
        listening.share_connections(sockets)
        assert [one.most for one in sockets] == [102] * 5
        listening.share_connections(sockets[:1])
        assert sockets[0].most == 102, "what was said before stays"


def test_connections_beyond_the_limit_are_closed_and_others_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(connections, "CHECK_SECONDS", 1.0)

    async def run() -> None:
        async with Server().run() as server:
            kept = [await server.connected() for _ in range(5)]
            for _ in range(20):
                reader, writer = await server.connected()
                assert await asyncio.wait_for(reader.read(), SECONDS) == b""
                writer.close()
            assert len(server.state.connections) == 5
            kept[0][1].close()
            async with asyncio.timeout(SECONDS):
                while len(server.state.connections) == 5:
                    await asyncio.sleep(0.01)
            reader, writer = await server.connected(PROBE)
            assert (await asyncio.wait_for(reader.readline(), SECONDS)).startswith(b"HTTP/1.1 404")
            writer.close()

    asyncio.run(run())


def test_unfinished_handshake_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE", 0.1)
    own, _ = certificate(tmp_path).contexts()

    async def run() -> None:
        async with Server().run(own) as server:
            reader, writer = await server.connected(b"\x16\x03\x01")
            assert await asyncio.wait_for(reader.read(), SECONDS) == b""
            writer.close()

    with asyncio.Runner(loop_factory=listening.ServerLoop) as runner:
        runner.run(run())


def test_address_accepts_connections_once_reported(tmp_path: Path) -> None:
    connected: list[Any] = []
    with both(tmp_path, calls=0) as lakes, listening.bind_socket("127.0.0.1", 0) as own:

        def started() -> None:
            with socket.create_connection(own.getsockname(), SECONDS) as connection:
                connected.append(connection.getpeername())
            os.kill(os.getpid(), signal.SIGTERM)

        serve(lakes.nodes["left"], own, started=started)
        assert connected
