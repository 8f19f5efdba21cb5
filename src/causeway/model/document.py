"""Reading a user's file, such as a scenario: TOML, overrides from a command line, errors that name the key."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from causeway.model.errors import InvalidInput
from causeway.model.text import shown

if TYPE_CHECKING:
    from pydantic import BaseModel

Document = TypeVar("Document", bound="BaseModel")
Key = str | int

MOST_BYTES = 16 << 20
"""A file is as long at most: what is longer is something else."""

MOST_NESTED = 32
"""Tables and lists of a scenario are nested as deep at most."""

PYDANTIC_KEY = "[key]"
"""The step by which pydantic says that it is the key that is wrong, and not what stands under it."""


def quoted(text: str) -> str:
    """Return ``text`` as a TOML string, for an override whose value is meant literally (a path, a Spark master)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_document(path: Path, what: str = "scenario") -> dict[str, Any]:
    """Return the tables of a TOML file, which is a ``what``; ``InvalidInput`` names the file and, for a syntax error,
    the line."""
    return parsed(read_text(path, what), path)


def parsed(text: str, path: Path) -> dict[str, Any]:
    """Return the tables of a TOML text, which is that of a file. Raises ``InvalidInput``."""
    try:
        document = tomllib.loads(text)
    except RecursionError:
        document = None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: not valid TOML: {error}") from None
    if document is None or is_deep(document):
        raise InvalidInput(f"{path}: values are nested more than {MOST_NESTED} deep; no key of a scenario needs that")
    return document


def read_text(path: Path, what: str = "scenario") -> str:
    """Return the text of a TOML file, which is a ``what``. Raises ``InvalidInput``, which names the file."""
    try:
        content = _read(path)
        if len(content) > MOST_BYTES:
            raise InvalidInput(f"{path}: longer than {MOST_BYTES >> 20} MiB; a {what} is a TOML file of less")
        return content.decode("utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"{path}: no such {what} file") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not UTF-8 text (byte {error.start}); a {what} is a TOML file") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None


def _read(path: Path) -> bytes:
    """Return the first bytes of a file, or of a pipe that somebody writes to: another one would never end. Raises
    ``InvalidInput`` for that, and ``OSError``."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        first = b""
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            with suppress(BlockingIOError):  # who writes to it has not written yet
                first = os.read(file.fileno(), 1)
                if not first:
                    raise InvalidInput(f"{path}: is a pipe to which nobody writes")
        os.set_blocking(file.fileno(), True)
        return first + file.read(MOST_BYTES + 1 - len(first))


def is_deep(value: Any, most: int = MOST_NESTED) -> bool:
    """Return whether tables and lists are nested more than ``most`` deep."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def override(document: dict[str, Any], key: str, text: str) -> None:
    """Set ``key`` (dotted, list positions as ``chains[0].count`` or ``chains.0.count``) of ``document`` to a TOML
    value.

    A text that is no TOML value (``local[2]``, a bare word) stands for itself. Raises ``InvalidInput`` when the key
    does not lead anywhere.
    """
    where = f"--set {key}"
    steps = parse_key(key)
    if not steps or any(step == "" for step in steps) or len(steps) > MOST_NESTED:
        raise InvalidInput(f"{where[:80]}: not a key; write section.key, for example network.seed")
    _require_lists(document, key, where)
    node: Any = document
    for position, step in enumerate(steps[:-1]):
        node = _enter(node, step, steps[: position + 1], where)
    last = steps[-1]
    if isinstance(node, list) and isinstance(last, int):
        if last >= len(node):
            raise InvalidInput(f"{where}: the scenario has {len(node)} of {dotted(steps[:-1])}, numbered from 0")
        node[last] = _toml_value(text)
    elif isinstance(node, dict):
        node[str(last)] = _toml_value(text)
    else:
        raise InvalidInput(f"{where}: {dotted(steps[:-1])} is not a table")


def _require_lists(document: Mapping[str, Any], key: str, where: str) -> None:
    """Refuse a key with a position, as ``faults[0]``, of a list that the document does not have."""
    for bracket in re.finditer(r"\[\d+\]", key):
        before = key[: bracket.start()]
        steps, node = parse_key(before), document
        for step in steps:
            if before.count('"') % 2 or not isinstance(node, dict):  # within a quoted step, or a list
                break
            if str(step) not in node:
                name = dotted(steps)
                raise InvalidInput(f"{where}: the scenario has no {name}: give the whole list, {name}=[...]")
            node = node[str(step)]


def parse_key(key: str) -> list[Key]:
    """Return the steps of a dotted key; a step with a dot in it stands in double quotes, as in TOML."""
    steps: list[Key] = []
    for quoted_step, step in re.findall(r'"([^"]*)"(?:\.|$)|([^.]*)(?:\.|$)', re.sub(r"\[(\d+)\]", r".\1", key)):
        steps.append(quoted_step or (int(step) if step.isdecimal() else step))
    return steps[:-1] if steps and steps[-1] == "" and not key.endswith(".") else steps


def dotted(steps: list[Key] | tuple[Key, ...]) -> str:
    """Return steps as ``section[2].key``."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def first_difference(one: Any, other: Any, steps: tuple[Key, ...] = ()) -> tuple[str, Any, Any] | None:
    """Return the key under which two documents differ first, in the order of names, and both values (None: absent);
    None when they are equal."""
    pairs: list[tuple[Key, Any, Any]]
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        pairs = [(name, one.get(name), other.get(name)) for name in sorted({*one, *other})]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = list(zip(range(len(one)), one, other, strict=True))
    else:
        return None if one == other else (dotted(steps), one, other)
    found = (first_difference(here, there, (*steps, step)) for step, here, there in pairs)
    return next((difference for difference in found if difference is not None), None)


def validated(model: type[Document], document: Mapping[str, Any], path: str, under: tuple[Key, ...] = ()) -> Document:
    """Return ``document`` as ``model``; ``InvalidInput`` is one line: file, key, value, what is allowed.

    ``under``: the key of the file under which the document stands.
    """
    found, wrong = examined(model, document, under)
    if found is None:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InvalidInput(f"{path}: {wrong[0]}{more}")
    return found


def examined(
    model: type[Document], document: Mapping[str, Any], under: tuple[Key, ...] = ()
) -> tuple[Document | None, list[str]]:
    """Return ``document`` as ``model``, or None and all that is wrong with it: key, value and what is allowed, a line
    each. ``under``: as of ``validated``."""
    from pydantic import ValidationError

    try:
        return model.model_validate(document), []
    except ValidationError as error:
        return None, [_line(dict(each), document, under) for each in error.errors(include_url=False)]


def _line(error: dict[str, Any], document: Mapping[str, Any], under: tuple[Key, ...]) -> str:
    """Return one pydantic error as key, value and what is allowed."""
    steps = [*under, *(step for step in _without_tags(error["loc"], document) if step != PYDANTIC_KEY)]
    context = error.get("ctx", {})
    kind = error["type"]
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    if kind in ("unknown_key", "wrong_key"):
        return f"{dotted([*steps, context['key']])}: {context['text']}"
    if kind == "missing":
        return f"{dotted(steps)}: missing"
    if kind == "union_tag_not_found":
        return f"{dotted([*steps, str(context['discriminator']).strip(chr(39))])}: missing"
    if kind == "union_tag_invalid":
        key = dotted([*steps, str(context["discriminator"]).strip("'")])
        return f"{key}: {shown(context['tag'])}: must be one of {context['expected_tags']}"
    if kind == "string_pattern_mismatch" and "0-9a-fA-F" in message:
        message = "must be hexadecimal digits, two a byte"
    if kind == "string_pattern_mismatch" and (digits := re.search(r"\[0-9a-f\]\{(\d+)\}", message)):
        message = f"must be {digits[1]} hexadecimal digits (lower case)"
    if kind in ("too_short", "too_long") and "field_type" in context:
        least = kind == "too_short"
        count = context["min_length" if least else "max_length"]
        message = f"must have at {'least' if least else 'most'} {count} element{'s' if count != 1 else ''}"
    message = re.sub(" or instance of .*", "", message)
    for theirs, ours in (("dictionary", "table"), ("integer", "whole number"), ("tuple", "list")):
        message = message.replace(f"a valid {theirs}", f"a {ours}")
    message = message.replace("a valid ", "a ")
    value = error.get("input")
    # Of a table in which something is wrong the message says what; one that stands for something else is the value.
    inside = isinstance(value, dict) and not kind.endswith("_type")
    if inside and not steps:  # a check of the whole document, which says where
        return message
    return f"{dotted(steps)}: {message}" if inside else f"{dotted(steps)}: {shown(value)}: {message}"


def _without_tags(location: tuple[Key, ...], document: Mapping[str, Any]) -> list[Key]:
    """Return the location in the file: without the steps by which pydantic names the member of a union."""
    steps: list[Key] = []
    node: Any = document
    for step in location:
        if isinstance(node, Mapping) and step not in node and step in (node.get("kind"), node.get("source")):
            continue
        steps.append(step)
        if isinstance(node, Mapping):
            node = node.get(str(step))
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            node = None
    return steps


def _enter(node: Any, step: Key, steps: list[Key], where: str) -> Any:
    if isinstance(node, list) and isinstance(step, int) and step < len(node):
        return node[step]
    if isinstance(node, dict):
        return node.setdefault(str(step), {})
    if isinstance(node, list):
        raise InvalidInput(f"{where}: {dotted(steps[:-1])} is a list of {len(node)}, numbered from 0")
    raise InvalidInput(f"{where}: {dotted(steps[:-1])} is not a table")


def _toml_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    if is_deep(parsed):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text
