"""The socket of a server: so many connections are open at a time, and no more.

Each costs a file descriptor, and a process has only so many. Whoever opens connections without end would take those
with which the lake's files are opened, and no block could be made any more. What is beyond the bound is closed as soon
as it is accepted, and half of what the process may open is kept for everything else.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import weakref
from collections.abc import Iterable
from typing import Any

from causeway_proofs.errors import InvalidInput

try:
    import resource
except ImportError:  # no such limits on this system
    resource = None  # type: ignore[assignment]

MAX_CONNECTIONS = 512
"""Connections that are open at a time, whatever is asked on them."""

WANTED_DESCRIPTORS = 4_096
"""File descriptors that the process asks the system for."""

BUFFER = 256 << 10
"""Bytes that the system keeps of what is sent on a connection. Left to itself it keeps up to some megabytes, and says
only after a third of them that any have gone: who reads slowly would seem not to read at all."""

HANDSHAKE = 10.0
"""Seconds that a handshake of TLS may take."""


class ListeningSocket(socket.socket):
    """A socket that listens. ``most``: connections that are open at a time."""

    most = MAX_CONNECTIONS

    def __init__(self, family: int, kind: int = socket.SOCK_STREAM) -> None:
        super().__init__(family, kind)
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection and where it comes from.

        Raises:
            BlockingIOError: there is none, or it was closed, because too many are open.
        """
        accepted, where = super().accept()
        if sum(held.fileno() >= 0 for held in self._accepted) >= self.most:
            accepted.close()
            raise BlockingIOError(errno.EAGAIN, "too many connections are open")
        self._accepted.add(accepted)
        return accepted, where


class ServerLoop(asyncio.SelectorEventLoop):
    """The event loop of a server: who begins a handshake of TLS must end it."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """Listen, as the base class does."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HANDSHAKE
        return await super().create_server(*arguments, **options)


def bind_socket(host: str, port: int, what: str = "--port") -> ListeningSocket:
    """Return a socket that listens at an address; port 0 stands for one that is free. ``what``: names it in errors.

    Raises:
        InvalidInput: the address cannot be had.
    """
    found = ListeningSocket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.most = min(MAX_CONNECTIONS, _descriptors() // 2)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    # Connections have it from here. Without it the end of a short answer waits 40 ms for the client to acknowledge.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror or error}"
        raise InvalidInput(f"{what}: {host}:{port} {why}") from None
    return found


def share_connections(sockets: Iterable[socket.socket]) -> None:
    """Let sockets that one process listens at have equal parts of the connections that it may have open: who fills one
    keeps nobody out at the others, and all together leave it the other half of its file descriptors."""
    listening = [one for one in sockets if isinstance(one, ListeningSocket)]
    for one in listening:
        one.most = min(one.most, _descriptors() // 2 // len(listening))


def _descriptors() -> int:
    """Return how many files the process may have open, after it has asked for enough."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = resource.RLIM_INFINITY
        wanted = WANTED_DESCRIPTORS if hard == unlimited else min(WANTED_DESCRIPTORS, hard)
        if soft != unlimited and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
        if soft != unlimited:
            return soft
    return WANTED_DESCRIPTORS
