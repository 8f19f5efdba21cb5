"""Sizes of slices in bytes, exact, without encoding them: ``count_bytes`` (IC reference 2.9, 2.10).

Builder and validator must come to the same number, so that no honest payload is refused for its size. Where a slice
has several substreams, each counts as a stream of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.ledger import Kind
from causeway.model.order import U64, stable_order
from causeway.proofs.ic.versions import CYCLES_FIELDS, CertificationVersion
from causeway.protocols.ic.state import opposite
from causeway.protocols.messages import LANE, method_lengths, payload_lengths

CERTIFICATION_BYTES = 8 + 32 + 48
"""Height, hash, and a signature of 48 bytes (D-3)."""

PRUNED, KNOWN, FORK, MESSAGES_LABEL = 36, 16, 7, 10
"""Bytes of the parts of a witness: a pruned node, a known node under an index, a fork, the label ``messages``."""

HEADER_WITNESS = 214

LEAST_BYTES = 1 << 10
"""Less room than this is worth neither a request nor messages in a payload (X-5, X-15)."""

CANISTER_FIELD = 1 + 1 + 10
"""Bytes of a field that is a canister id: its key, the length, ten bytes."""

FUNDS_MAP = 1 + 1
"""Bytes of the map, and its one key, that cycles stood in before they had fields of their own."""

CALL_TREE_FIELD = 1 + 1 + 2 + 2
"""Bytes of the field of a request that says where in a tree of calls it is; here always depth 0 at time 0."""


def count_bytes(slices: Frame, header_bytes: U64, counts: U64, message_bytes: U64) -> U64:
    """Return the size of each slice (one substream a row), payload, witness and certification together.

    ``slices``: ``begin``, ``end`` of the stream and ``message_begin``. ``header_bytes``: of the encoded header.
    ``counts``: how many messages it has from ``message_begin`` on; ``message_bytes``: of those, encoded.
    """
    some = counts > 0
    payload = np.where(some, 71 + header_bytes + message_bytes + np.uint64(16) * counts, 49 + header_bytes)
    begin, end, first = slices["begin"], slices["end"], slices["message_begin"]
    total, right = end - begin, end - first - counts
    # `R` of 2.10, whose ones are the pruned subtrees right of the messages.
    one = np.uint64(1)
    rem = total - right
    length = _bit_length(total ^ rem)
    power = np.where(length < 64, one << np.minimum(length, np.uint64(63)), np.uint64(0))
    zeros = np.bitwise_count((total & (~total + one)) - one)  # ctz; 64 for 0
    whole = zeros + (np.uint64(64) - _bit_length(right)) >= 64
    found: U64 = np.where(whole, right, power - (rem & (power - one)))
    pruned = np.bitwise_count(first - begin).astype(np.uint64) + np.bitwise_count(found)
    nodes = np.uint64(PRUNED) * pruned + np.uint64(KNOWN) * counts + np.uint64(FORK) * (pruned + counts - np.uint64(1))
    bare = (counts == 0) | (total == 0)
    sizes: U64 = (
        payload
        + CERTIFICATION_BYTES
        + np.where(bare, np.uint64(HEADER_WITNESS), HEADER_WITNESS - PRUNED + MESSAGES_LABEL + nodes)
    )
    return sizes


def _bit_length(numbers: U64) -> U64:
    filled = numbers.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(shift)
    return np.bitwise_count(filled).astype(np.uint64)


def number_bytes(numbers: npt.NDArray[Any]) -> U64:
    """Return how many bytes each number takes as packed CBOR; as many take the lengths of texts, bytes and arrays."""
    return np.array([1, 2, 3, 5, 9], dtype=np.uint64)[
        np.searchsorted(np.array([24, 2**8, 2**16, 2**32], dtype=np.uint64), numbers, side="right")
    ]


def header_lengths(slices: Frame, rejects: Frame) -> U64:
    """Return the length of each slice's encoded header.

    ``slices``: ``begin``, ``end``, ``signals_end`` by lane; ``rejects``: the REJECT signals in streams, each about a
    message that came the other way (``REJECTS_SCHEMA``).
    """
    lengths: U64 = np.full(len(slices), 1 + 3, dtype=np.uint64)  # a map, and three keys
    for name in ("begin", "end", "signals_end"):
        lengths = lengths + number_bytes(slices[name])
    rows = lookup(slices, opposite(rejects), LANE, ordered=False)
    given = rejects.filter(rows >= 0)
    if len(given) == 0:
        return lengths
    row = rows[rows >= 0]
    by_reason = stable_order(row.astype(np.uint64), given["reason"], given["index"])
    row, reason, index = row[by_reason], given["reason"][by_reason], given["index"][by_reason]
    last = np.ones(len(row), dtype=bool)
    last[:-1] = (row[1:] != row[:-1]) | (reason[1:] != reason[:-1])
    following = np.where(last, slices["signals_end"][row], np.append(index[1:], np.uint64(0)))
    added = np.zeros(len(slices), dtype=np.uint64)
    np.add.at(added, row, number_bytes(following - index))
    ends = np.flatnonzero(last)
    counts = np.diff(np.append(np.int64(-1), ends)).astype(np.uint64)
    np.add.at(added, row[ends], np.uint64(1) + number_bytes(counts))  # a key and an array for each reason
    return lengths + np.where(added > 0, added + np.uint64(2), np.uint64(0))  # the key of the field, and a map


def message_lengths(messages: Frame, version: CertificationVersion) -> U64:
    """Return the length of each encoded message of a stream (``MESSAGE_COLUMNS``)."""
    request = messages["kind"] == Kind.REQUEST
    body = payload_lengths(messages)
    data = body + number_bytes(body)
    high, low, code = messages["amount_high"], messages["amount_low"], messages["code"].astype(np.uint64)
    cycles = 1 + 1 + number_bytes(low) + np.where(high > 0, 1 + number_bytes(high), np.uint64(0))
    if version < CYCLES_FIELDS:
        cycles = cycles + np.uint64(FUNDS_MAP)
    shared = 3 + 2 * CANISTER_FIELD + 1 + number_bytes(messages["callback"]) + 1 + cycles
    deadline = messages["deadline"].astype(np.uint64)
    shared = shared + np.where(deadline > 0, 1 + number_bytes(deadline), np.uint64(0))
    method_bytes = method_lengths(messages)
    asked = 1 + method_bytes + number_bytes(method_bytes) + 1 + data + CALL_TREE_FIELD
    answered = 1 + 1 + 1 + np.where(code > 0, 1 + 1 + number_bytes(code) + 1 + data, data)
    lengths: U64 = shared + np.where(request, asked, answered)
    return lengths
