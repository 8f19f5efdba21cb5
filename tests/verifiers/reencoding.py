"""Alternative encodings of one protobuf message, and altered messages and bytes."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.message import Message

VARINT, FIXED64, SIZED, GROUP, END_GROUP, FIXED32 = range(6)
FIRST_UNKNOWN = 100


def reencoded(message: Message, random: Random, whole: bool = True) -> bytes:
    """Return another encoding of a message, which all decoders read as the same.

    Numbers are padded, fields reordered, empty ones written out, unknown ones and scalars that are overwritten put
    in, packed lists written one by one or in pieces, and messages that are no member of a oneof in two parts. With
    ``whole`` false the message is such a part: what is not in it is not written.
    """
    parts: list[list[bytes]] = []
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            values = list(getattr(message, field.name))
            if field.message_type is not None:
                parts.append([_sized(field.number, reencoded(value, random), random) for value in values])
            else:
                parts.append(_packed(field.number, values, random))
        elif field.message_type is not None:
            if message.HasField(field.name):
                parts.append(_message(field, getattr(message, field.name), random))
        else:
            value = getattr(message, field.name)
            written = [_scalar(field.number, value, random)] if value or (whole and random.random() < 0.3) else []
            if written and random.random() < 0.2:
                written.insert(0, _scalar(field.number, _another(value), random))
            parts.append(written)
    parts += [[_unknown(random)] for _ in range(random.choice((0, 0, 0, 1, 2)))]
    # Those of one field keep their order.
    order = [place for place, pieces in enumerate(parts) for _ in pieces]
    if random.random() < 0.5:
        random.shuffle(order)
    takes = [iter(pieces) for pieces in parts]
    return b"".join(next(takes[place]) for place in order)


def _message(field: Any, value: Message, random: Random) -> list[bytes]:
    split = field.containing_oneof is None and random.random() < 0.3
    if not split:
        return [_sized(field.number, reencoded(value, random), random)]
    first, second = type(value)(), type(value)()
    for below, content in value.ListFields():
        part = random.choice((first, second))
        if below.is_repeated or below.message_type is not None:
            part.MergeFrom(_only(value, below.name))
        else:
            setattr(part, below.name, content)
    return [_sized(field.number, reencoded(part, random, whole=False), random) for part in (first, second)]


def _only(message: Message, name: str) -> Message:
    """Return a message with one field of another."""
    kept = type(message)()
    kept.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.name != name:
            kept.ClearField(field.name)
    return kept


def _packed(number: int, values: list[int], random: Random) -> list[bytes]:
    pieces, at = [], 0
    while at < len(values):
        if random.random() < 0.3:
            pieces.append(_scalar(number, values[at], random))
            at += 1
        else:
            until = random.randint(at + 1, len(values))
            pieces.append(_sized(number, b"".join(_number(each, random) for each in values[at:until]), random))
            at = until
    return pieces


def _scalar(number: int, value: int | bytes, random: Random) -> bytes:
    if isinstance(value, bytes):
        return _sized(number, value, random)
    return _number(number << 3 | VARINT, random) + _number(value, random)


def _another(value: int | bytes) -> int | bytes:
    return value + b"." if isinstance(value, bytes) else value + 1


def _sized(number: int, content: bytes, random: Random) -> bytes:
    return _number(number << 3 | SIZED, random) + _number(len(content), random) + content


def _unknown(random: Random) -> bytes:
    number = random.randint(FIRST_UNKNOWN, 1 << 28)
    wire = random.choice((VARINT, FIXED64, SIZED, FIXED32, GROUP))
    head = _number(number << 3 | wire, random)
    if wire == VARINT:
        return head + _number(random.getrandbits(64), random)
    if wire == SIZED:
        return _sized(number, random.randbytes(random.randint(0, 5)), random)
    if wire == GROUP:
        return head + (_unknown(random) if random.random() < 0.5 else b"") + _number(number << 3 | END_GROUP, random)
    return head + random.randbytes(8 if wire == FIXED64 else 4)


def _number(value: int, random: Random) -> bytes:
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F)
    if random.random() < 0.2:
        digits += [0] * random.randint(0, 10 - len(digits))
    return bytes(digit | 0x80 for digit in digits[:-1]) + bytes(digits[-1:])


def corrupt_bytes(data: bytes, random: Random) -> bytes:
    """Return bytes with a flipped bit or a changed, removed, inserted or truncated byte."""
    at = random.randrange(len(data))
    way = random.randrange(5)
    if way == 0:
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if way == 1:
        return data[:at] + random.randbytes(1) + data[at + 1 :]
    if way == 2:
        return data[:at] + data[at + 1 :]
    if way == 3:
        return data[:at] + random.randbytes(1) + data[at:]
    return data[:at]
