"""Several applications behind one server: each at ports of its own.

A served lake as a process: HTTP in front, blocks behind, and an end that loses nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
from causeway_proofs.errors import CausewayError, InvalidInput, describe_os_error
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from causeway.service.http.bodies import PacedResponses
from causeway.service.http.connections import ConnectionLimits, HttpConnection
from causeway.service.http.guard import LOCAL, HostGuard, is_address
from causeway.service.http.listening import ServerLoop, bind_socket, share_connections
from causeway.service.keys.key_files import refuse_readable
from causeway.service.node.api import ServingLog, create_application
from causeway.service.node.endpoint import ExtraAddress, LakeExchange
from causeway.service.node.node import Node
from causeway.storage.lake import Manifest


class PortRouter:
    """An ASGI application that hands a request to the one at the port that it came to, ``app`` at all others."""

    def __init__(self, app: ASGIApp, others: Mapping[int, ASGIApp]) -> None:
        self._app, self._others = app, dict(others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        server = scope.get("server")
        app = self._others.get(server[1], self._app) if server else self._app
        await app(scope, receive, send)


MOST_REQUESTS = 256
"""Connections and requests that are answered at a time; more are told to come again. So many again may be open
(``listening``)."""

GRACE = 5
"""Seconds that requests have to end when the server stops."""


AGAIN = 10.0
"""Seconds after which fetching begins again when it ended."""


class ProductionFailed(CausewayError):
    """A block could not be made; the heights before it are committed."""


class ProductionStopped(InvalidInput):
    """A block could not be made until somebody mends what the message says: the disk is full, say. The heights before
    it are committed."""


class _Server(uvicorn.Server):
    """Stops the node first, so that no request waits for a block that does not come."""

    def __init__(self, config: uvicorn.Config, node: Node) -> None:
        super().__init__(config)
        self._node = node

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to end."""
        self._node.stop()
        super().handle_exit(sig, frame)


@dataclass(frozen=True)
class Tls:
    """The files with a server's certificate (and those that vouch for it), and with its secret key, both PEM."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None) -> Tls | None:
        """Return what two options stand for, None without both.

        Raises:
            InvalidInput: one is missing, others can read the key, or they hold no certificate and its key.
        """
        if certificate is None or key is None:
            if (certificate, key) != (None, None):
                raise InvalidInput("--tls-cert, --tls-key: give both")
            return None
        refuse_readable(key)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except OSError as error:  # that of TLS is one
            text = f"no certificate and its key can be read from {certificate}, {key}: {error.strerror or error}"
            raise InvalidInput(f"--tls-cert, --tls-key: {text}") from None
        return cls(certificate, key)


def require_local(host: str, public: bool, what: str = "--host") -> None:
    """Refuse an address that other machines reach, unless that is wanted. ``what``: names it in errors.

    Raises:
        InvalidInput: it is not wanted.
    """
    local = host == LOCAL or (is_address(host) and ipaddress.ip_address(host).is_loopback)
    if not local and not public:
        raise InvalidInput(f"{what}: {host} can be reached by strangers; add --public if that is wanted")


def socket_url(listening: socket.socket, tls: Tls | None = None) -> str:
    """Return the URL of a socket."""
    host, port = listening.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@dataclass(frozen=True)
class ExtraSocket:
    """An address that the protocol of a lake adds, and the socket that listens there."""

    address: ExtraAddress
    listening: socket.socket

    def url(self, tls: Tls | None = None) -> str:
        """Return the URL of the address."""
        return socket_url(self.listening, tls)


@contextmanager
def open_extra_addresses(node: Node, public: bool) -> Iterator[list[ExtraSocket]]:
    """Give the sockets of the addresses that the protocol of a node's lake adds, closed in the end.

    Raises:
        InvalidInput: an address can be reached by strangers, and that is not wanted (``public``); or it cannot be had.
    """
    exchange = node.endpoint.exchange
    found: list[ExtraSocket] = []
    try:
        for where in () if exchange is None else exchange.addresses():
            require_local(where.host, public, where.key)
            found.append(ExtraSocket(where, bind_socket(where.host, where.port, where.key)))
        yield found
    finally:
        for one in found:
            one.listening.close()


def route_by_port(app: Starlette, others: Mapping[int, ASGIApp], hosts: Collection[str]) -> ASGIApp:
    """Return what answers at all addresses: ``others`` at their ports, ``app`` elsewhere. Who may ask is the same, and
    what is held of long answers is counted together."""
    transfers, named = app.state.transfers, frozenset(hosts)
    return PortRouter(app, {port: PacedResponses(HostGuard(other, named), transfers) for port, other in others.items()})


def serve(
    node: Node,
    listening: socket.socket,
    committed: Callable[[Manifest], None] | None = None,
    *,
    hosts: Collection[str] = (),
    tls: Tls | None = None,
    log: ServingLog | None = None,
    started: Callable[[], None] = lambda: None,
    further: Sequence[ExtraSocket] = (),
) -> None:
    """Serve a node's lake and make its blocks until SIGINT or SIGTERM; ``committed`` is called after every block.

    ``hosts``: names by which it may be asked. ``tls``: without it, what goes over the line can be read there. ``log``:
    is told of refusals and faults. ``started`` is called once signals to end are taken and the sockets take
    connections. ``further``: what else listens (``further_addresses``).

    Raises:
        ProductionFailed, ProductionStopped: a block could not be made.
    """
    apps = {one.listening.getsockname()[1]: one.address.app for one in further}
    config = uvicorn.Config(
        ConnectionLimits(route_by_port(create_application(node, hosts, log), apps, hosts), MOST_REQUESTS),
        http=HttpConnection,
        ssl_certfile=None if tls is None else str(tls.certificate),
        ssl_keyfile=None if tls is None else str(tls.key),
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE,
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

    sockets = [listening, *(one.listening for one in further)]
    share_connections(sockets)
    for each in sockets:
        each.listen(config.backlog)  # whoever is told the address may connect before the loop has begun
    started()
    producer = threading.Thread(target=produce, name="blocks")
    producer.start()
    try:
        with asyncio.Runner(loop_factory=ServerLoop) as runner:
            runner.run(_serve(server, sockets, node, log or ServingLog()))
    finally:
        node.stop()
        producer.join()
        for number, handler in before.items():
            signal.signal(number, handler)
    if node.failure is not None:
        raise _ended(node.failure, node.network.height) from node.failure


def _ended(failure: BaseException, height: int) -> CausewayError:
    """Return the error that says why no more blocks come after a height."""
    text = str(failure) if isinstance(failure, InvalidInput) else describe_os_error(failure)
    if text is None:
        return ProductionFailed(f"block {height + 1}: {type(failure).__name__}: {failure}")
    return ProductionStopped(f"block {height + 1}: {text}; heights up to {height} are kept, serve again to go on")


async def _serve(server: _Server, sockets: list[socket.socket], node: Node, log: ServingLog) -> None:
    """Answer at the sockets, and fetch what the lake fetches, until the server ends."""
    exchange = node.endpoint.exchange
    if exchange is None:
        await server.serve(sockets=sockets)
        return
    fetching = asyncio.create_task(_fetch(exchange, node, log))
    try:
        await server.serve(sockets=sockets)
    finally:
        fetching.cancel()
        with suppress(asyncio.CancelledError):
            await fetching


async def _fetch(exchange: LakeExchange, node: Node, log: ServingLog) -> None:
    """Fetch until cancelled: whatever becomes of it, the lake is served, and fetching begins again."""
    while True:
        try:
            await exchange.run(node.look, log)
        except Exception as error:
            log.failed("exchange", error)
        await asyncio.sleep(AGAIN)
