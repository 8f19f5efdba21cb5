"""Values of scalar programs: storable state, and read-only options.

A state value must decode from the lake to an equal value of equal type. Options are read-only, since a value that a
handler stored in them would be in no state and no root.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import cbor2
from causeway_proofs.errors import InvalidInput

__all__ = ["NO_OPTIONS", "ReadOnlyDict", "ReadOnlyList", "read_only"]

_TEXT = "options are read-only: keep in the state what changes, or change a copy (copy.deepcopy)"


class _ReadOnly:
    """Base of read-only containers; copies and pickled copies are mutable."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(_TEXT)

    __setitem__ = __delitem__ = __ior__ = __iadd__ = __imul__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
    append = extend = insert = remove = reverse = sort = _refuse

    def __copy__(self) -> Any:
        return _mutable_copy(self)

    def __deepcopy__(self, _: object) -> Any:
        return _mutable_copy(self)

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return read_only, (_mutable_copy(self),)


class ReadOnlyDict(_ReadOnly, dict[Any, Any]):
    """A table of options."""

    def copy(self) -> dict[Any, Any]:
        """Return a mutable copy."""
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other


class ReadOnlyList(_ReadOnly, list[Any]):
    """A list of options."""

    def copy(self) -> list[Any]:
        """Return a mutable copy."""
        return list(self)


def read_only(options: Any) -> Any:
    """Return read-only options; a handler that changes them fails with ``TypeError``.

    Args:
        options: Options of a scenario.
    """
    if isinstance(options, Mapping):
        return ReadOnlyDict({key: read_only(value) for key, value in options.items()})
    if isinstance(options, list | tuple):
        return ReadOnlyList(map(read_only, options))
    return options


def _mutable_copy(options: Any) -> Any:
    if isinstance(options, dict):
        return {key: _mutable_copy(value) for key, value in options.items()}
    return [_mutable_copy(value) for value in options] if isinstance(options, list) else options


NO_OPTIONS = ReadOnlyDict()


_SCALARS = {int, float, str, bytes, bool, type(None)}
_KEYS = {int, str, bytes}
_TABLES = {dict, ReadOnlyDict}
_LISTS = {list, ReadOnlyList}
_RULE = "a program keeps numbers, text, bytes, true, false and None, and lists and dictionaries of these"
_KEY_RULE = "the keys of a dictionary are whole numbers, text or bytes"


class UnencodableState(TypeError):
    """A state value that would not decode to itself (a set, a tuple), or has no unique encoding."""


class UnreadableState(InvalidInput):
    """Bytes that are not the encoded state of a program."""


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("tags are not allowed")


# Every tag that cbor2 gives a meaning to but those of whole numbers (2, 3); the others go to the tag hook. References
# to what was read before (28, 29) would let a few bytes stand for more than fits into memory.
_KNOWN_TAGS = (0, 1, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)
_NO_TAGS = MappingProxyType(dict.fromkeys(_KNOWN_TAGS, _refuse_tag))


def read_state_value(content: bytes) -> Any:
    """Decode a value from the state table of scalar programs (canonical CBOR).

    Args:
        content: The bytes.

    Raises:
        UnreadableState: The bytes are invalid, nested too deeply, or hold a value that is not storable.
    """
    try:
        return cbor2.loads(content, tag_hook=_refuse_tag, semantic_decoders=_NO_TAGS)
    except (cbor2.CBORDecodeError, ValueError, EOFError) as error:
        raise UnreadableState(f"the state of a program is not what one keeps: {error}") from error


def ensure_storable(value: Any, name: str) -> None:
    """Check that a value can be stored.

    Args:
        value: The value.
        name: Its name, for errors.

    Raises:
        UnencodableState: A part of it cannot; the text names the part, its type and the allowed types.
    """
    if type(value) in _SCALARS:
        return
    pending = [(value, name)]
    while pending:
        content, path = pending.pop()
        if type(content) in _TABLES:
            if not set(map(type, content)) <= _KEYS:
                key = next(key for key in content if type(key) not in _KEYS)
                raise UnencodableState(f"{path} has the key {key!r}, a {type(key).__name__}; {_KEY_RULE}")
            if set(map(type, content.values())) <= _SCALARS:
                continue
            items = [(item, f"{path}[{key!r}]") for key, item in content.items() if type(item) not in _SCALARS]
        elif type(content) in _LISTS:
            if set(map(type, content)) <= _SCALARS:
                continue
            items = [(item, f"{path}[{row}]") for row, item in enumerate(content) if type(item) not in _SCALARS]
        else:
            raise UnencodableState(f"{path} is a {type(content).__name__}; {_RULE}")
        if len(path) > 200:
            raise UnencodableState(f"{path[:200]}... is nested too deeply")
        pending.extend(reversed(items))
