"""Parse untrusted protobuf messages within bounds, as every deployed decoder does.

Protobuf has many encodings of one message: unknown fields, padded integers, empty fields written out. If bytes are
identified by their digest, only the deployed encoders' form is accepted (``parse_canonical``). A proof may have any
form (``parse``); ``is_canonical`` tests its form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from causeway_proofs.errors import MalformedProof
from causeway_proofs.limits import MAX_MESSAGE_BYTES, require_length
from causeway_proofs.varints import MORE, PAYLOAD_BITS, uvarint

M = TypeVar("M", bound=Message)

VARINT, FIXED64, SIZED, GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types."""

WIRE_BITS = 3
MAX_FIELD_NUMBER = (1 << 29) - 1
NUMBER_BITS = 64
MAX_NUMBER_BYTES = 10

MAX_GROUPS = 100
"""Most nested messages and groups that prost reads."""

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_FIXED = {
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_FIXED64: FIXED64,
    FieldDescriptor.TYPE_SFIXED64: FIXED64,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_FIXED32: FIXED32,
    FieldDescriptor.TYPE_SFIXED32: FIXED32,
}
_SIZED = {FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING}


def parse(message_type: type[M], data: bytes, noun: str, limit: int = MAX_MESSAGE_BYTES) -> M:
    """Parse a message in any encoding, dropping unknown fields.

    Args:
        message_type: the message class.
        data: the encoding.
        noun: noun for the message in errors.
        limit: most bytes.

    Returns:
        The message.

    Raises:
        OverLimit: ``data`` exceeds ``limit`` bytes.
        MalformedProof: ``data`` is not such a message, or deployed decoders disagree on it; the text begins with
            ``noun``.
    """
    require_length(data, noun, limit)
    try:
        message = _parsed(message_type, data, noun)
        if is_canonical(message, data):
            return message
    except MalformedProof:
        pass  # the library refuses numbers that are padded far, which other decoders read
    try:
        plain = _plain(message_type.DESCRIPTOR, memoryview(data))
    except MalformedProof as error:
        raise MalformedProof(f"{noun} is no protobuf message {message_type.DESCRIPTOR.full_name}: {error}") from None
    return _parsed(message_type, plain, noun)


def is_canonical(message: Message, data: bytes) -> bool:
    """Return True if ``data`` is canonical: fields ascending and known, no padding."""
    canonical: bytes = message.SerializeToString(deterministic=True)
    return canonical == data


def parse_canonical(message_type: type[M], data: bytes, noun: str, limit: int = MAX_MESSAGE_BYTES) -> M:
    """Parse a message, accepting only its canonical encoding.

    Args:
        message_type: the message class.
        data: the encoding.
        noun: noun for the message in errors.
        limit: most bytes.

    Returns:
        The message.

    Raises:
        OverLimit: ``data`` exceeds ``limit`` bytes.
        MalformedProof: ``data`` is not such a message, or not its canonical encoding; the text names ``noun``.
    """
    require_length(data, noun, limit)
    message = _parsed(message_type, data, noun)
    if not is_canonical(message, data):
        raise MalformedProof(_not_canonical(message_type, noun))
    return message


def describe_encoding(message: Message, data: bytes, noun: str) -> list[str]:
    """Return a remark if ``data`` is not the canonical encoding of ``message``, else no line."""
    return [] if is_canonical(message, data) else [_not_canonical(type(message), noun)]


def _not_canonical(message_type: type[Message], noun: str) -> str:
    return f"{noun} is not in the canonical encoding of {message_type.DESCRIPTOR.full_name}"


def _parsed(message_type: type[M], data: bytes, noun: str) -> M:
    message = message_type()
    try:
        message.ParseFromString(data)
        # Unknown fields would be retained and re-encoded.
        message.DiscardUnknownFields()
    except (DecodeError, UnicodeDecodeError) as error:
        # The library's pure Python version does not validate text.
        raise MalformedProof(f"{noun} is no protobuf message {message_type.DESCRIPTOR.full_name}") from error
    return message


def _plain(message: Any, data: memoryview, depth: int = 0) -> bytes:
    """Return the known fields of an encoded message in order, without padding.

    ``message`` is the message's descriptor.

    Rejects input that gogoproto 1.4 and prost 0.13, the deployed decoders, do not both reject or both read alike. That
    is: a member of a oneof that follows itself (one decoder replaces, the other merges), numbers above 64 bits,
    mismatched or deeply nested groups. The library used here takes a known field of another wire type for an unknown
    one, which both reject.

    Raises:
        MalformedProof: the message is rejected, or not protobuf.
    """
    plain: list[bytes] = []
    members: dict[str, int] = {}
    for number, wire, value in _fields(data, depth):
        field = message.fields_by_number.get(number)
        if field is None:
            continue
        name = f"{message.name}.{field.name}"
        packed = wire == SIZED and field.is_repeated and _wire_of(field) != SIZED
        if wire != _wire_of(field) and not packed:
            raise MalformedProof(f"it has {name} in wire type {wire}, not {_wire_of(field)}")
        choice = field.containing_oneof
        if choice is not None:
            if members.get(choice.name) == number:
                raise MalformedProof(f"it has {name} twice, which decoders read in two ways")
            members[choice.name] = number
        if isinstance(value, int):
            content = uvarint(value)
        elif wire != SIZED:
            content = bytes(value)
        else:
            if field.message_type is not None:
                content = _plain(field.message_type, value, depth + 1)
            elif packed and _wire_of(field) == VARINT:
                content = b"".join(uvarint(each) for each in _numbers(value))
            else:
                content = bytes(value)
            content = uvarint(len(content)) + content
        plain.append(uvarint(number << WIRE_BITS | wire) + content)
    return b"".join(plain)


def _fields(data: memoryview, depth: int) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield number, wire type and value of each field.

    The value of a varint is its number, of a group nothing, else the bytes.

    Raises:
        MalformedProof: a field is unreadable.
    """
    at, groups = 0, list[int]()
    while at < len(data):
        key, at = _number(data, at)
        number, wire = key >> WIRE_BITS, key & (1 << WIRE_BITS) - 1
        if not 0 < number <= MAX_FIELD_NUMBER:
            raise MalformedProof(f"it has a field with the number {number}")
        value: int | memoryview = data[at:at]
        if wire == VARINT:
            value, at = _number(data, at)
        elif wire == GROUP:
            groups.append(number)
            if len(groups) + depth > MAX_GROUPS:
                raise MalformedProof(f"it is nested in more than {MAX_GROUPS} levels")
        elif wire == END_GROUP:
            if not groups or groups.pop() != number:
                raise MalformedProof("it ends a group that is not open")
            continue
        elif wire == SIZED or wire in _FIXED_BYTES:
            length, at = _number(data, at) if wire == SIZED else (_FIXED_BYTES[wire], at)
            value = data[at : at + length]
            at += length
            if at > len(data):
                raise MalformedProof("it ends within a field")
        else:
            raise MalformedProof(f"it has a field of wire type {wire}")
        if not groups or (groups == [number] and wire == GROUP):
            yield number, wire, value
    if groups:
        raise MalformedProof("it ends within a group")


def _numbers(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _number(data, at)
        yield value


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """Read the varint at a position; return it and its end. Raises ``MalformedProof``."""
    value = 0
    for place, byte in enumerate(data[at : at + MAX_NUMBER_BYTES]):
        value |= (byte & MORE - 1) << PAYLOAD_BITS * place
        if byte < MORE:
            if value >> NUMBER_BITS:
                break
            return value, at + place + 1
    raise MalformedProof(f"it has a number that does not end, or has more than {NUMBER_BITS} bits")


def _wire_of(field: FieldDescriptor) -> int:
    return SIZED if field.type in _SIZED else _FIXED.get(field.type, VARINT)
