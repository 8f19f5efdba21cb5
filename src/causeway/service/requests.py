"""What all addresses of a served lake do with requests: numbers of the query, bodies with a bound, answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from causeway.model.errors import InvalidInput
from causeway.protocols.limits import MAX_JSON_BYTES


async def answered(view: Callable[..., dict[str, Any]], *arguments: Any) -> Response:
    """Return what a view says as JSON; it is asked in a thread of its own."""
    return JSONResponse(await run_in_threadpool(view, *arguments))


def number_of(request: Request, name: str) -> int | None:
    """Return a whole number of the query, below 2**64, None where there is none of that name.

    Raises:
        InvalidInput: it is no whole number, or a larger one.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise InvalidInput(f"{name}: {text[:40]!r}; allowed: a whole number")
    if (number := int(text)) >= 1 << 64:
        raise InvalidInput(f"{name}: {number}; at most 2**64 - 1 is allowed")
    return number


async def body_of(request: Request, most: int) -> bytes:
    """Return the body of a request; what is longer than ``most`` bytes is not read to its end."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise HTTPException(413, f"the body has more than {most} bytes")
        pieces.append(piece)
    return b"".join(pieces)


async def object_of(request: Request) -> dict[str, Any]:
    """Return the JSON object that is the body of a request. Raises ``InvalidInput`` when it is none."""
    try:
        content = json.loads(await body_of(request, MAX_JSON_BYTES))
    except (ValueError, RecursionError):
        raise InvalidInput("the body is no JSON") from None
    if not isinstance(content, dict):
        raise InvalidInput("the body is no JSON object")
    return content


def hexadecimal(text: str, what: str, most: int) -> bytes:
    """Return the bytes of a text of digits, at most ``most``. Raises ``InvalidInput``, which names ``what`` it is."""
    if len(text) > 2 * most:
        raise InvalidInput(f"{what}: {len(text)} digits; at most {2 * most} are allowed")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidInput(f"{what}: {text[:40]!r} is not hexadecimal") from None
