"""Messages of streams out of columns: the loop that writes their canonical encodings (IC reference 2.9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import (
    BOOL,
    BYTE_ROWS,
    BYTE_ROWS_OUT,
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS_OUT,
    compiled,
    read,
)
from causeway.proofs.hashing.vectors import copy_digest
from causeway.proofs.ic.cbor_loops import BYTE_STRING, MAP, NUMBER, TEXT, is_utf8, put_head
from causeway.proofs.ic.memory import address_of, copy, put_byte, put_word
from causeway.proofs.kinds import Kind

KIND, SENDER, RECEIVER, CALLBACK, HIGH, LOW, CODE, DEADLINE, DEPTH, START, METHOD = range(11)
"""Rows of the matrix of numbers; ``METHOD``: which of the method names."""

NUMBERS = 11

ROOM = 192
"""Bytes that a message may take besides its method and payload: not more than 128, and words that end behind them."""

UNKNOWN = -1
"""There is a message that has no encoding."""

DAMAGED = -2
"""A name or payload does not lie in its column's bytes."""

REQUEST, RESPONSE, REFUND = int(Kind.REQUEST), int(Kind.RESPONSE), int(Kind.REFUND)
LAST_CODE = 6
HEAD_REQUEST, HEAD_REFUND = 0xA1_00_A7_00_4A_00_00_00, 0xA1_02_A2_00_4A_00_00_00
HEAD_RESPONSE = 0xA1_01_A5_00_4A_00_00_00
"""Up to the receiver's id: one message in a map by its kind, the map of its fields, the first one."""
ONE_FIELD = 1 << 40
AFTER_RECEIVER, AFTER_SENDER = 0x01_01_01_4A_00_00_00_00, 0x01_01_02_00_00_00_00_00
FIRST_ID, SECOND_ID, CALLBACK_AT, AMOUNT_AT = 5, 17, 28, 16

NUMBER_TABLE = read("uint64", 2)
OFFSETS = read("int32")


@compiled(allocates=False)
def put_cycles(at: Any, high: Any, low: Any) -> Any:
    """Write an amount of cycles: one or two halves."""
    put_byte(at, np.uint64(MAP + 1 + (high > np.uint64(0))))
    put_byte(at + 1, np.uint64(0))
    at = put_head(at + 2, NUMBER, low)
    if high > np.uint64(0):
        put_byte(at, np.uint64(1))
        at = put_head(at + 1, NUMBER, high)
    return at


@compiled(INT64, [INT64, NUMBER_TABLE, BOOL, BOOL, BYTES, OFFSETS, BYTES, OFFSETS, BYTES_OUT, ROWS_OUT])
def write_messages(
    count: Any,
    numbers: Any,
    with_refunds: Any,
    with_cycles: Any,
    methods: Any,
    method_ends: Any,
    payloads: Any,
    payload_ends: Any,
    out: Any,
    ends: Any,
) -> Any:
    """Write the encodings of ``count`` messages one behind the other, as long as there is room.

    ``with_refunds``, ``with_cycles``: whether the version has refunds, and cycles in fields of their own.
    ``ends``: one longer than ``count``; of those written, where they start in ``out`` and the last one ends, from
    ``ends[0]`` on.

    Returns:
        How many were written, less than ``count`` where the room is used up; or ``UNKNOWN`` or ``DAMAGED``.
    """
    request, response, refund = np.uint64(REQUEST), np.uint64(RESPONSE), np.uint64(REFUND)
    zero = np.uint64(0)
    method_data, payload_data = address_of(methods), address_of(payloads)
    base, room = address_of(out), np.int64(len(out))
    for row in range(count):
        kind, code = numbers[KIND, row], numbers[CODE, row]
        high, low, deadline = numbers[HIGH, row], numbers[LOW, row], numbers[DEADLINE, row]
        start = base + ends[row]
        if kind != request and kind != response and (kind != refund or not with_refunds):
            return UNKNOWN
        if kind == refund:
            if ends[row] + ROOM > room:
                return row
            put_word(start, np.uint64(HEAD_REFUND))
            put_word(start + FIRST_ID, numbers[RECEIVER, row])
            put_word(start + FIRST_ID + 8, np.uint64(AFTER_RECEIVER))
            ends[row + 1] = put_cycles(start + AMOUNT_AT, high, low) - base
            continue
        begin, size = np.int64(payload_ends[row]), np.int64(payload_ends[row + 1]) - np.int64(payload_ends[row])
        if begin < 0 or size < 0 or begin + size > len(payloads):
            return DAMAGED
        name, name_size = np.int64(0), np.int64(0)
        if kind == request:
            if numbers[METHOD, row] >= np.uint64(len(method_ends) - 1):
                return DAMAGED
            which = np.int64(numbers[METHOD, row])
            name, name_size = np.int64(method_ends[which]), np.int64(method_ends[which + 1] - method_ends[which])
            if name < 0 or name_size < 0 or name + name_size > len(methods):
                return DAMAGED
        if ends[row] + ROOM + size + name_size > room:
            return row
        dated = np.uint64(deadline > zero)
        head = np.uint64(HEAD_REQUEST if kind == request else HEAD_RESPONSE)
        put_word(start, head + dated * np.uint64(ONE_FIELD))
        put_word(start + FIRST_ID, numbers[RECEIVER, row])
        put_word(start + FIRST_ID + 8, np.uint64(AFTER_RECEIVER))
        put_word(start + SECOND_ID, numbers[SENDER, row])
        put_word(start + SECOND_ID + 8, np.uint64(AFTER_SENDER))
        at = put_head(start + CALLBACK_AT, NUMBER, numbers[CALLBACK, row])
        if not with_cycles:
            put_word(at, np.uint64(0x03_A1_00_00_00_00_00_00))
            at = put_cycles(at + 3, high, low)
        put_byte(at, np.uint64(4))
        at += 1
        if kind == request:
            at = put_head(at, TEXT, np.uint64(name_size))
            copy(at, method_data + name, name_size)
            at += name_size
            put_byte(at, np.uint64(5))
            at = put_head(at + 1, BYTE_STRING, np.uint64(size))
        elif code == zero:
            put_word(at, np.uint64(0xA1_00_00_00_00_00_00_00))
            at = put_head(at + 2, BYTE_STRING, np.uint64(size))
        else:
            if code > np.uint64(LAST_CODE) or not is_utf8(payloads, begin, begin + size):
                return UNKNOWN
            put_word(at, np.uint64(0xA1_01_A2_00_00_01_00_00) | code << np.uint64(24))
            at = put_head(at + 6, TEXT, np.uint64(size))
        copy(at, payload_data + begin, size)
        at += size
        if with_cycles:
            put_byte(at, np.uint64(6 if kind == request else 5))
            at = put_cycles(at + 1, high, low)
        if kind == request:
            put_word(at, np.uint64(0x07_A2_00_00_00_00_00_00))
            at = put_head(at + 3, NUMBER, numbers[DEPTH, row])
            put_byte(at, np.uint64(1))
            at = put_head(at + 1, NUMBER, numbers[START, row])
        if deadline > zero:
            put_byte(at, np.uint64(8 if kind == request else 6))
            at = put_head(at + 1, NUMBER, deadline)
        ends[row + 1] = at - base
    return count


@compiled(NOTHING, [read("uint64"), BYTE_ROWS, BYTE_ROWS_OUT])
def put_labels(indexes: Any, subtrees: Any, out: Any) -> None:
    """Write each index as a label of 8 bytes and behind it the digest of its subtree: rows of 40 bytes."""
    source, target = address_of(subtrees), address_of(out)
    for row in range(len(indexes)):
        put_word(target + 40 * row, indexes[row])
        copy_digest(target + 40 * row + 8, source + 32 * row)
