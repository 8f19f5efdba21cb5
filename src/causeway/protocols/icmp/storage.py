"""What roots commit to (ICMP reference 3.1): the relay chain's storage entries, and the sections of parachains.

The relay chain keeps heads, watermarks and unrouted queues under the keys of the pallet ``Parachains``, each in SCALE.
A parachain's storage has one entry for each of its tables, ``Causeway.<table>``: a digest of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import groups_of
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate import StateVersion, Tries, encode_compact, storage_prefix
from causeway.proofs.substrate.node import plain_root
from causeway.proofs.substrate.parachains import (
    encode_queues,
    encode_watermark,
    heads_key,
    unrouted_key,
    watermark_key,
)
from causeway.protocols.contract import Chains
from causeway.protocols.digests import digests
from causeway.protocols.execution import PROGRAM_TABLE
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import STATE_TABLES, UNCOMMITTED
from causeway.protocols.sections import OWN_PALLET, section_digests

SECTIONS = tuple(name for name in STATE_TABLES if name not in UNCOMMITTED)

Entries = dict[bytes, bytes | None]
"""Changes of storage by key; None: the key goes."""


def relay_changes(before: State | None, after: State) -> Entries:
    """Return what changes in the relay chain's storage from one state to the next; ``before`` None: all is new."""
    entries: Entries = {}
    paras = after["paras"]
    earlier = paras.slice(0, 0) if before is None else before["paras"]
    if paras is not earlier:
        then = lookup(earlier, paras, ("para",))
        changed = then < 0
        known = np.flatnonzero(~changed)
        for name in ("head", "watermark_hash"):
            other = (paras[name][known] != earlier[name][then[known]]).any(axis=1)
            changed[known[other]] = True
        rows = paras.filter(changed)
        for para, head, number, block_hash in zip(
            rows["para"].tolist(), rows["head"], rows["watermark"].tolist(), rows["watermark_hash"], strict=True
        ):
            entries[heads_key(para)] = encode_compact(32) + head.tobytes()
            entries[watermark_key(para)] = encode_watermark(number, block_hash.tobytes())
    entries |= _unrouted_changes(None if before is None else before["unrouted"], after["unrouted"])
    return entries


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


def changed_trie(tries: Tries | None, entries: Entries) -> Tries:
    """Return the relay chain's trie after changes; without one, what was changed is all there is."""
    if tries is None:
        tries = Tries()
        tries.open(1, StateVersion.V1)
    if entries:
        keys = sorted(entries)
        tries.update(0, keys, [entries[key] for key in keys])
    return tries


def para_roots(state: State, chains: Chains, hosts: Mapping[str, np.ndarray]) -> Digests:
    """Return the root of each parachain's storage; ``hosts``: whose each row of a table is."""
    found: list[dict[bytes, bytes]] = [{} for _ in chains]
    tables = {name: state[name] for name in SECTIONS}
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
