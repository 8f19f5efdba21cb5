"""A served lake as a process: HTTP in front, blocks behind, and an end that loses nothing."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.lake import Manifest
from causeway.service.api import application
from causeway.service.node import Node

MOST_REQUESTS = 256
"""Connections and requests at a time; more are told to come again."""

GRACE = 5
"""Seconds that requests have to end when the server stops."""


class ProductionFailed(CausewayError):
    """A block could not be made; the heights before it are committed."""


class _Server(uvicorn.Server):
    """Stops the node first, so that no request waits for a block that does not come."""

    def __init__(self, config: uvicorn.Config, node: Node) -> None:
        super().__init__(config)
        self._node = node

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to end."""
        self._node.stop()
        super().handle_exit(sig, frame)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 stands for one that is free.

    Raises:
        InvalidInput: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror or error}"
        raise InvalidInput(f"--port: {host}:{port} {why}") from None
    return found


def address(listening: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(node: Node, listening: socket.socket, committed: Callable[[Manifest], None] | None = None) -> None:
    """Serve a node's lake and make its blocks until SIGINT or SIGTERM; ``committed`` is called after every block.

    Raises:
        ProductionFailed: a block could not be made.
    """
    config = uvicorn.Config(
        application(node),
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=MOST_REQUESTS,
    )
    server = _Server(config, node)
    # One that comes before uvicorn takes signals counts as well; what it has taken it raises again when it is done, and
    # that ends nothing.
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}

    def produce() -> None:
        try:
            node.run(committed)
        except BaseException:
            server.should_exit = True
            if node.failure is None or isinstance(node.failure, SystemExit):
                raise

    producer = threading.Thread(target=produce, name="blocks")
    producer.start()
    try:
        server.run(sockets=[listening])
    finally:
        node.stop()
        producer.join()
        for number, handler in before.items():
            signal.signal(number, handler)
    if node.failure is not None:
        text = str(node.failure)
        raise ProductionFailed(f"block {node.network.height + 1}: {type(node.failure).__name__}: {text}") from None
