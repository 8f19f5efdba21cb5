"""Tries built by columns: the nodes of one height are encoded together and hashed in one go.

What is kept afterwards is the keys, the values, the shape and one reference a node. That is enough to write any node
again, so a proof for any key is made without building anything anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.order import Groups, Rows
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.substrate.byte_columns import (
    LARGE_BINARY,
    Bytes,
    data_of,
    ends_of,
    from_parts,
    join,
    offsets_of,
    positions,
    rows_up_to,
)
from causeway.proofs.substrate.compact import compact_column
from causeway.proofs.substrate.hashing import blake2_256, blake2_256_each
from causeway.proofs.substrate.nibbles import MAX_KEY_BYTES, packed_slices, to_nibbles
from causeway.proofs.substrate.node import (
    HASHED_VALUE_BYTES,
    WIDTH,
    Kind,
    StateVersion,
    encode_header,
    encode_node,
    reference_of,
)
from causeway.proofs.substrate.structure import Structure, build_structure

PIECE = 1 << 16
"""Nodes are encoded in pieces of this many, so that what is written and hashed is still in the cache."""

FEW = 16
"""Nodes of one height are written one by one while there are no more of them than this: columns have a fixed cost."""

_REFERENCE_BYTES = 1 + DIGEST_BYTES
"""A reference as its parent holds it: a length, and up to 32 bytes."""

_DIGEST_LENGTH = DIGEST_BYTES << 2


@dataclass(frozen=True, slots=True)
class TrieColumns:
    """Tries over groups of sorted keys, with the references of all their nodes.

    Attributes:
        keys, values: one row an entry, sorted by key and unique in each group.
        version: the layout.
        shape: the nodes; numbers as in ``Structure``.
        references: for each node, how its parent refers to it: a compact length and the bytes, shape (nodes, 33).
        roots: the root of each group, shape (groups, 32).
    """

    keys: pa.LargeBinaryArray
    values: pa.LargeBinaryArray
    version: StateVersion
    shape: Structure
    references: Bytes
    roots: Digests

    def key(self, row: int) -> bytes:
        """Return the key of an entry."""
        return _value_at(self.keys, row)

    def value(self, row: int) -> bytes:
        """Return the value of an entry."""
        return _value_at(self.values, row)

    def reference(self, node: int) -> bytes:
        """Return the reference of a node: a digest, or its encoding if that has fewer than 32 bytes."""
        row = self.references[node]
        return bytes(row[1 : 1 + (int(row[0]) >> 2)])

    def parts(self, node: int) -> tuple[bytes, bytes | None, list[int | None] | None]:
        """Return a node's partial key (nibbles, one a byte), its value, and its children's numbers by nibble."""
        shape, count = self.shape, len(self.keys)
        start = int(shape.starts[node])
        if node < count:
            return to_nibbles(self.key(node))[start:], self.value(node), None
        branch = node - count
        children: list[int | None] = [None] * WIDTH
        span = slice(shape.child_ends[branch], shape.child_ends[branch + 1])
        for nibble, child in zip(shape.child_nibbles[span].tolist(), shape.children[span].tolist(), strict=True):
            children[nibble] = child
        row = int(shape.values[branch])
        partial = to_nibbles(self.key(int(shape.first_keys[node])))[start : int(shape.depths[branch])]
        return partial, None if row < 0 else self.value(row), children

    def encoding(self, node: int) -> bytes:
        """Return the encoding of a node."""
        partial, value, children = self.parts(node)
        below = None if children is None else [None if child is None else self.reference(child) for child in children]
        return encode_node(partial, value, below, self.version)


def sorted_entries(keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> tuple[pa.Array, pa.Array]:
    """Return the entries in ascending order of their keys; of entries with the same key, the last one given.

    Raises:
        InvalidInput: there are more keys than values, or the other way round.
    """
    if len(keys) != len(values):
        raise InvalidInput(f"{len(keys)} keys are given with {len(values)} values, the same number is needed")
    if len(keys) > 1 and not _ascending(keys):
        order = pc.array_sort_indices(keys)
        keys = keys.take(order)
        last = np.ones(len(keys), dtype=bool)
        last[:-1] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        if not last.all():
            keys, order = keys.filter(pa.array(last)), order.filter(pa.array(last))
        values = values.take(order)
    return keys, values


def build_columns(
    keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray, version: StateVersion, groups: Groups | None = None
) -> TrieColumns:
    """Return the tries over entries that are sorted by key and unique, in each group (all in one by default).

    Raises:
        InvalidInput: a key has more than 32,767 bytes.
    """
    count = len(keys)
    longest = int(np.diff(offsets_of(keys)).max(initial=0))
    if longest > MAX_KEY_BYTES:
        raise InvalidInput(f"a key has {longest} bytes, at most {MAX_KEY_BYTES} are allowed")
    starts = np.zeros(min(count, 1), dtype=np.int64) if groups is None else groups.starts
    shape = build_structure(keys, starts)
    columns = TrieColumns(
        keys,
        values,
        version,
        shape,
        np.zeros((count + len(shape.depths), _REFERENCE_BYTES), dtype=np.uint8),
        np.zeros((len(starts), DIGEST_BYTES), dtype=np.uint8),
    )
    leaves = np.flatnonzero(shape.starts[:count] >= 0)
    for start in range(0, len(leaves), PIECE):
        _refer(columns, leaves[start : start + PIECE], _leaf_encodings)
    by_height = count + np.argsort(shape.heights, kind="stable")
    ends = np.cumsum(np.bincount(shape.heights)) if len(by_height) else np.empty(0, dtype=np.int64)
    for level in range(1, len(ends)):
        for start in range(int(ends[level - 1]), int(ends[level]), PIECE):
            _refer(columns, by_height[start : min(start + PIECE, int(ends[level]))], _branch_encodings)
    columns.roots[:] = columns.references[shape.roots, 1:]
    for group in np.flatnonzero(columns.references[shape.roots, 0] != _DIGEST_LENGTH).tolist():
        # A root is hashed however short it is.
        digest = blake2_256(columns.reference(int(shape.roots[group])))
        columns.roots[group] = np.frombuffer(digest, dtype=np.uint8)
    return columns


Encoder = Callable[[TrieColumns, Rows], pa.LargeBinaryArray]
"""Writes the encodings of some nodes, all leaves or all branches."""


def _refer(columns: TrieColumns, nodes: Rows, encode: Encoder) -> None:
    """Write the references of nodes whose children have theirs."""
    if len(nodes) <= FEW:
        for node in nodes.tolist():
            reference = reference_of(columns.encoding(node))
            columns.references[node, 0] = len(reference) << 2
            columns.references[node, 1 : 1 + len(reference)] = np.frombuffer(reference, dtype=np.uint8)
        return
    encodings = encode(columns, nodes)
    lengths = np.diff(offsets_of(encodings))
    short = lengths < DIGEST_BYTES
    references = columns.references
    if not short.any():
        references[nodes, 0] = _DIGEST_LENGTH
        references[nodes, 1:] = blake2_256_each(encodings)
        return
    long = np.flatnonzero(~short)
    if len(long):
        references[nodes[long], 0] = _DIGEST_LENGTH
        references[nodes[long], 1:] = blake2_256_each(encodings.take(pa.array(long)))
    inline = nodes[short]
    lengths, starts = lengths[short], offsets_of(encodings)[:-1][short]
    references[inline, 0] = lengths << 2
    for place in range(int(lengths.max())):
        reaches = lengths > place
        references[inline[reaches], 1 + place] = data_of(encodings)[starts[reaches] + place]


def _leaf_encodings(columns: TrieColumns, leaves: Rows) -> pa.LargeBinaryArray:
    keys = columns.keys.take(pa.array(leaves))
    starts, stops = columns.shape.starts[leaves], 2 * np.diff(offsets_of(keys))
    hashed, value_parts = _value_parts(columns, leaves)
    kinds = np.where(hashed, Kind.LEAF_HASHED, Kind.LEAF)
    return join([_headers(kinds, stops - starts), packed_slices(keys, starts, stops), *value_parts])


def _branch_encodings(columns: TrieColumns, branches: Rows) -> pa.LargeBinaryArray:
    shape, count = columns.shape, len(columns.keys)
    numbers = branches - count
    starts, stops = shape.starts[branches], shape.depths[numbers]
    partials = packed_slices(columns.keys.take(pa.array(shape.first_keys[branches])), starts, stops)
    firsts = shape.child_ends[numbers]
    counts = shape.child_ends[numbers + 1] - firsts
    places = positions(firsts, counts)
    bits = np.left_shift(1, shape.child_nibbles[places].astype(np.uint16), dtype=np.uint16)
    edges = ends_of(counts)
    bitmaps = np.bitwise_or.reduceat(bits, edges[:-1]).astype("<u2")
    references = columns.references[shape.children[places]]
    lengths = 1 + (references[:, 0].astype(np.int64) >> 2)
    flat = rows_up_to(references, lengths)
    children = from_parts(data_of(flat), offsets_of(flat)[edges])
    values = shape.values[numbers]
    with_value = values >= 0
    kinds = np.where(with_value, Kind.BRANCH_WITH_VALUE, Kind.BRANCH)
    parts: list[pa.LargeBinaryArray] = []
    if with_value.any():
        hashed, parts = _value_parts(columns, np.where(with_value, values, 0), with_value)
        kinds = np.where(hashed, Kind.BRANCH_HASHED, kinds)
    bitmap_column = from_parts(bitmaps.view(np.uint8), np.arange(0, 2 * len(numbers) + 1, 2, dtype=np.int64))
    return join([_headers(kinds, stops - starts), partials, bitmap_column, *parts, children])


def _value_parts(
    columns: TrieColumns, rows: Rows, present: npt.NDArray[np.bool_] | None = None
) -> tuple[npt.NDArray[np.bool_], list[pa.LargeBinaryArray]]:
    """Return which values are stored by their hash, and what stands for each value in its node (two columns).

    Where ``present`` is false, there is no value, and nothing stands for it.
    """
    values = columns.values.take(pa.array(rows))
    lengths = np.diff(offsets_of(values))
    hashed = np.zeros(len(rows), dtype=bool)
    if columns.version >= StateVersion.V1:
        hashed = lengths >= HASHED_VALUE_BYTES
        if present is not None:
            hashed &= present
    prefixes = compact_column(lengths)
    absent = hashed if present is None else hashed | ~present
    if absent.any():
        nothing = pa.scalar(b"", LARGE_BINARY)
        prefixes = pc.if_else(pa.array(absent), nothing, prefixes)
        digests = np.zeros((len(rows), DIGEST_BYTES), dtype=np.uint8)
        chosen = np.flatnonzero(hashed)
        if len(chosen):
            digests[chosen] = blake2_256_each(values.take(pa.array(chosen)))
        column = rows_up_to(digests, np.where(hashed, DIGEST_BYTES, 0))
        values = pc.if_else(pa.array(absent), column, values)
    return hashed, [prefixes, values]


def _headers(kinds: npt.NDArray[np.integer], counts: Rows) -> pa.LargeBinaryArray:
    """Return the header of each node."""
    codes = (kinds.astype(np.int64) >> 4) << 16 | counts
    present = np.unique(codes)
    table = pa.array([encode_header(Kind(code >> 16 << 4), code & 0xFFFF) for code in present.tolist()], LARGE_BINARY)
    if len(present) == 1:
        return table.take(pa.array(np.zeros(len(codes), dtype=np.int64)))
    return table.take(pa.array(np.searchsorted(present, codes)))


def _ascending(keys: pa.LargeBinaryArray) -> bool:
    return bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _value_at(column: pa.LargeBinaryArray, row: int) -> bytes:
    value: bytes = column[row].as_py()
    return value
