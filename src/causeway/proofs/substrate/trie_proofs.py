"""Storage proofs made in bulk: each distinct node of all proofs is encoded once.

A proof of some keys is the set of nodes that reads of them visit, ascending: those that stand in their parents are no
nodes of their own, and values that are stored by their hash are. Sources: XDM reference 2.4, ICMP reference 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.substrate.byte_columns import LARGE_BINARY, ends_of
from causeway.proofs.substrate.byte_order import ascending_order
from causeway.proofs.substrate.node import EMPTY_NODE
from causeway.proofs.substrate.tries import Tries

_VALUE = 1 << 31
_EMPTY = 1 << 32
"""Parts of proofs as numbers: nodes by their own, values by their entry's behind all nodes, the empty node last."""
_PART_BITS = 33
_MOST_PROOFS = 1 << 30


@dataclass(frozen=True, slots=True)
class StorageProofs:
    """Many proofs that share nodes.

    Attributes:
        nodes: the distinct nodes of all proofs, ascending: a column of bytes.
        rows: the nodes of each proof, as rows of ``nodes``, ascending; proof by proof.
        ends: where each proof starts in ``rows`` and, last, where the last one ends: n + 1 numbers.
    """

    nodes: pa.LargeBinaryArray
    rows: Rows
    ends: Rows

    def __len__(self) -> int:
        return len(self.ends) - 1

    def proof(self, number: int) -> list[bytes]:
        """Return the nodes of one proof, ascending."""
        rows = self.rows[self.ends[number] : self.ends[number + 1]]
        nodes: list[bytes] = self.nodes.take(pa.array(rows)).to_pylist()
        return nodes

    def column(self) -> pa.LargeListArray:
        """Return the proofs as a column of lists of bytes; a node is written for each proof that it is in."""
        return pa.LargeListArray.from_arrays(pa.array(self.ends), self.nodes.take(pa.array(self.rows)))


def prove_many(
    tries: Tries, numbers: Rows | int, keys: pa.Array | Iterable[bytes], proofs: Rows, count: int
) -> StorageProofs:
    """Return ``count`` proofs of what tries hold under keys, present or absent.

    Args:
        tries: the tries.
        numbers: the trie of each key.
        keys: the keys, in any order.
        proofs: for each key, the number of the proof that it is shown by, from 0 to ``count`` - 1.
        count: how many proofs there are; one without keys has no nodes.

    Raises:
        InvalidInput: a number of a proof or trie is out of range, a key is too long, or there are not as many of each.
    """
    visit = tries.visit(numbers, keys)
    if len(proofs) != len(visit.entries):
        raise InvalidInput(f"{len(proofs)} numbers of proofs are given with {len(visit.entries)} keys")
    if not 0 <= count <= _MOST_PROOFS:
        raise InvalidInput(f"at most {_MOST_PROOFS} proofs are made at once, not {count}")
    if len(proofs) and not 0 <= int(proofs.min()) <= int(proofs.max()) < count:
        raise InvalidInput(f"a proof has a number from 0 to {count - 1}, not {proofs.min()} or {proofs.max()}")
    shown = proofs.astype(np.int64) << _PART_BITS
    by_hash, empty = np.flatnonzero(visit.stored_by_hash), np.flatnonzero(visit.counts == 0)
    parts = np.unique(
        np.concatenate(
            [
                np.repeat(shown, visit.counts) | visit.nodes,
                shown[by_hash] | _VALUE | visit.entries[by_hash],
                shown[empty] | _EMPTY,
            ]
        )
    )
    distinct, which = np.unique(parts & ((1 << _PART_BITS) - 1), return_inverse=True)
    values_from, empty_from = np.searchsorted(distinct, [_VALUE, _EMPTY]).tolist()
    written = pa.concat_arrays(
        [
            tries.encodings(distinct[:values_from]),
            tries.values(distinct[values_from:empty_from] - _VALUE),
            pa.array([EMPTY_NODE] * (len(distinct) - empty_from), LARGE_BINARY),
        ]
    )
    # Nodes that are the same in two subtrees are one.
    order = ascending_order(np.zeros(len(written), dtype=np.int64), written)
    if order is None:
        order = np.arange(len(written))
    written = written.take(pa.array(order))
    first = np.ones(len(written), dtype=bool)
    if len(written) > 1:
        first[1:] = pc.not_equal(written[1:], written[:-1]).to_numpy(zero_copy_only=False)
    rank = np.empty(len(written), dtype=np.int64)
    rank[order] = np.cumsum(first) - 1
    parts = np.unique(parts >> _PART_BITS << _PART_BITS | rank[which])
    sizes = np.bincount(parts >> _PART_BITS, minlength=count)
    return StorageProofs(written.filter(pa.array(first)), parts & ((1 << _PART_BITS) - 1), ends_of(sizes))
