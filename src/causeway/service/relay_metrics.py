"""The port of a relay process at which Prometheus is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from causeway.model.errors import InvalidInput


@contextmanager
def serving(collector: Collector, port: int | None) -> Iterator[None]:
    """Serve a relay process's metrics at a port of this machine while the body runs; nothing without a port.

    Raises:
        InvalidInput: the port cannot be had.
    """
    if port is None:
        yield
        return
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise InvalidInput(f"--metrics-port: {port} cannot be had: {error.strerror or error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
