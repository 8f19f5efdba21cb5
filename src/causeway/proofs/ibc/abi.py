"""The ABI encoding of contracts, for the payloads of packets that are read on chains with contracts (X-8).

Types are described by ``Uint``, ``Bytes32``, ``Bytes``, ``Text``, ``Tuple`` and ``Array``; their values are ``int``,
``bytes``, ``bytes``, ``str``, and ``tuple`` twice. How deep a value nests is up to its type, never to the bytes read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import MalformedProof, OverLimit
from causeway.proofs.limits import require_length

WORD = 32

MAX_VALUE_BYTES = 262_144
"""The longest payload of a packet (X-7)."""

MAX_ELEMENTS = MAX_VALUE_BYTES // WORD
"""As many values as there can be words: more only come from words that are read again and again."""


@dataclass(frozen=True)
class Uint:
    """An unsigned number of 8 to 256 bits."""

    bits: int = 256


@dataclass(frozen=True)
class Bytes32:
    """Exactly 32 bytes."""


@dataclass(frozen=True)
class Bytes:
    """Bytes of any length."""


@dataclass(frozen=True)
class Text:
    """Text in UTF-8."""


@dataclass(frozen=True)
class Tuple:
    """Values of different types, one after the other."""

    members: tuple[AbiType, ...]


@dataclass(frozen=True)
class Array:
    """Any number of values of one type."""

    element: AbiType


AbiType: TypeAlias = Uint | Bytes32 | Bytes | Text | Tuple | Array

FUNGIBLE_TOKEN_PACKET_DATA = Tuple((Text(), Text(), Text(), Uint(), Text()))
"""A token transfer: denom, sender, receiver, amount, memo."""

PACKET_V2 = Tuple(
    (Uint(64), Text(), Text(), Uint(64), Array(Tuple((Text(), Text(), Text(), Text(), Bytes())))),
)
"""A version 2 packet: sequence, source client, destination client, time-out in seconds, payloads."""


def encode(kind: AbiType, value: Any) -> bytes:
    """Return the ABI encoding of one value of type ``kind``, as ``abi.encode`` of a contract makes it.

    Raises:
        InvalidInput: ``value`` is not of that type.
    """
    return _encode_members((kind,), (value,))


def decode(kind: AbiType, data: bytes, limit: int = MAX_VALUE_BYTES) -> Any:
    """Return the value of type ``kind`` that ``data`` is the one encoding of.

    Raises:
        OverLimit: ``data`` is longer than ``limit`` bytes, or holds more values than it has words.
        MalformedProof: it is no such value, or not in the form that ``encode`` writes: other offsets, dirty padding,
            bytes that belong to nothing.
    """
    require_length(data, "ABI value", limit)
    reader = _Reader(data)
    value = reader.members((kind,), 0)[0]
    if encode(kind, value) != data:
        raise MalformedProof("ABI value is not in the canonical encoding of its type")
    return value


def is_dynamic(kind: AbiType) -> bool:
    """Return whether values of a type have no fixed size, so that an offset stands in their place."""
    if isinstance(kind, Tuple):
        return any(is_dynamic(member) for member in kind.members)
    return isinstance(kind, Bytes | Text | Array)


def head_bytes(kind: AbiType) -> int:
    """Return how many bytes a value takes in its place: an offset's, or its own."""
    if isinstance(kind, Tuple) and not is_dynamic(kind):
        return sum(head_bytes(member) for member in kind.members)
    return WORD


def _encode_members(kinds: tuple[AbiType, ...], values: tuple[Any, ...]) -> bytes:
    heads, tails = [], []
    position = sum(head_bytes(kind) for kind in kinds)
    for kind, value in zip(kinds, values, strict=True):
        encoded = _encode_value(kind, value)
        if is_dynamic(kind):
            heads.append(_word(position))
            tails.append(encoded)
            position += len(encoded)
        else:
            heads.append(encoded)
    return b"".join(heads + tails)


def _encode_value(kind: AbiType, value: Any) -> bytes:
    match kind:
        case Uint(bits):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**bits:
                raise InvalidInput(f"ABI value {value!r} is no whole number of {bits} bits")
            return _word(value)
        case Bytes32():
            if not isinstance(value, bytes) or len(value) != WORD:
                raise InvalidInput(f"ABI value {value!r} is not 32 bytes")
            return value
        case Bytes() | Text():
            data = value.encode() if isinstance(kind, Text) and isinstance(value, str) else value
            if not isinstance(data, bytes) or (isinstance(kind, Text) and not isinstance(value, str)):
                raise InvalidInput(f"ABI value {value!r} is no {'text' if isinstance(kind, Text) else 'bytes'}")
            return _word(len(data)) + data + bytes(-len(data) % WORD)
        case Tuple(members):
            if not isinstance(value, tuple) or len(value) != len(members):
                raise InvalidInput(f"ABI value {value!r} is no tuple of {len(members)}")
            return _encode_members(members, value)
        case Array(element):
            if not isinstance(value, tuple):
                raise InvalidInput(f"ABI value {value!r} is no tuple of elements")
            return _word(len(value)) + _encode_members((element,) * len(value), value)


def _word(value: int) -> bytes:
    return value.to_bytes(WORD, "big")


class _Reader:
    """Reads values out of one encoding, and no more of them than it has words."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data) // WORD

    def members(self, kinds: tuple[AbiType, ...], start: int) -> tuple[Any, ...]:
        values = []
        position = start
        for kind in kinds:
            at = start + self._number(position) if is_dynamic(kind) else position
            values.append(self._value(kind, at))
            position += head_bytes(kind)
        return tuple(values)

    def _value(self, kind: AbiType, at: int) -> Any:
        match kind:
            case Uint(bits):
                number = self._number(at)
                if number >= 2**bits:
                    raise MalformedProof(f"ABI value at {at} is no number of {bits} bits")
                return number
            case Bytes32():
                return self._piece(at, WORD)
            case Bytes():
                return self._counted(at)
            case Text():
                try:
                    return self._counted(at).decode()
                except UnicodeDecodeError as error:
                    raise MalformedProof(f"ABI text at {at} is not UTF-8") from error
            case Tuple(members):
                return self.members(members, at)
            case Array(element):
                count = self._number(at)
                self._spend(count)
                return self.members((element,) * count, at + WORD)

    def _counted(self, at: int) -> bytes:
        length = self._number(at)
        # Overlapping pieces could otherwise make much out of little.
        self._spend(-(-length // WORD))
        return self._piece(at + WORD, length)

    def _number(self, at: int) -> int:
        return int.from_bytes(self._piece(at, WORD), "big")

    def _piece(self, at: int, length: int) -> bytes:
        if at + length > len(self._data):
            raise MalformedProof(f"ABI value ends at {len(self._data)}, {length} bytes at {at} are needed")
        return self._data[at : at + length]

    def _spend(self, words: int) -> None:
        self._left -= words
        if self._left < 0:
            raise OverLimit("ABI value says that it holds more than its bytes")
