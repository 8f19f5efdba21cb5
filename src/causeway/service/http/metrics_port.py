"""The port at which a process tells Prometheus its metrics: one thread, so many connections, each with a deadline.

It has a loop of its own: who asks slowly, or asks without end, takes nothing from what the process does but that
thread's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from causeway.service.http.listening import ListeningSocket, bind_socket

HOST = "127.0.0.1"

MOST_ASKING = 32
"""Connections that are open at a time; of more the oldest is closed, so that who asks nothing keeps nobody out."""

MOST_HEAD = 8_192
"""Bytes of a request."""

SECONDS = 5.0
"""Seconds that a connection may take, from its begin until its answer is read."""

_PATHS = (b"/", b"/metrics")


@contextlib.contextmanager
def serve_metrics(collector: Collector, port: int | None) -> Iterator[int | None]:
    """Serve metrics at a port of this machine while the body runs, and give the port; nothing without one. Port 0
    stands for one that is free.

    Raises:
        InvalidInput: the port cannot be had.
    """
    if port is None:
        yield None
        return
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    with bind_socket(HOST, port, "--metrics-port") as listening:
        listening.listen()  # whoever is told the port may connect before the loop has begun
        found: int = listening.getsockname()[1]
        work = _Asked(registry).serve(listening, stop)
        thread = threading.Thread(target=loop.run_until_complete, args=[work], name="metrics", daemon=True)
        thread.start()
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()


class _Asked:
    """Answers whoever asks for the metrics of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._asking: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(self, listening: ListeningSocket, stop: asyncio.Event) -> None:
        """Answer until ``stop`` is set."""
        server = await asyncio.start_server(self._accepted, sock=listening, limit=MOST_HEAD)
        await stop.wait()
        server.close()
        tasks = [task for task in self._asking.values() if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._asking) >= MOST_ASKING:
            next(iter(self._asking)).transport.abort()
            del self._asking[next(iter(self._asking))]
        self._asking[writer] = asyncio.current_task()
        # Who is too slow, says too much or goes gets no answer.
        with contextlib.suppress(TimeoutError, EOFError, OSError, asyncio.LimitOverrunError):
            try:
                async with asyncio.timeout(SECONDS):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    writer.close()
                    await writer.wait_closed()
            finally:
                writer.transport.abort()
                self._asking.pop(writer, None)

    def _answer(self, head: bytes) -> bytes:
        method, path, *_ = [*head.split(b"\r\n", 1)[0].split(b" "), b"", b""]
        if method != b"GET":
            return _response("405 Method Not Allowed", b"only GET\n")
        if path.partition(b"?")[0] not in _PATHS:
            return _response("404 Not Found", b"metrics are at /metrics\n")
        return _response("200 OK", generate_latest(self._registry))


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE_PLAIN_0_0_4}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
