"""Values of the queues' keys (2.4)."""

from dataclasses import dataclass

from tests.spec.ibc.errors import InvalidPacket, MalformedKey
from tests.spec.ibc.keys import MAX_U64, bytes_field, fields, fixed64_field, is_id, number_field, u64be

SUCCESS, UNKNOWN_TYPE, TIMEOUT, HANDLER_FAILED, PERMISSION = 0, 1, 2, 3, 4
REJECTED, NO_SUCH_PROGRAM = 16, 17


@dataclass(frozen=True)
class Packet:
    """V_send. A limit that is None does not limit."""

    type: str
    data: bytes
    max_height: int | None = None
    max_time: int | None = None

    @property
    def limited(self) -> bool:
        return self.max_height is not None or self.max_time is not None


@dataclass(frozen=True)
class Receipt:
    """V_receipt."""

    result: bytes
    code: int


def encode_state(index: int) -> bytes:
    return u64be(index)


def decode_state(value: bytes) -> int:
    if len(value) != 8:
        raise InvalidPacket(f"state value of {len(value)} bytes, always 8")
    return int.from_bytes(value, "big")


def u32be(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _limit(number: int | None) -> bytes:
    return u64be(MAX_U64 if number is None else number)


def encode_packet(packet: Packet) -> bytes:
    """Form 01, or form 02 for a packet with a limit."""
    kind = packet.type.encode()
    body = u32be(len(kind)) + kind + u32be(len(packet.data)) + packet.data
    if not packet.limited:
        return b"\x01" + body
    return b"\x02" + _limit(packet.max_height) + _limit(packet.max_time) + body


def decode_packet(value: bytes) -> Packet:
    """Both forms, nothing before, between or after the parts; else InvalidPacket."""
    limits: list[int | None] = [None, None]
    if value[:1] == b"\x02" and len(value) >= 17:
        numbers = [int.from_bytes(value[1:9], "big"), int.from_bytes(value[9:17], "big")]
        limits = [None if number == MAX_U64 else number for number in numbers]
        rest = value[17:]
    elif value[:1] == b"\x01":
        rest = value[1:]
    else:
        raise InvalidPacket("form is neither 01 nor 02")
    kind, rest = _counted(rest)
    data, rest = _counted(rest)
    if rest:
        raise InvalidPacket("bytes after the data")
    text = kind.decode("latin-1")
    if not is_id(text):
        raise InvalidPacket(f"type {text!r}")
    return Packet(text, data, *limits)


def _counted(rest: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(rest[:4], "big")
    if len(rest) < 4 or len(rest) < 4 + length:
        raise InvalidPacket("packet ends early")
    return rest[4 : 4 + length], rest[4 + length :]


def encode_receipt(receipt: Receipt) -> bytes:
    return b"\x01" + receipt.code.to_bytes(4, "big", signed=True) + u32be(len(receipt.result)) + receipt.result


def decode_receipt(value: bytes) -> Receipt:
    if value[:1] != b"\x01" or len(value) < 5:
        raise InvalidPacket("receipt's form is not 01")
    result, rest = _counted(value[5:])
    if rest:
        raise InvalidPacket("bytes after the result")
    return Receipt(result, int.from_bytes(value[1:5], "big", signed=True))


# ---- appendix_b: for reading old material only (D-5)


def encode_state_b(index: int) -> bytes:
    """StateValue{1 fixed64 index}."""
    return fixed64_field(1, index)


def encode_packet_b(packet: Packet) -> bytes:
    """SendValue{1 maxHeight, 2 maxTime, 3 kind, 4 data}; an absent limit does not limit."""
    limits = number_field(1, packet.max_height or 0) + number_field(2, packet.max_time or 0)
    return limits + bytes_field(3, packet.type.encode()) + bytes_field(4, packet.data)


def encode_receipt_b(receipt: Receipt) -> bytes:
    """ReceiptValue{1 int32 errorCode, 2 data}."""
    return number_field(1, receipt.code) + bytes_field(2, receipt.result)


def _fields_b(value: bytes) -> dict[int, int | bytes]:
    try:
        return fields(value)
    except MalformedKey as error:
        raise InvalidPacket(str(error)) from error


def decode_state_b(value: bytes) -> int:
    index = _fields_b(value).get(1, 0)
    if not isinstance(index, int) or encode_state_b(index) != value:
        raise InvalidPacket(f"state value {value.hex()}")
    return index


def decode_packet_b(value: bytes) -> Packet:
    found = _fields_b(value)
    height, time, kind, data = found.get(1, 0), found.get(2, 0), found.get(3, b""), found.get(4, b"")
    if not (isinstance(height, int) and isinstance(time, int) and isinstance(kind, bytes) and isinstance(data, bytes)):
        raise InvalidPacket("a field of another kind")
    packet = Packet(kind.decode("latin-1"), data, height or None, time or None)
    if not is_id(packet.type) or encode_packet_b(packet) != value:
        raise InvalidPacket(f"send value {value.hex()}")
    return packet


def decode_receipt_b(value: bytes) -> Receipt:
    found = _fields_b(value)
    code, result = found.get(1, 0), found.get(2, b"")
    if not isinstance(code, int) or not isinstance(result, bytes):
        raise InvalidPacket("a field of another kind")
    signed = code - 2**64 if code >= 2**63 else code
    receipt = Receipt(result, signed)
    if not -(2**31) <= signed < 2**31 or encode_receipt_b(receipt) != value:
        raise InvalidPacket(f"receipt value {value.hex()}")
    return receipt
