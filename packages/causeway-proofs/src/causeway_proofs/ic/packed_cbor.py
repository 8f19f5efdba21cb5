"""Packed CBOR of state leaves: structs are maps by field number (IC reference 2.9).

Reading has two steps. An item is parsed without tags, indefinite lengths and duplicated keys, and its fields are
checked one by one, with the errors of the deployed decoders. Then the caller encodes the value again and compares
(``require_same``), which rejects trailing, unordered, padded or explicit default parts.

Cycles are amounts of 128 bits, in the two forms that messages use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import cbor2

from causeway_proofs.ic.errors import DecodeError, EncodeError, NotCanonical
from causeway_proofs.ic.primitives import MAX_PRINCIPAL_BYTES
from causeway_proofs.limits import require_length

MAX_ITEM_BYTES = 4 << 20
"""Longest item in bytes: no message exceeds a slice.

The reader takes up to 64 times that for empty maps.
"""

MAX_ITEM_DEPTH = 16
"""Most nested items; the deepest leaf has five (message, request, payment, cycles, number)."""

U64_LIMIT = 1 << 64
U128_LIMIT = 1 << 128

Item = Any
"""Result of cbor2: int, bytes, str, list, dict; other types are rejected."""


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("tags are not allowed")


# Every tag that cbor2 interprets; other tags reach the tag hook.
_KNOWN_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)
_NO_TAGS = MappingProxyType(dict.fromkeys(_KNOWN_TAGS, _refuse_tag))


def read_item(data: bytes, noun: str, limit: int = MAX_ITEM_BYTES) -> Item:
    """Parse the item at the start of ``data``; ``require_same`` detects trailing bytes.

    Raises:
        OverLimit: ``data`` exceeds ``limit`` bytes.
        DecodeError: ``data`` is not CBOR, is nested too deeply, or has a tag, an indefinite length or a duplicated key.
    """
    require_length(data, noun, limit)
    try:
        return cbor2.loads(
            data,
            tag_hook=_refuse_tag,
            semantic_decoders=_NO_TAGS,
            max_depth=MAX_ITEM_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        )
    except cbor2.CBORDecodeError as error:
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        raise DecodeError(f"{noun}: {error}{cause}") from error


def write_item(item: Item) -> bytes:
    """Encode ``item``, whose maps have ascending keys."""
    return cbor2.dumps(item)


def require_same(data: bytes, encoded: bytes, noun: str) -> None:
    """Require that ``data`` equals ``encoded``, the canonical encoding of its value.

    Raises:
        NotCanonical: ``data`` is another encoding of the value, or has trailing bytes.
    """
    if data != encoded:
        raise NotCanonical(f"{noun}: {len(data)} bytes that are not the canonical encoding, which has {len(encoded)}")


class Fields:
    """Fields of a parsed struct by name; ``names`` are in the order of their numbers."""

    __slots__ = ("_values", "struct")

    def __init__(self, item: Item, struct: str, names: Sequence[str]) -> None:
        if type(item) is not dict:
            raise DecodeError(f"{struct}: invalid type: {type_text(item)}, expected struct {struct}")
        self.struct = struct
        self._values: dict[str, Item] = {}
        for key, value in item.items():
            if type(key) is not int or not 0 <= key < len(names):
                raise DecodeError(
                    f"{struct}: invalid value: {type_text(key)}, expected field index 0 <= i < {len(names)}"
                )
            self._values[names[key]] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def item(self, name: str) -> Item:
        """Return a field as parsed."""
        if name not in self._values:
            raise DecodeError(f"{self.struct}: missing field `{name}`")
        return self._values[name]

    def unsigned(self, name: str, bits: int = 64) -> int:
        """Return an unsigned number field of ``bits`` bits."""
        return unsigned_item(self.item(name), f"{self.struct}: field `{name}`", bits)

    def optional_unsigned(self, name: str, bits: int = 64) -> int | None:
        """Return an unsigned number field, or None if absent."""
        return self.unsigned(name, bits) if name in self else None

    def blob(self, name: str) -> bytes:
        """Return a byte string field."""
        value = self.item(name)
        if type(value) is not bytes:
            raise DecodeError(f"{self.struct}: field `{name}`: invalid type: {type_text(value)}, expected byte array")
        return value

    def principal(self, name: str) -> bytes:
        """Return a canister id field."""
        value = self.blob(name)
        if len(value) > MAX_PRINCIPAL_BYTES:
            raise DecodeError(
                f"{self.struct}: field `{name}`: an id of {len(value)} bytes, at most {MAX_PRINCIPAL_BYTES} are allowed"
            )
        return value

    def text(self, name: str) -> str:
        """Return a text field."""
        value = self.item(name)
        if type(value) is not str:
            raise DecodeError(f"{self.struct}: field `{name}`: invalid type: {type_text(value)}, expected a string")
        return value

    def numbers(self, name: str, bits: int = 64) -> list[int]:
        """Return a field with an array of unsigned numbers, [] if absent."""
        if name not in self:
            return []
        values, noun = self.item(name), f"{self.struct}: field `{name}`"
        if type(values) is not list:
            raise DecodeError(f"{noun}: invalid type: {type_text(values)}, expected a sequence")
        return [unsigned_item(value, noun, bits) for value in values]


def unsigned_item(value: Item, noun: str, bits: int) -> int:
    """Return ``value`` as an unsigned number of ``bits`` bits.

    Raises:
        DecodeError: it is not one.
    """
    if type(value) is not int:
        raise DecodeError(f"{noun}: invalid type: {type_text(value)}, expected u{bits}")
    if not 0 <= value < 1 << bits:
        raise DecodeError(f"{noun}: invalid value: {type_text(value)}, expected u{bits}")
    return value


def type_text(item: Item) -> str:
    """Describe an item's type in the words of the deployed decoders."""
    match item:
        case bool():
            return f"boolean `{str(item).lower()}`"
        case int():
            # Numbers of thousands of digits are slow to print.
            return f"integer `{item}`" if abs(item) < U64_LIMIT else "an integer of more than 64 bits"
        case bytes():
            return "byte array"
        case str():
            return "string"
        case list() | tuple():
            return "sequence"
        case Mapping():
            return "map"
        case None:
            return "null"
        case float():
            return "floating point number"
        case _:
            return "a value of another type"


def require_unsigned(value: int, noun: str, limit: int = U64_LIMIT) -> int:
    """Return ``value``, to be encoded, if it is from 0 to ``limit`` - 1.

    Raises:
        EncodeError: ``value`` is out of range.
    """
    if type(value) is bool or not 0 <= value < limit:
        raise EncodeError(f"{noun} is {value!r}, allowed are 0 to {limit - 1}")
    return int(value)


def require_principal(value: bytes, noun: str) -> bytes:
    """Return ``value``, to be encoded, if it can be a canister id.

    Raises:
        EncodeError: ``value`` is longer than an id.
    """
    if len(value) > MAX_PRINCIPAL_BYTES:
        raise EncodeError(f"{noun} has {len(value)} bytes, at most {MAX_PRINCIPAL_BYTES} are allowed")
    return bytes(value)


def require_text(value: str, noun: str) -> str:
    """Return ``value``, to be encoded, if it has a UTF-8 encoding.

    Raises:
        EncodeError: ``value`` holds an unpaired surrogate.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"{noun} is no text that has a UTF-8 encoding") from error
    return value


CYCLES = ("low", "high")
FUNDS = ("cycles", "icp")


def cycles_item(amount: int, noun: str, always_high: bool = False) -> Item:
    """Convert an amount to ``Cycles``; the upper half only if nonzero or ``always_high``."""
    high, low = divmod(require_unsigned(amount, noun, U128_LIMIT), U64_LIMIT)
    return {0: low, 1: high} if high or always_high else {0: low}


def read_cycles(item: Item) -> int:
    """Return the amount in a struct ``Cycles``."""
    fields = Fields(item, "Cycles", CYCLES)
    low = fields.unsigned("low")
    return (fields.optional_unsigned("high") or 0) << 64 | low


def funds_item(amount: int, noun: str) -> Item:
    """Convert an amount to the struct ``Funds``."""
    return {0: cycles_item(amount, noun)}


def read_funds(item: Item) -> int:
    """Return the cycles in a struct ``Funds``, whose obsolete second currency must be absent."""
    fields = Fields(item, "Funds", FUNDS)
    if "icp" in fields:
        raise DecodeError(f"Funds: field `icp` is populated: {fields.unsigned('icp')}")
    return read_cycles(fields.item("cycles"))
