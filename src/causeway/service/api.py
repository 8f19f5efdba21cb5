"""The HTTP endpoints of a served lake, version 1: ``docs/how-to/relay.md`` lists them.

Answers are JSON; an error is ``{"error": name, "text": one line}``. Reading never waits for a block that is being made.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.lake import LakeError
from causeway.service.mempool import MempoolFull
from causeway.service.metrics import lake_metrics
from causeway.service.node import Node
from causeway.service.requests import body_of, number_of, object_of

LONGEST_WAIT = 60.0
"""Seconds that a request waits for a block at most."""

LOOK = 0.02
"""Seconds between two looks whether there is one."""


def application(node: Node) -> Starlette:
    """Return the ASGI application that serves a node's lake, and takes what goes into its blocks."""
    endpoints = Endpoints(node)
    routes = [
        Route("/v1/status", endpoints.status),
        Route("/v1/health", endpoints.health),
        Route("/metrics", endpoints.metrics),
        Route("/v1/chains/{chain}/transactions", endpoints.submit, methods=["POST"]),
        Route("/v1/messages", endpoints.send, methods=["POST"]),
        Route("/v1/tickets/{ticket:int}", endpoints.ticket),
        *node.endpoint.routes(),
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
        body, kind = await run_in_threadpool(lake_metrics, self._node.endpoint, len(self._node.pool))
        return Response(body, media_type=kind)

    async def submit(self, request: Request) -> Response:
        """Take a relayer's transaction (the body) for the next block; ``wait``: answer once it is in one."""
        user, chain = number_of(request, "relayer"), request.path_params["chain"]
        if user is None:
            raise InvalidInput("relayer: missing; submit as ?relayer=NUMBER")
        body = await body_of(request, self._node.endpoint.max_transaction_bytes)
        ticket = await run_in_threadpool(self._node.submit, chain, user, body)
        return await self._taken(request, ticket)

    async def send(self, request: Request) -> Response:
        """Take a user's message to a program for the next block; ``wait``: answer once it is in one."""
        ticket = await run_in_threadpool(self._node.send, await object_of(request))
        return await self._taken(request, ticket)

    async def ticket(self, request: Request) -> Response:
        """Answer the height of the block that has what a ticket was given for, null as long as none has."""
        return await self._taken(request, request.path_params["ticket"])

    async def _taken(self, request: Request, ticket: int) -> Response:
        seconds = number_of(request, "wait") or 0
        if seconds > LONGEST_WAIT:
            raise InvalidInput(f"wait: {seconds}; at most {LONGEST_WAIT:.0f} seconds are allowed")
        end = asyncio.get_running_loop().time() + seconds
        # No thread waits: there are few of them, and reading needs them.
        while (height := self._node.height_of(ticket)) is None and not self._node.ending:
            if asyncio.get_running_loop().time() >= end:
                break
            await asyncio.sleep(LOOK)
        return JSONResponse({"ticket": ticket, "height": height}, 202 if height is None else 200)


def _error(status: int, name: str, text: str) -> JSONResponse:
    # What was asked may be quoted, and JSON may hold halves of characters, which no answer can.
    line = " ".join(text.split()).encode(errors="replace").decode()
    return JSONResponse({"error": name, "text": line}, status)


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
