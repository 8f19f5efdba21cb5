"""The tries of chains: their storage now, and that under which operators prove (XDM reference 2.4, X-5).

Both are an index: what the storage is follows from tables, and what it was from the log of its changes. What it was
after the blocks between is kept, too, as versions that share their nodes: then nothing is inserted or hashed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.order import distinct
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate import Tries
from causeway.protocols.contract import Chains
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.storage import KnownSections

NOWHERE = -1
"""The height of tries that are being changed."""

NODES_AN_ENTRY = 4
FEW = 1 << 16
"""Versions are kept as long as all tries have at most so many nodes for each entry of the storage now, or for each of
``FEW`` entries: so they take no more than the storage itself, which has a message for longer than it takes to be
provable."""

MOST_VERSIONS = 1 << 16
"""And as long as there are at most so many of them, of all chains together."""


@dataclass
class ChainTries:
    """The tries of a set of chains. ``present``: the number of each chain's trie; ``provable``: that of the storage
    after the block ``number`` of it, which operators prove under; ``versions``: by chain and number those after later
    blocks, ascending. ``height``: of the state that they belong to; they change on the spot, and in between belong to
    none. ``sections``: what is known of tables that have digests."""

    tries: Tries
    present: dict[int, int]
    provable: dict[int, int]
    number: dict[int, int] = field(default_factory=dict)
    versions: dict[int, dict[int, int]] = field(default_factory=dict)
    height: int = NOWHERE
    sections: KnownSections = field(default_factory=KnownSections)

    @classmethod
    def of(cls, chains: Chains) -> ChainTries:
        """Return empty tries of chains."""
        tries = Tries()
        opened = iter(tries.open(2 * len(chains)).tolist())
        pairs = {chain: (next(opened), next(opened)) for chain in chains.tolist()}
        present = {chain: pair[0] for chain, pair in pairs.items()}
        return cls(tries, present, {chain: pair[1] for chain, pair in pairs.items()}, dict.fromkeys(present, -1))

    def change(self, changes: Frame) -> None:
        """Change the storage of chains now (``STORAGE_SCHEMA``)."""
        self._change(self.present, changes)

    def move(self, changes: Frame, to: Mapping[int, int]) -> None:
        """Move the storage that operators prove under on to other blocks, by all ``changes`` in between."""
        self._change(self.provable, changes)
        self.number |= to

    def keep(self, chains: Chains, number: int) -> None:
        """Keep the storage of chains as it is now, after their block ``number``, until operators prove under it."""
        now = np.array([self.present[chain] for chain in chains.tolist()], dtype=np.int64)
        for chain, version in zip(chains.tolist(), self.tries.copy(now).tolist(), strict=True):
            self.versions.setdefault(chain, {})[number] = version
        while self._keeps_too_much():
            # One that nobody confirms any more would keep its own for ever. The log says how its storage moved on.
            longest = max(self.versions, key=lambda chain: len(self.versions[chain]))
            self._close(self.versions.pop(longest).values())

    def _keeps_too_much(self) -> bool:
        count = sum(map(len, self.versions.values()))
        entries = sum(self.tries.count(trie) for trie in self.present.values())
        return count > MOST_VERSIONS or (count > 0 and self.tries.live_nodes > NODES_AN_ENTRY * max(entries, FEW))

    def nearest(self, chain: int, number: int) -> int:
        """Return the last block of a chain up to ``number`` after which its storage is at hand, -1 if none is."""
        found = self.number[chain]
        for kept in self.versions.get(chain, ()):
            if kept > number:
                break
            found = max(found, kept)
        return found

    def show(self, chain: int, number: int) -> None:
        """Let operators prove under the nearest block up to ``number``; what was kept of those before it goes."""
        number, versions = self.nearest(chain, number), self.versions.get(chain, {})
        if number in versions:
            self._close([self.provable[chain]])
            self.provable[chain], self.number[chain] = versions.pop(number), number
        self._close([versions.pop(kept) for kept in [*takewhile(lambda kept: kept < number, versions)]])

    def _close(self, tries: Iterable[int]) -> None:
        if closed := [*tries]:
            self.tries.close(np.array(closed, dtype=np.int64))

    def _change(self, of_chain: Mapping[int, int], changes: Frame) -> None:
        if not len(changes):
            return
        chains = changes["chain"]
        numbers = np.zeros(int(chains.max()) + 1, dtype=np.int64)
        for chain in distinct(chains).tolist():
            numbers[chain] = of_chain[chain]
        there = pa.array(changes["present"] == 1)
        values = pa.compute.if_else(there, changes["value"].cast(pa.large_binary()), pa.scalar(None, pa.large_binary()))
        self.tries.update(numbers[chains], changes["key"].cast(pa.large_binary()), values)

    def roots(self, chains: Chains) -> Digests:
        """Return the root of each chain's storage now, shape (n, 32)."""
        return self.tries.roots(np.array([self.present[chain] for chain in chains.tolist()], dtype=np.int64))


def tries_of(state: State, context: Context) -> ChainTries | None:
    """Return the tries of the state that a block begins with, None where they are to be built: of a state that was
    read, and where a block was broken off, or made, since they were this state's, or they lack a chain that was
    halted."""
    kept = state.kept.tries
    if not isinstance(kept, ChainTries) or kept.height != context.height - 1:
        return None
    return kept if kept.present.keys() >= set(context.chains.tolist()) else None
