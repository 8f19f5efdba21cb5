"""Parse untrusted JSON within bounds, with one-line errors for users.

Each error names the field, the value and the allowed values.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, Discriminator, Tag, ValidationError

from causeway_proofs.errors import InvalidInput, NotProven, ProofError

MAX_DOCUMENT_BYTES = 24 << 20
"""Longest document: a proof of 8 MiB in hexadecimal digits, and its claims."""

MAX_FIELDS = 64
"""Most fields of an object, above those of any kind of document."""

MAX_DIGITS = 1_000
"""Most digits of a number, so that errors can print it; no field takes as many."""

_SHOWN_CHARACTERS = 60
_TAG = "~"
"""Prefix of the tags of alternatives, to omit them from field names."""


def _form(value: object) -> str:
    return f"{_TAG}parts" if isinstance(value, dict | list) else f"{_TAG}plain"


EITHER = Discriminator(_form)
"""Marks a field in one of two forms: a text, ``PLAIN``, or an object or list, ``PARTS``."""

PLAIN, PARTS = Tag(f"{_TAG}plain"), Tag(f"{_TAG}parts")

Model = TypeVar("Model", bound=BaseModel)
JsonObject = dict[str, Any]


def read_bytes(path: Path, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a regular file of at most ``limit`` bytes.

    Raises:
        InvalidInput: the file is missing, unreadable or longer.
    """
    try:
        # A pipe or a device might never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidInput(f"{path}: is no file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise InvalidInput(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > limit:
        raise InvalidInput(f"{path}: is longer than {limit} bytes, more are not read")
    return data


def looks_like_json(data: bytes) -> bool:
    """Return True if ``data`` begins like a JSON object; no binary proof does."""
    return data[:64].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def parse_object(data: bytes, where: str) -> JsonObject:
    """Parse a JSON object; ``where`` names it.

    Raises:
        InvalidInput: ``data`` is not an object, is nested too deeply, or has too many or duplicated fields in an
            object.
    """
    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_object_of,
            parse_constant=_constant,
            parse_float=_constant,
            parse_int=_number,
        )
    except RecursionError:
        raise InvalidInput(f"{where}: is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where}: not UTF-8 text (byte {error.start})") from None
    except ValueError as error:
        raise InvalidInput(f"{where}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: must be a JSON object")
    return value


def unwrap_rpc_result(answer: JsonObject) -> JsonObject:
    """Return a node's answer without its JSON-RPC envelope; empty unless an object."""
    result = answer.get("result", answer)
    return result if isinstance(result, dict) else {}


def validate_model(model: type[Model], value: Mapping[str, Any], where: str) -> Model:
    """Validate ``value`` as ``model``; ``where`` names it.

    Raises:
        InvalidInput: ``value`` is invalid; one line names the field, the value and the allowed values.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # Report unknown fields first: a misspelled field usually causes the missing one.
        found.sort(key=lambda fault: fault["type"] != "extra_forbidden")
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise InvalidInput(f"{where}: {_line(dict(found[0]), model)}{more}") from None
    except (ProofError, InvalidInput) as error:
        raise InvalidInput(f"{where}: {error}") from None


def format_value(value: object) -> str:
    """Format a value as one short line of JSON without terminal control characters."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return f"{len(value)} bytes" if isinstance(value, bytes) else ascii(value)[:_SHOWN_CHARACTERS]
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _object_of(pairs: list[tuple[str, Any]]) -> JsonObject:
    if len(pairs) > MAX_FIELDS:
        raise ValueError(f"an object has {len(pairs)} fields, at most {MAX_FIELDS} are read")
    found = dict(pairs)
    if len(found) != len(pairs):
        names_seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in names_seen or names_seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{format_value(twice)} stands twice in one object")
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text[:_SHOWN_CHARACTERS]} is not a whole number")


def _number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits; allowed: {MAX_DIGITS:,}")
    return int(text)


def _line(error: dict[str, Any], model: type[BaseModel]) -> str:
    """Format one fault as field, value and allowed values."""
    field = _field(error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    if error["type"] == "missing":
        return f"{field}: missing"
    if error["type"] == "extra_forbidden":
        if len(error["loc"]) > 1:
            return f"{field}: no such field"
        known = ", ".join(model.model_fields)
        return f"{field}: no such field; there are {known}"
    for theirs, ours in (
        ("a valid integer", "a whole number"),
        ("a valid boolean", "true or false"),
        ("a valid string", "text"),
        ("a valid list", "a list"),
        ("a valid dictionary or instance of", "a JSON object:"),
        ("a valid dictionary", "a JSON object"),
    ):
        message = message.replace(theirs, ours)
    return f"{field}: {format_value(error.get('input'))}: {message}" if field else message


def _field(location: tuple[str | int, ...]) -> str:
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not step.startswith(_TAG):
            name = step if step.isprintable() and len(step) <= _SHOWN_CHARACTERS else format_value(step)
            text += f".{name}" if text else name
    return text


class ClaimMismatch(NotProven):
    """The proof holds, but shows something else than the document claims."""
