"""Typed addresses of an HTTP API, and the OpenAPI document generated from them.

Each address is declared once with its schemas. The declaration is enforced before a handler runs: unknown or
repeated query parameters, and bodies of another type or with other keys, are refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from causeway_proofs.errors import CausewayError, InvalidInput
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import models_json_schema
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import causeway
from causeway.config.document import validate_document
from causeway.config.section import U64_MAX, ScenarioSection
from causeway.protocols.shared.limits import MAX_ITEMS, MAX_JSON_BYTES
from causeway.service.http.answers import ErrorAnswer
from causeway.service.http.bodies import JSON, SHORT, client_address, read_body, read_length, read_object, require_json
from causeway.service.http.connections import CONNECTION

LONGEST_WAIT = 60
"""Maximum time in seconds that a request waits for a block."""

ENVELOPE_BYTES = 4096
"""Bytes of a body besides its content."""

READERS = ThreadPoolExecutor(4, "answers")
"""Threads that build answers from the lake.

Their number leaves time for the next block and for short answers. Each may use a few times
``MAX_ANSWER_BYTES`` of memory.
"""


class NotFound(CausewayError):
    """Unknown or removed item."""


class Forbidden(CausewayError):
    """Request that the sender may not make."""


def _parse_integer(value: object) -> object:
    if isinstance(value, str) and (not value.isascii() or not value.isdigit() or len(value) > 20):
        raise PydanticCustomError("whole", "allowed: a whole number")
    number = int(value) if isinstance(value, str) else value
    if isinstance(number, int) and number > U64_MAX:
        raise PydanticCustomError("large", "at most 2**64 - 1 is allowed")
    return number


Number = Annotated[int, Field(ge=0, le=U64_MAX), BeforeValidator(_parse_integer)]
"""Integer of a query, in digits."""

Seconds = Annotated[int, Field(ge=0, le=LONGEST_WAIT), BeforeValidator(_parse_integer)]

Count = Annotated[int, Field(ge=1, le=MAX_ITEMS), BeforeValidator(_parse_integer)]

Digits = Annotated[str, Field(pattern=r"^([0-9a-fA-F]{2})*$")]
"""Bytes as hexadecimal digits."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""32 bytes as lower-case hexadecimal digits."""


class Query(BaseModel):
    """Query parameters; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(ScenarioSection):
    """Body of a request; unknown keys are refused."""


Asked = TypeVar("Asked", bound="TypedRequest")


@dataclass
class TypedRequest:
    """Validated request.

    Attributes:
        request: The raw request.
        path: Variable parts of the path.
        query: Query parameters.
        body: Body as JSON.
        model: Body as declared by the address, if it declares one.
        release: Callback that frees the body's memory.
    """

    request: Request
    path: Mapping[str, str]
    query: Any
    body: Any = None
    model: Any = None
    release: Callable[[], None] = lambda: None

    def release_body(self) -> None:
        """Free the body's memory before a wait."""
        self.body = self.model = None
        self.release()


Handler = Callable[[TypedRequest], Awaitable[Response]]


@dataclass(frozen=True)
class Address:
    """Declared address.

    Attributes:
        method: HTTP method.
        path: Path with variable parts in braces.
        about: Summary.
        handler: Handler of valid requests.
        query: Schema of the query.
        body: Schema of the body, if any.
        answers: Schema or media type of the answer, by status.
        parts: JSON Schema of each variable part of the path.
        longest: Maximum size of the body in bytes.
    """

    method: str
    path: str
    about: str
    handler: Handler
    query: type[Query] = Query
    body: type[BaseModel] | None = None
    answers: Mapping[int, type[BaseModel] | str] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    longest: int = MAX_JSON_BYTES

    def route(self) -> Route:
        """Create the route that validates requests and calls ``handler``."""

        async def answered(request: Request) -> Response:
            call = TypedRequest(request, request.path_params, self.query_of(request))
            if self.body is None:
                return await self.handler(call)
            try:
                await self._take_body(call)
                return await self.handler(call)
            finally:
                call.release()

        return Route(self.path, answered, methods=[self.method])

    async def _take_body(self, call: TypedRequest) -> None:
        """Read and validate the body; a long one when its turn comes, until ``call.release``."""
        request = call.request
        require_json(request)
        length = read_length(request, self.longest)
        turns, transfers = request.app.state.turns, request.app.state.transfers
        transfer = transfers.begin(request.scope)
        call.release = lambda: transfers.end(transfer)
        if length <= SHORT:
            call.body, call.model = self._read(await read_body(request, length, turns, transfers, transfer))
            return
        connection = request.scope.get("state", {}).get(CONNECTION)
        async with nullcontext() if connection is None else connection.while_open():
            end = await turns.begin(client_address(request))

        def release() -> None:
            transfers.end(transfer)
            end()

        call.release = release
        data = await read_body(request, length, turns, transfers, transfer)
        call.body, call.model = await run_in_threadpool(self._read, data)

    def _read(self, data: bytes) -> tuple[dict[str, Any], BaseModel]:
        assert self.body is not None
        content = read_object(data)
        return content, validate_document(self.body, content, "body")

    def query_of(self, request: Request) -> Query:
        """Validate the query of a request.

        Raises:
            InvalidInput: A parameter is unknown, repeated, missing or invalid.
        """
        given: dict[str, str] = {}
        known = ", ".join(self.query.model_fields) or "none here"
        for name, value in request.query_params.multi_items():
            if name not in self.query.model_fields:
                raise InvalidInput(f"{name[:80]}: no such parameter; allowed: {known}")
            if name in given:
                raise InvalidInput(f"{name}: given twice")
            given[name] = value
        return validate_document(self.query, given, "query")


async def answer_inline(view: Callable[..., Mapping[str, Any]], *arguments: Any) -> Response:
    """Answer with a small view as JSON, without waiting for ``READERS``.

    Args:
        view: The view.
        *arguments: Its arguments.
    """
    return JSONResponse(await run_in_threadpool(view, *arguments))


async def answer_in_thread(view: Callable[..., Mapping[str, Any]], *arguments: Any, **named: Any) -> Response:
    """Answer with a view as JSON, built in a thread of ``READERS``.

    Args:
        view: The view.
        *arguments: Its positional arguments.
        **named: Its keyword arguments.
    """
    return await asyncio.get_running_loop().run_in_executor(READERS, lambda: JSONResponse(view(*arguments, **named)))


def address_of_view(
    path: str,
    about: str,
    view: Callable[..., Mapping[str, Any]],
    answer: type[BaseModel],
    query: type[Query] = Query,
    **parts: Sequence[str],
) -> Address:
    """Declare the address of a view, called with the path parts and query parameters by name.

    Args:
        path: Path with variable parts in braces.
        about: Summary.
        view: The view.
        answer: Schema of the answer.
        query: Schema of the query.
        **parts: Allowed values of each path part.
    """

    async def handler(call: TypedRequest) -> Response:
        return await answer_in_thread(view, **call.path, **dict(call.query))

    allowed = {name: {"type": "string", "enum": list(values)} for name, values in parts.items()}
    return Address("GET", path, about, handler, query, answers={200: answer}, parts=allowed)


def hexadecimal(text: str, what: str, most: int) -> bytes:
    """Decode hexadecimal digits.

    Args:
        text: The digits.
        what: Name of the value, for the error.
        most: Maximum number of bytes.

    Raises:
        InvalidInput: The text is too long or not hexadecimal.
    """
    if len(text) > 2 * most:
        raise InvalidInput(f"{what}: {len(text)} digits; at most {2 * most} are allowed")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidInput(f"{what}: {text[:40]!r} is not hexadecimal") from None


VERSION = "3.1.0"

SCHEMAS = "#/components/schemas/{model}"

REFUSALS = {
    400: "The request is invalid.",
    403: "Who asks may not, or the signature is not the sender's.",
    404: "There is no such address, height, message.",
    405: "This address answers another method.",
    408: "The body did not come in time.",
    409: "The nonce is not above that of the sender's last message.",
    413: "The body is too long.",
    415: "The body does not say that it is JSON.",
    421: "The host asked for is none of this server's.",
    429: "Too much of this sender waits for a block.",
    431: "The header fields are too long.",
    503: "No more is taken now, or no more blocks are made; try again later.",
}
"""Descriptions of error statuses, common to all addresses."""


def build_document(addresses: Sequence[Address]) -> dict[str, Any]:
    """Build the OpenAPI document of addresses as a JSON object."""
    names, components = _schemas(addresses)
    paths: dict[str, Any] = {}
    for address in addresses:
        paths.setdefault(address.path, {})[address.method.lower()] = _operation(address, names)
    return {
        "openapi": VERSION,
        "info": {
            "title": "A served lake",
            "version": causeway.__version__,
            "description": "Bytes are hexadecimal, times are nanoseconds of block time.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _schemas(addresses: Sequence[Address]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    models: dict[tuple[type[BaseModel], Any], None] = {(ErrorAnswer, "serialization"): None}
    for address in addresses:
        if address.body is not None:
            models[address.body, "validation"] = None
        for answer in address.answers.values():
            if not isinstance(answer, str):
                models[answer, "serialization"] = None
    found, content = models_json_schema(list(models), ref_template=SCHEMAS)
    return dict(found), content.get("$defs", {})


def _operation(address: Address, names: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    names_in_path = re.findall(r"{(\w+)}", address.path)
    parts = [
        {"name": name, "in": "path", "required": True, "schema": dict(address.parts[name])} for name in names_in_path
    ]
    content: dict[str, Any] = {
        "operationId": f"{address.method.lower()}{re.sub(r'[^a-z0-9]+', '-', address.path.lower())}".strip("-"),
        "summary": address.about,
        "parameters": [*parts, *_parameters(address)],
        "responses": {},
    }
    if address.body is not None:
        schema = names[address.body, "validation"]
        content["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    for status, answer in address.answers.items():
        kind, schema = (
            (answer, {"type": "string"}) if isinstance(answer, str) else (JSON, names[answer, "serialization"])
        )
        about = "In a block, or no work is left." if status == 200 else "Waits for a block."
        description = about if len(address.answers) > 1 else address.about
        content["responses"][str(status)] = {"description": description, "content": {kind: {"schema": schema}}}
    error = names[ErrorAnswer, "serialization"]
    for status, about in REFUSALS.items():
        content["responses"][str(status)] = {"description": about, "content": {JSON: {"schema": error}}}
    return content


def _parameters(address: Address) -> list[dict[str, Any]]:
    schema = address.query.model_json_schema(ref_template=SCHEMAS)
    required = schema.get("required", [])
    found = []
    for name, content in schema.get("properties", {}).items():
        about = content.pop("description", None)
        schema_keys = {key: value for key, value in content.items() if key not in ("title", "default", "anyOf")}
        kinds = [kind for kind in content.get("anyOf", ()) if kind != {"type": "null"}]
        parameter = {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {**schema_keys, **dict(*kinds)},
        }
        found.append({**parameter, **({"description": about} if about else {})})
    return found
