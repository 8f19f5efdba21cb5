"""The commit log of lakes and ledgers: numbered JSON records, each created once, whole, and sealed by its own digest.

A record names the digest of the one before it, so that one digest pins a history. The dataclass of a record is its file
format: its fields are the keys. A head beside the records names one that there must be: it is written after it, so it
is a lower bound.
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
from causeway.storage.paths import NotRegularFile
from causeway.storage.seals import FileDamaged

_FORMS = ((b',"digest":"', b'"}'), (b',\n "digest": "', b'"\n}'))
"""What stands before and after the digest, in one line and in lines for people."""

HEAD_BYTES = 512
"""The length of a head: it is written in place, which no disk tears at this size."""

_HEAD_TRIES = 5
"""How often a head is read before it counts as damaged: it may just be being written."""

Parsed = TypeVar("Parsed")


def encoded(content: Mapping[str, Any], *, in_lines: bool = False) -> bytes:
    """Return a JSON object with its own digest as the last key: SHA-256 over all before it.

    ``in_lines``: for people. A dataclass in it becomes an object.
    """
    before, after = _FORMS[in_lines]
    form: dict[str, Any] = {"indent": 1} if in_lines else {"separators": (",", ":")}
    text = json.dumps(content, sort_keys=True, default=lambda value: dict(getattr(value, "__dict__", value)), **form)
    body = text.encode()[: -2 if in_lines else -1]
    return body + before + hashlib.sha256(body).hexdigest().encode() + after


def decoded(content: bytes) -> dict[str, Any]:
    """Return what ``encoded`` was given, and ``digest``. Raises ``ValueError`` when it is not what was written."""
    for before, after in _FORMS:
        body, separator, rest = content.rpartition(before)
        if separator and rest == hashlib.sha256(body).hexdigest().encode() + after:
            found: dict[str, Any] = load_json(content)
            return found
    raise ValueError("its content does not fit its digest")


def head_content(fields: Mapping[str, Any]) -> bytes:
    """Return the content of a head."""
    return encoded(fields).ljust(HEAD_BYTES)


class Record:
    """A dataclass that is a file: ``encoded``, without the field ``digest``, which is that of the file."""

    def content(self) -> bytes:
        """Return the record as its file has it."""
        return encoded({name: value for name, value in vars(self).items() if name != "digest"})

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Parse a file. Raises ``ValueError`` when it is not what was written."""
        found: Self = parse_json(cls, decoded(content))
        return found


class HeadRecord(Record):
    """A dataclass that is a head."""

    def content(self) -> bytes:
        """Return the head as its file has it."""
        return super().content().ljust(HEAD_BYTES)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Parse a head. Raises ``ValueError`` when it is not what was written."""
        if len(content) != HEAD_BYTES:
            raise ValueError(f"{len(content)} bytes, not {HEAD_BYTES}")
        return super().of(content.rstrip(b" "))

    @classmethod
    def read(cls, storage: Storage, path: str) -> Self:
        """Read a head, which may just be being written. Raises ``FileDamaged``, ``FileNotFoundError``."""
        for _ in range(_HEAD_TRIES - 1):
            with contextlib.suppress(FileDamaged):
                return read_record(storage, path, cls.of)
        return read_record(storage, path, cls.of)


def read_record(storage: Storage, path: str, parse: Callable[[bytes], Parsed]) -> Parsed:
    """Read a small file. Raises ``FileDamaged`` where ``parse`` fails, ``FileNotFoundError``, ``OSError``."""
    try:
        return parse(storage.read_bytes(path))
    except NotRegularFile as error:
        raise FileDamaged(path, str(error.strerror)) from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise FileDamaged(path, f"is not what was written: {first_line(error)}") from None


def create_once(storage: Storage, path: str, content: bytes) -> None:
    """Create a file. Raises ``AlreadyExists``, but not where it holds just this: a store may lose its answer."""
    try:
        storage.create(path, content)
    except AlreadyExists:
        if storage.read_bytes(path) != content:
            raise


def numbered_path(folder: str, number: int) -> str:
    """Return the path of the record of a number: ten digits, so that names order as numbers do."""
    return f"{folder}/{number:010d}.json"


def number_of(name: str) -> int | None:
    """Return the number with which a name begins, None where it has none."""
    digits = name[:10]
    return int(digits) if len(digits) == 10 and digits.isascii() and digits.isdecimal() else None


def numbers_in(storage: Storage, folder: str) -> list[int]:
    """List the numbers of the records in a folder, ascending."""
    found = [number_of(name) for name in storage.list(folder) if name.endswith(".json")]
    return [number for number in found if number is not None]


class Numbered(Protocol):
    """A record that knows its number."""

    @property
    def number(self) -> int:
        """Return the number."""
        ...


Commit = TypeVar("Commit", bound=Numbered)


@dataclass(frozen=True)
class CommitLog(Generic[Commit]):
    """The numbered records of one kind in a ``folder``, which are called ``name`` in messages."""

    storage: Storage
    folder: str
    name: str
    parse: Callable[[bytes], Commit]

    def path(self, number: int) -> str:
        """Return the path of a record."""
        return numbered_path(self.folder, number)

    def numbers(self) -> list[int]:
        """List the numbers of all records, ascending."""
        return numbers_in(self.storage, self.folder)

    def read(self, number: int) -> Commit:
        """Read a record. Raises ``FileDamaged``, ``FileNotFoundError``, ``OSError``."""
        path = self.path(number)
        record = read_record(self.storage, path, self.parse)
        if record.number != number:
            raise FileDamaged(path, f"is the {self.name} number {record.number}")
        return record

    def create(self, number: int, content: bytes) -> None:
        """Create a record as of ``create_once``."""
        create_once(self.storage, self.path(number), content)


# ---- types of JSON values


def count_from(value: Any) -> int:
    """Return a number that counts something. Raises ``ValueError`` for anything else."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.80} is no count")
    return value


Count = Annotated[int, count_from]


def parse_json(kind: Any, value: Any) -> Any:
    """Return a value of JSON as one of a type. Raises ``ValueError`` where it is none."""
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of a type out of JSON, or raises ``ValueError``; of ``Annotated`` the one
    that it names."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        found: Callable[[Any], Any] = args[1]
        return found
    if origin in (UnionType, Union):
        some = _reader(args[0])
        return lambda value: None if value is None else some(value)
    if origin is Sequence or args[-1:] == (...,):
        each = _reader(args[0])
        return lambda value: tuple(map(each, _typed(list, value)))
    if origin is tuple:
        parts = [_reader(part) for part in args]
        return lambda value: tuple(read(item) for read, item in zip(parts, _typed(list, value), strict=True))
    if origin is Mapping:
        key, item = map(_reader, args)
        return lambda value: {key(name): item(each) for name, each in _typed(dict, value).items()}
    if is_dataclass(kind):
        return _object_reader(kind)
    return lambda value: _typed(kind, value)


def _object_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind, include_extras=True)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind)}
    needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}

    def read(value: Any) -> Any:
        found, given = {}, _typed(dict, value)
        for name, reader in readers.items():
            if name in needed or name in given:
                try:
                    found[name] = reader(given.get(name))
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        return kind(**found)

    return read


def _typed(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.80} is no {kind.__name__}")
    return value
