"""One trie that is kept: built, changed entry by entry or in bulk, proved at any time.

It is one of ``Tries``, together with its snapshots. Changes of single entries are gathered until somebody asks for what
they come to.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.substrate.byte_columns import LARGE_BINARY, byte_column
from causeway.proofs.substrate.nibbles import MAX_KEY_BYTES
from causeway.proofs.substrate.node import StateVersion
from causeway.proofs.substrate.tries import Tries


class Trie:
    """The entries of a state or a queue under one root.

    ``version`` is the layout: V0 keeps values in their nodes, V1 those of 33 bytes and more by their hash.
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
        """Return the trie of the entries; of entries with the same key, the last one given.

        Raises:
            InvalidInput: a null, more keys than values or the other way round, or a key of more than 32,767 bytes.
        """
        trie = cls(version)
        trie.update(keys, values)
        return trie

    def __len__(self) -> int:
        return self.tries.count(self.row)

    @property
    def tries(self) -> Tries:
        """The tries that this one is one of, with all changes made."""
        self._make_changes()
        return self._tries

    @property
    def number(self) -> Rows:
        """Its number in ``tries``, as an array of one."""
        return np.array([self.row])

    def snapshot(self) -> Trie:
        """Return a trie with the same entries that does not change when this one does; nothing is copied."""
        same = Trie.__new__(Trie)
        same._take(self.tries, int(self.tries.copy(self.number)[0]), self.version)
        return same

    @property
    def root(self) -> bytes:
        """The root of the entries: 32 bytes."""
        return bytes(self.tries.roots(self.number)[0])

    def get(self, key: bytes) -> bytes | None:
        """Return the value under ``key``, None where there is none."""
        if key in self._changes:
            return self._changes[key]
        if len(key) > MAX_KEY_BYTES:
            return None
        value: bytes | None = self._tries.get(self.row, [key])[0].as_py()
        return value

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose keys start with ``prefix``, in ascending order of the keys."""
        keys, values = self.tries.items(self.row, prefix)
        return zip(keys.to_pylist(), values.to_pylist(), strict=True)

    def insert(self, key: bytes, value: bytes) -> None:
        """Store ``value`` under ``key``, in place of what was there.

        Raises:
            InvalidInput: the key has more than 32,767 bytes, or one of the two is no byte string.
        """
        if any(not isinstance(given, bytes) for given in (key, value)):
            kinds = f"{type(key).__name__} and {type(value).__name__}"
            raise InvalidInput(f"a key and a value are {kinds}, only byte strings are allowed")
        if len(key) > MAX_KEY_BYTES:
            raise InvalidInput(f"a key has {len(key)} bytes, at most {MAX_KEY_BYTES} are allowed")
        self._changes[key] = value

    def delete(self, key: bytes) -> bool:
        """Remove the entry of ``key``; return whether there was one."""
        if self.get(key) is None:
            return False
        self._changes[key] = None
        return True

    def clear_prefix(self, prefix: bytes) -> int:
        """Remove all entries whose keys start with ``prefix``; return how many there were."""
        keys, _ = self.tries.items(self.row, prefix)
        return self.remove(keys)

    def update(self, keys: pa.Array | Iterable[bytes], values: pa.Array | Iterable[bytes]) -> None:
        """Store many entries; of entries with the same key, the last one given.

        Raises:
            InvalidInput: as for ``build``.
        """
        self.tries.update(self.row, keys, byte_column(values))

    def remove(self, keys: pa.Array | Iterable[bytes]) -> int:
        """Remove the entries of many keys; return how many there were.

        Raises:
            InvalidInput: a key is null or no byte string.
        """
        before, column = len(self), byte_column(keys)
        self._tries.update(self.row, column, pa.nulls(len(column), LARGE_BINARY))
        return before - len(self)

    def _take(self, tries: Tries, row: int, version: StateVersion) -> None:
        self._tries, self.row, self.version = tries, row, StateVersion(version)
        self._changes: dict[bytes, bytes | None] = {}
        weakref.finalize(self, tries.close_later, row)

    def _make_changes(self) -> None:
        if self._changes:
            self._tries.update(self.row, list(self._changes), list(self._changes.values()))
            self._changes = {}
