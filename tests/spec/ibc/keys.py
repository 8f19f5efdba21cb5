"""Identifiers (2.1), queue names and keys (2.3)."""

import re

from tests.spec.ibc.errors import MalformedKey

ID = re.compile(r"[A-Za-z0-9._+#\[\]<>-]{1,64}")
PURPOSES = ("send", "receipt")
HEAD, TAIL = "head", "tail"
STATE_BYTES = {HEAD: b"\x00", TAIL: b"\x7f"}
MAX_U64 = 2**64 - 1

Place = int | str
"""An index, "head" or "tail"."""

Key = tuple[str, str, Place]
"""k = (remote id, [send|receipt], [head|tail|index])."""


def is_id(text: str) -> bool:
    """Whether `text` is a chain id or a type (2.1): both have the same alphabet and length."""
    return ID.fullmatch(text) is not None


def u64be(number: int) -> bytes:
    return number.to_bytes(8, "big")


def queue_name(remote: str, purpose: str) -> str:
    return f"ibc:{remote}:{purpose}"


def key(remote: str, purpose: str, place: Place) -> bytes:
    """The plain codec: utf8(name) and 8 bytes of index, or 1 byte for head and tail."""
    suffix = STATE_BYTES[place] if isinstance(place, str) else u64be(place)
    return queue_name(remote, purpose).encode() + suffix


def parse(k: bytes) -> Key:
    """The key's parts, or MalformedKey."""
    parts = k.split(b":", 2)
    if len(parts) != 3 or parts[0] != b"ibc":
        raise MalformedKey(f"key {k.hex()} is not ibc:<chain id>:...")
    try:
        remote = parts[1].decode("ascii")
    except UnicodeDecodeError:
        raise MalformedKey(f"chain id {parts[1].hex()} is not ASCII") from None
    if not is_id(remote):
        raise MalformedKey(f"chain id {remote!r}")
    for purpose in PURPOSES:
        if parts[2].startswith(purpose.encode()):
            return remote, purpose, _place(parts[2].removeprefix(purpose.encode()))
    raise MalformedKey(f"purpose of key {k.hex()}")


def _place(suffix: bytes) -> Place:
    for place, constant in STATE_BYTES.items():
        if suffix == constant:
            return place
    if len(suffix) == 8:
        return int.from_bytes(suffix, "big")
    raise MalformedKey(f"suffix {suffix.hex()}: 00, 7f or 8 bytes")


# ---- appendix_b: for reading old material only (D-5)


def varint(number: int) -> bytes:
    """Unsigned LEB128, as in protobuf."""
    if number < 128:
        return bytes([number])
    return bytes([number % 128 + 128]) + varint(number // 128)


def bytes_field(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes; proto3 leaves out an empty one."""
    return varint(number * 8 + 2) + varint(len(content)) + content if content else b""


def number_field(number: int, content: int) -> bytes:
    """A varint field; proto3 leaves out zero. A negative int32 has ten bytes."""
    return varint(number * 8) + varint(content % 2**64) if content else b""


def fixed64_field(number: int, content: int) -> bytes:
    """Little-endian, and zero is left out."""
    return varint(number * 8 + 1) + content.to_bytes(8, "little") if content else b""


def key_b(remote: str, purpose: str, place: Place) -> bytes:
    """StateKey{1 QueueName{1 chain_id, 2 purpose}, 2 state} or MessageKey{1 QueueName, 2 fixed64 index}."""
    queue = bytes_field(1, remote.encode()) + number_field(2, PURPOSES.index(purpose))
    if isinstance(place, str):
        return bytes_field(1, queue) + number_field(2, STATE_BYTES[place][0])
    return bytes_field(1, queue) + fixed64_field(2, place)


def fields(message: bytes) -> dict[int, int | bytes]:
    """A protobuf message's fields: number -> value. Repeated, unknown and broken ones are refused as MalformedKey."""
    found: dict[int, int | bytes] = {}
    rest = message
    while rest:
        tag, rest = _take_varint(rest)
        number, wire = divmod(tag, 8)
        value: int | bytes
        if wire == 0:
            value, rest = _take_varint(rest)
        elif wire == 1:
            value, rest = int.from_bytes(_exactly(rest, 8), "little"), rest[8:]
        elif wire == 2:
            length, rest = _take_varint(rest)
            value, rest = _exactly(rest, length), rest[length:]
        else:
            raise MalformedKey(f"wire type {wire}")
        if number in found:
            raise MalformedKey(f"field {number} twice")
        found[number] = value
    return found


def _exactly(rest: bytes, length: int) -> bytes:
    if len(rest) < length:
        raise MalformedKey("message ends early")
    return rest[:length]


def _take_varint(rest: bytes) -> tuple[int, bytes]:
    number, shift = 0, 0
    for at, byte in enumerate(rest[:10]):
        number += (byte % 128) << shift
        shift += 7
        if byte < 128:
            return number, rest[at + 1 :]
    raise MalformedKey("varint ends early")


def readings_b(k: bytes) -> set[Key]:
    """Every key whose appendix_b form is `k`: head and index 0 of one queue have the same bytes."""
    outer = fields(k)
    queue = outer.get(1, b"")
    if not isinstance(queue, bytes):
        raise MalformedKey("queue name is no message")
    inner = fields(queue)
    remote, purpose = inner.get(1, b""), inner.get(2, 0)
    if not isinstance(remote, bytes) or not is_id(remote.decode("latin-1")) or purpose not in (0, 1):
        raise MalformedKey(f"queue name {queue.hex()}")
    second = outer.get(2, 0)
    places: set[Place] = {HEAD, TAIL, second} if isinstance(second, int) else {HEAD, TAIL}
    candidates = {(remote.decode(), PURPOSES[int(purpose)], place) for place in places}
    readings = {candidate for candidate in candidates if key_b(*candidate) == k}
    if not readings:
        raise MalformedKey(f"no key has the form {k.hex()}")
    return readings
