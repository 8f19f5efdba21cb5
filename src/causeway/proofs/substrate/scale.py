"""SCALE with a registry of types: scalecodec writes and reads, and only what it would write itself is read.

SCALE leaves room for several encodings of one value (padded compact integers, option bytes other than 1, sets and
maps out of order). A message that may be rewritten without becoming another one cannot be told from a tampered one,
so what is decoded must encode to the same bytes again, and to the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from scalecodec.base import RuntimeConfigurationObject, ScaleBytes
from scalecodec.exceptions import InvalidScaleTypeValueException, RemainingScaleBytesNotEmptyException
from scalecodec.types import ScaleType, Vec

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import OverLimit
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.limits import MAX_PROOF_BYTES, require_length
from causeway.proofs.substrate.compact import decode_compact, encode_compact
from causeway.proofs.substrate.errors import FailedToDecode

MAX_ELEMENTS = 1024
"""Most elements of a list that is decoded element by element, which takes tens of microseconds each."""

MAX_STRINGS = 1 << 16
"""Most elements of a list of byte strings or digests, which is decoded in one go."""

_REFUSALS = (ValueError, IndexError, InvalidScaleTypeValueException, RemainingScaleBytesNotEmptyException)
"""What scalecodec raises for bytes that are no encoding of a type."""


class LimitedVec(Vec):  # type: ignore[misc]
    """``Vec<T>`` of at most 1,024 elements: the count is looked at before anything is made for it."""

    def process(self) -> Any:
        """Return the elements."""
        _count(self.data, MAX_ELEMENTS)
        return super().process()


class SortedVec(LimitedVec):
    """``LimitedVec<T>`` of structs that ascend by their first field: how a map is encoded, by its keys.

    The key is a number, or an enum of a bare variant and one with a number, which ascends in this order.
    """

    def process(self) -> Any:
        """Return the elements."""
        elements = super().process()
        keys = [_rank(next(iter(element.values()))) for element in elements]
        _require_ascending(keys, "the keys of a map do not ascend")
        return elements


class ByteStrings(ScaleType):  # type: ignore[misc]
    """``Vec<Vec<u8>>`` as a list of bytes, of at most 65,536 elements; read in one go, as proofs have many nodes."""

    def process(self) -> list[bytes]:
        """Return the byte strings."""
        count, offset = _count(self.data, MAX_STRINGS)
        found = []
        for _ in range(count):
            length, offset = decode_compact(self.data.data, offset, "a list of byte strings")
            if offset + length > self.data.length:
                raise FailedToDecode("a list of byte strings ends inside one of them")
            found.append(bytes(self.data.data[offset : offset + length]))
            offset += length
        self.data.offset = offset
        return found

    def process_encode(self, value: list[bytes]) -> ScaleBytes:
        """Return the encoding of byte strings."""
        return ScaleBytes(
            encode_compact(len(value)) + b"".join([encode_compact(len(string)) + string for string in value])
        )


class SortedStrings(ByteStrings):
    """``ByteStrings`` that ascend: how a set of byte strings is encoded."""

    def process(self) -> list[bytes]:
        """Return the byte strings."""
        found = super().process()
        _require_ascending(found, "a list of byte strings is no set in ascending order")
        return found


class Hashes(ScaleType):  # type: ignore[misc]
    """``Vec<H256>`` as a list of hexadecimal strings, of at most 65,536 elements; read in one go."""

    def process(self) -> list[str]:
        """Return the digests."""
        count, start = _count(self.data, MAX_STRINGS)
        self.data.offset = start + count * DIGEST_BYTES
        if self.data.offset > self.data.length:
            raise FailedToDecode("a list of digests ends inside one of them")
        digits = self.data.data[start : self.data.offset].hex()
        width = 2 * DIGEST_BYTES
        return ["0x" + digits[position : position + width] for position in range(0, len(digits), width)]

    def process_encode(self, value: list[str]) -> ScaleBytes:
        """Return the encoding of digests."""
        digests = [bytes.fromhex(digest.removeprefix("0x")) for digest in value]
        if any(len(digest) != DIGEST_BYTES for digest in digests):
            raise ValueError(f"a digest has {DIGEST_BYTES} bytes")
        return ScaleBytes(encode_compact(len(digests)) + b"".join(digests))


class ScaleTypes:
    """Named types, in scalecodec's own notation, with what it knows from the start.

    Byte strings are ``HexBytes``: scalecodec's ``Vec<u8>`` reads some as text, and what looks like hexadecimal text
    would not come back as it was. ``composed`` names the ``LimitedVec<T>``, ``Option<T>`` and arrays that are used, so
    that they are made once. Whole columns of the same definitions go through ``scale_columns``.
    """

    def __init__(self, types: Mapping[str, Any], composed: tuple[str, ...] = ()) -> None:
        self.definitions: Mapping[str, Any] = dict(types)
        self._configuration = RuntimeConfigurationObject()
        self._configuration.update_type_registry_types(dict(types))
        self._configuration.update_type_registry_types({name: name for name in composed})

    def encode(self, type_name: str, value: Any) -> bytes:
        """Return the encoding of ``value``: numbers, hexadecimal strings, lists and dictionaries.

        Raises:
            InvalidInput: ``value`` is not of the type.
        """
        try:
            return bytes(self._configuration.create_scale_object(type_name).encode(value).data)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"no value of the SCALE type {type_name}: {error}") from error

    def decode(self, type_name: str, data: bytes, what: str, limit: int = MAX_PROOF_BYTES) -> Any:
        """Return the value that ``data`` is the canonical encoding of.

        Raises:
            OverLimit: ``data`` is longer than ``limit`` bytes, or a list has too many elements.
            FailedToDecode: it is no encoding of the type, or not the canonical one; the text says so of ``what``.
        """
        require_length(data, what, limit)
        try:
            value = self._configuration.create_scale_object(type_name, ScaleBytes(bytes(data))).decode()
            again = self._configuration.create_scale_object(type_name).encode(value).data
        except _REFUSALS as error:
            raise FailedToDecode(f"{what} is no SCALE encoding of {type_name}: {error}") from error
        if again != data:
            raise FailedToDecode(f"{what} is not the canonical SCALE encoding of {type_name}")
        return value


def struct(*fields: tuple[str, str]) -> dict[str, Any]:
    """Return the definition of a struct from the names and types of its fields."""
    return {"type": "struct", "type_mapping": [list(field) for field in fields]}


def enum(*variants: tuple[str, str] | str) -> dict[str, Any]:
    """Return the definition of an enum: a variant is a name with a type, or a name alone."""
    return {
        "type": "enum",
        "type_mapping": [[variant, "Null"] if isinstance(variant, str) else list(variant) for variant in variants],
    }


def _require_ascending(items: Sequence[Any], said: str) -> None:
    if any(later <= earlier for earlier, later in pairwise(items)):
        raise FailedToDecode(said)


def _rank(key: Any) -> int:
    """Return where a key stands in its order: a bare variant before all numbers."""
    if isinstance(key, dict):
        ((_, key),) = key.items()
    return -1 if isinstance(key, str) else int(key)


def _count(data: ScaleBytes, most: int) -> tuple[int, int]:
    """Return how many elements the list at the offset of ``data`` has, and where they start, without moving on."""
    count, offset = decode_compact(data.data, data.offset, "a list")
    if count > most:
        raise OverLimit(f"a list has {count} elements, at most {most} are read")
    return count, offset
