"""Roots of ordered lists: R of the ICMP reference, 2.1 and 2.3.

R(L) is the root of the trie { Compact(i) -> L[i] }. Compact integers do not sort like numbers, so the trie's order is
not the list's above index 63. Queues use layout V0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from causeway.model.errors import IndexOverflow, InvalidInput
from causeway.model.order import Groups
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.substrate.byte_columns import byte_column
from causeway.proofs.substrate.compact import compact_column, encode_compact
from causeway.proofs.substrate.node import StateVersion, plain_root
from causeway.proofs.substrate.trie import Trie
from causeway.proofs.substrate.tries import Tries

_FEW = 128
"""Below this many values the root is found without compiled loops, which a small process need not load."""

_PIECE = 1 << 16
"""Lists are made into tries in pieces of this many values, so that all of a piece is still in the cache."""


def ordered_key(index: int) -> bytes:
    """Return the key of the value at ``index``: its compact encoding."""
    return encode_compact(index)


def ordered_root(values: pa.Array | Sequence[bytes], version: StateVersion = StateVersion.V0) -> bytes:
    """Return R of a list: 32 bytes; ``EMPTY_ROOT`` for the empty one.

    Raises:
        InvalidInput: a value is null or no byte string.
    """
    column = byte_column(values)
    if len(column) < _FEW:
        return plain_root({ordered_key(index): value for index, value in enumerate(column.to_pylist())}, version)
    whole = Groups(np.zeros(1, dtype=np.int64), np.array([len(column)]), len(column))
    return bytes(ordered_roots(column, whole, version)[0])


def ordered_roots(
    values: pa.Array | Iterable[bytes], groups: Groups, version: StateVersion = StateVersion.V0
) -> Digests:
    """Return R of each of many lists, neighbours in one column, shape (len(groups), 32); all are built together.

    Raises:
        InvalidInput: a value is null or no byte string, or ``groups`` are groups of something else.
    """
    column = byte_column(values)
    if groups.total != len(column):
        raise InvalidInput(f"groups of {groups.total} rows are given with {len(column)} values")
    roots = np.empty((len(groups), DIGEST_BYTES), dtype=np.uint8)
    ends = np.cumsum(groups.counts)
    first = 0
    while first < len(groups):
        # As many lists as a piece has room for, at least one.
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _PIECE, side="right")))
        some = Groups(groups.starts[first:last] - before, groups.counts[first:last], int(ends[last - 1]) - before)
        tries = Tries()
        numbers = tries.open(len(some), version)
        tries.update(some.spread(numbers), compact_column(some.ranks()), column[before : before + some.total])
        roots[first:last] = tries.roots(numbers)
        first = last
    return roots


class OrderedTrie:
    """The trie of a queue that is kept: values at indexes ``begin`` to ``end`` - 1, appended at the end, trimmed at
    the front or cut at the back.

    As long as ``begin`` is 0, the root is R of the values.
    """

    def __init__(self, version: StateVersion = StateVersion.V0, begin: int = 0) -> None:
        self.trie = Trie(version)
        self.begin = self.end = begin

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def root(self) -> bytes:
        """The root of the queue: 32 bytes."""
        return self.trie.root

    def append(self, values: pa.Array | Sequence[bytes]) -> None:
        """Put ``values`` behind the last one.

        Raises:
            InvalidInput: a value is null or no byte string.
            IndexOverflow: an index would pass 2**64 - 1.
        """
        column = byte_column(values)
        end = self.end + len(column)
        if end > 1 << 64:
            raise IndexOverflow(f"a queue that ends at {self.end} has no room for {len(column)} values")
        if not len(column):
            return
        indexes = np.arange(len(column), dtype=np.uint64) + np.uint64(self.end)
        self.trie.update(compact_column(indexes), column)
        self.end = end

    def trim(self, begin: int) -> None:
        """Take away the values before the index ``begin``.

        Raises:
            InvalidInput: the queue does not reach there.
        """
        self._require(begin)
        self.trie.remove(compact_column(np.arange(self.begin, begin, dtype=np.uint64)))
        self.begin = begin

    def truncate(self, end: int) -> None:
        """Take away the values from the index ``end`` on.

        Raises:
            InvalidInput: the queue does not reach there.
        """
        self._require(end)
        self.trie.remove(compact_column(np.arange(end, self.end, dtype=np.uint64)))
        self.end = end

    def _require(self, index: int) -> None:
        if not self.begin <= index <= self.end:
            raise InvalidInput(f"index {index} is outside the queue, which holds {self.begin} to {self.end - 1}")
