"""Server process of a lake: HTTP on several ports, block production, graceful shutdown."""

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
    """ASGI application that dispatches by port; ``app`` is the default."""

    def __init__(self, app: ASGIApp, others: Mapping[int, ASGIApp]) -> None:
        self._app, self._others = app, dict(others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        server = scope.get("server")
        app = self._others.get(server[1], self._app) if server else self._app
        await app(scope, receive, send)


MOST_REQUESTS = 256
"""Maximum number of concurrent connections and requests; as many refused ones may be open."""

GRACE = 5
"""Seconds for requests to complete on shutdown."""


AGAIN = 10.0
"""Seconds before a failed fetch loop restarts."""


class ProductionFailed(CausewayError):
    """Failure of a block; earlier heights are committed."""


class ProductionStopped(InvalidInput):
    """Failure of a block that the operator can repair, e.g. a full disk.

    Earlier heights are committed.
    """


class _Server(uvicorn.Server):
    """Server that stops the node first, so no request waits for a block that never comes."""

    def __init__(self, config: uvicorn.Config, node: Node) -> None:
        super().__init__(config)
        self._node = node

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a termination signal."""
        self._node.stop()
        super().handle_exit(sig, frame)


@dataclass(frozen=True)
class Tls:
    """Files of a server's certificate chain and of its secret key, both PEM."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None) -> Tls | None:
        """Build from two options; None if neither is given.

        Args:
            certificate: File of the certificate chain.
            key: File of the secret key.

        Raises:
            InvalidInput: One is missing, others can read the key, or the files hold no certificate with its key.
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
    """Reject an address that other machines reach, unless ``public``.

    Args:
        host: The address.
        public: True to allow it.
        what: Name of the option, for the error.

    Raises:
        InvalidInput: The address is not local.
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
    """Additional address with its listening socket."""

    address: ExtraAddress
    listening: socket.socket

    def url(self, tls: Tls | None = None) -> str:
        """Return the URL of the address."""
        return socket_url(self.listening, tls)


@contextmanager
def open_extra_addresses(node: Node, public: bool) -> Iterator[list[ExtraSocket]]:
    """Open the sockets of the protocol's additional addresses, and close them at the end.

    Args:
        node: The node.
        public: True to allow addresses that other machines reach.

    Raises:
        InvalidInput: An address is not local, or cannot be bound.
    """
    exchange = node.endpoint.exchange
    found: list[ExtraSocket] = []
    try:
        for address in () if exchange is None else exchange.addresses():
            require_local(address.host, public, address.key)
            found.append(ExtraSocket(address, bind_socket(address.host, address.port, address.key)))
        yield found
    finally:
        for one in found:
            one.listening.close()


def route_by_port(app: Starlette, others: Mapping[int, ASGIApp], hosts: Collection[str]) -> ASGIApp:
    """Combine the applications of all ports; they share the host guard and the transfer limits.

    Args:
        app: Application of the main port.
        others: Applications by port.
        hosts: Allowed host names.
    """
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
    """Serve a node's lake and make its blocks until SIGINT or SIGTERM.

    Args:
        node: The node.
        listening: The main socket.
        committed: Callback for each block.
        hosts: Allowed host names.
        tls: Certificate and key; None for plain HTTP.
        log: Log of refusals and faults.
        started: Callback once signals are handled and the sockets listen.
        further: Additional sockets (``open_extra_addresses``).

    Raises:
        ProductionFailed: A block failed.
        ProductionStopped: A block failed for a reason that the operator can repair.
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
    # Signals also count before uvicorn handles them. Uvicorn re-raises them at its end: that must not
    # kill the process.
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
        each.listen(config.backlog)  # clients may connect before the loop runs
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
        raise _production_error(node.failure, node.network.height) from node.failure


def _production_error(failure: BaseException, height: int) -> CausewayError:
    """Build the error of failed block production."""
    text = str(failure) if isinstance(failure, InvalidInput) else describe_os_error(failure)
    if text is None:
        return ProductionFailed(f"block {height + 1}: {type(failure).__name__}: {failure}")
    return ProductionStopped(f"block {height + 1}: {text}; heights up to {height} are kept, serve again to go on")


async def _serve(server: _Server, sockets: list[socket.socket], node: Node, log: ServingLog) -> None:
    """Answer requests and run the exchange until the server ends."""
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
    """Run the exchange until cancelled; restart it after failures."""
    while True:
        try:
            await exchange.run(node.look, log)
        except Exception as error:
            log.failed("exchange", error)
        await asyncio.sleep(AGAIN)
