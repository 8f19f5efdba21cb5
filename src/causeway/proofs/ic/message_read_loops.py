"""Messages of streams by columns: the loop that reads their canonical encodings (IC reference 2.9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import BOOL, BYTES, BYTES_OUT, INT64, compiled, read, written
from causeway.proofs.ic.cbor_loops import BYTE_STRING, MAP, NOT_FOUND, NUMBER, TEXT, get_field, get_head, is_utf8
from causeway.proofs.ic.memory import address_of, copy, get_word
from causeway.proofs.ic.message_write_loops import (
    CALLBACK,
    CODE,
    DEADLINE,
    DEPTH,
    HIGH,
    KIND,
    LAST_CODE,
    LOW,
    RECEIVER,
    REFUND,
    REQUEST,
    RESPONSE,
    SENDER,
    START,
)

ID_HEAD = 0x4A
"""The head of a string of ten bytes."""

MOST_DEADLINE = (1 << 32) - 1

OFFSETS, OFFSETS_OUT = read("int32"), written("int32")
TABLE_OUT = written("uint64", 2)


@compiled(allocates=False)
def get_canister(data: Any, at: Any, end: Any, key: Any) -> Any:
    """Read a field that is the id of a canister, eight bytes and 01 01; return its number and the position behind."""
    if at < 0 or at + 12 > end:
        return np.uint64(0), NOT_FOUND
    if data[at] != key or data[at + 1] != ID_HEAD or data[at + 10] != 1 or data[at + 11] != 1:
        return np.uint64(0), NOT_FOUND
    return get_word(address_of(data) + at + 2), at + 12


@compiled(allocates=False)
def get_number(data: Any, at: Any, end: Any, key: Any) -> Any:
    """Read a field that is a number."""
    return get_head(data, get_field(data, at, end, key), end, NUMBER)


@compiled(allocates=False)
def get_string(data: Any, at: Any, end: Any, key: Any, major: Any) -> Any:
    """Read a field that is a string; return its length and the position of its first byte."""
    length, at = get_head(data, get_field(data, at, end, key), end, major)
    if at < 0 or length > np.uint64(end - at):
        return 0, NOT_FOUND
    return np.int64(length), at


@compiled(allocates=False)
def get_cycles(data: Any, at: Any, end: Any) -> Any:
    """Read an amount of cycles: its halves, and the position behind it."""
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


@compiled(
    INT64,
    [BYTES, OFFSETS, INT64, BOOL, BOOL, TABLE_OUT, BYTES_OUT, OFFSETS_OUT, BYTES_OUT, OFFSETS_OUT, BYTES_OUT],
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
    """Read messages of at most ``longest`` bytes; ``refused`` is set where one is not canonical, or no row of columns.

    ``with_refunds``, ``with_cycles``: whether the version has refunds, and cycles in fields of their own.
    ``methods`` and ``payloads`` have room for all of ``data``; ``method_ends[0]`` and ``payload_ends[0]`` are 0, of the
    others each is set to where a name or payload ends. A message that is refused has empty ones, and zeros.

    Returns:
        How many are refused.
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
        # A message in a map, by its kind, and the map of its fields.
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
