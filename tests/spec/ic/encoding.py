"""Packed CBOR of what stands in the leaves of a state tree (2.9), made and read, for every certification version.

A version is its number: 25 for V25. Readers take bytes of strangers; what they refuse is a `SerializationError` whose
text says what is wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Any

import cbor2

from tests.spec.ic.errors import SerializationError
from tests.spec.ic.ids import CanisterId, canister_bytes
from tests.spec.ic.messages import CanisterMessage, Reason, Request, Response

Rejects = tuple[tuple[int, Reason], ...]
"""(index, reason), ascending."""

CURRENT = 25
LOOPBACK_NOT_CERTIFIED = 20
REFUNDS = 22
CYCLES_FIELDS = 23
METADATA_SUBTREE = 24
ENGINES = 26
MAX_U64 = 2**64 - 1
KNOWN_FLAGS = 1


def version_number(name: str) -> int:
    """`V25` -> 25."""
    return int(name.removeprefix("V"))


# ---- written


def encoded_header(begin: int, end: int, signals_end: int, rejects: Rejects) -> bytes:
    """StreamHeader, with the deltas of RejectSignals."""
    fields: dict[int, Any] = {0: begin, 1: end, 2: signals_end}
    if rejects:
        fields[5] = {int(reason) - 1: deltas(signals_end, reason, rejects) for reason in Reason}
        fields[5] = {key: value for key, value in fields[5].items() if value}
    return cbor2.dumps(fields)


def deltas(signals_end: int, reason: Reason, rejects: Rejects) -> list[int]:
    """Walking from the last signal back: signals_end - index, then next index of the same reason - index."""
    mine = [index for index, given in rejects if given == reason]
    return [after - index for index, after in pairwise([*mine, signals_end])]


def encoded_message(message: CanisterMessage, version: int = CURRENT) -> bytes:
    """StreamMessage: a request (0) or a response (1). No call has a tree here: depth 0, start 0."""
    cycles_fields = version >= CYCLES_FIELDS
    if isinstance(message, Request):
        fields: dict[int, Any] = {
            0: canister_bytes(message.receiver),
            1: canister_bytes(message.sender),
            2: message.callback,
            3: {0: encoded_cycles(message.cycles)},
            4: message.method,
            5: message.payload,
            6: encoded_cycles(message.cycles),
            7: {0: 0, 1: 0},
            8: message.deadline,
        }
        absent = {3 if cycles_fields else 6} | ({8} if not message.deadline else set())
        return cbor2.dumps({0: {key: value for key, value in fields.items() if key not in absent}})
    payload: dict[int, Any] = {0: message.data or b""}
    if message.reject is not None:
        payload = {1: {0: message.reject[0], 1: message.reject[1]}}
    fields = {
        0: canister_bytes(message.originator),
        1: canister_bytes(message.respondent),
        2: message.callback,
        3: {0: encoded_cycles(message.refund)},
        4: payload,
        5: encoded_cycles(message.refund),
        6: message.deadline,
    }
    absent = {3 if cycles_fields else 5} | ({6} if not message.deadline else set())
    return cbor2.dumps({1: {key: value for key, value in fields.items() if key not in absent}})


def encoded_cycles(cycles: int) -> dict[int, int]:
    low, high = cycles % 2**64, cycles // 2**64
    return {0: low, 1: high} if high else {0: low}


def encoded_metadata(previous: bytes | None) -> bytes:
    """SystemMetadata, the leaf `metadata` before V24: the hash of the state before as an array of small integers."""
    return cbor2.dumps({} if previous is None else {1: list(previous)})


def leb128(number: int) -> bytes:
    """Seven bits a byte, the low ones first; all but the last byte have their high bit set."""
    found = bytearray()
    while number >= 0x80:
        found.append(number % 0x80 | 0x80)
        number //= 0x80
    return bytes([*found, number])


# ---- read


@dataclass(frozen=True)
class Header:
    """What a StreamHeader says."""

    begin: int
    end: int
    signals_end: int
    rejects: Rejects = ()


def decoded_header(data: bytes, version: int = CURRENT) -> Header:
    """StreamHeader. Its bounds are not compared here: that is step 4 of 3.9."""
    fields = _fields(data, "StreamHeader", 6)
    for key, name in enumerate(("begin", "end", "signals_end")):
        if key not in fields:
            raise SerializationError(f"missing field `{name}`")
    if fields.get(3, 0) != 0:
        raise SerializationError("field index 3 is populated")
    if _natural(fields.get(4, 0), "flags") & ~KNOWN_FLAGS:
        raise SerializationError("unsupported flags")
    begin, end, signals_end = (_natural(fields[key], "index") for key in range(3))
    return Header(begin, end, signals_end, _decoded_rejects(fields.get(5, {}), signals_end, version))


def _decoded_rejects(listed: Any, signals_end: int, version: int) -> Rejects:
    reasons = _checked_map(listed, "RejectSignals", 8 if version >= ENGINES else 7)
    found: dict[int, Reason] = {}
    for key, gaps in reasons.items():
        if not isinstance(gaps, list):
            raise SerializationError("RejectSignals: a list of deltas was expected")
        index = signals_end
        for gap in reversed(gaps):
            if _natural(gap, "delta") == 0:
                raise SerializationError("found bad delta: `0` is not allowed")
            index -= gap
            if index < 0:
                raise SerializationError(f"reject signals are invalid, got `signals_end` {signals_end}")
            if index in found:
                raise SerializationError(f"reject signals have duplicates: {index}")
            if key == 7:
                raise SerializationError("EngineNotAllowed: no rule of this oracle gives it")
            found[index] = Reason(key + 1)
    return tuple(sorted(found.items()))


def decoded_message(data: bytes, version: int = CURRENT) -> CanisterMessage:
    """StreamMessage. Refunds (X-10) are off."""
    fields = _fields(data, "StreamMessage", 3)
    if len(fields) != 1:
        raise SerializationError("expected exactly one of `request`, `response` or `refund`")
    if 0 in fields:
        return _decoded_request(fields[0], version)
    if 1 in fields:
        return _decoded_response(fields[1], version)
    raise SerializationError("refunds are off")


def _decoded_request(value: Any, version: int) -> Request:
    fields = _checked_map(value, "Request", 9)
    return Request(
        receiver=_canister(fields, 0),
        sender=_canister(fields, 1),
        callback=_natural(fields.get(2), "sender_reply_callback"),
        cycles=_cycles(fields, 3, 6, version),
        method=_typed(fields.get(4), str, "method_name"),
        payload=_typed(fields.get(5), bytes, "method_payload"),
        deadline=_natural(fields.get(8, 0), "deadline", 2**32 - 1),
    )


def _decoded_response(value: Any, version: int) -> Response:
    fields = _checked_map(value, "Response", 7)
    payload = _checked_map(fields.get(4), "Payload", 2)
    if len(payload) != 1:
        raise SerializationError("expected exactly one of `data` or `reject` to be `Some(_)`")
    answer: dict[str, Any] = {}
    if 0 in payload:
        answer["data"] = _typed(payload[0], bytes, "data")
    else:
        reject = _checked_map(payload[1], "RejectContext", 2)
        code = _natural(reject.get(0), "code", 6)
        if code == 0:
            raise SerializationError("code 0 is no reject code")
        answer["reject"] = (code, _typed(reject.get(1), str, "message"))
    return Response(
        originator=_canister(fields, 0),
        respondent=_canister(fields, 1),
        callback=_natural(fields.get(2), "originator_reply_callback"),
        refund=_cycles(fields, 3, 5, version),
        deadline=_natural(fields.get(6, 0), "deadline", 2**32 - 1),
        **answer,
    )


def _fields(data: bytes, what: str, count: int) -> Mapping[int, Any]:
    """The one map that `data` is, and nothing behind it."""
    stream = BytesIO(data)
    try:
        value = cbor2.CBORDecoder(stream).decode()
    except (cbor2.CBORDecodeError, RecursionError, OverflowError) as error:
        raise SerializationError(f"{what}: {type(error).__name__}") from error
    if stream.tell() != len(data):
        raise SerializationError(f"{what}: bytes behind its end")
    return _checked_map(value, what, count)


def _checked_map(value: Any, what: str, count: int) -> Mapping[int, Any]:
    if not isinstance(value, Mapping):
        raise SerializationError(f"{what}: a map was expected")
    for key in value:
        if type(key) is not int or not 0 <= key < count:
            raise SerializationError(f"{what}: field {key}: expected field index 0 <= i < {count}")
    return value


def _natural(value: Any, name: str, most: int = MAX_U64) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise SerializationError(f"{name} is no number up to {most}")
    return value


def _typed(value: Any, kind: type, name: str) -> Any:
    if type(value) is not kind:
        raise SerializationError(f"{name} is no {kind.__name__}")
    return value


def _canister(fields: Mapping[int, Any], key: int) -> CanisterId:
    value = _typed(fields.get(key), bytes, "canister id")
    number = int.from_bytes(value[:8], "big")
    if canister_bytes(number) != value:
        raise SerializationError("no canister id")
    return number


def _cycles(fields: Mapping[int, Any], old: int, new: int, version: int) -> int:
    """Field `old`.0 up to V22, field `new` from V23 on."""
    value = fields.get(new)
    if version < CYCLES_FIELDS:
        value = _checked_map(fields.get(old), "Funds", 2).get(0)
    words = _checked_map(value, "Cycles", 2)
    return _natural(words.get(0), "cycles") + _natural(words.get(1, 0), "cycles") * 2**64
