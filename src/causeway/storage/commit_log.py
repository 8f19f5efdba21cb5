"""The commit log of lakes and ledgers: numbered, digested JSON records, each written once.

A record holds the digest of its predecessor, so one digest pins the whole history. The dataclass of a record is its
file format: its fields are the keys. A head file beside the records names a record that must exist. It is written after
that record, so it is a lower bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from causeway.core.text import load_json
from causeway.storage.files import Storage
from causeway.storage.object_store import AlreadyExists, first_line
from causeway.storage.seals import FileDamaged, NotRegularFile

_FORMS = ((b',"digest":"', b'"}'), (b',\n "digest": "', b'"\n}'))
"""Text before and after the digest, for compact and for indented JSON."""

HEAD_BYTES = 512
"""Length of a head file, written in place; disks write this size atomically."""

_HEAD_TRIES = 5
"""Number of reads before a head counts as damaged: it may be half written."""

Parsed = TypeVar("Parsed")


def encoded(content: Mapping[str, Any], *, in_lines: bool = False) -> bytes:
    """Encode a JSON object with a digest as last key: SHA-256 of all bytes before it.

    Args:
        content: The object; a dataclass in it becomes an object.
        in_lines: Indent it for people.
    """
    before, after = _FORMS[in_lines]
    form: dict[str, Any] = {"indent": 1} if in_lines else {"separators": (",", ":")}
    text = json.dumps(content, sort_keys=True, default=lambda value: dict(getattr(value, "__dict__", value)), **form)
    body = text.encode()[: -2 if in_lines else -1]
    return body + before + hashlib.sha256(body).hexdigest().encode() + after


def decoded(content: bytes) -> dict[str, Any]:
    """Decode a JSON object written by ``encoded``.

    Args:
        content: The bytes.

    Returns:
        The object, including ``digest``.

    Raises:
        ValueError: The bytes are corrupted.
    """
    for before, after in _FORMS:
        body, separator, rest = content.rpartition(before)
        if separator and rest == hashlib.sha256(body).hexdigest().encode() + after:
            found: dict[str, Any] = load_json(content)
            return found
    raise ValueError("its content does not fit its digest")


def head_content(fields: Mapping[str, Any]) -> bytes:
    """Return the content of a head file."""
    return encoded(fields).ljust(HEAD_BYTES)


class Record:
    """A dataclass stored as a file by ``encoded``; its field ``digest`` is that of the file."""

    def content(self) -> bytes:
        """Return the content of the file."""
        return encoded({name: value for name, value in vars(self).items() if name != "digest"})

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Parse a file. Raises ``ValueError`` if it is corrupted."""
        found: Self = parse_json(cls, decoded(content))
        return found


class HeadRecord(Record):
    """A dataclass stored as a head file."""

    def content(self) -> bytes:
        """Return the content of the file."""
        return super().content().ljust(HEAD_BYTES)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Parse a head file. Raises ``ValueError`` if it is corrupted."""
        if len(content) != HEAD_BYTES:
            raise ValueError(f"{len(content)} bytes, not {HEAD_BYTES}")
        return super().of(content.rstrip(b" "))

    @classmethod
    def read(cls, storage: Storage, path: str) -> Self:
        """Read a head file, which may be half written.

        Raises ``FileDamaged``, ``FileNotFoundError``.
        """
        for _ in range(_HEAD_TRIES - 1):
            with contextlib.suppress(FileDamaged):
                return read_record(storage, path, cls.of)
        return read_record(storage, path, cls.of)


def read_record(storage: Storage, path: str, parse: Callable[[bytes], Parsed]) -> Parsed:
    """Read and parse a small file.

    Args:
        storage: Its storage.
        path: Its path.
        parse: Parses the content.

    Raises:
        FileDamaged: ``parse`` fails.
        FileNotFoundError: The file does not exist.
        OSError: The file cannot be read.
    """
    try:
        return parse(storage.read_bytes(path))
    except NotRegularFile as error:
        raise FileDamaged(path, str(error.strerror)) from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise FileDamaged(path, f"has invalid content: {first_line(error)}") from None


def create_once(storage: Storage, path: str, content: bytes) -> None:
    """Create a file. Raises ``AlreadyExists`` for other content.

    Equal content is accepted, since a store may lose its answer to a successful write.
    """
    try:
        storage.create(path, content)
    except AlreadyExists:
        if storage.read_bytes(path) != content:
            raise


def numbered_path(folder: str, number: int) -> str:
    """Return the path of a record: ten digits, so that names sort by number."""
    return f"{folder}/{number:010d}.json"


def number_of(name: str) -> int | None:
    """Return the number at the start of a name.

    Args:
        name: Name of a file.

    Returns:
        The number, or None.
    """
    digits = name[:10]
    return int(digits) if len(digits) == 10 and digits.isascii() and digits.isdecimal() else None


def numbers_in(storage: Storage, folder: str) -> list[int]:
    """Return the numbers of the records in a folder, ascending.

    Args:
        storage: The storage.
        folder: The folder.
    """
    found = [number_of(name) for name in storage.list(folder) if name.endswith(".json")]
    return [number for number in found if number is not None]


class Numbered(Protocol):
    """A record with a number."""

    @property
    def number(self) -> int:
        """The number."""
        ...


Commit = TypeVar("Commit", bound=Numbered)


@dataclass(frozen=True)
class CommitLog(Generic[Commit]):
    """The numbered records of one kind in a folder.

    Attributes:
        storage: Storage of the records.
        folder: Their folder.
        name: Name of the kind, for errors.
        parse: Parses a record.
    """

    storage: Storage
    folder: str
    name: str
    parse: Callable[[bytes], Commit]

    def path(self, number: int) -> str:
        """Return the path of a record."""
        return numbered_path(self.folder, number)

    def numbers(self) -> list[int]:
        """Return the numbers of all records, ascending."""
        return numbers_in(self.storage, self.folder)

    def read(self, number: int) -> Commit:
        """Read a record. Raises ``FileDamaged``, ``FileNotFoundError``, ``OSError``."""
        path = self.path(number)
        record = read_record(self.storage, path, self.parse)
        if record.number != number:
            raise FileDamaged(path, f"is the {self.name} number {record.number}")
        return record

    def create(self, number: int, content: bytes) -> None:
        """Create a record; raises as ``create_once``."""
        create_once(self.storage, self.path(number), content)


# ---- types of JSON values


def count_from(value: Any) -> int:
    """Validate a count. Raises ``ValueError``."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.80} is no count")
    return value


Count = Annotated[int, count_from]


def parse_json(kind: Any, value: Any) -> Any:
    """Convert a JSON value to a type.

    Args:
        kind: The type, with nested generics and dataclasses.
        value: The JSON value.

    Raises:
        ValueError: The value does not fit.
    """
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that converts JSON to a type; for ``Annotated`` the one it names."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found: Callable[[Any], Any] = args[1]
        return found
    if origin in (UnionType, Union):
        inner = _reader(args[0])
        return lambda value: None if value is None else inner(value)
    if origin is Sequence or args[-1:] == (...,):
        each = _reader(args[0])
        return lambda value: tuple(map(each, _require_type(list, value)))
    if origin is tuple:
        parts = [_reader(part) for part in args]
        return lambda value: tuple(read(item) for read, item in zip(parts, _require_type(list, value), strict=True))
    if origin is Mapping:
        key, item = map(_reader, args)
        return lambda value: {key(name): item(each) for name, each in _require_type(dict, value).items()}
    if is_dataclass(kind):
        return _object_reader(kind)
    return lambda value: _require_type(kind, value)


def _object_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind, include_extras=True)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind)}
    needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}

    def read(value: Any) -> Any:
        found, given = {}, _require_type(dict, value)
        for name, reader in readers.items():
            if name in needed or name in given:
                try:
                    found[name] = reader(given.get(name))
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        return kind(**found)

    return read


def _require_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.80} is no {kind.__name__}")
    return value
