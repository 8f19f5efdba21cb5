"""What roots commit to (ICMP reference 3.1): the relay chain's storage entries, and the sections of parachains.

The relay chain keeps heads, watermarks and unrouted queues under the keys of the pallet ``Parachains``, each in SCALE.
A parachain's storage has one entry for each of its tables, ``Causeway.<table>``: a digest of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import groups_of
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate import StateVersion, Tries, encode_compact, storage_prefix
from causeway.proofs.substrate.node import plain_root
from causeway.proofs.substrate.parachains import (
    blocked_key,
    encode_queues,
    encode_watermark,
    heads_key,
    unrouted_key,
    watermark_key,
)
from causeway.protocols.contract import Chains
from causeway.protocols.digests import digests
from causeway.protocols.execution import PROGRAM_TABLE
from causeway.protocols.icmp.leaves import Leaf
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import STATE_TABLES, UNCOMMITTED
from causeway.protocols.sections import OWN_PALLET, section_digests

SECTIONS = tuple(name for name in STATE_TABLES if name not in UNCOMMITTED)

Entries = dict[bytes, bytes | None]
"""Changes of storage by key; None: the key goes."""


def relay_changes(before: Leaf | None, after: Leaf) -> Entries:
    """Return what changes in the relay chain's storage from a block to one on it; ``before`` None: all is new."""
    entries = _para_changes(None if before is None else before.paras, after.paras)
    entries |= _unrouted_changes(None if before is None else before.unrouted, after.unrouted)
    return entries | _blocked_changes(None if before is None else before.blocked, after.blocked)


def _para_changes(before: Frame | None, after: Frame) -> Entries:
    """Heads and watermarks of what is registered; parachains do not go from the table."""
    entries: Entries = {}
    if before is after:
        return entries
    earlier = after.slice(0, 0) if before is None else before
    then = lookup(earlier, after, ("para",))
    changed = then < 0
    known = np.flatnonzero(~changed)
    changed[known] = after["active"][known] != earlier["active"][then[known]]
    for name in ("head", "watermark_hash"):
        changed[known] |= (after[name][known] != earlier[name][then[known]]).any(axis=1)
    rows = after.filter(changed)
    columns = (rows[name].tolist() for name in ("para", "active", "watermark"))
    for (para, active, number), head, block_hash in zip(
        zip(*columns, strict=True), rows["head"], rows["watermark_hash"], strict=True
    ):
        entries[heads_key(para)] = encode_compact(32) + head.tobytes() if active else None
        entries[watermark_key(para)] = encode_watermark(number, block_hash.tobytes()) if active else None
    return entries


def _blocked_changes(before: Frame | None, after: Frame) -> Entries:
    if before is after:
        return {}
    columns = ("source", "to", "since")
    now = {(x, y): since for x, y, since in zip(*(after[name].tolist() for name in columns), strict=True)}
    then = {} if before is None else {*zip(before["source"].tolist(), before["to"].tolist(), strict=True)}
    entries: Entries = {blocked_key(*pair): None for pair in then if pair not in now}
    return entries | {blocked_key(*pair): since.to_bytes(4, "little") for pair, since in now.items()}


def _unrouted_changes(before: Frame | None, after: Frame) -> Entries:
    if before is after:
        return {}
    keys = ("number", "to")
    groups = groups_of(*(after[name] for name in keys))
    now = after.take(groups.starts)
    then = after.slice(0, 0) if before is None else before.take(groups_of(*(before[name] for name in keys)).starts)
    entries: Entries = {}
    gone = then.filter(lookup(now, then, keys) < 0)
    for number, to in zip(gone["number"].tolist(), gone["to"].tolist(), strict=True):
        entries[unrouted_key(number, to)] = None
    # What a block posted does not change any more until it is routed as a whole.
    new = np.flatnonzero(lookup(then, now, keys) < 0)
    for start, count in zip(groups.starts[new].tolist(), groups.counts[new].tolist(), strict=True):
        rows = slice(start, start + count)
        roots = [root.tobytes() for root in after["root"][rows]]
        key = unrouted_key(int(after["number"][start]), int(after["to"][start]))
        entries[key] = encode_queues([*zip(after["source"][rows].tolist(), roots, strict=True)])
    return entries


class LeafTries:
    """The relay chain's tries: one a leaf, in the order of the leaves. What leaves have in common is there once."""

    def __init__(self) -> None:
        self.tries = Tries()
        self._leaves: list[int] = []

    @classmethod
    def of(cls, leaves: Sequence[Leaf]) -> LeafTries:
        """Return the tries of all that is in the tables of some leaves."""
        found = cls()
        found._leaves = found.tries.open(len(leaves), StateVersion.V1).tolist()
        for place, leaf in enumerate(leaves):
            found.change(place, relay_changes(None, leaf))
        return found

    def arrange(self, places: Sequence[int]) -> None:
        """Make leaves of those at ``places``: one that is named twice parts, one that is not named is given up."""
        used, leaves = set[int](), []
        for place in places:
            own = self._leaves[place]
            leaves.append(int(self.tries.copy(np.array([own], dtype=np.int64))[0]) if place in used else own)
            used.add(place)
        lost = [trie for place, trie in enumerate(self._leaves) if place not in used]
        self.tries.close(np.array(lost, dtype=np.int64))
        self._leaves = leaves

    def change(self, place: int, entries: Entries) -> None:
        """Change the trie of a leaf."""
        if entries:
            keys = sorted(entries)
            self.tries.update(self._leaves[place], keys, [entries[key] for key in keys])

    def roots(self) -> Digests:
        """Return the root of each leaf's storage."""
        return self.tries.roots(np.array(self._leaves, dtype=np.int64))


def para_roots(
    state: State, chains: Chains, hosts: Mapping[str, np.ndarray], sections: Sequence[str] = SECTIONS
) -> Digests:
    """Return the root of each parachain's storage, of the tables ``sections``; ``hosts``: whose each row of one is."""
    found: list[dict[bytes, bytes]] = [{} for _ in chains]
    tables = {name: state[name] for name in sections}
    tables |= {PROGRAM_TABLE + name: frame for name, frame in state.programs.items()}
    for name, frame in tables.items():
        if len(frame) == 0:
            continue
        key = storage_prefix(OWN_PALLET, name)
        owner = hosts[name]
        present = np.isin(chains, owner)
        for row, digest in enumerate(section_digests(frame, owner, chains)):
            if present[row]:
                found[row][key] = digest
    return digests([plain_root(entries, StateVersion.V1) for entries in found])
