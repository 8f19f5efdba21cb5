"""Compiled loops that write and read encoded stream messages (IC reference 2.9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.hashing.vector_instructions import copy_digest
from causeway_proofs.ic.cbor_loops import (
    BYTE_STRING,
    MAP,
    NOT_FOUND,
    NUMBER,
    TEXT,
    address_of,
    copy,
    get_field,
    get_head,
    get_word,
    is_utf8,
    put_byte,
    put_head,
    put_word,
)
from causeway_proofs.jit import (
    BOOL,
    BYTE_ROWS,
    BYTE_ROWS_OUT,
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS_OUT,
    compile_loop,
    read_only_arrays,
    writable_arrays,
)
from causeway_proofs.kinds import Kind

KIND, SENDER, RECEIVER, CALLBACK, HIGH, LOW, CODE, DEADLINE, DEPTH, START, METHOD = range(11)
"""Rows of the matrix of numbers; ``METHOD`` is the index of the method name."""

NUMBERS = 11

ROOM = 192
"""Most bytes of a message besides method and payload: up to 128, and trailing words."""

UNKNOWN = -1
"""A message has no encoding."""

DAMAGED = -2
"""A name or payload is outside of its column's bytes."""

REQUEST, RESPONSE, REFUND = int(Kind.REQUEST), int(Kind.RESPONSE), int(Kind.REFUND)
LAST_CODE = 6
HEAD_REQUEST, HEAD_REFUND = 0xA1_00_A7_00_4A_00_00_00, 0xA1_02_A2_00_4A_00_00_00
HEAD_RESPONSE = 0xA1_01_A5_00_4A_00_00_00
"""Prefix up to the receiver's id: message map by kind, map of fields, first field."""
ONE_FIELD = 1 << 40
AFTER_RECEIVER, AFTER_SENDER = 0x01_01_01_4A_00_00_00_00, 0x01_01_02_00_00_00_00_00
FIRST_ID, SECOND_ID, CALLBACK_AT, AMOUNT_AT = 5, 17, 28, 16

NUMBER_TABLE = read_only_arrays("uint64", 2)
OFFSETS = read_only_arrays("int32")


@compile_loop(allocates=False)
def put_cycles(at: Any, high: Any, low: Any) -> Any:
    """Write an amount of cycles: one or two halves."""
    put_byte(at, np.uint64(MAP + 1 + (high > np.uint64(0))))
    put_byte(at + 1, np.uint64(0))
    at = put_head(at + 2, NUMBER, low)
    if high > np.uint64(0):
        put_byte(at, np.uint64(1))
        at = put_head(at + 1, NUMBER, high)
    return at


@compile_loop(INT64, [INT64, NUMBER_TABLE, BOOL, BOOL, BYTES, OFFSETS, BYTES, OFFSETS, BYTES_OUT, ROWS_OUT])
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
    """Write the encodings of ``count`` messages while they fit.

    ``with_refunds``, ``with_cycles``: the version has refunds, and cycles in fields of their own. ``ends``: one longer
    than ``count``; set to the start of each encoding in ``out`` and, last, the end, from ``ends[0]`` on.

    Returns:
        The number of written messages, less than ``count`` if ``out`` is full; or ``UNKNOWN`` or ``DAMAGED``.
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
            method = np.int64(numbers[METHOD, row])
            name, name_size = np.int64(method_ends[method]), np.int64(method_ends[method + 1] - method_ends[method])
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


@compile_loop(NOTHING, [read_only_arrays("uint64"), BYTE_ROWS, BYTE_ROWS_OUT])
def put_labels(indexes: Any, subtrees: Any, out: Any) -> None:
    """Write rows of 40 bytes: each index as an 8-byte label, then the digest of its subtree."""
    source, target = address_of(subtrees), address_of(out)
    for row in range(len(indexes)):
        put_word(target + 40 * row, indexes[row])
        copy_digest(target + 40 * row + 8, source + 32 * row)


ID_HEAD = 0x4A
"""Head of a ten-byte string."""

MOST_DEADLINE = (1 << 32) - 1

MESSAGE_READ_LOOPS_OFFSETS, OFFSETS_OUT = read_only_arrays("int32"), writable_arrays("int32")
TABLE_OUT = writable_arrays("uint64", 2)


@compile_loop(allocates=False)
def get_canister(data: Any, at: Any, end: Any, key: Any) -> Any:
    """Read a canister id field, eight bytes and 01 01; return its number and the next position."""
    if at < 0 or at + 12 > end:
        return np.uint64(0), NOT_FOUND
    if data[at] != key or data[at + 1] != ID_HEAD or data[at + 10] != 1 or data[at + 11] != 1:
        return np.uint64(0), NOT_FOUND
    return get_word(address_of(data) + at + 2), at + 12


@compile_loop(allocates=False)
def get_number(data: Any, at: Any, end: Any, key: Any) -> Any:
    """Read a number field."""
    return get_head(data, get_field(data, at, end, key), end, NUMBER)


@compile_loop(allocates=False)
def get_string(data: Any, at: Any, end: Any, key: Any, major: Any) -> Any:
    """Read a string field; return its length and the position of its first byte."""
    length, at = get_head(data, get_field(data, at, end, key), end, major)
    if at < 0 or length > np.uint64(end - at):
        return 0, NOT_FOUND
    return np.int64(length), at


@compile_loop(allocates=False)
def get_cycles(data: Any, at: Any, end: Any) -> Any:
    """Read an amount of cycles; return its halves and the next position."""
    halves, at = get_head(data, at, end, MAP)
    low, at = get_number(data, at, end, 0)
    high = np.uint64(0)
    if halves == np.uint64(2):
        high, at = get_number(data, at, end, 1)
        if high == np.uint64(0):
            at = NOT_FOUND
    elif halves != np.uint64(1):
        at = NOT_FOUND
    return high, low, at


@compile_loop(
    INT64,
    [
        BYTES,
        MESSAGE_READ_LOOPS_OFFSETS,
        INT64,
        BOOL,
        BOOL,
        TABLE_OUT,
        BYTES_OUT,
        OFFSETS_OUT,
        BYTES_OUT,
        OFFSETS_OUT,
        BYTES_OUT,
    ],
)
def read_messages(
    data: Any,
    ends: Any,
    longest: Any,
    with_refunds: Any,
    with_cycles: Any,
    numbers: Any,
    methods: Any,
    method_ends: Any,
    payloads: Any,
    payload_ends: Any,
    refused: Any,
) -> Any:
    """Read messages of at most ``longest`` bytes; set ``refused`` for rejected ones.

    Rejected are non-canonical messages and those without a row form.

    ``with_refunds``, ``with_cycles``: the version has refunds, and cycles in fields of their own. ``methods`` and
    ``payloads`` have room for all of ``data``. ``method_ends[0]`` and ``payload_ends[0]`` are 0; the others are set to
    the end of each name or payload. A rejected message has empty ones, and zeros.

    Returns:
        The number of rejected messages.
    """
    source, names, blobs = address_of(data), address_of(methods), address_of(payloads)
    wrong = 0
    at: Any
    name: Any
    blob: Any
    name_size: Any
    blob_size: Any
    left: Any
    for row in range(len(ends) - 1):
        at, end = np.int64(ends[row]), np.int64(ends[row + 1])
        size = end - at
        kind, code, deadline, depth, start = 0, np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
        sender, callback, high, low = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
        name, name_size, blob, blob_size = 0, 0, 0, 0
        # Message map by kind, then the map of its fields.
        if size < 3 or size > longest or data[at] != MAP + 1:
            at = NOT_FOUND
        elif data[at + 1] == 0:
            kind = REQUEST
        elif data[at + 1] == 1:
            kind = RESPONSE
        elif data[at + 1] == 2 and with_refunds:
            kind = REFUND
        else:
            at = NOT_FOUND
        fields, at = get_head(data, at + 2 if at >= 0 else at, end, MAP)
        receiver, at = get_canister(data, at, end, 0)
        if kind == REFUND:
            high, low, at = get_cycles(data, get_field(data, at, end, 1), end)
            left = np.int64(fields) - 2
        else:
            sender, at = get_canister(data, at, end, 1)
            callback, at = get_number(data, at, end, 2)
            if not with_cycles:
                funds, at = get_head(data, get_field(data, at, end, 3), end, MAP)
                if funds != np.uint64(1):
                    at = NOT_FOUND
                high, low, at = get_cycles(data, get_field(data, at, end, 0), end)
            if kind == REQUEST:
                name_size, at = get_string(data, at, end, 4, TEXT)
                name = at
                if at >= 0 and not is_utf8(data, name, name + name_size):
                    at = NOT_FOUND
                blob_size, at = get_string(data, at + name_size if at >= 0 else at, end, 5, BYTE_STRING)
                blob = at
            else:
                answers, at = get_head(data, get_field(data, at, end, 4), end, MAP)
                if answers != np.uint64(1) or at < 0 or at >= end:
                    at = NOT_FOUND
                elif data[at] == 0:
                    blob_size, at = get_string(data, at, end, 0, BYTE_STRING)
                    blob = at
                else:
                    parts, at = get_head(data, get_field(data, at, end, 1), end, MAP)
                    code, at = get_number(data, at, end, 0)
                    if parts != np.uint64(2) or code < np.uint64(1) or code > np.uint64(LAST_CODE):
                        at = NOT_FOUND
                    blob_size, at = get_string(data, at, end, 1, TEXT)
                    blob = at
                    if at >= 0 and not is_utf8(data, blob, blob + blob_size):
                        at = NOT_FOUND
            if at >= 0:
                at += blob_size
            if with_cycles:
                high, low, at = get_cycles(data, get_field(data, at, end, 6 if kind == REQUEST else 5), end)
            left = np.int64(fields) - (7 if kind == REQUEST else 5)
            if kind == REQUEST:
                tree, at = get_head(data, get_field(data, at, end, 7), end, MAP)
                if tree != np.uint64(2):
                    at = NOT_FOUND
                depth, at = get_number(data, at, end, 0)
                start, at = get_number(data, at, end, 1)
            if left == 1:
                deadline, at = get_number(data, at, end, 8 if kind == REQUEST else 6)
                if deadline == np.uint64(0) or deadline > np.uint64(MOST_DEADLINE):
                    at = NOT_FOUND
                left = 0
        good = at == end and left == 0
        refused[row] = not good
        name_at, blob_at = np.int64(method_ends[row]), np.int64(payload_ends[row])
        if good:
            if name_size:
                copy(names + name_at, source + name, name_size)
            copy(blobs + blob_at, source + blob, blob_size)
        else:
            wrong += 1
            kind, code, deadline, depth, start = 0, np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
            sender, receiver, callback = np.uint64(0), np.uint64(0), np.uint64(0)
            high, low, name_size, blob_size = np.uint64(0), np.uint64(0), 0, 0
        method_ends[row + 1], payload_ends[row + 1] = name_at + name_size, blob_at + blob_size
        numbers[KIND, row], numbers[SENDER, row], numbers[RECEIVER, row] = np.uint64(kind), sender, receiver
        numbers[CALLBACK, row], numbers[HIGH, row], numbers[LOW, row] = callback, high, low
        numbers[CODE, row], numbers[DEADLINE, row] = code, deadline
        numbers[DEPTH, row], numbers[START, row] = depth, start
    return wrong
