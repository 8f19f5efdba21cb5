"""Packed CBOR of the leaves of the canonical state: structs are maps from the numbers of fields (IC reference 2.9).

Reading has two steps. An item is read with tags, indefinite lengths and repeated keys refused, and its fields are
looked at one by one, with the errors of the deployed decoders. Then whoever read a value encodes it again and compares
(``require_same``): what is left over, out of order, padded or written though it is the default is refused there.

Cycles: amounts of 128 bits, in the two forms in which messages carry them (IC reference 2.9).
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
"""Longest item, in bytes: no message is longer than a slice. The reader takes up to 64 times that for empty maps."""

MAX_ITEM_DEPTH = 16
"""Nesting of items; the deepest leaf has five (message, request, payment, cycles, number)."""

U64_LIMIT = 1 << 64
U128_LIMIT = 1 << 128

Item = Any
"""What cbor2 makes of bytes: int, bytes, str, list, dict, and other things which are all refused."""


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("tags are not allowed")


# Every tag that cbor2 gives a meaning to; the others go to the tag hook.
_KNOWN_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)
_NO_TAGS = MappingProxyType(dict.fromkeys(_KNOWN_TAGS, _refuse_tag))


def read_item(data: bytes, what: str, limit: int = MAX_ITEM_BYTES) -> Item:
    """Return the item that ``data`` begins with; ``require_same`` finds out whether there is more.

    Raises:
        OverLimit: ``data`` is longer than ``limit`` bytes.
        DecodeError: it is no CBOR, nested too deeply, or has a tag, an indefinite length or a repeated key.
    """
    require_length(data, what, limit)
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
        raise DecodeError(f"{what}: {error}{cause}") from error


def write_item(item: Item) -> bytes:
    """Return the encoding of ``item``, whose maps already have their keys in ascending order."""
    return cbor2.dumps(item)


def require_same(data: bytes, encoded: bytes, what: str) -> None:
    """Refuse ``data`` unless it is ``encoded``, the canonical encoding of what was read from it.

    Raises:
        NotCanonical: it is another encoding of the same value, or has more behind it.
    """
    if data != encoded:
        raise NotCanonical(f"{what}: {len(data)} bytes that are not the canonical encoding, which has {len(encoded)}")


class Fields:
    """The fields of a struct that was read, by name; ``names`` in the order of their numbers."""

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
        """Return a field as it was read."""
        if name not in self._values:
            raise DecodeError(f"{self.struct}: missing field `{name}`")
        return self._values[name]

    def unsigned(self, name: str, bits: int = 64) -> int:
        """Return a field that is an unsigned number of ``bits`` bits."""
        return unsigned_item(self.item(name), f"{self.struct}: field `{name}`", bits)

    def optional_unsigned(self, name: str, bits: int = 64) -> int | None:
        """Return a field that is an unsigned number, None if it is absent."""
        return self.unsigned(name, bits) if name in self else None

    def blob(self, name: str) -> bytes:
        """Return a field that is a byte string."""
        value = self.item(name)
        if type(value) is not bytes:
            raise DecodeError(f"{self.struct}: field `{name}`: invalid type: {type_text(value)}, expected byte array")
        return value

    def principal(self, name: str) -> bytes:
        """Return a field that is the id of a canister."""
        value = self.blob(name)
        if len(value) > MAX_PRINCIPAL_BYTES:
            raise DecodeError(
                f"{self.struct}: field `{name}`: an id of {len(value)} bytes, at most {MAX_PRINCIPAL_BYTES} are allowed"
            )
        return value

    def text(self, name: str) -> str:
        """Return a field that is a text."""
        value = self.item(name)
        if type(value) is not str:
            raise DecodeError(f"{self.struct}: field `{name}`: invalid type: {type_text(value)}, expected a string")
        return value

    def numbers(self, name: str, bits: int = 64) -> list[int]:
        """Return a field that is an array of unsigned numbers, [] if it is absent."""
        if name not in self:
            return []
        values, what = self.item(name), f"{self.struct}: field `{name}`"
        if type(values) is not list:
            raise DecodeError(f"{what}: invalid type: {type_text(values)}, expected a sequence")
        return [unsigned_item(value, what, bits) for value in values]


def unsigned_item(value: Item, what: str, bits: int) -> int:
    """Return ``value`` if it is an unsigned number of ``bits`` bits.

    Raises:
        DecodeError: it is not.
    """
    if type(value) is not int:
        raise DecodeError(f"{what}: invalid type: {type_text(value)}, expected u{bits}")
    if not 0 <= value < 1 << bits:
        raise DecodeError(f"{what}: invalid value: {type_text(value)}, expected u{bits}")
    return value


def type_text(item: Item) -> str:
    """Return what an item is, in the words of the deployed decoders."""
    match item:
        case bool():
            return f"boolean `{str(item).lower()}`"
        case int():
            # Numbers of thousands of digits are not worth reading, and slow to print.
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


def require_unsigned(value: int, what: str, limit: int = U64_LIMIT) -> int:
    """Return ``value``, which is to be encoded, if it is a number from 0 to ``limit`` - 1.

    Raises:
        EncodeError: it is not.
    """
    if type(value) is bool or not 0 <= value < limit:
        raise EncodeError(f"{what} is {value!r}, allowed are 0 to {limit - 1}")
    return int(value)


def require_principal(value: bytes, what: str) -> bytes:
    """Return ``value``, which is to be encoded, if it can be the id of a canister.

    Raises:
        EncodeError: it has more bytes than ids have.
    """
    if len(value) > MAX_PRINCIPAL_BYTES:
        raise EncodeError(f"{what} has {len(value)} bytes, at most {MAX_PRINCIPAL_BYTES} are allowed")
    return bytes(value)


def require_text(value: str, what: str) -> str:
    """Return ``value``, which is to be encoded, if it has a UTF-8 encoding.

    Raises:
        EncodeError: it has none (it holds half a surrogate pair).
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"{what} is no text that has a UTF-8 encoding") from error
    return value


CYCLES = ("low", "high")
FUNDS = ("cycles", "icp")


def cycles_item(amount: int, what: str, always_high: bool = False) -> Item:
    """Return an amount as the struct ``Cycles``; the upper half only if it is not zero, or ``always_high``."""
    high, low = divmod(require_unsigned(amount, what, U128_LIMIT), U64_LIMIT)
    return {0: low, 1: high} if high or always_high else {0: low}


def read_cycles(item: Item) -> int:
    """Return the amount in a struct ``Cycles``."""
    fields = Fields(item, "Cycles", CYCLES)
    low = fields.unsigned("low")
    return (fields.optional_unsigned("high") or 0) << 64 | low


def funds_item(amount: int, what: str) -> Item:
    """Return an amount as the struct ``Funds``."""
    return {0: cycles_item(amount, what)}


def read_funds(item: Item) -> int:
    """Return the cycles in a struct ``Funds``; the other currency that it once had must be none."""
    fields = Fields(item, "Funds", FUNDS)
    if "icp" in fields:
        raise DecodeError(f"Funds: field `icp` is populated: {fields.unsigned('icp')}")
    return read_cycles(fields.item("cycles"))
