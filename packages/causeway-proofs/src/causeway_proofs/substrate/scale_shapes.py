"""Parse SCALE type names and definitions into trees, the shared model of both codecs.

The notation is Rust's: ``u8`` to ``u256``, ``i8`` to ``i128``, ``bool``, ``Str``, ``BitVec``, ``H256``, ``Null``,
``Compact<u32>``, ``Option<T>``, ``Vec<T>``, ``BTreeSet<T>``, ``BTreeMap<K, V>``, ``[T; N]``, ``(A, B)``.
docs/reference/proofs/substrate.md lists their Python values and their columns.

A map is a list of structs with the fields ``key`` and ``value``; ``SortedVec<S>`` is a list of structs ``S`` that
ascend by their first field. A string definition is an alias.

The second half numbers the steps of a SCALE program, the faults of a row and the fields of a column for the compiled
loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES

MAX_ELEMENTS = 1024
"""Most elements of a list decoded element by element, which takes microseconds each."""

MAX_STRINGS = 1 << 16
"""Most elements of a list of byte strings or digests."""

_MOST_VARIANTS = 256

_COMPOSED = re.compile(r"(\w+)<(.*)>")
_ARRAY = re.compile(r"\[(.+); ?(\d+)\]")
_TUPLE = re.compile(r"\((.*)\)")
_OPENING, _CLOSING = "<([", ">)]"


@dataclass(frozen=True, slots=True)
class Number:
    """An integer of ``width`` bytes, little-endian."""

    name: str
    width: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """A compact integer of a type of ``width`` bytes."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Bool:
    """A byte 0 or 1."""


@dataclass(frozen=True, slots=True)
class FixedBytes:
    """``width`` bytes."""

    width: int


@dataclass(frozen=True, slots=True)
class ByteString:
    """A byte string with its length; ``text`` marks UTF-8."""

    text: bool = False


@dataclass(frozen=True, slots=True)
class Bits:
    """Bits with their number, eight to a byte, first bit lowest."""


@dataclass(frozen=True, slots=True)
class Optional:
    """A byte 0, or 1 and a value."""

    inner: Shape


@dataclass(frozen=True, slots=True)
class Sequence:
    """At most ``most`` elements with their number.

    ``ascending`` marks a set, or a map by its first field.
    """

    inner: Shape
    most: int
    ascending: bool = False

    @property
    def key(self) -> tuple[str | None, Shape]:
        """Return the sort key of the elements: a field and its type, or None and their own."""
        if self.ascending and isinstance(self.inner, Struct):
            return self.inner.fields[0]
        return None, self.inner


@dataclass(frozen=True, slots=True)
class Array:
    """``length`` elements without a count."""

    inner: Shape
    length: int


@dataclass(frozen=True, slots=True)
class Tuple:
    """Consecutive values."""

    parts: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values."""

    name: str
    fields: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True, slots=True)
class Enum:
    """The index of a variant, one byte, and its content; a bare variant has ``NULL``."""

    name: str
    variants: tuple[tuple[str, Shape], ...]


Shape = Number | Compact | Bool | FixedBytes | ByteString | Bits | Optional | Sequence | Array | Tuple | Struct | Enum

NULL = Tuple(())

_NUMBERS = {
    f"{sign}{8 * width}": Number(f"{sign}{8 * width}", width, sign == "i")
    for sign, widths in (("u", (1, 2, 4, 8, 16, 32)), ("i", (1, 2, 4, 8, 16)))
    for width in widths
}
_KNOWN: dict[str, Shape] = {
    **_NUMBERS,
    "bool": Bool(),
    "H256": FixedBytes(DIGEST_BYTES),
    "Str": ByteString(text=True),
    "BitVec": Bits(),
    "Null": NULL,
}


def parse_shape(definitions: Mapping[str, Any], name: str) -> Shape:
    """Parse a type into its shape.

    Args:
        definitions: structs, enums and aliases, as built by ``struct`` and ``enum``.
        name: one of them, or a type in the notation of this module.

    Returns:
        The shape.

    Raises:
        InvalidInput: a type is unknown, contains itself, or has ambiguous encodings.
    """
    return _Reader(definitions, ()).shape(name.strip())


@dataclass(frozen=True, slots=True)
class _Reader:
    """Parser of type names; ``above`` are the enclosing definitions."""

    definitions: Mapping[str, Any]
    above: tuple[str, ...]

    def shape(self, name: str) -> Shape:
        if name in self.definitions:
            return self._defined(name, self.definitions[name])
        if name in _KNOWN:
            return _KNOWN[name]
        if matched := _TUPLE.fullmatch(name):
            return Tuple(tuple(self.shape(part) for part in split_types(matched[1])))
        if matched := _ARRAY.fullmatch(name):
            inner, length = self.shape(matched[1]), int(matched[2])
            return FixedBytes(length) if inner == _NUMBERS["u8"] else Array(inner, length)
        if matched := _COMPOSED.fullmatch(name):
            return self._composed(name, matched[1], [self.shape(part) for part in split_types(matched[2])])
        raise InvalidInput(f"the SCALE type {name} is not known")

    def _composed(self, name: str, outer: str, parts: list[Shape]) -> Shape:
        match outer, parts:
            case "Compact", [Number(signed=False) as number]:
                return Compact(name, number.width)
            case "Option", [inner] if not isinstance(inner, Optional):
                return Optional(inner)
            case "Vec", [Number(name="u8")]:
                return ByteString()
            case "Vec" | "BTreeSet", [inner] if outer == "Vec" or not isinstance(inner, Struct):
                most = MAX_STRINGS if isinstance(inner, FixedBytes | ByteString) else MAX_ELEMENTS
                return Sequence(inner, most, outer == "BTreeSet")
            case "SortedVec", [Struct(fields=(_, *_)) as inner]:
                return Sequence(inner, MAX_ELEMENTS, ascending=True)
            case "BTreeMap", [key, value]:
                return Sequence(Struct(name, (("key", key), ("value", value))), MAX_ELEMENTS, ascending=True)
        raise InvalidInput(f"the SCALE type {name} is not known")

    def _defined(self, name: str, definition: Any) -> Shape:
        if name in self.above:
            raise InvalidInput(f"the SCALE type {name} contains itself")
        below = _Reader(self.definitions, (*self.above, name))
        if isinstance(definition, str):
            return below.shape(definition)
        parts = tuple((part, below.shape(of)) for part, of in definition["type_mapping"])
        if len({part for part, _ in parts}) < len(parts) or len(parts) > _MOST_VARIANTS:
            raise InvalidInput(f"the SCALE type {name} has two parts of one name, or more than {_MOST_VARIANTS}")
        return Struct(name, parts) if definition["type"] == "struct" else Enum(name, parts)


def split_types(text: str) -> Iterator[str]:
    """Yield the text between commas outside of brackets."""
    depth = begin = 0
    for at, sign in enumerate(text):
        depth += (sign in _OPENING) - (sign in _CLOSING)
        if sign == "," and not depth:
            yield text[begin:at].strip()
            begin = at + 1
    if last := text[begin:].strip():
        yield last


STEP_FIELDS = 5
"""Numbers of a step: its kind, its column (-1 for none), and up to three arguments."""

END = 0
"""End of the row."""
FIXED = 1
"""Fixed-width bytes. Arguments: width."""
STRING = 2
"""Compact length and that many bytes."""
COMPACT = 3
"""Compact integer. Arguments: width of the number in bytes."""
ENUM = 4
"""Byte that selects the variant.

Arguments: number of variants, position of their starts in the jumps.
"""
JUMP = 5
"""Jump. Arguments: target step."""
OPTION = 6
"""Byte 0, or 1 and the value of the next step.

Arguments: the step behind it, the fault of other bytes.
"""
LIST = 7
"""Compact count and that many elements.

Arguments: the most elements, their level, the step behind the list.
"""
NEXT = 8
"""End of an element. Arguments: its level."""
KEY = 9
"""Require that the element's key exceeds its predecessor's.

Arguments: kind of key (0 number, 1 byte string, 2 fixed-width bytes), then 1 if a tag precedes the number.
"""

READ = 0
"""Verdict on a valid row."""
TOO_LONG = 1
OVER_LIMIT = 2
ENDS = 3
NO_VARIANT = 4
NOT_SHORTEST = 5
NO_OPTION = 6
TOO_LARGE = 7
NOT_ASCENDING = 8
TRAILING = 9
ABSENT = 10
UNWANTED = 11
NO_TEXT = 12
SPARE_BITS = 13

SLOT_FIELDS = 6
"""Numbers of a column.

Level, width, number among the variable-length columns (-1), and the starts of its values, presence flags and offsets in
the arrays of all columns.
"""
