"""A served lake that means harm: a real HTTP server that forwards to an honest one, or answers as it likes.

    with hostile(behaviour) as url: ...

``behaviour(path, body, send)`` is called for every request, in a thread of its own. It returns what to answer (status,
headers, body), or ``None`` after it has used ``send`` (raw bytes into the socket) itself.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Send = Callable[[bytes], None]
Reply = tuple[int, dict[str, str], bytes]
Behaviour = Callable[[str, bytes, Send], Reply | None]


class Server:
    """Takes connections until it is closed; each is served by a thread until either side has enough."""

    def __init__(self, behaviour: Behaviour, port: int = 0) -> None:
        self._behaviour = behaviour
        self._listening = socket.create_server(("127.0.0.1", port))
        self.closing = threading.Event()
        self.requests: list[str] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            file = connection.makefile("rb")
            while not self.closing.is_set():
                line = file.readline()
                if not line:
                    return
                headers: dict[str, str] = {}
                while (header := file.readline()) not in (b"\r\n", b""):
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = file.read(int(headers.get("content-length", "0")))
                path = line.split()[1].decode()
                self.requests.append(path)
                reply = self._behaviour(path, body, connection.sendall)
                if reply is None:
                    return
                status, more, content = reply
                head = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}", "content-type: application/json"]
                head += [f"{name}: {value}" for name, value in more.items()]
                connection.sendall("\r\n".join([*head, "", ""]).encode() + content)

    def close(self) -> None:
        self.closing.set()
        self._listening.close()


@contextmanager
def hostile(behaviour: Behaviour) -> Iterator[Server]:
    """Serve a behaviour while the body runs."""
    server = Server(behaviour)
    try:
        yield server
    finally:
        server.close()


def drip(pause: float, closing: threading.Event) -> Behaviour:
    """Return a behaviour that sends a valid head at once, and then a byte now and then, for ever."""

    def behave(path: str, body: bytes, send: Send) -> Reply | None:
        send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{")
        while not closing.wait(pause):
            send(b" ")
        return None

    return behave


def slow_head(pause: float, closing: threading.Event) -> Behaviour:
    """Return a behaviour that sends header lines for ever."""

    def behave(path: str, body: bytes, send: Send) -> Reply | None:
        send(b"HTTP/1.1 200 OK\r\n")
        while not closing.wait(pause):
            send(b"x: y\r\n")
        return None

    return behave


def endless(path: str, body: bytes, send: Send) -> Reply | None:
    """Send gigabytes."""
    send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n")
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    for _ in range(4_096):
        send(chunk)
    return None


def answers(content: Any) -> Behaviour:
    """Return a behaviour that answers every request with one JSON value, or with bytes as they are."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda path, body, send: (200, {}, data)
