"""Storage proofs made in bulk: each distinct node of all proofs is encoded once.

A proof of some keys is the set of nodes that reads of them visit, ascending: those that stand in their parents are no
nodes of their own, and values that are stored by their hash are. Sources: XDM reference 2.4, ICMP reference 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows, distinct, numbered
from causeway.proofs.arrays import integers
from causeway.proofs.substrate.byte_columns import LARGE_BINARY, byte_column, digest_column, ends_of
from causeway.proofs.substrate.byte_order import ascending_order
from causeway.proofs.substrate.node import EMPTY_NODE
from causeway.proofs.substrate.proof_columns import StorageProofs
from causeway.proofs.substrate.trie import Trie
from causeway.proofs.substrate.tries import Tries

_VALUE = 1 << 31
_EMPTY = 1 << 32
"""Parts of proofs as numbers: nodes by their own, values by their entry's behind all nodes, the empty node last."""
_PART_BITS = 33
_MOST_PROOFS = 1 << 30


def prove(trie: Trie, keys: Iterable[bytes]) -> list[bytes]:
    """Return the proof of what ``trie`` holds under ``keys``, present or absent: its nodes in ascending order."""
    column = byte_column(keys)
    return prove_storage(trie.tries, trie.number, column, np.zeros(len(column), dtype=np.int64)).nodes_of(0)


def prove_storage(
    tries: Tries, trie_of_proof: Rows, keys: pa.Array | Iterable[bytes], proof_of_key: Rows | None = None
) -> StorageProofs:
    """Return proofs of what tries hold under keys, present or absent; they share their distinct nodes, ascending.

    Args:
        tries: the tries.
        trie_of_proof: for each proof, the number of the trie that it is about.
        keys: the keys, in any order.
        proof_of_key: for each key, the number of the proof that shows it; default: each key is shown by a proof of its
            own. A proof that shows no key has no nodes.

    Raises:
        InvalidInput: a number of a proof or trie is out of range, a key is too long, or there are not as many of each.
    """
    column, trie_of_proof = byte_column(keys), integers(trie_of_proof, "the numbers of proofs' tries", np.int64)
    count = len(trie_of_proof)
    proofs = np.arange(count) if proof_of_key is None else proof_of_key
    proofs = integers(proofs, "the numbers of keys' proofs", np.int64, 0, count - 1)
    if len(proofs) != len(column):
        raise InvalidInput(f"{len(proofs)} numbers of proofs are given with {len(column)} keys, each needs one")
    if count > _MOST_PROOFS:
        raise InvalidInput(f"at most {_MOST_PROOFS} proofs are made at once, not {count}")
    roots = tries.roots(trie_of_proof)
    visit = tries.visit(trie_of_proof[proofs], column)
    shown = proofs << _PART_BITS
    by_hash, empty = np.flatnonzero(visit.stored_by_hash), np.flatnonzero(visit.counts == 0)
    parts = distinct(
        np.concatenate(
            [
                np.repeat(shown, visit.counts) | visit.nodes,
                shown[by_hash] | _VALUE | visit.entries[by_hash],
                shown[empty] | _EMPTY,
            ]
        )
    )
    found, which = numbered((parts & ((1 << _PART_BITS) - 1)).view(np.uint64))
    once = found.view(np.int64)
    values_from, empty_from = np.searchsorted(once, [_VALUE, _EMPTY]).tolist()
    written = pa.concat_arrays(
        [
            tries.encodings(once[:values_from]),
            tries.values(once[values_from:empty_from] - _VALUE),
            pa.array([EMPTY_NODE] * (len(once) - empty_from), LARGE_BINARY),
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
    parts = distinct(parts >> _PART_BITS << _PART_BITS | rank[which])
    sizes = np.bincount(parts >> _PART_BITS, minlength=count)
    nodes, members = written.filter(pa.array(first)), parts & ((1 << _PART_BITS) - 1)
    return StorageProofs(digest_column(roots), nodes, members, ends_of(sizes), np.full(count, -1, dtype=np.int8))
