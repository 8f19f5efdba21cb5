"""Options of programs, which nobody changes: what a handler kept in them would be in no state and no root.

What a scalar program may keep: values that come back from the lake as what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import cbor2
from causeway_proofs.errors import InvalidInput

__all__ = ["NO_OPTIONS", "ReadOnlyDict", "ReadOnlyList", "read_only"]

_TEXT = "options are read-only: keep in the state what changes, or change a copy (copy.deepcopy)"


class _Kept:
    """What refuses to be changed; copies and pickled copies are plain."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(_TEXT)

    __setitem__ = __delitem__ = __ior__ = __iadd__ = __imul__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
    append = extend = insert = remove = reverse = sort = _refuse

    def __copy__(self) -> Any:
        return _thawed(self)

    def __deepcopy__(self, _: object) -> Any:
        return _thawed(self)

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return read_only, (_thawed(self),)


class ReadOnlyDict(_Kept, dict[Any, Any]):
    """A table of options."""

    def copy(self) -> dict[Any, Any]:
        """Return a table that can be changed."""
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other


class ReadOnlyList(_Kept, list[Any]):
    """A list of options."""

    def copy(self) -> list[Any]:
        """Return a list that can be changed."""
        return list(self)


def read_only(options: Any) -> Any:
    """Return options of which no part can be changed; a handler that tries fails with ``TypeError``."""
    if isinstance(options, Mapping):
        return ReadOnlyDict({key: read_only(value) for key, value in options.items()})
    if isinstance(options, list | tuple):
        return ReadOnlyList(map(read_only, options))
    return options


def _thawed(options: Any) -> Any:
    if isinstance(options, dict):
        return {key: _thawed(value) for key, value in options.items()}
    return [_thawed(value) for value in options] if isinstance(options, list) else options


NO_OPTIONS = ReadOnlyDict()


_PLAIN = {int, float, str, bytes, bool, type(None)}
_KEYS = {int, str, bytes}
_TABLES = {dict, ReadOnlyDict}
_LISTS = {list, ReadOnlyList}
_RULE = "a program keeps numbers, text, bytes, true, false and None, and lists and dictionaries of these"
_KEY_RULE = "the keys of a dictionary are whole numbers, text or bytes"


class NotKept(TypeError):
    """A program keeps what would not come back as what it was (a set, a tuple), or has no one form in bytes."""


class UnreadableState(InvalidInput):
    """Bytes that are said to be the state of a program are not of the form that programs keep."""


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("tags are not allowed")


# Every tag that cbor2 gives a meaning to but those of whole numbers (2, 3); the others go to the tag hook. References
# to what was read before (28, 29) would let a few bytes stand for more than fits into memory.
_KNOWN_TAGS = (0, 1, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)
_NO_TAGS = MappingProxyType(dict.fromkeys(_KNOWN_TAGS, _refuse_tag))


def read_state_value(content: bytes) -> Any:
    """Return the value that stands in canonical CBOR in the state table of scalar programs.

    Raises:
        UnreadableState: it is no CBOR, nested too deeply, or has what no program keeps.
    """
    try:
        return cbor2.loads(content, tag_hook=_refuse_tag, semantic_decoders=_NO_TAGS)
    except (cbor2.CBORDecodeError, ValueError, EOFError) as error:
        raise UnreadableState(f"the state of a program is not what one keeps: {error}") from error


def ensure_storable(value: Any, name: str) -> None:
    """Refuse a value of which something could not be kept; ``name`` names it.

    Raises:
        NotKept: there is such a thing; the text says where, what, and what is allowed.
    """
    if type(value) in _PLAIN:
        return
    waiting = [(value, name)]
    while waiting:
        content, where = waiting.pop()
        if type(content) in _TABLES:
            if not set(map(type, content)) <= _KEYS:
                key = next(key for key in content if type(key) not in _KEYS)
                raise NotKept(f"{where} has the key {key!r}, a {type(key).__name__}; {_KEY_RULE}")
            if set(map(type, content.values())) <= _PLAIN:
                continue
            items = [(item, f"{where}[{key!r}]") for key, item in content.items() if type(item) not in _PLAIN]
        elif type(content) in _LISTS:
            if set(map(type, content)) <= _PLAIN:
                continue
            items = [(item, f"{where}[{row}]") for row, item in enumerate(content) if type(item) not in _PLAIN]
        else:
            raise NotKept(f"{where} is a {type(content).__name__}; {_RULE}")
        if len(where) > 200:
            raise NotKept(f"{where[:200]}... is nested too deeply")
        waiting.extend(reversed(items))
