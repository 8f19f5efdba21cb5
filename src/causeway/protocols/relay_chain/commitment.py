"""Commitments of the relay chain and of parachains: storage, roots, hashes and headers.

The relay chain stores heads, watermarks and unrouted queues under keys of the pallet ``Parachains``, in SCALE. A
parachain's storage has one entry a table, ``Causeway.<table>``, a digest of its rows.

Reference: ICMP, sections 2.2 and 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import Digests, blake2_256
from causeway_proofs.order import group_rows
from causeway_proofs.substrate import StateVersion, Tries, encode_compact, ordered_root, storage_prefix
from causeway_proofs.substrate.node import plain_root
from causeway_proofs.substrate.parachains import (
    block_hash,
    blocked_key,
    encode_queues,
    encode_watermark,
    heads_key,
    relay_rest,
    unrouted_key,
    watermark_key,
)

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import HEADERS_SCHEMA, Chains
from causeway.protocols.relay_chain.options import RELAY_POSITION
from causeway.protocols.relay_chain.runtime import set_posted_hash
from causeway.protocols.relay_chain.state import (
    BLOCKS_SCHEMA,
    STATE_TABLES,
    UNCOMMITTED,
    RelayLeaf,
    State,
    with_ancestor,
)
from causeway.protocols.shared.digests import OWN_PALLET, digests, section_digests
from causeway.protocols.shared.execution import PROGRAM_TABLE
from causeway.protocols.shared.state_tables import blank_rows, replace_chains

SECTIONS = tuple(name for name in STATE_TABLES if name not in UNCOMMITTED)

Entries = dict[bytes, bytes | None]
"""Storage changes by key; None removes the key."""


def relay_changes(before: RelayLeaf | None, after: RelayLeaf) -> Entries:
    """Compute the storage changes of the relay chain between a block and its child.

    Args:
        before: Leaf before, or None for complete storage.
        after: Leaf after.
    """
    entries = _para_changes(None if before is None else before.paras, after.paras)
    entries |= _unrouted_changes(None if before is None else before.unrouted, after.unrouted)
    return entries | _blocked_changes(None if before is None else before.blocked, after.blocked)


def _para_changes(before: Frame | None, after: Frame) -> Entries:
    """Return the changes of heads and watermarks; rows of parachains are never removed."""
    entries: Entries = {}
    if before is after:
        return entries
    earlier = after.slice(0, 0) if before is None else before
    then = lookup_rows(earlier, after, ("para",))
    changed = then < 0
    known = np.flatnonzero(~changed)
    changed[known] = after["active"][known] != earlier["active"][then[known]]
    for name in ("head", "watermark_hash"):
        changed[known] |= (after[name][known] != earlier[name][then[known]]).any(axis=1)
    rows = after.filter(changed)
    columns = (rows[name].tolist() for name in ("para", "active", "watermark"))
    for (para, active, number), head, watermark in zip(
        zip(*columns, strict=True), rows["head"], rows["watermark_hash"], strict=True
    ):
        entries[heads_key(para)] = encode_compact(32) + head.tobytes() if active else None
        entries[watermark_key(para)] = encode_watermark(number, watermark.tobytes()) if active else None
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
    groups = group_rows(*(after[name] for name in keys))
    now = after.take(groups.starts)
    then = after.slice(0, 0) if before is None else before.take(group_rows(*(before[name] for name in keys)).starts)
    entries: Entries = {}
    removed = then.filter(lookup_rows(now, then, keys) < 0)
    for number, to in zip(removed["number"].tolist(), removed["to"].tolist(), strict=True):
        entries[unrouted_key(number, to)] = None
    # The queues of a relay block are routed as a whole, so an existing entry never changes.
    new = np.flatnonzero(lookup_rows(then, now, keys) < 0)
    for start, count in zip(groups.starts[new].tolist(), groups.counts[new].tolist(), strict=True):
        rows = slice(start, start + count)
        roots = [root.tobytes() for root in after["root"][rows]]
        key = unrouted_key(int(after["number"][start]), int(after["to"][start]))
        entries[key] = encode_queues([*zip(after["source"][rows].tolist(), roots, strict=True)])
    return entries


class LeafTries:
    """Tries of the relay chain, one a leaf in leaf order, with shared nodes."""

    def __init__(self) -> None:
        self.tries = Tries()
        self._leaves: list[int] = []

    @classmethod
    def of(cls, leaves: Sequence[RelayLeaf]) -> LeafTries:
        """Build the tries of leaves from their tables.

        Args:
            leaves: Leaves in order.
        """
        found = cls()
        found._leaves = found.tries.open(len(leaves), StateVersion.V1).tolist()
        for position, leaf in enumerate(leaves):
            found.change(position, relay_changes(None, leaf))
        return found

    def arrange_leaves(self, places: Sequence[int]) -> None:
        """Rearrange the tries of leaves.

        Args:
            places: Previous position of each new leaf; a repeated one is copied, a missing one closed.
        """
        used, leaves = set[int](), []
        for position in places:
            own = self._leaves[position]
            leaves.append(int(self.tries.copy(np.array([own], dtype=np.int64))[0]) if position in used else own)
            used.add(position)
        lost = [trie for position, trie in enumerate(self._leaves) if position not in used]
        self.tries.close(np.array(lost, dtype=np.int64))
        self._leaves = leaves

    def change(self, position: int, entries: Entries) -> None:
        """Change the trie of a leaf.

        Args:
            position: Position of the leaf.
            entries: Storage changes.
        """
        if entries:
            keys = sorted(entries)
            self.tries.update(self._leaves[position], keys, [entries[key] for key in keys])

    def roots(self) -> Digests:
        """Return the storage root of each leaf."""
        return self.tries.roots(np.array(self._leaves, dtype=np.int64))


def para_roots(
    state: State, chains: Chains, hosts: Mapping[str, np.ndarray], sections: Sequence[str] = SECTIONS
) -> Digests:
    """Compute the storage root of each parachain.

    Args:
        state: State of the parachains.
        chains: Positions of the parachains, ascending.
        hosts: Chain of each row of each table.
        sections: Committed tables besides those of programs.

    Returns:
        Roots, uint8, shape (n, 32).
    """
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


def genesis_hash(name: str) -> bytes:
    """Return the hash of block 0; it depends on the chain's name only.

    Args:
        name: Name of the chain.
    """
    return blake2_256(b"genesis of " + name.encode())


def commit_relay(
    before: RelayLeaf, after: RelayLeaf, place: int, tries: LeafTries, heads: list[bytes], tick: int
) -> tuple[RelayLeaf, Frame]:
    """Commit a block on a leaf.

    Args:
        before: Leaf before the block.
        after: Leaf after the block.
        place: Position of the leaf among the leaves.
        tries: Tries of the leaves, changed in place.
        heads: Heads included by the block.
        tick: Tick of the block.

    Returns:
        The leaf with its block, and the header.
    """
    number = before.number + 1
    tries.change(place, relay_changes(before, after))
    root = tries.roots()[place].tobytes()
    leaf = before.blocks["leaf"]
    own_hash = block_hash(before.hash, number, root, relay_rest(ordered_root(heads), int(leaf[0])))
    hashes = {"hash": digests([own_hash]), "parent": digests([before.hash])}
    at = {"chain": RELAY_POSITION, "leaf": leaf, "number": number}
    blocks = blank_rows(BLOCKS_SCHEMA, 1, **at, **hashes, next_tick=tick + 1)
    after = replace(set_posted_hash(with_ancestor(after), number, own_hash), blocks=blocks)
    return after, headers(blocks, digests([root]))


def headers(blocks: Frame, roots: np.ndarray) -> Frame:
    """Create headers (``HEADERS_SCHEMA``) of blocks.

    Args:
        blocks: ``chain``, ``number``, ``hash``, ``parent``.
        roots: Storage roots, uint8, shape (n, 32).
    """
    count = len(blocks)
    columns = {
        "chain": blocks["chain"],
        "number": blocks["number"],
        "hash": pa.array([row.tobytes() for row in blocks["hash"]], pa.binary()),
        "parent": pa.array([row.tobytes() for row in blocks["parent"]], pa.binary()),
        "root": roots,
        "certification": pa.array([b""] * count, pa.binary()),
    }
    return Frame(columns, count).select(HEADERS_SCHEMA.names)


def genesis_headers(names: Sequence[str], chains: Chains, roots: np.ndarray) -> Frame:
    """Create the headers of block 0 of ``chains``.

    Args:
        names: Names of all chains by position.
        chains: Positions of the chains.
        roots: Their storage roots, uint8, shape (n, 32).
    """
    hashes = [genesis_hash(names[chain]) for chain in chains.tolist()]
    columns = {
        "chain": chains,
        "number": np.zeros(len(chains), dtype=np.uint64),
        "hash": pa.array(hashes, pa.binary()),
        "parent": pa.array([b""] * len(chains), pa.binary()),
        "root": roots,
        "certification": pa.array([b""] * len(chains), pa.binary()),
    }
    return Frame(columns, len(chains))


def commit_parachains(
    state: State, bases: Frame, entries: Frame, hosts: dict[str, np.ndarray], height: int
) -> tuple[State, Frame]:
    """Commit a block of each parachain of ``bases``.

    Args:
        state: State after the blocks' messages.
        bases: Blocks to build on (``ChainPositions.rows``).
        entries: Consumed queues by (to, number, source).
        hosts: Chain of each row of each table.
        height: Height of the lake.

    Returns:
        The state with the receipts, and the headers.
    """
    chains = bases["chain"]
    tips = state["tips"]
    at = lookup_rows(tips, Frame({"chain": chains}, len(chains)), ("chain",))
    roots = para_roots(state, chains, hosts)
    runs = state["runs"]
    number = tips["number"][at] + np.uint64(1)
    watermark, watermark_hash = watermarks(bases, entries)
    at_run = lookup_rows(Frame({"source": chains}, len(chains)), runs, ("source",))
    fresh = (at_run >= 0) & (runs["source"] != runs["destination"])
    fresh[fresh] = runs["number"][fresh] == number[at_run[fresh]]
    posted = runs.filter(fresh)
    to = {"place": posted["destination"], "to": posted["destination"]}
    egress = posted.select(["source", "root"]).with_columns(destination=np.uint32(RELAY_POSITION), **to)
    hashes, parents = [], []
    starts, stops = posted["source"].searchsorted(chains), posted["source"].searchsorted(chains, side="right")
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        parent = tips["head"][at[row]].tobytes()
        pairs = zip(posted["destination"][start:stop].tolist(), posted["root"][start:stop], strict=True)
        rest = b"".join([para.to_bytes(4, "little") + root.tobytes() for para, root in pairs])
        rest += encode_watermark(int(watermark[row]), watermark_hash[row].tobytes())
        rest += bases["relay_hash"][row].tobytes()
        hashes.append(block_hash(parent, int(number[row]), roots[row].tobytes(), rest))
        parents.append(parent)
    heads = digests(hashes)
    blocks = bases.select(["chain", "relay_number", "relay_hash"]).with_columns(
        source=chains,
        destination=np.uint32(RELAY_POSITION),
        number=number,
        parent=digests(parents),
        head=heads,
        hash=heads,
        height=np.uint64(height),
        watermark=watermark,
        watermark_hash=watermark_hash,
    )
    tables = {
        name: replace_chains(STATE_TABLES[name], state[name], chains, rows)
        for name, rows in (("tips", blocks), ("candidates", blocks), ("egress", egress))
    }
    return state.with_tables(**tables), headers(blocks, roots)


def watermarks(bases: Frame, entries: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return the watermark of each chain after its consumed queues, and its hash (ICMP 3.4).

    It is the last consumed block. Chains without consumed queues keep their watermark.

    Args:
        bases: Blocks to build on (``ChainPositions.rows``).
        entries: Consumed queues by (to, number, source).

    Returns:
        Block numbers, uint64, and hashes, uint8, shape (n, 32).
    """
    watermark, hashes = bases["watermark"].copy(), bases["watermark_hash"].copy()
    if len(entries):
        stops = entries["to"].searchsorted(bases["chain"], side="right")
        starts = entries["to"].searchsorted(bases["chain"])
        rows = np.flatnonzero(stops > starts)
        last = stops[rows] - 1
        watermark[rows], hashes[rows] = entries["number"][last], entries["hash"][last]
    return watermark, hashes
