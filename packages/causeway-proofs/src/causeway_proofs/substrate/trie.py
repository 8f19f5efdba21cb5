"""Maintain one trie, changed entry by entry or in bulk, and prove its keys.

A trie and its snapshots are members of one ``Tries``. Changes of single entries are buffered until the next read.
Proofs are built in bulk: each distinct node of all proofs is encoded once. A proof is the ascending set of nodes on the
paths of its keys. Inlined nodes are not separate nodes; values stored by hash are.

Reference:
    XDM reference 2.4, ICMP reference 2.3.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.arrays import integer_array
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import Rows, distinct, distinct_with_codes
from causeway_proofs.substrate.byte_columns import LARGE_BINARY, byte_column, digest_column, offsets_from_lengths
from causeway_proofs.substrate.node import EMPTY_NODE, MAX_KEY_BYTES, StateVersion
from causeway_proofs.substrate.proof_columns import StorageProofs
from causeway_proofs.substrate.tries import Tries, ascending_order


class Trie:
    """The entries of a state or a queue under one root.

    Args:
        version: layout: V0 stores values in their nodes, V1 stores those of 33 bytes and more by hash.
    """

    def __init__(self, version: StateVersion = StateVersion.V1) -> None:
        tries = Tries()
        self._take(tries, int(tries.open(1, version)[0]), version)

    @classmethod
    def build(
        cls,
        keys: pa.Array | Iterable[bytes],
        values: pa.Array | Iterable[bytes],
        version: StateVersion = StateVersion.V1,
    ) -> Trie:
        """Build a trie of entries; the last of several entries with one key wins.

        Args:
            keys: keys in any order.
            values: one a key.
            version: layout of the trie.

        Returns:
            The trie.

        Raises:
            InvalidInput: a null, different numbers of keys and values, or a key of more than 32,767 bytes.
        """
        trie = cls(version)
        trie.update(keys, values)
        return trie

    def __len__(self) -> int:
        return self.tries.count(self.row)

    @property
    def tries(self) -> Tries:
        """The container of this trie, with all buffered changes applied."""
        self._make_changes()
        return self._tries

    @property
    def number(self) -> Rows:
        """The trie's number in ``tries``, as an array of one."""
        return np.array([self.row])

    def snapshot(self) -> Trie:
        """Return an independent trie with the same entries, sharing all nodes."""
        same = Trie.__new__(Trie)
        same._take(self.tries, int(self.tries.copy(self.number)[0]), self.version)
        return same

    @property
    def root(self) -> bytes:
        """The root of the entries, 32 bytes."""
        return bytes(self.tries.roots(self.number)[0])

    def get(self, key: bytes) -> bytes | None:
        """Return the value under ``key``, or None.

        Args:
            key: the key.

        Returns:
            The value, or None.
        """
        if key in self._changes:
            return self._changes[key]
        if len(key) > MAX_KEY_BYTES:
            return None
        value: bytes | None = self._tries.get(self.row, [key])[0].as_py()
        return value

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with keys that start with ``prefix``, ascending by key.

        Args:
            prefix: common prefix of the keys.

        Yields:
            Key and value.
        """
        keys, values = self.tries.items(self.row, prefix)
        return zip(keys.to_pylist(), values.to_pylist(), strict=True)

    def insert(self, key: bytes, value: bytes) -> None:
        """Store ``value`` under ``key``, replacing any previous value.

        Args:
            key: the key.
            value: the value.

        Raises:
            InvalidInput: the key exceeds 32,767 bytes, or an argument is not a byte string.
        """
        if any(not isinstance(given, bytes) for given in (key, value)):
            kinds = f"{type(key).__name__} and {type(value).__name__}"
            raise InvalidInput(f"a key and a value are {kinds}, only byte strings are allowed")
        if len(key) > MAX_KEY_BYTES:
            raise InvalidInput(f"a key has {len(key)} bytes, at most {MAX_KEY_BYTES} are allowed")
        self._changes[key] = value

    def delete(self, key: bytes) -> bool:
        """Remove the entry of ``key``.

        Args:
            key: the key.

        Returns:
            True if there was an entry.
        """
        if self.get(key) is None:
            return False
        self._changes[key] = None
        return True

    def clear_prefix(self, prefix: bytes) -> int:
        """Remove all entries with keys that start with ``prefix``.

        Args:
            prefix: common prefix of the keys.

        Returns:
            The number of removed entries.
        """
        keys, _ = self.tries.items(self.row, prefix)
        return self.remove(keys)

    def update(self, keys: pa.Array | Iterable[bytes], values: pa.Array | Iterable[bytes]) -> None:
        """Store many entries; the last of several entries with one key wins.

        Args:
            keys: keys in any order.
            values: one a key.

        Raises:
            InvalidInput: as for ``build``.
        """
        self.tries.update(self.row, keys, byte_column(values))

    def remove(self, keys: pa.Array | Iterable[bytes]) -> int:
        """Remove the entries of many keys.

        Args:
            keys: the keys.

        Returns:
            The number of removed entries.

        Raises:
            InvalidInput: a key is null or not a byte string.
        """
        before, column = len(self), byte_column(keys)
        self._tries.update(self.row, column, pa.nulls(len(column), LARGE_BINARY))
        return before - len(self)

    def _take(self, tries: Tries, row: int, version: StateVersion) -> None:
        self._tries, self.row, self.version = tries, row, StateVersion(version)
        self._changes: dict[bytes, bytes | None] = {}
        weakref.finalize(self, tries.release_later, row)

    def _make_changes(self) -> None:
        if self._changes:
            self._tries.update(self.row, list(self._changes), list(self._changes.values()))
            self._changes = {}


_VALUE = 1 << 31
_EMPTY = 1 << 32
"""Proof parts as numbers: nodes by number, then values by entry, then the empty node."""
_PART_BITS = 33
_MOST_PROOFS = 1 << 30


def prove(trie: Trie, keys: Iterable[bytes]) -> list[bytes]:
    """Build the proof of ``keys``, present or absent.

    Args:
        trie: the trie.
        keys: the keys.

    Returns:
        The nodes, ascending.
    """
    column = byte_column(keys)
    return prove_storage(trie.tries, trie.number, column, np.zeros(len(column), dtype=np.int64)).nodes_of(0)


def prove_storage(
    tries: Tries, trie_of_proof: Rows, keys: pa.Array | Iterable[bytes], proof_of_key: Rows | None = None
) -> StorageProofs:
    """Build proofs of keys in many tries, present or absent; they share distinct nodes.

    Args:
        tries: the tries.
        trie_of_proof: trie number of each proof.
        keys: the keys, in any order.
        proof_of_key: proof number of each key; default: one proof a key. A proof without keys has no nodes.

    Returns:
        The proofs, each with its nodes ascending.

    Raises:
        InvalidInput: a proof or trie number is out of range, a key is too long, or lengths differ.
    """
    column, trie_of_proof = byte_column(keys), integer_array(trie_of_proof, "the numbers of proofs' tries", np.int64)
    count = len(trie_of_proof)
    proofs = np.arange(count) if proof_of_key is None else proof_of_key
    proofs = integer_array(proofs, "the numbers of keys' proofs", np.int64, 0, count - 1)
    if len(proofs) != len(column):
        raise InvalidInput(f"{len(proofs)} numbers of proofs are given with {len(column)} keys, each needs one")
    if count > _MOST_PROOFS:
        raise InvalidInput(f"at most {_MOST_PROOFS} proofs are made at once, not {count}")
    roots = tries.roots(trie_of_proof)
    visit = tries.visit(trie_of_proof[proofs], column)
    proof_bits = proofs << _PART_BITS
    by_hash, empty = np.flatnonzero(visit.stored_by_hash), np.flatnonzero(visit.counts == 0)
    parts = distinct(
        np.concatenate(
            [
                np.repeat(proof_bits, visit.counts) | visit.nodes,
                proof_bits[by_hash] | _VALUE | visit.entries[by_hash],
                proof_bits[empty] | _EMPTY,
            ]
        )
    )
    found, codes = distinct_with_codes((parts & ((1 << _PART_BITS) - 1)).view(np.uint64))
    once = found.view(np.int64)
    values_from, empty_from = np.searchsorted(once, [_VALUE, _EMPTY]).tolist()
    written = pa.concat_arrays(
        [
            tries.encodings(once[:values_from]),
            tries.values(once[values_from:empty_from] - _VALUE),
            pa.array([EMPTY_NODE] * (len(once) - empty_from), LARGE_BINARY),
        ]
    )
    # Equal nodes of two subtrees are one proof node.
    order = ascending_order(np.zeros(len(written), dtype=np.int64), written)
    if order is None:
        order = np.arange(len(written))
    written = written.take(pa.array(order))
    first = np.ones(len(written), dtype=bool)
    if len(written) > 1:
        first[1:] = pc.not_equal(written[1:], written[:-1]).to_numpy(zero_copy_only=False)
    rank = np.empty(len(written), dtype=np.int64)
    rank[order] = np.cumsum(first) - 1
    parts = distinct(parts >> _PART_BITS << _PART_BITS | rank[codes])
    sizes = np.bincount(parts >> _PART_BITS, minlength=count)
    nodes, members = written.filter(pa.array(first)), parts & ((1 << _PART_BITS) - 1)
    return StorageProofs(
        digest_column(roots), nodes, members, offsets_from_lengths(sizes), np.full(count, -1, dtype=np.int8)
    )
