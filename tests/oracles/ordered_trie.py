"""The trie of a queue that is kept, and changed as it grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import IndexOverflow, InvalidInput
from causeway_proofs.substrate.byte_columns import byte_column, encode_compact
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.trie import Trie


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


def compact_column(numbers: npt.NDArray[np.integer]) -> pa.LargeBinaryArray:
    """Return the compact encoding of each of ``numbers``."""
    return pa.array([encode_compact(number) for number in numbers.tolist()], pa.large_binary())
