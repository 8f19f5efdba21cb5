"""The HTTP endpoints of a served lake, version 1: ``docs/how-to/relay.md`` lists them.

Answers are JSON; an error is ``{"error": name, "text": one line}``. Reading never waits for a block that is being made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.lake import LakeError
from causeway.protocols.ibc.keys import Purpose
from causeway.service.mempool import MempoolFull
from causeway.service.metrics import lake_metrics
from causeway.service.node import MAX_TRANSACTION_BYTES, Node
from causeway.service.views import MOST_KEYS

MAX_JSON_BYTES = 1 << 20
"""Longest body of a request that is JSON."""

MAX_KEY_BYTES = 1 << 10
"""Longest key that a proof is asked for; those of queues have 88 bytes at most."""

LONGEST_WAIT = 60.0
"""Seconds that a request waits for a block at most."""

LOOK = 0.02
"""Seconds between two looks whether there is one."""

Endpoint = Callable[[Request], Awaitable[Response]]


def application(node: Node) -> Starlette:
    """Return the ASGI application that serves a node's lake, and takes what goes into its blocks."""
    endpoints = Endpoints(node)
    chain = "/v1/chains/{chain}"
    routes = [
        Route("/v1/status", endpoints.status),
        Route("/v1/health", endpoints.health),
        Route("/metrics", endpoints.metrics),
        Route(f"{chain}/header", endpoints.header),
        Route(f"{chain}/queues/{{remote}}", endpoints.lane),
        Route(f"{chain}/queues/{{remote}}/{{purpose}}", endpoints.entries),
        Route(f"{chain}/proofs", endpoints.proofs, methods=["POST"]),
        Route(f"{chain}/transactions", endpoints.submit, methods=["POST"]),
        Route(f"{chain}/relayers", endpoints.relayers),
        Route(f"{chain}/refusals", endpoints.refusals),
        Route("/v1/messages", endpoints.send, methods=["POST"]),
        Route("/v1/tickets/{ticket:int}", endpoints.ticket),
    ]
    handlers: dict[Any, Any] = {CausewayError: _failed, HTTPException: _not_served, Exception: _unexpected}
    return Starlette(routes=routes, exception_handlers=handlers)


class Endpoints:
    """What each address answers."""

    def __init__(self, node: Node) -> None:
        self._node, self._views = node, node.views

    async def status(self, request: Request) -> Response:
        """Answer what the network is, and how far it has come."""
        return JSONResponse(await run_in_threadpool(self._views.status))

    async def health(self, request: Request) -> Response:
        """Answer whether blocks are being made."""
        failure = self._node.failure
        if failure is not None:
            return _error(503, type(failure).__name__, f"no more blocks are made: {failure}")
        return JSONResponse({"height": await run_in_threadpool(self._views.height), "waiting": len(self._node.pool)})

    async def metrics(self, request: Request) -> Response:
        """Answer the lake's metrics in the text form of Prometheus."""
        body, kind = await run_in_threadpool(lake_metrics, self._views, len(self._node.pool))
        return Response(body, media_type=kind)

    async def header(self, request: Request) -> Response:
        """Answer the signed header of a chain at ``height``."""
        return await self._read(self._views.header, request.path_params["chain"], _number(request, "height"))

    async def lane(self, request: Request) -> Response:
        """Answer both queues of a chain for a remote one, and its client of it, at ``height``; of their entries those
        from ``packets_from`` and ``receipts_from`` on."""
        place = request.path_params
        begin = (_number(request, name) or 0 for name in ("packets_from", "receipts_from"))
        arguments = (place["chain"], place["remote"], _number(request, "height"), *begin)
        return await self._read(self._views.lane, *arguments)

    async def entries(self, request: Request) -> Response:
        """Answer entries of a queue with their values: ``count`` at most from index ``first`` on, at ``height``."""
        place = request.path_params
        words = {purpose.name.lower(): purpose for purpose in Purpose}
        if place["purpose"] not in words:
            raise InvalidInput(f"queue: {place['purpose']}; allowed: {', '.join(words)}")
        first, count = _number(request, "first") or 0, _number(request, "count")
        wanted = MOST_KEYS if count is None else count
        arguments = (place["chain"], place["remote"], words[place["purpose"]], first, wanted)
        return await self._read(self._views.entries, *arguments, _number(request, "height"))

    async def proofs(self, request: Request) -> Response:
        """Answer value and proof of each of ``keys`` (hexadecimal) in a chain's store at ``height``."""
        content = await _json(request)
        texts, height = content.get("keys"), content.get("height")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidInput('keys: must be a list of hexadecimal texts, as in {"keys": ["6962..."], "height": 17}')
        if height is not None and (not isinstance(height, int) or isinstance(height, bool) or height < 0):
            raise InvalidInput(f"height: {height!r}; allowed: a height, a whole number")
        keys = [_bytes(text, "keys") for text in texts]
        return await self._read(self._views.proofs, request.path_params["chain"], keys, height)

    async def submit(self, request: Request) -> Response:
        """Take a relayer's transaction (the body) for the next block; ``wait``: answer once it is in one."""
        user, chain = _number(request, "relayer"), request.path_params["chain"]
        if user is None:
            raise InvalidInput("relayer: missing; submit as ?relayer=NUMBER")
        body = await _body(request, MAX_TRANSACTION_BYTES)
        ticket = await run_in_threadpool(self._node.submit, chain, user, body)
        return await self._taken(request, ticket)

    async def send(self, request: Request) -> Response:
        """Take a user's message to a program for the next block; ``wait``: answer once it is in one."""
        ticket = await run_in_threadpool(self._node.send, await _json(request))
        return await self._taken(request, ticket)

    async def ticket(self, request: Request) -> Response:
        """Answer the height of the block that has what a ticket was given for, null as long as none has."""
        return await self._taken(request, request.path_params["ticket"])

    async def relayers(self, request: Request) -> Response:
        """Answer the fee accounts of relayers with a chain."""
        return await self._read(self._views.relayers, request.path_params["chain"], _number(request, "height"))

    async def refusals(self, request: Request) -> Response:
        """Answer how many calls were refused in the block of ``height``, by error; of one ``relayer``, or of all."""
        height = _number(request, "height")
        if height is None:
            raise InvalidInput("height: missing")
        return await self._read(self._views.refusals, request.path_params["chain"], height, _number(request, "relayer"))

    async def _read(self, view: Callable[..., dict[str, Any]], *arguments: Any) -> Response:
        return JSONResponse(await run_in_threadpool(view, *arguments))

    async def _taken(self, request: Request, ticket: int) -> Response:
        seconds = _number(request, "wait") or 0
        if seconds > LONGEST_WAIT:
            raise InvalidInput(f"wait: {seconds}; at most {LONGEST_WAIT:.0f} seconds are allowed")
        end = asyncio.get_running_loop().time() + seconds
        # No thread waits: there are few of them, and reading needs them.
        while (height := self._node.height_of(ticket)) is None and not self._node.ending:
            if asyncio.get_running_loop().time() >= end:
                break
            await asyncio.sleep(LOOK)
        return JSONResponse({"ticket": ticket, "height": height}, 202 if height is None else 200)


def _number(request: Request, name: str) -> int | None:
    """Return a whole number of the query, None where there is none of that name."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise InvalidInput(f"{name}: {text[:40]!r}; allowed: a whole number")
    return int(text)


async def _body(request: Request, most: int) -> bytes:
    """Return the body of a request; what is longer than ``most`` bytes is not read to its end."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise HTTPException(413, f"the body has more than {most} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def _json(request: Request) -> dict[str, Any]:
    try:
        content = json.loads(await _body(request, MAX_JSON_BYTES))
    except (ValueError, RecursionError):
        raise InvalidInput("the body is no JSON") from None
    if not isinstance(content, dict):
        raise InvalidInput("the body is no JSON object")
    return content


def _bytes(text: str, what: str) -> bytes:
    if len(text) > 2 * MAX_KEY_BYTES:
        raise InvalidInput(f"{what}: {len(text)} digits; at most {2 * MAX_KEY_BYTES} are allowed")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidInput(f"{what}: {text[:40]!r} is not hexadecimal") from None


def _error(status: int, name: str, text: str) -> JSONResponse:
    return JSONResponse({"error": name, "text": " ".join(text.split())}, status)


async def _failed(request: Request, error: CausewayError) -> Response:
    if isinstance(error, MempoolFull):
        return _error(503, error.name, str(error))
    if isinstance(error, LakeError):
        return _error(404, error.name, str(error))
    return _error(400 if isinstance(error, InvalidInput) else 500, error.name, str(error))


async def _not_served(request: Request, error: HTTPException) -> Response:
    return _error(error.status_code, "NotServed", f"{request.url.path}: {error.detail}")


async def _unexpected(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    return _error(500, type(error).__name__, "the server failed; its log says more")
