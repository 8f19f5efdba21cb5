"""Compute roots of ordered lists: R of the ICMP reference, 2.1 and 2.3.

R(L) is the root of the trie { Compact(i) -> L[i] }. Compact integers do not sort like numbers, so the trie's order
differs from the list's above index 63. Queues use layout V0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_slices
from causeway_proofs.order import Groups
from causeway_proofs.substrate.byte_columns import byte_column, column_data, column_offsets, encode_compact
from causeway_proofs.substrate.node import EMPTY_ROOT, HASHED_VALUE_BYTES, WIDTH, StateVersion, plain_root

_FEW = 128
"""Values below which no compiled loops are loaded."""

_PIECE = 1 << 13
"""Values of the lists processed at a time, so that a piece stays in the cache."""

_MOST = 1 << 30
"""Exclusive bound of a list's length; keys of larger indices are longer."""

_HASH = HashFunction.BLAKE2B_256


def ordered_key(index: int) -> bytes:
    """Return the key of index ``index``: its compact encoding."""
    return encode_compact(index)


def ordered_root(values: pa.Array | Sequence[bytes], version: StateVersion = StateVersion.V0) -> bytes:
    """Return R of a list.

    Args:
        values: the byte strings of the list.
        version: layout of the trie.

    Returns:
        The root, 32 bytes; ``EMPTY_ROOT`` for the empty list.

    Raises:
        InvalidInput: a value is null or not a byte string.
    """
    column = byte_column(values)
    if len(column) < _FEW:
        return plain_root({ordered_key(index): value for index, value in enumerate(column.to_pylist())}, version)
    whole = Groups(np.zeros(1, dtype=np.int64), np.array([len(column)]), len(column))
    return bytes(ordered_roots(column, whole, version)[0])


def ordered_roots(
    values: pa.Array | Iterable[bytes], groups: Groups, version: StateVersion = StateVersion.V0
) -> Digests:
    """Return R of each of many lists, built together.

    Args:
        values: the concatenated lists.
        groups: the rows of each list.
        version: layout of the tries.

    Returns:
        Roots, shape (len(groups), 32).

    Raises:
        InvalidInput: a value is null or not a byte string, ``groups`` does not match ``values``, or a list has 2**30 or
            more values.
    """
    column = byte_column(values)
    if groups.total != len(column):
        raise InvalidInput(f"groups of {groups.total} rows are given with {len(column)} values")
    roots = np.empty((len(groups), DIGEST_BYTES), dtype=np.uint8)
    ends = np.cumsum(groups.counts)
    first = 0
    while first < len(groups):
        # Take lists up to the size of a piece, at least one.
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _PIECE, side="right")))
        some = Groups(groups.starts[first:last] - before, groups.counts[first:last], int(ends[last - 1]) - before)
        roots[first:last] = _roots(column[before : before + some.total], some, version)
        first = last
    return roots


def _roots(values: pa.LargeBinaryArray, groups: Groups, version: StateVersion) -> Digests:
    """Return R of lists: write and hash all leaves, then the branches level by level."""
    from causeway_proofs.substrate import ordered_list_loops as loops

    starts, counts, total = groups.starts, groups.counts, groups.total
    longest = int(counts.max(initial=0))
    if longest >= _MOST:
        raise InvalidInput(f"a list has {longest} values, fewer than {_MOST} are allowed")
    begins, order = np.empty(total, dtype=np.int64), np.empty(longest, dtype=np.int64)
    tops = np.empty(len(groups), dtype=np.int64)
    branches = np.zeros((total, loops.BRANCH_FIELDS), dtype=np.int64)
    children = np.empty((total, WIDTH), dtype=np.int64)
    branch_count = loops.lay_out(starts, counts, total, order, begins, branches, children, tops)
    branches = branches[:branch_count]
    ends = np.zeros(int(branches[:, loops.HEIGHT].max(initial=0)) + 2, dtype=np.int64)
    numbers = np.empty(branch_count, dtype=np.int64)
    loops.sort_by_height(branches, ends, numbers)
    places = np.arange(total + branch_count)
    places[total + numbers] = places[total:].copy()

    references = np.empty((total + branch_count, DIGEST_BYTES), dtype=np.uint8)
    sizes = np.empty(total + branch_count, dtype=np.uint8)
    data, offsets = column_data(values), column_offsets(values)
    long = np.empty(0, dtype=np.int64)
    if version >= StateVersion.V1:
        long = np.flatnonzero(np.diff(offsets) >= HASHED_VALUE_BYTES)
    digests = digest_slices(_HASH, data, offsets[:-1][long], offsets[1:][long])
    edges = np.empty(total + 1, dtype=np.int64)
    room = int(offsets[-1] - offsets[0]) + total * (loops.LEAF_BYTES + DIGEST_BYTES)
    written = np.empty(room, dtype=np.uint8)
    loops.write_leaves(starts, counts, begins, data, offsets, int(len(long) > 0), digests, written, edges)
    level = slice(0, total)
    digest_slices(_HASH, written, edges[:-1], edges[1:], out=references[level])
    loops.keep_short(written, edges, references[level], sizes[level])
    for below, above in zip(ends[:-2].tolist(), ends[1:-1].tolist(), strict=True):
        rows, level = numbers[below:above], slice(total + below, total + above)
        edges = np.empty(len(rows) + 1, dtype=np.int64)
        written = np.empty(len(rows) * loops.BRANCH_BYTES, dtype=np.uint8)
        loops.write_branches(rows, branches, children, places, references, sizes, written, edges)
        digest_slices(_HASH, written, edges[:-1], edges[1:], out=references[level])
        loops.keep_short(written, edges, references[level], sizes[level])

    roots = np.empty((len(groups), DIGEST_BYTES), dtype=np.uint8)
    roots[:] = np.frombuffer(EMPTY_ROOT, dtype=np.uint8)
    full = np.flatnonzero(counts)
    tops = places[tops[full]]
    roots[full] = references[tops]
    # A root is hashed even if its encoding is short.
    short = np.flatnonzero(sizes[tops] < DIGEST_BYTES)
    begin = tops[short] * DIGEST_BYTES
    roots[full[short]] = digest_slices(_HASH, references.reshape(-1), begin, begin + sizes[tops[short]])
    return roots
