"""Sizes (2.9, 2.10): packed CBOR of headers and messages, made and measured, and count_bytes(css)."""

from itertools import pairwise
from typing import Any

import cbor2

from .ids import canister_bytes
from .messages import CanisterMessage, Reason, Request
from .queues import StreamIndex
from .slices import StreamSlice, at
from .state import SubstreamId

SIGNATURE = 48


def encoded_header(begin: int, end: int, signals_end: int, rejects: tuple[tuple[int, Reason], ...]) -> bytes:
    """StreamHeader, with the deltas of RejectSignals."""
    fields: dict[int, Any] = {0: begin, 1: end, 2: signals_end}
    if rejects:
        fields[5] = {int(reason) - 1: deltas(signals_end, reason, rejects) for reason in Reason}
        fields[5] = {key: value for key, value in fields[5].items() if value}
    return cbor2.dumps(fields)


def deltas(signals_end: int, reason: Reason, rejects: tuple[tuple[int, Reason], ...]) -> list[int]:
    """Walking from the last signal back: signals_end - index, then next index of the same reason - index."""
    mine = [index for index, given in rejects if given == reason]
    return [after - index for index, after in pairwise([*mine, signals_end])]


def encoded_message(message: CanisterMessage) -> bytes:
    """StreamMessage: a request (0) or a response (1). No call has a tree here: depth 0, start 0."""
    if isinstance(message, Request):
        fields: dict[int, Any] = {
            0: canister_bytes(message.receiver),
            1: canister_bytes(message.sender),
            2: message.callback,
            4: message.method,
            5: message.payload,
            6: encoded_cycles(message.cycles),
            7: {0: 0, 1: 0},
        }
    else:
        payload: dict[int, Any] = {0: message.data or b""}
        if message.reject is not None:
            payload = {1: {0: message.reject[0], 1: message.reject[1]}}
        fields = {
            0: canister_bytes(message.originator),
            1: canister_bytes(message.respondent),
            2: message.callback,
            4: payload,
            5: encoded_cycles(message.refund),
        }
    if message.deadline:
        fields[8 if isinstance(message, Request) else 6] = message.deadline
    return cbor2.dumps({0 if isinstance(message, Request) else 1: fields})


def encoded_cycles(cycles: int) -> dict[int, int]:
    low, high = cycles % 2**64, cycles // 2**64
    return {0: low, 1: high} if high else {0: low}


def count_bytes(css: StreamSlice) -> int:
    """2.10. Every substream counts as a stream of its own."""
    return sum(stream_bytes(css, substream) for substream in css.substreams)


def stream_bytes(css: StreamSlice, substream: SubstreamId) -> int:
    begin, end, signals_end = (at(indices, substream) for indices in (css.begin, css.end, css.signals_end))
    header = len(encoded_header(begin, end, signals_end, css.rejects.get(substream, ())))
    messages: dict[StreamIndex, CanisterMessage] = {
        (name, i): m for (name, i), m in css.messages.items() if name == substream
    }
    n = len(messages)
    payload = 49 + header if n == 0 else 71 + header + sum(8 + len(encoded_message(m)) + 8 for m in messages.values())
    first = min((i for _, i in messages), default=0)
    return payload + witness_bytes(begin, end, first, n) + 8 + 32 + SIGNATURE


def witness_bytes(sb: int, se: int, mb: int, n: int) -> int:
    """The witness of messages [mb, mb + n) of the stream [sb, se)."""
    if n == 0 or sb == se:
        return 214
    total, right = se - sb, se - (mb + n)
    rem = total - right
    if ctz(total) + clz64(right) >= 64:
        r = right
    else:
        c = 2 ** (total ^ rem).bit_length()
        r = c - (rem & (c - 1))
    p = (mb - sb).bit_count() + r.bit_count()
    return 214 - 36 + 10 + 36 * p + 16 * n + 7 * (p + n - 1)


def ctz(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 64


def clz64(number: int) -> int:
    return 64 - number.bit_length()
