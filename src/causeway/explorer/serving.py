"""The explorer as a process: a socket on this machine only, requests in the main thread's loop, looks in another."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn

from causeway.explorer.app import Explorer
from causeway.explorer.live import Live
from causeway.web.connections import Connection, Places
from causeway.web.guard import Guard
from causeway.web.listening import Listening, Loop, bound

HOST = "127.0.0.1"

MOST_REQUESTS = 64
"""Requests that are answered, and connections that are open, at a time; more are told to come again."""

GRACE = 3
"""Seconds that requests have to end when the server stops."""


def listening_at(port: int) -> Listening:
    """Return a socket of this machine only; port 0 stands for one that is free. Raises ``InvalidInput`` where it cannot
    be had."""
    return bound(HOST, port)


def address(listening: socket.socket) -> str:
    """Return the URL of a socket."""
    return f"http://{HOST}:{listening.getsockname()[1]}/"


def server_of(live: Live) -> uvicorn.Server:
    """Return what answers for a lake or a ledger, to whoever asks from this machine."""
    app = Guard(Explorer(live).application(), loopback=True)
    config = uvicorn.Config(
        Places(app, MOST_REQUESTS),
        http=Connection,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    return uvicorn.Server(config)


def explore(live: Live, listening: Listening, started: Callable[[], None] = lambda: None) -> None:
    """Show a lake or a ledger until SIGINT or SIGTERM. ``started``: called once connections are taken.

    Raises what ended following it, where nobody foresaw that.
    """
    server = server_of(live)
    # One that comes before uvicorn takes signals counts as well; what it has taken it raises again when it is done, and
    # that ends nothing.
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        listening.listen(server.config.backlog)  # whoever is told the address may connect before the loop has begun
        live.start()
        started()
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(server.serve(sockets=[listening]))
    finally:
        live.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    if live.broken is not None:
        raise live.broken


__all__ = ["address", "explore", "listening_at", "server_of"]
