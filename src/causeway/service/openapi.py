"""The OpenAPI document of a served lake: made of the same declarations that decide what is let in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import causeway
from causeway.service.answers import ErrorAnswer
from causeway.service.bodies import JSON
from causeway.service.requests import Address

VERSION = "3.1.0"

SCHEMAS = "#/components/schemas/{model}"

REFUSALS = {
    400: "The request is not what it must be.",
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
"""What a request is refused with, whatever the address."""


def document(addresses: Sequence[Address]) -> dict[str, Any]:
    """Return the OpenAPI document of addresses, a JSON object."""
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
    where = re.findall(r"{(\w+)}", address.path)
    parts = [{"name": name, "in": "path", "required": True, "schema": dict(address.parts[name])} for name in where]
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
        about = "In a block, or nothing is left to do." if status == 200 else "Waits for a block."
        told = about if len(address.answers) > 1 else address.about
        content["responses"][str(status)] = {"description": told, "content": {kind: {"schema": schema}}}
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
        kept = {key: value for key, value in content.items() if key not in ("title", "default", "anyOf")}
        kinds = [kind for kind in content.get("anyOf", ()) if kind != {"type": "null"}]
        parameter = {"name": name, "in": "query", "required": name in required, "schema": {**kept, **dict(*kinds)}}
        found.append({**parameter, **({"description": about} if about else {})})
    return found
