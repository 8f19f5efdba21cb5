"""Reading a user's file, such as a scenario: TOML, overrides from a command line, errors that name the key.

On which lines of a TOML file its keys stand: what reads TOML gives values and no lines.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from causeway_proofs.errors import InvalidInput

from causeway.core.text import format_value

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["key_lines"]

Document = TypeVar("Document", bound="BaseModel")
Key = str | int

MAX_BYTES = 16 << 20
"""A file is as long at most: what is longer is something else."""

MAX_NESTED = 32
"""Tables and lists of a scenario are nested as deep at most."""

PYDANTIC_KEY = "[key]"
"""The step by which pydantic says that it is the key that is wrong, and not what stands under it."""


def quote_toml(text: str) -> str:
    """Return ``text`` as a TOML string, for an override whose value is meant literally (a path, a Spark master)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_document(path: Path, what: str = "scenario") -> dict[str, Any]:
    """Return the tables of a TOML file, which is a ``what``; ``InvalidInput`` names the file and, for a syntax error,
    the line."""
    return parse_document(read_text(path, what), path)


def parse_document(text: str, path: Path) -> dict[str, Any]:
    """Return the tables of a TOML text, which is that of a file. Raises ``InvalidInput``."""
    try:
        document = tomllib.loads(text)
    except RecursionError:
        document = None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: not valid TOML: {error}") from None
    if document is None or is_deep(document):
        raise InvalidInput(f"{path}: values are nested more than {MAX_NESTED} deep; no key of a scenario needs that")
    return document


def read_text(path: Path, what: str = "scenario") -> str:
    """Return the text of a TOML file, which is a ``what``. Raises ``InvalidInput``, which names the file."""
    try:
        content = _read(path)
        if len(content) > MAX_BYTES:
            raise InvalidInput(f"{path}: longer than {MAX_BYTES >> 20} MiB; a {what} is a TOML file of less")
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
        return first + file.read(MAX_BYTES + 1 - len(first))


def is_deep(value: Any, most: int = MAX_NESTED) -> bool:
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


def override_key(document: dict[str, Any], key: str, text: str) -> None:
    """Set ``key`` (dotted, list positions as ``chains[0].count`` or ``chains.0.count``) of ``document`` to a TOML
    value.

    A text that is no TOML value (``local[2]``, a bare word) stands for itself. Raises ``InvalidInput`` when the key
    does not lead anywhere.
    """
    where = f"--set {key}"
    steps = parse_key(key)
    if not steps or any(step == "" for step in steps) or len(steps) > MAX_NESTED:
        raise InvalidInput(f"{where[:80]}: not a key; write section.key, for example network.seed")
    _require_lists(document, key, where)
    node: Any = document
    for position, step in enumerate(steps[:-1]):
        node = _enter(node, step, steps[: position + 1], where)
    last = steps[-1]
    if isinstance(node, list) and isinstance(last, int):
        if last >= len(node):
            raise InvalidInput(f"{where}: the scenario has {len(node)} of {format_key(steps[:-1])}, numbered from 0")
        node[last] = _toml_value(text)
    elif isinstance(node, dict):
        node[str(last)] = _toml_value(text)
    else:
        raise InvalidInput(f"{where}: {format_key(steps[:-1])} is not a table")


def _require_lists(document: Mapping[str, Any], key: str, where: str) -> None:
    """Refuse a key with a position, as ``faults[0]``, of a list that the document does not have."""
    for bracket in re.finditer(r"\[\d+\]", key):
        before = key[: bracket.start()]
        steps, node = parse_key(before), document
        for step in steps:
            if before.count('"') % 2 or not isinstance(node, dict):  # within a quoted step, or a list
                break
            if str(step) not in node:
                name = format_key(steps)
                raise InvalidInput(f"{where}: the scenario has no {name}: give the whole list, {name}=[...]")
            node = node[str(step)]


def parse_key(key: str) -> list[Key]:
    """Return the steps of a dotted key; a step with a dot in it stands in double quotes, as in TOML."""
    steps: list[Key] = []
    for quoted_step, step in re.findall(r'"([^"]*)"(?:\.|$)|([^.]*)(?:\.|$)', re.sub(r"\[(\d+)\]", r".\1", key)):
        steps.append(quoted_step or (int(step) if step.isdecimal() else step))
    return steps[:-1] if steps and steps[-1] == "" and not key.endswith(".") else steps


def format_key(steps: list[Key] | tuple[Key, ...]) -> str:
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
        return None if one == other else (format_key(steps), one, other)
    found = (first_difference(here, there, (*steps, step)) for step, here, there in pairs)
    return next((difference for difference in found if difference is not None), None)


def validate_document(
    model: type[Document], document: Mapping[str, Any], path: str, under: tuple[Key, ...] = ()
) -> Document:
    """Return ``document`` as ``model``; ``InvalidInput`` is one line: file, key, value, what is allowed.

    ``under``: the key of the file under which the document stands.
    """
    found, wrong = collect_errors(model, document, under)
    if found is None:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InvalidInput(f"{path}: {wrong[0]}{more}")
    return found


def collect_errors(
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
        return f"{format_key([*steps, context['key']])}: {context['text']}"
    if kind == "missing":
        return f"{format_key(steps)}: missing"
    if kind == "union_tag_not_found":
        return f"{format_key([*steps, str(context['discriminator']).strip(chr(39))])}: missing"
    if kind == "union_tag_invalid":
        key = format_key([*steps, str(context["discriminator"]).strip("'")])
        return f"{key}: {format_value(context['tag'])}: must be one of {context['expected_tags']}"
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
    return f"{format_key(steps)}: {message}" if inside else f"{format_key(steps)}: {format_value(value)}: {message}"


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
        raise InvalidInput(f"{where}: {format_key(steps[:-1])} is a list of {len(node)}, numbered from 0")
    raise InvalidInput(f"{where}: {format_key(steps[:-1])} is not a table")


def _toml_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    if is_deep(parsed):
        return text
    return parsed["value"] if set(parsed) == {"value"} else text


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PLAIN = re.compile(r"[^,\]}\n#]*")
_STRINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'"""(?:\\.|[^\\])*?"""(?:""?(?!"))?',
        r"'''.*?'''(?:''?(?!'))?",
        r'"(?:\\.|[^"\\\n])*"',
        r"'[^'\n]*'",
    )
)


def key_lines(text: str) -> dict[tuple[Key, ...], int]:
    """Return the line, from 1, of each key, table and element of a list of a TOML text that can be read as such."""
    return _Lines(text).found


class _Lines:
    """Walks over a text. ``found``: lines by the steps that lead to what stands there."""

    def __init__(self, text: str) -> None:
        self.found: dict[tuple[Key, ...], int] = {}
        self._text, self._at = text, 0
        self._starts = [0, *(place.end() for place in re.finditer("\n", text))]
        self._sizes: dict[tuple[Key, ...], int] = {}
        table: tuple[Key, ...] = ()
        while self._skip(_BETWEEN) and self._at < len(text):
            begin = self._at
            if text.startswith("[[", begin):
                table = self._header(2)
                number = self._sizes.get(table, 0)
                self._sizes[table] = number + 1
                self._note(table, begin)
                table = (*table, number)
                self._note(table, begin)
            elif text[begin] == "[":
                table = self._header(1)
                self._note(table, begin)
            else:
                self._pair(table)

    def _header(self, brackets: int) -> tuple[Key, ...]:
        self._at += brackets
        names = self._names()
        self._skip(_SPACE)
        self._at += brackets
        steps: tuple[Key, ...] = ()
        for place, name in enumerate(names):
            steps = (*steps, name)
            if steps in self._sizes and (place < len(names) - 1 or brackets == 1):
                steps = (*steps, self._sizes[steps] - 1)
        return steps

    def _pair(self, table: tuple[Key, ...]) -> None:
        begin = self._at
        steps = table
        for name in self._names():
            steps = (*steps, name)
            self._note(steps, begin)
        self._skip(_SPACE)
        self._at += 1  # the sign =
        self._value(steps)

    def _names(self) -> list[str]:
        names = []
        while True:
            self._skip(_SPACE)
            bare = _BARE.match(self._text, self._at)
            if bare is not None:
                names.append(bare[0])
                self._at = bare.end()
            else:
                begin = self._at
                self._string()
                names.append(str(tomllib.loads(f"text = {self._text[begin : self._at]}")["text"]))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _value(self, steps: tuple[Key, ...]) -> None:
        self._skip(_SPACE)
        first = self._text[self._at : self._at + 1]
        if first in ("[", "{"):
            end, number = "]" if first == "[" else "}", 0
            self._at += 1
            while self._skip(_BETWEEN) and not self._text.startswith(end, self._at):
                if first == "{":
                    self._pair(steps)
                else:
                    self._note((*steps, number), self._at)
                    self._value((*steps, number))
                    number += 1
                self._skip(_BETWEEN)
                if self._text.startswith(",", self._at):
                    self._at += 1
            self._at += 1
        elif not self._string():
            self._skip(_PLAIN)

    def _string(self) -> bool:
        for kind in _STRINGS:
            found = kind.match(self._text, self._at)
            if found is not None:
                self._at = found.end()
                return True
        return False

    def _skip(self, what: re.Pattern[str]) -> bool:
        found = what.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return True

    def _note(self, steps: tuple[Key, ...], place: int) -> None:
        line = bisect_right(self._starts, place)
        for end in range(1, len(steps) + 1):  # tables on the way need no header of their own
            self.found.setdefault(steps[:end], line)
