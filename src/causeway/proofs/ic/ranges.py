"""Which canisters a subnet hosts, as a delegation shows it (IC reference 2.9 and 7, certificates.json).

A leaf of ranges is a CBOR list of pairs of canister ids, both ends included. It stands at
``subnet / <subnet id> / canister_ranges``, or, from certification version V21 on, in pieces at
``canister_ranges / <subnet id> / <first canister id of the piece>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from causeway.proofs.ic.cbor_reader import ARRAY, SELF_DESCRIBED, CborReader, cbor_bytes, cbor_head
from causeway.proofs.ic.errors import CanisterOutOfRange, CanisterRangesNotProven, MalformedRanges
from causeway.proofs.ic.hash_tree import HashTree, leaves
from causeway.proofs.ic.lookup import Status, lookup_path, lookup_subtree

MAX_ID_BYTES = 29
"""Longest id of a canister or subnet."""

CANISTER_RANGES = b"canister_ranges"
SUBNET = b"subnet"

Range: TypeAlias = tuple[bytes, bytes]
"""The first and the last canister id, both included; ids are compared as bytes."""


def encode_ranges(ranges: Iterable[Range]) -> bytes:
    """Return a leaf of ``ranges``, with the self-describing tag that deployed leaves carry."""
    pairs = [cbor_head(ARRAY, 2) + cbor_bytes(first) + cbor_bytes(last) for first, last in ranges]
    return SELF_DESCRIBED + cbor_head(ARRAY, len(pairs)) + b"".join(pairs)


def decode_ranges(data: bytes) -> tuple[Range, ...]:
    """Return the ranges that the leaf ``data`` lists, with or without the self-describing tag.

    Raises:
        MalformedRanges: it lists something else, an id of more than 29 bytes or a range that ends before its beginning.
    """
    reader = CborReader(data, "the leaf of canister ranges", MalformedRanges)
    reader.skip_self_description()
    ranges = []
    for _ in range(reader.head(ARRAY)):
        if reader.head(ARRAY) != 2:
            raise reader.wrong("has a range that is not a pair")
        first, last = reader.byte_string(), reader.byte_string()
        if max(len(first), len(last)) > MAX_ID_BYTES or first > last:
            raise reader.wrong(f"has a range from {first[:32].hex()} to {last[:32].hex()}")
        ranges.append((first, last))
    reader.end()
    return tuple(ranges)


def canister_ranges(tree: HashTree, subnet_id: bytes) -> tuple[Range, ...] | None:
    """Return the ranges of ``subnet_id`` that a delegation's ``tree`` shows, ascending; None when it shows none.

    Pieces that are pruned away are missing from the result: it says where canisters are, not where they are not. Where
    the tree has pieces of the newer form, the older leaf is not read, as deployed clients do.

    Raises:
        MalformedRanges: a leaf is no list of ranges.
    """
    pieces = lookup_subtree(tree, [CANISTER_RANGES, subnet_id]).subtree
    if pieces is not None:
        shown = [value for path, value in leaves(pieces) if len(path) == 1]
        if shown:
            return tuple(sorted(entry for value in shown for entry in decode_ranges(value)))
    older = lookup_path(tree, [SUBNET, subnet_id, CANISTER_RANGES])
    return tuple(sorted(decode_ranges(older.value))) if older.status is Status.FOUND else None


def require_in_ranges(tree: HashTree, subnet_id: bytes, canister_id: bytes) -> Range:
    """Return the range of ``subnet_id`` in a delegation's ``tree`` that has ``canister_id``.

    Raises:
        CanisterRangesNotProven: the tree shows no ranges of the subnet.
        CanisterOutOfRange: none of those shown has the canister.
        MalformedRanges: a leaf is no list of ranges.
    """
    ranges = canister_ranges(tree, subnet_id)
    if ranges is None:
        raise CanisterRangesNotProven(f"the delegation shows no canister ranges of subnet {subnet_id.hex()}")
    for first, last in ranges:
        if first <= canister_id <= last:
            return first, last
    raise CanisterOutOfRange(f"canister {canister_id.hex()} is in none of the ranges shown of subnet {subnet_id.hex()}")


def range_pieces(ranges: Sequence[Range], size: int) -> Mapping[bytes, bytes]:
    """Return the subtree ``canister_ranges / <subnet id>``: leaves of up to ``size`` ranges under their first id."""
    ordered = sorted(ranges)
    return {ordered[start][0]: encode_ranges(ordered[start : start + size]) for start in range(0, len(ordered), size)}
