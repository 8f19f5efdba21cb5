"""The hostile processes of a soak: ``lake PORT HONEST_URL SEED`` and ``client LEFT_URL RIGHT_URL SEED COUNT``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import httpx
from causeway_proofs.tendermint.building import make_header, sign_header
from causeway_proofs.tendermint.trust import HeaderUpdate
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.protocols.ibc.client import validators_at
from causeway.protocols.ibc.options import IbcOptions
from causeway.service.http.client import ServiceClient, ServiceError
from tests.support.common.hostile import Reply, Send, Server

SEED = 7
"""Of the lakes' networks: the hostile client has the keys of the right zone's validators."""

MOST_HELD = 200
"""Connections that hostile clients keep open at a time, all together."""

PAUSE = 0.1
"""Seconds between two things that a hostile client does, when it is alone."""

LONGEST = 3.0
"""Seconds that one drip lasts."""


def mangled(content: Any, draws: random.Random) -> Any:
    """Return an answer with one member that is something else."""
    strange: list[Any] = [
        2**63,
        2**64,
        -1,
        10**300,
        1.5,
        True,
        None,
        "",
        "zz",
        [],
        {},
        "\x1b[2J",
        "0" * 100_000,
        [[]] * 1_000,
    ]
    if isinstance(content, dict) and content:
        name = draws.choice(sorted(content))
        inner = content[name]
        deeper = isinstance(inner, dict | list) and inner and draws.random() < 0.7
        return {**content, name: mangled(inner, draws) if deeper else draws.choice(strange)}
    if isinstance(content, list) and content:
        row = draws.randrange(len(content))
        return [*content[:row], mangled(content[row], draws), *content[row + 1 :]]
    if isinstance(content, str) and content:
        row = draws.randrange(len(content))
        return content[:row] + draws.choice("0123456789abcdef") + content[row + 1 :]
    if isinstance(content, int):
        return draws.choice([content + 1, content - 1, content * 1_000, 2**62])
    return draws.choice(strange)


class HostileLake:
    """Answers like the honest lake, or worse."""

    def __init__(self, honest: str, seed: int) -> None:
        self._honest, self._draws = honest, random.Random(seed)
        self._lock = threading.Lock()
        self._before: dict[str, bytes] = {}

    def behave(self, path: str, body: bytes, send: Send) -> Reply | None:
        """Answer one request."""
        with self._lock:
            mood, draws = self._draws.random(), random.Random(self._draws.random())
        if path == "/v1/status":
            mood = 1.0  # a relay process takes it for the right one
        if mood < 0.05:
            send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{")
            end = time.monotonic() + LONGEST
            while time.monotonic() < end:
                time.sleep(0.05)
                send(b" ")
            return None
        if mood < 0.08:
            send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(100):
                send(b"100000\r\n" + b"[" * (1 << 20) + b"\r\n")
            return None
        if mood < 0.11:
            return 302, {"location": "http://127.0.0.1:1/"}, b"{}"
        if mood < 0.14:
            return 500, {}, b'{"error": "Broken", "text": "\\u001b[2J"}'
        if mood < 0.17:
            return 200, {}, b"[" * 100_000
        try:
            address = self._honest + path
            kind = {"content-type": "application/json"}
            answer = httpx.request("POST" if body else "GET", address, content=body, headers=kind, timeout=10)
        except httpx.HTTPError:
            return 503, {}, b'{"error": "Down", "text": "come again"}'
        if mood < 0.4 and answer.status_code == 200:
            return 200, {}, json.dumps(mangled(answer.json(), draws)).encode()
        name = path.partition("?")[0]
        if mood < 0.5 and name in self._before:
            return 200, {}, self._before[name]
        self._before[name] = answer.content[: 1 << 20]
        if len(self._before) > 100:
            self._before.clear()
        return answer.status_code, {}, answer.content


class HostileClient:
    """Sends both lakes what it can think of."""

    def __init__(self, urls: list[str], seed: int, pause: float, most_held: int) -> None:
        self._urls, self._draws, self._pause, self._most_held = urls, random.Random(seed), pause, most_held
        self._held: list[socket.socket] = []
        self._runner = asyncio.Runner()
        self._clients = [ServiceClient(url, tries=1) for url in urls]

    def forever(self) -> None:
        """Go on until the process ends."""
        kinds = [self._junk, self._headers, self._mangled, self._texts, self._hold, self._unread, self._questions]
        while True:
            with contextlib.suppress(httpx.HTTPError, OSError):
                self._draws.choice(kinds)(self._draws.choice([0, 1]))
            time.sleep(self._pause)

    def _post(self, side: int, path: str, content: bytes, **headers: str) -> httpx.Response:
        return httpx.post(self._urls[side] + path, content=content, headers=headers, timeout=10)

    def _submit(self, side: int, transaction: bytes) -> None:
        """Submit a transaction, mostly signed."""
        own = ("left", "right")[side]
        if self._draws.random() < 0.3:
            self._post(side, f"/v1/chains/{own}/transactions", transaction, **{"content-type": "application/json"})
        with contextlib.suppress(ServiceError):
            self._runner.run(self._clients[side].submit(own, transaction, 0))

    def _junk(self, side: int) -> None:
        self._submit(side, self._draws.randbytes(self._draws.choice([1, 100, 10_000, 1 << 20, 3 << 20])))

    def _headers(self, side: int) -> None:
        """Submit headers of all times and heights, signed by the validators of the other zone."""
        remote = ("right", "left")[side]
        time_ns = self._draws.choice([-1, 0, 2**63 - 1, 2**64, 10**9 * self._draws.randrange(10**7)])
        height = self._draws.choice([2**62, self._draws.randrange(1, 10**6)])
        calls = []
        for number in range(self._draws.choice([1, 20])):
            (before, _), (own, keys) = (validators_at(SEED, remote, at, IbcOptions()) for at in (0, height))
            keys = {} if self._draws.random() < 0.9 else keys
            root = self._draws.randbytes(32)
            signed = sign_header(make_header(remote, height + number, time_ns, root, own), own, keys)
            update = HeaderUpdate.on(0, before, signed, own).encode()
            calls.append(wire.Call(update=wire.UpdateHeader(remote=remote, header=update)))
        self._submit(side, wire.Transaction(calls=calls).SerializeToString())

    def _mangled(self, side: int) -> None:
        """Submit a proof of what is not so."""
        remote = ("right", "left")[side]
        data = self._draws.randbytes(self._draws.choice([10, 100_000]))
        submit = wire.Submit(remote=remote, key=data[:80], value=data, proof=data, height=self._draws.randrange(2**63))
        call = wire.Call()
        getattr(call, self._draws.choice(["receive", "receipt", "timeout", "cleanup"])).CopyFrom(submit)
        self._submit(side, wire.Transaction(calls=[call] * self._draws.randrange(1, 5)).SerializeToString())

    def _texts(self, side: int) -> None:
        texts = [b"", b"{", b"[" * 100_000, b'{"to": "\\ud800"}', b'{"to": ' + b"9" * 10_000 + b"}", b'{"count": NaN}']
        self._post(side, "/v1/messages", self._draws.choice(texts), **{"content-type": "application/json"})

    def _hold(self, side: int) -> None:
        """Open a connection, and send a part of a request."""
        place = urlsplit(self._urls[side])
        held = socket.create_connection((str(place.hostname), place.port), timeout=2)
        held.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{")
        self._held.append(held)
        while len(self._held) > self._most_held:
            self._held.pop(0).close()

    def _unread(self, side: int) -> None:
        """Ask for long answers on many connections, and read none; open some on which nothing is asked."""
        own, remote = ("left", "right")[side], ("right", "left")[side]
        place = urlsplit(self._urls[side])
        asked = f"GET /v1/chains/{own}/queues/{remote}/send?count=100 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        for number in range(min(40, self._most_held)):
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            held.settimeout(2)
            held.connect((str(place.hostname), place.port))
            if number % 2:
                held.sendall(asked * 20)
            self._held.append(held)
        while len(self._held) > self._most_held:
            self._held.pop(0).close()

    def _questions(self, side: int) -> None:
        own, remote = ("left", "right")[side], ("right", "left")[side]
        number = self._draws.choice([-1, 0, 1, 2**63, 2**64, 10**30])
        paths = [
            f"/v1/chains/{own}/header?height={number}",
            f"/v1/chains/{own}/queues/{remote}?packets_from={number}",
            f"/v1/chains/{own}/queues/{remote}/send?first={number}&count={number}",
            f"/v1/chains/{own}/refusals?height={number}",
            f"/v1/messages/{number}",
            "/v1/" + "x" * 10_000,
        ]
        httpx.get(self._urls[side] + self._draws.choice(paths), timeout=10)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def main(role: str, *arguments: str) -> None:
    """Play a role until the process is ended."""
    signal.signal(signal.SIGTERM, _end)
    if role == "lake":
        port, honest, seed = arguments
        Server(HostileLake(honest, int(seed)).behave, int(port))
        threading.Event().wait()
    *urls, seed, count = arguments
    clients = int(count)
    for number in range(clients):
        one = HostileClient(urls, int(seed) + number, PAUSE * clients**0.5, -(-MOST_HELD // clients))
        threading.Thread(target=one.forever, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
