"""Many existence proofs under one root, verified column by column.

Proofs of IAVL and Tendermint stores have steps of a few fixed forms. Where a proof is made of those forms in their
canonical encoding, it is read and hashed together with all others, one layer of every path at a time. Whatever is of
any other form, or does not hold, goes through ``verify_membership``, one by one: verdicts and errors are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.hashing import DIGEST_BYTES, Digests, binary_rows, sha256_each, sha256_in_pieces, sha256_rows
from causeway.proofs.ics23.columns import uvarints
from causeway.proofs.ics23.proof_specs import SpecRules, rules_of
from causeway.proofs.ics23.verify import verify_membership
from causeway.proofs.limits import MAX_MESSAGE_BYTES
from causeway.proofs.wire.ics23_pb2 import ProofSpec

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Column: TypeAlias = "pa.BinaryArray | Sequence[bytes]"

PIECE = 1 << 15
"""Proofs are verified in pieces of this many, so that a layer's preimages stay small."""

FIRST_FIELD, SECOND_FIELD, THIRD_FIELD, FOURTH_FIELD, FIFTH_FIELD = 0x0A, 0x12, 0x1A, 0x22, 0x2A
"""Protobuf tags of length-delimited fields 1 to 5."""

LEAF_OPERATION = np.array([0x08, 1, 0x18, 1, 0x20, 1, FIFTH_FIELD], dtype=np.uint8)
"""A leaf operation up to its prefix: hash and prehash of the value SHA-256, length VAR_PROTO."""

LEAF_PREFIX = b"\x00"
LENGTH_OF_HASH = 0x20
HASH_IS_SHA256 = (0x08, 1)

LEFT_CHILD = np.array([FOURTH_FIELD, 39, *HASH_IS_SHA256, SECOND_FIELD, 1, 1, THIRD_FIELD, 32], dtype=np.uint8)
"""A Tendermint step, up to the sibling, whose child is the left one."""

RIGHT_CHILD = np.array([FOURTH_FIELD, 37, *HASH_IS_SHA256, SECOND_FIELD, 33, 1], dtype=np.uint8)
"""A Tendermint step, up to the sibling, whose child is the right one."""

IAVL_PREFIX = 6
"""Bytes of an IAVL step before its prefix: tags, lengths and the hash operation."""

IAVL_NUMBERS = 11
"""Most bytes that height, size and version take together."""

IAVL_SUFFIX = 33
IAVL_SIBLING = 34
"""Bytes of an IAVL prefix after its numbers when the child is the right one."""

LONGEST_STEP = IAVL_PREFIX + IAVL_NUMBERS + 1 + 2 + IAVL_SUFFIX
LONGEST_VERSION = 9
"""Bytes of a version that surely fits 64 bits."""


def verify_many(spec: ProofSpec, root: bytes, keys: Column, values: Column, proofs: Column) -> dict[int, ProofError]:
    """Check, for every row, that its value is stored under its key in the tree of ``root``.

    Args:
        spec: the store's proof spec.
        root: the root of all proofs.
        keys: what is looked up, a row each.
        values: what is claimed to be stored there.
        proofs: an encoded CommitmentProof each.

    Returns:
        By row, the error that ``verify_membership`` raises for it. A row that is not in it holds.

    Raises:
        InvalidInput: the columns are not equally long, or one has nulls.
    """
    columns = [_column(column) for column in (keys, values, proofs)]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1 or any(column.null_count for column in columns):
        raise InvalidInput(f"keys, values and proofs must be equally many and not null, not {sorted(lengths)} rows")
    rules = rules_of(spec)
    refused: dict[int, ProofError] = {}
    for start in range(0, len(columns[0]), PIECE):
        piece = [column.slice(start, PIECE) for column in columns]
        holds = _verify_piece(rules, root, *piece)
        for row in np.flatnonzero(~holds).tolist():
            key, value, proof = (column[row].as_py() for column in piece)
            try:
                verify_membership(spec, root, proof, key, value)
            except ProofError as error:
                refused[start + row] = error
    return refused


def _column(column: Column) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.cast(pa.large_binary()) if isinstance(column, pa.Array) else pa.array(column, pa.large_binary())


@dataclass(slots=True)
class _Cursor:
    """How far each of some proofs has been read.

    Attributes:
        data: the proofs, one after the other, with room for a step after the last.
        at: the position of the next byte of each.
        good: which have had the expected form so far.
    """

    data: Bytes
    at: Positions
    good: Flags

    def expect(self, byte: int) -> None:
        """Read one byte that must be ``byte``."""
        self.good &= self.data[self.at] == byte
        self._advance(1)

    def length(self) -> Positions:
        """Read a length of one to three bytes in its shortest form; 0 where there is none."""
        first, second, third = (self.data[self.at + position].astype(np.int64) for position in range(3))
        width = 1 + (first >= 0x80) + ((first >= 0x80) & (second >= 0x80))
        number = (first & 0x7F) + np.where(width > 1, (second & 0x7F) << 7, 0) + np.where(width > 2, third << 14, 0)
        # The last byte has no bit for more to come, and is not there for nothing.
        self.good &= (width < 3) | (third < 0x80)
        self.good &= (number >> 7 * (width - 1) > 0) | (width == 1)
        self._advance(width)
        return np.where(self.good, number, 0)

    def skip(self, lengths: Positions) -> Positions:
        """Step over ``lengths`` bytes and return where they begin."""
        begins = self.at
        self._advance(lengths)
        return begins

    def _advance(self, by: int | Positions) -> None:
        # Beyond the end there is nothing to read: what gets there stays there, and is found out by its place.
        self.at = np.minimum(self.at + by, len(self.data) - LONGEST_STEP)


def _verify_piece(rules: SpecRules, root: bytes, keys: pa.Array, values: pa.Array, proofs: pa.Array) -> Flags:
    """Return which rows hold, as far as their form is the expected one."""
    if not (rules.is_tendermint or rules.is_iavl) or rules.leaf_prefix != LEAF_PREFIX or len(root) != DIGEST_BYTES:
        return np.zeros(len(keys), dtype=np.bool_)
    data, begins, ends = _buffer(proofs, LONGEST_STEP + 3)
    cursor = _Cursor(data, begins.copy(), np.ones(len(proofs), dtype=np.bool_))
    cursor.expect(FIRST_FIELD)
    whole = cursor.length()
    cursor.good &= (cursor.at + whole == ends) & (ends - begins <= MAX_MESSAGE_BYTES)
    for column, tag in ((keys, FIRST_FIELD), (values, SECOND_FIELD)):
        cursor.expect(tag)
        found = cursor.length()
        claimed, claimed_begins, claimed_ends = _buffer(column)
        here = cursor.skip(found)
        cursor.good &= (found == claimed_ends - claimed_begins) & (found > 0) & (here + found <= ends)
        cursor.good &= _equal(data, here, claimed, claimed_begins, np.where(cursor.good, found, 0))
    cursor.expect(THIRD_FIELD)
    prefixes = _leaf_prefixes(rules, cursor)
    cursor.good &= cursor.at <= ends
    rows = np.flatnonzero(cursor.good)
    nodes = _leaves(keys.take(pa.array(rows)), values.take(pa.array(rows)), prefixes.take(pa.array(rows)))
    at, ends = cursor.at[rows], ends[rows]
    holds = np.zeros(len(proofs), dtype=np.bool_)
    step = _iavl_layer if rules.is_iavl else _tendermint_layer
    windows = np.lib.stride_tricks.sliding_window_view(data, LONGEST_STEP)
    trusted = np.frombuffer(root, dtype=np.uint8)
    depth = 0
    while len(rows):
        done = at == ends
        if rules.min_depth <= depth <= rules.max_depth:
            holds[rows[done]] = (nodes[done] == trusted).all(axis=1)
        going = np.flatnonzero(~done)
        if depth >= rules.max_depth:
            break
        depth += 1
        read, good, hashed = step(windows[at[going]], nodes[going], depth)
        good &= at[going] + read <= ends[going]
        rows, at, ends = rows[going][good], (at[going] + read)[good], ends[going][good]
        nodes = hashed(good)
    return holds


Layer = tuple[Positions, Flags, Callable[[Flags], Digests]]
"""Of one layer's steps: their lengths, which have the expected form, and how to hash those that are chosen."""


def _tendermint_layer(steps: Bytes, nodes: Digests, layer: int) -> Layer:
    left = (steps[:, : len(LEFT_CHILD)] == LEFT_CHILD).all(axis=1)
    right = (steps[:, : len(RIGHT_CHILD)] == RIGHT_CHILD).all(axis=1)
    read = np.where(left, len(LEFT_CHILD), len(RIGHT_CHILD)) + DIGEST_BYTES

    def hashed(chosen: Flags) -> Digests:
        preimages = np.empty((len(steps), 1 + 2 * DIGEST_BYTES), dtype=np.uint8)
        preimages[:, 0] = 1
        one, two = preimages[:, 1 : 1 + DIGEST_BYTES], preimages[:, 1 + DIGEST_BYTES :]
        one[left], two[left] = nodes[left], steps[left, len(LEFT_CHILD) : len(LEFT_CHILD) + DIGEST_BYTES]
        one[right], two[right] = steps[right, len(RIGHT_CHILD) : len(RIGHT_CHILD) + DIGEST_BYTES], nodes[right]
        return sha256_rows(preimages[chosen])

    return read, left | right, hashed


def _iavl_layer(steps: Bytes, nodes: Digests, layer: int) -> Layer:
    length, prefix = steps[:, 1].astype(np.int64), steps[:, IAVL_PREFIX - 1].astype(np.int64)
    left = (prefix >= 4) & (prefix <= IAVL_NUMBERS + 1) & (length == 4 + prefix + 2 + IAVL_SUFFIX)
    right = (prefix > IAVL_SIBLING) & (prefix <= IAVL_SIBLING + IAVL_NUMBERS) & (length == 4 + prefix)
    good = (left | right) & (steps[:, 0] == FOURTH_FIELD) & (steps[:, 4] == SECOND_FIELD)
    good &= (steps[:, 2:4] == np.array(HASH_IS_SHA256, dtype=np.uint8)).all(axis=1)
    numbers = np.where(left, prefix - 1, prefix - IAVL_SIBLING)
    good &= _are_numbers(steps[:, IAVL_PREFIX : IAVL_PREFIX + IAVL_NUMBERS], numbers, layer)
    suffix = np.where(left & good, IAVL_PREFIX + prefix, 0)
    everything = np.arange(len(steps))
    good &= right | ((steps[everything, suffix] == THIRD_FIELD) & (steps[everything, suffix + 1] == IAVL_SUFFIX))

    def hashed(chosen: Flags) -> Digests:
        # One block of preimages for each length of a prefix: a prefix's length says on which side the child is.
        order, blocks = [], []
        for size in np.unique(prefix[chosen]).tolist():
            same = np.flatnonzero(chosen & (prefix == size))
            parts = [steps[same, IAVL_PREFIX : IAVL_PREFIX + size], nodes[same]]
            if size < IAVL_SIBLING:
                begin = IAVL_PREFIX + size + 2
                parts.append(steps[same, begin : begin + IAVL_SUFFIX])
            order.append(same)
            blocks.append(np.concatenate(parts, axis=1))
        return _hash_blocks(blocks, order, chosen)

    return 2 + length, good, hashed


def _are_numbers(header: Bytes, lengths: Positions, layer: int) -> Flags:
    """Return whether the first ``lengths`` bytes of each row are three varints, none negative, the first >= layer."""
    inside = np.arange(header.shape[1]) < lengths[:, None]
    last = (header < 0x80) & inside
    begins = inside.copy()
    begins[:, 1:] &= last[:, :-1]
    even = (header & 1) == 0
    first = header[:, 0]
    good: Flags = (
        (last.sum(axis=1) == 3)
        & last[np.arange(len(header)), np.clip(lengths - 1, 0, header.shape[1] - 1)]
        & (even | ~begins).all(axis=1)
        # A height of 64 or more has two bytes; such proofs go one by one.
        & (first < 0x80)
        & (first >> 1 >= layer)
    )
    return good


def _hash_blocks(blocks: list[Bytes], order: list[Positions], chosen: Flags) -> Digests:
    """Return the digests of the rows of all blocks, put back where ``order`` says, of the chosen ones."""
    nodes = np.empty((len(chosen), DIGEST_BYTES), dtype=np.uint8)
    if blocks:
        joined = pa.concat_arrays([binary_rows(block) for block in blocks])
        nodes[np.concatenate(order)] = sha256_in_pieces(len(joined), lambda start, stop: joined[start:stop])
    return nodes[chosen]


def _leaf_prefixes(rules: SpecRules, cursor: _Cursor) -> pa.BinaryArray:
    """Read the leaf operations and return their prefixes."""
    length = cursor.length()
    for byte in LEAF_OPERATION.tolist():
        cursor.expect(byte)
    size = cursor.length()
    cursor.good &= length == len(LEAF_OPERATION) + 1 + size
    begin = cursor.skip(size)
    if rules.is_tendermint:
        cursor.good &= (size == len(LEAF_PREFIX)) & (cursor.data[begin] == LEAF_PREFIX[0])
        return pa.array([LEAF_PREFIX], pa.binary()).take(pa.array(np.zeros(len(begin), dtype=np.int64)))
    # Height 0, size 1, a version: the version alone may have more than one byte.
    cursor.good &= (size > 2) & (size <= 2 + LONGEST_VERSION)
    cursor.good &= (cursor.data[begin] == 0) & (cursor.data[begin + 1] == 2) & (cursor.data[begin + 2] % 2 == 0)
    size = np.where(cursor.good, size, 0)
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int32)
    flat = cursor.data[_ragged(begin, size)]
    more = flat >= 0x80
    ends = offsets[1:][size > 0] - 1
    good = np.zeros(len(size), dtype=np.bool_)
    # Only the last byte of the version, and the height and size before it, have no bit for more to come.
    continued = np.add.reduceat(more, offsets[:-1][size > 0]) if len(ends) else np.zeros(0, dtype=np.int64)
    good[size > 0] = ~more[ends] & (continued == size[size > 0] - 3)
    cursor.good &= good
    return pa.BinaryArray.from_buffers(pa.binary(), len(size), [None, pa.py_buffer(offsets), pa.py_buffer(flat)])


def _leaves(keys: pa.Array, values: pa.Array, prefixes: pa.BinaryArray) -> Digests:
    """Return the leaves' hashes: prefix, length and key, length and hash of the value."""
    if not len(keys):
        return np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    _, begins, ends = _buffer(keys)
    hashes = np.empty((len(keys), 1 + DIGEST_BYTES), dtype=np.uint8)
    hashes[:, 0] = LENGTH_OF_HASH
    hashes[:, 1:] = sha256_each(pc.cast(values, pa.binary()))
    lengths = uvarints(ends - begins)
    key = pc.cast(keys, pa.binary())
    preimages = pc.binary_join_element_wise(prefixes, lengths, key, binary_rows(hashes), pa.scalar(b"", pa.binary()))
    return sha256_each(preimages)


def _buffer(column: pa.Array, room: int = 0) -> tuple[Bytes, Positions, Positions]:
    """Return a column's bytes, with ``room`` zeros after them, and where each row begins and ends."""
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, offsets_buffer, data_buffer = column.buffers()
    kept = np.frombuffer(offsets_buffer, dtype=width)[column.offset : column.offset + len(column) + 1]
    offsets: Positions = kept.astype(np.int64)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.empty(0, dtype=np.uint8)
    if room:
        data = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(room, dtype=np.uint8)])
        offsets = offsets - offsets[0]
    return data, offsets[:-1], offsets[1:]


def _ragged(begins: Positions, lengths: Positions) -> Positions:
    """Return the positions begins[i], begins[i] + 1, ... of ``lengths[i]`` bytes, for every row in turn."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(begins - before, lengths) + np.arange(int(lengths.sum()))


def _equal(one: Bytes, one_at: Positions, other: Bytes, other_at: Positions, lengths: Positions) -> Flags:
    """Return, for every row, whether its ``lengths`` bytes at two positions are the same."""
    different = one[_ragged(one_at, lengths)] != other[_ragged(other_at, lengths)]
    wrong = np.repeat(np.arange(len(lengths)), lengths)[different]
    equal = np.ones(len(lengths), dtype=np.bool_)
    equal[wrong] = False
    return equal
