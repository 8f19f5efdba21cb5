"""A store of stores: named roots in a simple tree, and proofs in two steps (IBC reference 2.6, ``chained``)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from causeway_proofs.ics23.entries import UnknownKey, concat_columns, prefix_lengths, sorted_entries
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.ics23.store_proofs import ProvableStore
from causeway_proofs.merkle import Positions
from causeway_proofs.varints import uvarint

PROOFS = b"\x0a"
"""Tag of MerkleProof.proofs: the proof in the store first, then that of the store."""


class MultiStore:
    """Stores by name under one root: a simple tree whose keys are the names and whose values are the stores' roots.

    Over IAVL stores this is the app hash of deployed chains, its proofs go by [IavlSpec, TendermintSpec]; over simple
    stores they go by [TendermintSpec, TendermintSpec].

    Attributes:
        stores: the stores by name.
        names: the simple tree of their roots.
    """

    __slots__ = ("names", "stores")

    def __init__(self, stores: Mapping[str, ProvableStore]) -> None:
        """Commit to ``stores``.

        Raises:
            EmptyKey: a name is empty.
        """
        self.stores = dict(stores)
        names = pa.array([name.encode() for name in self.stores], pa.binary())
        roots = pa.array([store.root for store in self.stores.values()], pa.binary())
        self.names = SimpleStore.over(sorted_entries(names, roots))

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes."""
        return self.names.root

    def prove(self, name: str, key: bytes) -> bytes:
        """Return the encoded MerkleProof that ``key`` exists in the store ``name``, or that it does not.

        Raises:
            UnknownKey: there is no such store.
            NothingToProve: the store is empty.
        """
        second = self._proof_of(name)
        first = self.stores[name].prove(key)
        return b"".join(PROOFS + uvarint(len(proof)) + proof for proof in (first, second))

    def existence_proofs(self, name: str, positions: Positions) -> pa.BinaryArray:
        """Return the encoded MerkleProof of each entry at ``positions`` of the store ``name``.

        Raises:
            UnknownKey: there is no such store.
        """
        second = self._proof_of(name)
        return self._chained(self.stores[name].existence_proofs(positions), second)

    def absence_proofs(self, name: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the encoded MerkleProof of the absence of each of ``keys`` from the store ``name``.

        Raises:
            UnknownKey: there is no such store.
            KnownKey: a key is there.
            NothingToProve: the store is empty.
        """
        second = self._proof_of(name)
        return self._chained(self.stores[name].absence_proofs(keys), second)

    def _proof_of(self, name: str) -> bytes:
        if name not in self.stores:
            raise UnknownKey(f"there is no store {name!r}: there are {', '.join(sorted(self.stores)) or 'none'}")
        return self.names.prove_existence(name.encode())

    def _chained(self, first: pa.BinaryArray, second: bytes) -> pa.BinaryArray:
        return concat_columns(PROOFS, *prefix_lengths(first), PROOFS + uvarint(len(second)) + second)
