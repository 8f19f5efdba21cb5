"""Prometheus port of a process: one thread, bounded connections, each with a deadline.

It has its own event loop: slow or frequent clients cost the process only that thread's time.
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
"""Maximum number of open connections; beyond it the oldest is closed."""

MOST_HEAD = 8_192
"""Maximum size of a request in bytes."""

SECONDS = 5.0
"""Deadline of a connection in seconds, including reading the answer."""

_PATHS = (b"/", b"/metrics")


@contextlib.contextmanager
def serve_metrics(collector: Collector, port: int | None) -> Iterator[int | None]:
    """Serve metrics on a local port while the body runs; yield the port.

    Args:
        collector: Source of the metrics.
        port: The port; 0 for any free one, None to serve none.

    Raises:
        InvalidInput: The port cannot be bound.
    """
    if port is None:
        yield None
        return
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    with bind_socket(HOST, port, "--metrics-port") as listening:
        listening.listen()  # clients may connect before the loop runs
        found: int = listening.getsockname()[1]
        work = _MetricsServer(registry).serve(listening, stop)
        thread = threading.Thread(target=loop.run_until_complete, args=[work], name="metrics", daemon=True)
        thread.start()
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()


class _MetricsServer:
    """Server of a registry's metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(self, listening: ListeningSocket, stop: asyncio.Event) -> None:
        """Answer until ``stop`` is set."""
        server = await asyncio.start_server(self._accepted, sock=listening, limit=MOST_HEAD)
        await stop.wait()
        server.close()
        tasks = [task for task in self._open.values() if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_ASKING:
            next(iter(self._open)).transport.abort()
            del self._open[next(iter(self._open))]
        self._open[writer] = asyncio.current_task()
        # Slow, oversized and aborted requests get no answer.
        with contextlib.suppress(TimeoutError, EOFError, OSError, asyncio.LimitOverrunError):
            try:
                async with asyncio.timeout(SECONDS):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    writer.close()
                    await writer.wait_closed()
            finally:
                writer.transport.abort()
                self._open.pop(writer, None)

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
