"""HTTP API of a served lake, version 1 (``docs/how-to/serve.md``), its metrics and its log.

Answers are JSON; an error is ``{"error": name, "text": one line}``. Reads never wait for a block in
progress. Prometheus metrics are computed from committed state, so they survive restarts. The log
aggregates blocks and refusals, so its volume does not depend on clients.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from causeway_proofs.errors import CausewayError, InvalidInput
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from pydantic import ConfigDict, Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from causeway.network.replay import ReplayBusy, ReplayDiffers
from causeway.scenarios.traffic_settings import MessageSection
from causeway.service.http import requests
from causeway.service.http.answers import HealthAnswer, MessageStateAnswer, OutcomeAnswer, SenderAnswer
from causeway.service.http.bodies import BodyTransfers, BodyTurns, Busy, PacedResponses
from causeway.service.http.guard import HostGuard
from causeway.service.journal import SILENT, Journal
from causeway.service.keys.key_files import WeakKey
from causeway.service.keys.signing import MAX_NONCE, MESSAGE, TRANSACTION, NotSigned, SignedMessage
from causeway.service.node.endpoint import Endpoint
from causeway.service.node.mempool import Mempool, MempoolFull, NonceRefused, NumberTaken, QuotaExceeded
from causeway.service.node.node import Node, SubmissionStatus
from causeway.storage.lake import LakeError, Manifest
from causeway.storage.layout import LakeDamaged


class LakeCollector(Collector):
    """Metrics of a lake at its last height and of its mempool."""

    def __init__(self, endpoint: Endpoint, pool: Mempool) -> None:
        self._endpoint, self._pool = endpoint, pool

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        views = self._endpoint.views
        height = views.height()
        yield GaugeMetricFamily("causeway_height", "Last committed height.", height)
        yield GaugeMetricFamily(
            "causeway_block_time_seconds", "Block time of the last height.", views.time(height) / 1e9
        )
        yield GaugeMetricFamily("causeway_mempool_messages", "Messages that wait for a block.", len(self._pool))
        yield GaugeMetricFamily("causeway_mempool_bytes", "Bytes that wait for a block.", self._pool.size)
        yield from self._endpoint.metrics(height)


def lake_metrics(endpoint: Endpoint, pool: Mempool) -> tuple[bytes, str]:
    """Render the metrics of a lake as Prometheus text, with its media type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeCollector(endpoint, pool))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


EVERY = 10.0
"""Minimum interval in seconds between two log lines about blocks, and about refusals."""

MOST_NAMES = 20
"""Maximum number of refusal names in a line; others are summed."""

FRAMES = 3
"""Number of innermost stack frames in the log of a fault."""


class ServingLog:
    """Log of a server; thread-safe."""

    def __init__(self, journal: Journal = SILENT) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        self._blocks = 0
        self._last_logged = {"blocks": -EVERY, "refused": -EVERY}

    def started(self, url: str, lake: str, height: int) -> None:
        """Log the start of serving."""
        self._journal.info("serving", url=url, lake=lake, height=height)

    def stopped(self, height: int) -> None:
        """Log the end of serving and pending refusals."""
        with self._lock:
            self._log_refused()
        self._journal.info("stopped", height=height)

    def committed(self, manifest: Manifest, waiting: int) -> None:
        """Count a block; ``waiting`` is the number of pending messages."""
        rows = dict(manifest.rows)
        self._journal.debug("block", height=manifest.height, tick=manifest.tick, **rows)
        with self._lock:
            self._blocks += 1
            if self._is_due("blocks"):
                members = {"height": manifest.height, "tick": manifest.tick, "blocks": self._blocks, "waiting": waiting}
                self._journal.info("committed", **members)
                self._blocks = 0

    def refused(self, status: int, name: str) -> None:
        """Count a refused request."""
        with self._lock:
            known = f"{status}:{name}" in self._refused or len(self._refused) < MOST_NAMES
            self._refused[f"{status}:{name}" if known else "others"] += 1
            if self._is_due("refused"):
                self._log_refused()

    def failed(self, path: str, error: BaseException) -> None:
        """Log a fault of the server."""
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
        trace = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
        self._journal.error("fault", path=path, error=f"{type(error).__name__}: {error}", where=trace)

    def stands_still(self, exchange: str, seconds: float, again: float, failures: Mapping[str, int], look: str) -> None:
        """Log a stalled exchange with another lake.

        Args:
            exchange: Name of the exchange.
            seconds: Duration of the stall.
            again: Seconds until the next attempt.
            failures: Failures by name.
            look: Hint for the operator.
        """
        members = {"exchange": exchange, "seconds": round(seconds), "again": round(again)}
        self._journal.warning("stands-still", **members, failures=_format_counts(Counter(failures)), look=look)

    def goes_on(self, exchange: str, seconds: float) -> None:
        """Log the end of a stall."""
        self._journal.info("goes-on", exchange=exchange, seconds=round(seconds))

    def _is_due(self, topic: str) -> bool:
        now = time.monotonic()
        if now - self._last_logged[topic] < EVERY:
            return False
        self._last_logged[topic] = now
        return True

    def _log_refused(self) -> None:
        if self._refused:
            self._journal.warning("refused", requests=_format_counts(self._refused))
            self._refused.clear()


def _format_counts(named: Counter[str]) -> str:
    """Format names with their counts, the most frequent first."""
    return ",".join(f"{name}*{count}" for name, count in named.most_common(MOST_NAMES + 1))


MOST_WAITS = 64
"""Maximum number of requests that wait for a block; further ones are answered at once."""

LOOK = 0.02
"""Poll interval in seconds while a request waits for a block."""

STATUS: dict[type[CausewayError], int] = {
    requests.NotFound: 404,
    LakeDamaged: 503,
    ReplayDiffers: 503,
    ReplayBusy: 503,
    LakeError: 404,
    WeakKey: 403,
    InvalidInput: 400,
    NotSigned: 403,
    requests.Forbidden: 403,
    NonceRefused: 409,
    NumberTaken: 409,
    QuotaExceeded: 429,
    MempoolFull: 503,
    Busy: 503,
}
"""HTTP status of each error; the first match applies."""


class Wait(requests.Query):
    """Time to wait for a block."""

    wait: requests.Seconds = Field(0, description="Seconds to wait for the block.")


class SignedBody(requests.Body):
    """A signed message; ``docs/how-to/serve.md`` defines the signed bytes."""

    lake: str = Field(..., max_length=64, description="The identity of the lake it is for, as its status says.")
    sender: requests.Digest = Field(..., description="The sender's public key (Ed25519).")
    nonce: int = Field(..., ge=1, le=MAX_NONCE, description="Above the last one of this sender.")
    signature: str = Field(..., pattern=r"^[0-9a-f]{128}$", description="The sender's signature.")


class MessageContent(MessageSection):
    """The keys of ``[[traffic.send]]`` without ``tick`` and ``sender``: a method or a call."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["method"], "properties": {"method": {"type": "string"}, "call": {"type": "null"}}},
                {
                    "required": ["call"],
                    "properties": {
                        "call": {"type": "object"},
                        **{name: {"type": "null"} for name in ("method", "text", "hex")},
                    },
                },
            ]
        }
    )


class MessageBody(SignedBody):
    """A user's message to a program."""

    content: MessageContent


class TransactionSection(requests.Body):
    """A transaction for a chain."""

    transaction: requests.Digits = Field(..., description="The transaction, as the protocol encodes it.")


class TransactionBody(SignedBody):
    """A signed transaction."""

    content: TransactionSection


def create_application(node: Node, hosts: Collection[str] = (), log: ServingLog | None = None) -> Starlette:
    """Create the ASGI application of a node's lake.

    Args:
        node: The node.
        hosts: Allowed host names besides ``localhost`` and numeric addresses.
        log: Log of refusals and faults.
    """
    addresses = list_addresses(node)
    handlers: dict[Any, Any] = {
        CausewayError: _answer_error,
        HTTPException: _answer_http_error,
        Exception: _answer_fault,
    }
    routes = [address.route() for address in addresses]
    transfers = BodyTransfers()
    layers = [Middleware(PacedResponses, transfers=transfers), Middleware(HostGuard, hosts=frozenset(hosts))]
    application = Starlette(routes=routes, exception_handlers=handlers, middleware=layers)
    application.router.redirect_slashes = False  # an address has one form
    application.state.log, application.state.transfers, application.state.turns = (
        log or ServingLog(),
        transfers,
        BodyTurns(),
    )
    return application


def list_addresses(node: Node) -> list[requests.Address]:
    """List the addresses of a node's API."""
    endpoints = Endpoints(node)
    chain = {"chain": {"type": "string", "enum": node.views.own()}}
    name, key = ({part: {"type": "string", "pattern": "^[0-9a-f]{64}$"}} for part in ("hash", "sender"))
    submission_answers = {200: MessageStateAnswer, 202: MessageStateAnswer}
    longest = 2 * node.endpoint.max_transaction_bytes + requests.ENVELOPE_BYTES
    status = {200: node.endpoint.status_answer}
    own = [
        requests.Address(
            "GET", "/v1/status", "What the network is, and how far it has come.", endpoints.status, answers=status
        ),
        requests.Address(
            "GET", "/v1/health", "Whether blocks are being made.", endpoints.health, answers={200: HealthAnswer}
        ),
        requests.Address(
            "GET", "/metrics", "For Prometheus.", endpoints.metrics, answers={200: "text/plain; version=0.0.4"}
        ),
        requests.Address(
            "POST",
            "/v1/messages",
            "Takes a user's signed message to a program.",
            endpoints.send,
            Wait,
            MessageBody,
            submission_answers,
        ),
        requests.Address(
            "GET",
            "/v1/messages/{hash}",
            "What became of a message.",
            endpoints.message_state,
            Wait,
            answers=submission_answers,
            parts=name,
        ),
        requests.Address(
            "GET",
            "/v1/messages/{hash}/outcome",
            "What the block that has a message refused of it.",
            endpoints.outcome,
            answers={200: OutcomeAnswer},
            parts=name,
        ),
        requests.Address(
            "GET",
            "/v1/senders/{sender}",
            "The last nonce of a sender.",
            endpoints.sender,
            answers={200: SenderAnswer},
            parts=key,
        ),
        requests.Address(
            "POST",
            "/v1/chains/{chain}/transactions",
            "Takes what somebody carries to a chain, signed.",
            endpoints.submit,
            Wait,
            TransactionBody,
            submission_answers,
            chain,
            longest,
        ),
        *node.endpoint.addresses(),
    ]
    document = requests.build_document(own)

    async def openapi(call: requests.TypedRequest) -> Response:
        return JSONResponse(document)

    return [*own, requests.Address("GET", "/openapi.json", "This document, but for this address.", openapi)]


class Endpoints:
    """Handlers of the addresses."""

    def __init__(self, node: Node) -> None:
        self._node, self._views = node, node.views
        self._waits = 0

    async def status(self, call: requests.TypedRequest) -> Response:
        """Answer the network's status."""
        return await requests.answer_inline(self._views.status)

    async def health(self, call: requests.TypedRequest) -> Response:
        """Answer the state of block production."""
        failure = self._node.failure
        if failure is not None:
            return _error(503, type(failure).__name__, f"no more blocks are made: {failure}")
        pool = self._node.pool
        return JSONResponse({"height": self._node.network.height, "waiting": len(pool), "waiting_bytes": pool.size})

    async def metrics(self, call: requests.TypedRequest) -> Response:
        """Answer the lake's metrics as Prometheus text."""
        render = functools.partial(lake_metrics, self._node.endpoint, self._node.pool)
        body, kind = await asyncio.get_running_loop().run_in_executor(requests.READERS, render)
        return Response(body, media_type=kind)

    async def submit(self, call: requests.TypedRequest) -> Response:
        """Accept a relayer's transaction; with ``wait``, answer once it is in a block."""
        return await self._take(call, TRANSACTION, call.path["chain"])

    async def send(self, call: requests.TypedRequest) -> Response:
        """Accept a user's message to a program; with ``wait``, answer once it is in a block."""
        return await self._take(call, MESSAGE, "")

    async def _take(self, call: requests.TypedRequest, kind: str, chain: str) -> Response:
        status = await self._submit(call, kind, chain)
        call.release_body()
        return await self._wait_for_block(call, status)

    async def _submit(self, call: requests.TypedRequest, kind: str, chain: str) -> SubmissionStatus:
        model = call.model
        sender, signature = bytes.fromhex(model.sender), bytes.fromhex(model.signature)
        # The signature covers the received content, not its validated form.
        signed = SignedMessage(model.lake, kind, chain, sender, model.nonce, call.body["content"], signature)
        return await run_in_threadpool(self._node.take, signed)

    async def message_state(self, call: requests.TypedRequest) -> Response:
        """Answer the state of a message: pending, or in the block of a height."""
        name = call.path["hash"]
        found = self._node.find(name)
        if found is None:
            raise requests.NotFound(f"hash: {name[:80]}: no such message is pending or in a recent block")
        return await self._wait_for_block(call, found)

    async def outcome(self, call: requests.TypedRequest) -> Response:
        """Answer the faults of a message in its block."""
        return await requests.answer_in_thread(self._node.outcome, call.path["hash"])

    async def sender(self, call: requests.TypedRequest) -> Response:
        """Answer the last nonce of a sender."""
        return await requests.answer_inline(self._node.sender, call.path["sender"])

    async def _wait_for_block(self, call: requests.TypedRequest, submission: SubmissionStatus) -> Response:
        # A waiting request holds a connection, so the number of waiting requests is bounded.
        seconds = call.query.wait if self._waits < MOST_WAITS else 0
        end = asyncio.get_running_loop().time() + seconds
        self._waits += 1
        try:
            # Poll instead of blocking a thread: reads need the few threads.
            while submission.height is None and not self._node.ending and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(LOOK)
                submission = self._node.find(submission.hash) or submission
        finally:
            self._waits -= 1
        return JSONResponse(asdict(submission), 202 if submission.height is None else 200)


def _error(status: int, name: str, text: str, headers: Any = None) -> JSONResponse:
    # The text may quote the request; JSON admits lone surrogates, which UTF-8 does not.
    line = " ".join(text.split()).encode(errors="replace").decode()
    return JSONResponse({"error": name, "text": line}, status, headers)


async def _answer_error(request: Request, error: CausewayError) -> Response:
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    log: ServingLog = request.app.state.log
    if status == 500:
        log.failed(request.url.path, error)
    else:
        log.refused(status, error.name)
    return _error(status, error.name, str(error))


async def _answer_http_error(request: Request, error: HTTPException) -> Response:
    request.app.state.log.refused(error.status_code, "NotServed")
    return _error(error.status_code, "NotServed", f"{request.url.path}: {error.detail}", error.headers)


async def _answer_fault(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    request.app.state.log.failed(request.url.path, error)
    return _error(500, type(error).__name__, "the server failed; its log says more")
