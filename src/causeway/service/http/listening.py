"""Listening sockets with a bound on open connections.

Each connection costs a file descriptor. Without a bound, a client could exhaust those that the lake's files
need, and block production would stop. Connections beyond the bound are closed on accept, and half of the
process's descriptors remain for everything else.
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
"""Maximum number of open connections."""

WANTED_DESCRIPTORS = 4_096
"""File descriptors requested from the system."""

BUFFER = 256 << 10
"""Send buffer of a connection in bytes.

The system's default of some megabytes reports progress only after a third of it, so a slow reader would seem
not to read at all.
"""

HANDSHAKE = 10.0
"""Seconds for a TLS handshake."""


class ListeningSocket(socket.socket):
    """Listening socket with at most ``most`` open connections."""

    most = MAX_CONNECTIONS

    def __init__(self, family: int, kind: int = socket.SOCK_STREAM) -> None:
        super().__init__(family, kind)
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; return it with its address.

        Raises:
            BlockingIOError: There is none, or it was closed because too many are open.
        """
        accepted, address = super().accept()
        if sum(connection.fileno() >= 0 for connection in self._accepted) >= self.most:
            accepted.close()
            raise BlockingIOError(errno.EAGAIN, "too many connections are open")
        self._accepted.add(accepted)
        return accepted, address


class ServerLoop(asyncio.SelectorEventLoop):
    """Event loop with a deadline for TLS handshakes."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """Listen, with a deadline for TLS handshakes."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HANDSHAKE
        return await super().create_server(*arguments, **options)


def bind_socket(host: str, port: int, what: str = "--port") -> ListeningSocket:
    """Create a socket bound to an address.

    Args:
        host: The address.
        port: The port; 0 for any free one.
        what: Name of the option, for the error.

    Raises:
        InvalidInput: The address cannot be bound.
    """
    found = ListeningSocket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.most = min(MAX_CONNECTIONS, _descriptors() // 2)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    # Inherited by connections. Without it the end of a short answer is delayed by 40 ms (Nagle, delayed ACK).
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror or error}"
        raise InvalidInput(f"{what}: {host}:{port} {why}") from None
    return found


def share_connections(sockets: Iterable[socket.socket]) -> None:
    """Divide the process's connection limit equally among its listening sockets.

    A flood at one socket then leaves the others reachable, and half of the file descriptors remain free.
    """
    listening = [one for one in sockets if isinstance(one, ListeningSocket)]
    for one in listening:
        one.most = min(one.most, _descriptors() // 2 // len(listening))


def _descriptors() -> int:
    """Return the limit of open files, after raising it if necessary."""
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
