"""TOML documents of users: reading, overrides, and validation errors that name the key.

``validate_document`` converts pydantic errors to one line with key, value and allowed values. ``key_lines`` scans the
text for the line of each key, since TOML parsers return values without lines.
"""

from __future__ import annotations

import copy
import functools
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
"""Maximum length of a file."""

MAX_NESTED = 32
"""Maximum nesting of tables and lists."""

PYDANTIC_KEY = "[key]"
"""Step of a pydantic location for an error of a key rather than of its value."""


def quote_toml(text: str) -> str:
    """Encode a text as a TOML string, for a literal override (a path, a Spark master).

    Args:
        text: The text.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_document(path: Path, what: str = "scenario") -> dict[str, Any]:
    """Read the tables of a TOML file.

    Args:
        path: The file.
        what: Kind of the file, for errors.

    Raises:
        InvalidInput: The file is missing or invalid; the text names the file, and the line of a syntax error.
    """
    return parse_document(read_text(path, what), path)


def parse_document(text: str, path: Path) -> dict[str, Any]:
    """Parse a TOML text.

    Args:
        text: The text.
        path: Its file, for errors.

    Raises:
        InvalidInput: The text is invalid, or nested too deep.
    """
    try:
        document = copy.deepcopy(_parse_toml(text))
    except RecursionError:
        document = None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: not valid TOML: {error}") from None
    if document is None or is_deep(document):
        raise InvalidInput(f"{path}: values are nested more than {MAX_NESTED} deep; no key of a scenario needs that")
    return document


@functools.lru_cache(maxsize=1)
def _parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text, or return the result for the same text: commands read their scenario several times."""
    return tomllib.loads(text)


def forget_parsed() -> None:
    """Release the last parsed text, which may be large, when its scenario is complete."""
    _parse_toml.cache_clear()


def read_text(path: Path, what: str = "scenario") -> str:
    """Read the text of a TOML file.

    Args:
        path: The file.
        what: Kind of the file, for errors.

    Raises:
        InvalidInput: The file is missing, too long or not UTF-8.
    """
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
    """Read the first bytes of a file or of a pipe; a pipe without a writer would block for ever.

    Raises:
        InvalidInput: The pipe has no writer.
        OSError: The file cannot be read.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        first = b""
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            with suppress(BlockingIOError):  # the writer has not written yet
                first = os.read(file.fileno(), 1)
                if not first:
                    raise InvalidInput(f"{path}: is a pipe to which nobody writes")
        os.set_blocking(file.fileno(), True)
        return first + file.read(MAX_BYTES + 1 - len(first))


def is_deep(value: Any, most: int = MAX_NESTED) -> bool:
    """Return True if tables and lists are nested too deeply.

    Args:
        value: The value.
        most: Maximum depth.
    """
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
    """Set a key of a document to a TOML value.

    A text that is not a TOML value (``local[2]``, a bare word) is taken literally.

    Args:
        document: The document, changed in place.
        key: Dotted key, with list positions as ``chains[0].count`` or ``chains.0.count``.
        text: The TOML value.

    Raises:
        InvalidInput: The key leads nowhere.
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
    """Reject a key with a position, as ``faults[0]``, in a list that the document lacks."""
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
    """Split a dotted key into steps.

    Args:
        key: The key; a step with a dot is in double quotes, as in TOML.
    """
    steps: list[Key] = []
    for quoted_step, step in re.findall(r'"([^"]*)"(?:\.|$)|([^.]*)(?:\.|$)', re.sub(r"\[(\d+)\]", r".\1", key)):
        steps.append(quoted_step or (int(step) if step.isdecimal() else step))
    return steps[:-1] if steps and steps[-1] == "" and not key.endswith(".") else steps


def format_key(steps: list[Key] | tuple[Key, ...]) -> str:
    """Format steps as ``section[2].key``.

    Args:
        steps: The steps.
    """
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def first_difference(one: Any, other: Any, steps: tuple[Key, ...] = ()) -> tuple[str, Any, Any] | None:
    """Compare two documents in order of key name.

    Args:
        one: A document, or a part of it.
        other: The other document.
        steps: Key of the compared part.

    Returns:
        The first differing key and both values (None: absent), or None if they are equal.
    """
    pairs: list[tuple[Key, Any, Any]]
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        pairs = [(name, one.get(name), other.get(name)) for name in sorted({*one, *other})]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = list(zip(range(len(one)), one, other, strict=True))
    else:
        return None if one == other else (format_key(steps), one, other)
    found = (first_difference(left, right, (*steps, step)) for step, left, right in pairs)
    return next((difference for difference in found if difference is not None), None)


def validate_document(
    model: type[Document], document: Mapping[str, Any], path: str, under: tuple[Key, ...] = ()
) -> Document:
    """Validate a document.

    Args:
        model: The pydantic model.
        document: The document.
        path: Its file, for errors.
        under: Key of the file that holds the document.

    Raises:
        InvalidInput: One line with file, key, value and allowed values.
    """
    validated, errors = collect_errors(model, document, under)
    if validated is None:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InvalidInput(f"{path}: {errors[0]}{more}")
    return validated


def collect_errors(
    model: type[Document], document: Mapping[str, Any], under: tuple[Key, ...] = ()
) -> tuple[Document | None, list[str]]:
    """Validate a document and collect all errors.

    Args:
        model: The pydantic model.
        document: The document.
        under: Key of the file that holds the document.

    Returns:
        The validated document or None, and a line for each error: key, value and allowed values.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(document), []
    except ValidationError as error:
        return None, [_format_error(dict(each), document, under) for each in error.errors(include_url=False)]


def _format_error(error: dict[str, Any], document: Mapping[str, Any], under: tuple[Key, ...]) -> str:
    """Format a pydantic error as key, value and allowed values."""
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
    # An error inside a table is described by the message alone; a table of the wrong type is shown as the value.
    inside = isinstance(value, dict) and not kind.endswith("_type")
    if inside and not steps:  # a check of the whole document names the key itself
        return message
    return f"{format_key(steps)}: {message}" if inside else f"{format_key(steps)}: {format_value(value)}: {message}"


def _without_tags(location: tuple[Key, ...], document: Mapping[str, Any]) -> list[Key]:
    """Remove the steps of a pydantic location that name a union member."""
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
    """Return the line of each key, table and list element of a valid TOML text.

    Args:
        text: The text.

    Returns:
        Lines from 1, by steps.
    """
    return _Lines(text).found


class _Lines:
    """A scanner of a TOML text.

    Attributes:
        found: Lines by steps.
    """

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
        for position, name in enumerate(names):
            steps = (*steps, name)
            if steps in self._sizes and (position < len(names) - 1 or brackets == 1):
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

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return True

    def _note(self, steps: tuple[Key, ...], offset: int) -> None:
        line = bisect_right(self._starts, offset)
        for end in range(1, len(steps) + 1):  # enclosing tables need no header
            self.found.setdefault(steps[:end], line)
