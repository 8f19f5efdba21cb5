"""The HTTP endpoints of a served lake, version 1: ``docs/how-to/serve.md`` lists them.

Answers are JSON; an error is ``{"error": name, "text": one line}``. Reading never waits for a block that is being made.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from pydantic import ConfigDict, Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from causeway.model.errors import CausewayError, InvalidInput
from causeway.network.replayed import ReplayBusy, ReplayDiffers
from causeway.network.traffic_settings import MessageSection
from causeway.pipeline.lake import LakeError
from causeway.pipeline.layout import LakeDamaged
from causeway.service.answers import HealthAnswer, OutcomeAnswer, SenderAnswer, TakenAnswer
from causeway.service.bodies import Turns
from causeway.service.keys import WeakKey
from causeway.service.mempool import MempoolFull, QuotaExceeded
from causeway.service.metrics import lake_metrics
from causeway.service.node import Node, Taken
from causeway.service.openapi import document
from causeway.service.requests import (
    ENVELOPE_BYTES,
    READERS,
    Address,
    Body,
    Call,
    Digest,
    Digits,
    Forbidden,
    NotFound,
    Query,
    Seconds,
    answered,
    answered_soon,
)
from causeway.service.senders import NonceRefused, NumberTaken
from causeway.service.serving_log import ServingLog
from causeway.service.signing import MAX_NONCE, MESSAGE, TRANSACTION, NotSigned, Signed
from causeway.service.transfers import Busy, Paced, Transfers
from causeway.web.guard import Guard

MOST_WAITS = 64
"""Requests that wait for a block at a time; further ones are answered at once."""

LOOK = 0.02
"""Seconds between two looks whether there is one."""

STATUS: dict[type[CausewayError], int] = {
    NotFound: 404,
    LakeDamaged: 503,
    ReplayDiffers: 503,
    ReplayBusy: 503,
    LakeError: 404,
    WeakKey: 403,
    InvalidInput: 400,
    NotSigned: 403,
    Forbidden: 403,
    NonceRefused: 409,
    NumberTaken: 409,
    QuotaExceeded: 429,
    MempoolFull: 503,
    Busy: 503,
}
"""The status of each error; of two that fit, the first."""


class Wait(Query):
    """How long to wait for a block."""

    wait: Seconds = Field(0, description="Seconds to wait for the block.")


class SignedBody(Body):
    """A signed message; ``docs/how-to/serve.md`` says what is signed."""

    lake: str = Field(..., max_length=64, description="The identity of the lake it is for, as its status says.")
    sender: Digest = Field(..., description="The sender's public key (Ed25519).")
    nonce: int = Field(..., ge=1, le=MAX_NONCE, description="Above the last one of this sender.")
    signature: str = Field(..., pattern=r"^[0-9a-f]{128}$", description="The sender's signature.")


class MessageContent(MessageSection):
    """The keys of ``[[traffic.send]]`` but for ``tick`` and ``sender``: a method asked for, or a call to be made."""

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


class TransactionSection(Body):
    """What somebody carries to a chain."""

    transaction: Digits = Field(..., description="The transaction, as the protocol encodes it.")


class TransactionBody(SignedBody):
    """A signed transaction."""

    content: TransactionSection


def application(node: Node, hosts: Collection[str] = (), log: ServingLog | None = None) -> Starlette:
    """Return the ASGI application that serves a node's lake, and takes what goes into its blocks.

    ``hosts``: names by which it is asked, beside ``localhost`` and addresses in digits. ``log``: is told of refusals
    and faults.
    """
    addresses = addresses_of(node)
    handlers: dict[Any, Any] = {CausewayError: _failed, HTTPException: _not_served, Exception: _unexpected}
    routes = [address.route() for address in addresses]
    transfers = Transfers()
    layers = [Middleware(Paced, transfers=transfers), Middleware(Guard, hosts=frozenset(hosts))]
    served = Starlette(routes=routes, exception_handlers=handlers, middleware=layers)
    served.router.redirect_slashes = False  # an address has one form
    served.state.log, served.state.transfers, served.state.turns = log or ServingLog(), transfers, Turns()
    return served


def addresses_of(node: Node) -> list[Address]:
    """Return all that a node answers."""
    endpoints = Endpoints(node)
    chain = {"chain": {"type": "string", "enum": node.views.own()}}
    name, key = ({part: {"type": "string", "pattern": "^[0-9a-f]{64}$"}} for part in ("hash", "sender"))
    taken = {200: TakenAnswer, 202: TakenAnswer}
    longest = 2 * node.endpoint.max_transaction_bytes + ENVELOPE_BYTES
    status = {200: node.endpoint.status_answer}
    own = [
        Address("GET", "/v1/status", "What the network is, and how far it has come.", endpoints.status, answers=status),
        Address("GET", "/v1/health", "Whether blocks are being made.", endpoints.health, answers={200: HealthAnswer}),
        Address("GET", "/metrics", "For Prometheus.", endpoints.metrics, answers={200: "text/plain; version=0.0.4"}),
        Address(
            "POST",
            "/v1/messages",
            "Takes a user's signed message to a program.",
            endpoints.send,
            Wait,
            MessageBody,
            taken,
        ),
        Address(
            "GET", "/v1/messages/{hash}", "What became of a message.", endpoints.taken, Wait, answers=taken, parts=name
        ),
        Address(
            "GET",
            "/v1/messages/{hash}/outcome",
            "What the block that has a message refused of it.",
            endpoints.outcome,
            answers={200: OutcomeAnswer},
            parts=name,
        ),
        Address(
            "GET",
            "/v1/senders/{sender}",
            "The last nonce of a sender.",
            endpoints.sender,
            answers={200: SenderAnswer},
            parts=key,
        ),
        Address(
            "POST",
            "/v1/chains/{chain}/transactions",
            "Takes what somebody carries to a chain, signed.",
            endpoints.submit,
            Wait,
            TransactionBody,
            taken,
            chain,
            longest,
        ),
        *node.endpoint.addresses(),
    ]
    described = document(own)

    async def openapi(call: Call) -> Response:
        return JSONResponse(described)

    return [*own, Address("GET", "/openapi.json", "This document, but for this address.", openapi)]


class Endpoints:
    """What each address answers."""

    def __init__(self, node: Node) -> None:
        self._node, self._views = node, node.views
        self._waits = 0

    async def status(self, call: Call) -> Response:
        """Answer what the network is, and how far it has come."""
        return await answered_soon(self._views.status)

    async def health(self, call: Call) -> Response:
        """Answer whether blocks are being made."""
        failure = self._node.failure
        if failure is not None:
            return _error(503, type(failure).__name__, f"no more blocks are made: {failure}")
        pool = self._node.pool
        return JSONResponse({"height": self._node.network.height, "waiting": len(pool), "waiting_bytes": pool.size})

    async def metrics(self, call: Call) -> Response:
        """Answer the lake's metrics in the text form of Prometheus."""
        asked = functools.partial(lake_metrics, self._node.endpoint, self._node.pool)
        body, kind = await asyncio.get_running_loop().run_in_executor(READERS, asked)
        return Response(body, media_type=kind)

    async def submit(self, call: Call) -> Response:
        """Take a relayer's transaction for the next block; ``wait``: answer once it is in one."""
        return await self._take(call, TRANSACTION, call.path["chain"])

    async def send(self, call: Call) -> Response:
        """Take a user's message to a program for the next block; ``wait``: answer once it is in one."""
        return await self._take(call, MESSAGE, "")

    async def _take(self, call: Call, kind: str, chain: str) -> Response:
        taken = await self._hand_over(call, kind, chain)
        call.forget_body()
        return await self._waited(call, taken)

    async def _hand_over(self, call: Call, kind: str, chain: str) -> Taken:
        model = call.model
        sender, signature = bytes.fromhex(model.sender), bytes.fromhex(model.signature)
        # What was signed is what came, not what the declaration makes of it.
        signed = Signed(model.lake, kind, chain, sender, model.nonce, call.body["content"], signature)
        return await run_in_threadpool(self._node.take, signed)

    async def taken(self, call: Call) -> Response:
        """Answer what became of a message: waiting, or in the block of a height."""
        name = call.path["hash"]
        found = self._node.find(name)
        if found is None:
            raise NotFound(f"hash: {name[:80]}: no such message waits, nor was any in a block of late")
        return await self._waited(call, found)

    async def outcome(self, call: Call) -> Response:
        """Answer what the block that has a message refused of it."""
        return await answered(self._node.outcome, call.path["hash"])

    async def sender(self, call: Call) -> Response:
        """Answer the last nonce of a sender."""
        return await answered_soon(self._node.sender, call.path["sender"])

    async def _waited(self, call: Call, taken: Taken) -> Response:
        # Who waits holds one of the connections that there are: others shall find one, too.
        seconds = call.query.wait if self._waits < MOST_WAITS else 0
        end = asyncio.get_running_loop().time() + seconds
        self._waits += 1
        try:
            # No thread waits: there are few of them, and reading needs them.
            while taken.height is None and not self._node.ending and asyncio.get_running_loop().time() < end:
                await asyncio.sleep(LOOK)
                taken = self._node.find(taken.hash) or taken
        finally:
            self._waits -= 1
        return JSONResponse(asdict(taken), 202 if taken.height is None else 200)


def _error(status: int, name: str, text: str, headers: Any = None) -> JSONResponse:
    # What was asked may be quoted, and JSON may hold halves of characters, which no answer can.
    line = " ".join(text.split()).encode(errors="replace").decode()
    return JSONResponse({"error": name, "text": line}, status, headers)


async def _failed(request: Request, error: CausewayError) -> Response:
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    log: ServingLog = request.app.state.log
    if status == 500:
        log.failed(request.url.path, error)
    else:
        log.refused(status, error.name)
    return _error(status, error.name, str(error))


async def _not_served(request: Request, error: HTTPException) -> Response:
    request.app.state.log.refused(error.status_code, "NotServed")
    return _error(error.status_code, "NotServed", f"{request.url.path}: {error.detail}", error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    request.app.state.log.failed(request.url.path, error)
    return _error(500, type(error).__name__, "the server failed; its log says more")
