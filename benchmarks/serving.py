"""``serve``: how soon a served lake says that it is well, at rest and while clients send it the worst bodies there are.

A lake is served by a process of its own, ``causeway serve``. One process asks for ``/v1/health``, each time on a new
connection, and another is the hostile clients: each sends its body, reads the answer, and sends it again. Meanwhile an
honest user's messages must still be taken. All come from this machine; where it has such addresses (127.0.1.N), each
hostile client has its own.
"""

from __future__ import annotations

import asyncio
import http.client
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.machine import machine
from benchmarks.process import SPAWN, BenchmarkFailed, answer, call
from benchmarks.rounds import Progress
from causeway.service.http.client import ServiceClient, ServiceError

SCENARIO = """
[network]
protocol = "ibc"
seed = 7

[[chains]]
name = "left"

[[programs]]
name = "alice"
chain = "left"
program = "caller"

[traffic]
source = "script"
"""

SIZE = 1_050_000
"""Bytes of a hostile body: as long as a message's may be."""

BETWEEN = 0.02
"""Seconds between two questions for health."""

SENDING = 0.25
"""Seconds between two messages of the honest user."""

STARTING = 300.0
"""Seconds in which the server must have started."""


def _list(item: bytes) -> bytes:
    return b'{"content":[' + b",".join([item] * (SIZE // (len(item) + 1))) + b"]}"


def _keys() -> bytes:
    return b"{" + b",".join(b'"k%d":1' % index for index in range(SIZE // 12)) + b"}"


def _text(item: bytes) -> bytes:
    head = b'{"lake":"x","sender":"' + b"1" * 64 + b'","nonce":1,"signature":"' + b"0" * 128 + b'","content":'
    return head + b'{"to":"alice","method":"m","text":"' + item * (SIZE // len(item)) + b'"}}'


BODIES: dict[str, Callable[[], bytes]] = {
    "keys": _keys,
    "tables": lambda: _list(b"{}"),
    "lists": lambda: _list(b"[]"),
    "zeros": lambda: _list(b"0"),
    "floats": lambda: _list(b"1e9"),
    "digits": lambda: _list(b"9" * 4_299),
    "deep": lambda: b'{"content":' + b"[" * (SIZE // 2) + b"]" * (SIZE // 2) + b"}",
    "text": lambda: _text(b"x"),
    "escapes": lambda: _text(b"\\u0041"),
    "quotes": lambda: _text(b'\\"'),
}
"""Kinds of bodies, which hostile clients take turns with."""


def bench_serve(clients: int, seconds: float, progress: Progress = lambda text: None) -> dict[str, Any]:
    """Measure health at rest and under ``clients`` hostile ones, ``seconds`` each."""
    about = machine()
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as (port, process):
        found: dict[str, Any] = {}
        for name, count in (("warm", 0), ("idle", 0), ("attacked", clients)):
            progress(f"health, {count} hostile clients")
            found[name] = _measured(port, process, count, seconds)
        del found["warm"]
    ratio = found["attacked"]["health_ms"]["p99"] / found["idle"]["health_ms"]["p99"]
    return {"benchmark": "serve", "clients": clients, **found, "ratio": round(ratio, 1), "machine": about}


@contextmanager
def _served(folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """Give port and process of a served lake."""
    scenario = folder / "scenario.toml"
    scenario.write_text(SCENARIO)
    arguments = ["serve", str(folder / "lake"), "--scenario", str(scenario), "--port", "0", "--drawn-keys"]
    command = [sys.executable, "-m", "causeway", *arguments, "--block-seconds", "0.5", "--json"]
    with (folder / "log").open("w+b") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield _port(server, folder / "log"), psutil.Process(server.pid)
        finally:
            server.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                server.wait(30)
            server.kill()
            server.wait()


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    """Return at which port a server listens, once it does."""
    end = time.monotonic() + STARTING
    while time.monotonic() < end and server.poll() is None:
        for connection in psutil.Process(server.pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return int(connection.laddr.port)
        time.sleep(0.1)
    raise BenchmarkFailed(f"the server did not start: {log.read_text(errors='replace')[-500:]}")


def _measured(port: int, process: psutil.Process, clients: int, seconds: float) -> dict[str, Any]:
    """Return what health, an honest user and hostile clients saw for so long, and what the server took."""
    ours, theirs = SPAWN.Pipe()
    hostile = SPAWN.Process(target=_hostile, args=(theirs, port, clients), daemon=True)
    hostile.start()
    theirs.close()
    try:
        ours.recv()  # they are connected
        before = sum(process.cpu_times()[:2])
        found: dict[str, Any] = call(_honest, port, process.pid, seconds)
        found["processor_seconds"] = round(sum(process.cpu_times()[:2]) - before, 2)
        ours.send(None)
        found["bodies"] = answer(ours)
    finally:
        hostile.kill()
        hostile.join()
    return found


def _honest(port: int, server: int, seconds: float) -> dict[str, Any]:
    """Ask for health for so long, and send messages; return what came of it."""
    return asyncio.run(_asked(port, psutil.Process(server), time.monotonic() + seconds))


async def _asked(port: int, server: psutil.Process, stop: float) -> dict[str, Any]:
    times: list[float] = []
    memory = 0
    sent: Counter[str] = Counter()

    async def send() -> None:
        async with ServiceClient(f"http://127.0.0.1:{port}", tries=1) as client:
            while time.monotonic() < stop:
                try:
                    await client.send({"to": "alice", "method": "greet", "text": "hello"}, 0)
                    sent["taken"] += 1
                except ServiceError:
                    sent["refused"] += 1
                await asyncio.sleep(SENDING)

    sending = asyncio.create_task(send())
    while time.monotonic() < stop:
        begun = time.perf_counter()
        status = await asyncio.to_thread(_health, port)
        if status != 200:
            raise BenchmarkFailed(f"/v1/health answered {status}")
        times.append(1e3 * (time.perf_counter() - begun))
        memory = max(memory, server.memory_info().rss)
        await asyncio.sleep(BETWEEN)
    await sending
    health = {name: round(float(np.quantile(times, share)), 2) for name, share in _QUANTILES.items()}
    return {"health_ms": health, "answers": len(times), "messages": dict(sent), "memory_mib": memory >> 20}


_QUANTILES = {"p50": 0.5, "p99": 0.99, "most": 1.0}


def _health(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/v1/health")
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _hostile(pipe: Connection, port: int, clients: int) -> None:
    """Say when the clients are there, send bodies until told to stop, and say what was answered."""
    asyncio.run(_attack(pipe, port, clients))


async def _attack(pipe: Connection, port: int, clients: int) -> None:
    kinds = [make() for make in BODIES.values()]
    answers: Counter[str] = Counter()

    async def client(number: int) -> None:
        body = kinds[number % len(kinds)]
        head = "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        own = (f"127.0.1.{number % 250 + 1}", 0) if sys.platform == "linux" else None
        while True:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=own)
                try:
                    while True:
                        writer.write(request)
                        answers[await _status(reader)] += 1
                finally:
                    writer.transport.abort()
            answers["closed"] += 1

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    while tasks and answers.total() < clients // 4:
        await asyncio.sleep(BETWEEN)
    answers.clear()
    pipe.send(None)
    while not pipe.poll():
        await asyncio.sleep(BETWEEN)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    pipe.send((not any(isinstance(one, Exception) for one in ended), dict(sorted(answers.items()))))


async def _status(reader: asyncio.StreamReader) -> str:
    """Read an answer, and return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
    return head.split(" ", 2)[1]
