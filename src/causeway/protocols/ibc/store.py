"""The Merkle stores of zones (IBC reference 2.6, ``proof = simple``): one tree a zone over all its entries.

In the order of their keys: what belongs to applications and light clients, one entry a table (``app/<table>``, a digest
of the zone's rows), then the queues by remote zone, the receipt queue first: its head, its entries, its tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, empty_frame
from causeway.model.order import U64, Rows, lane_codes, pair_codes
from causeway.proofs.forest import Forest
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.protocols.contract import PROGRAM_TABLE
from causeway.protocols.ibc.entries import leaf_of, position_leaves
from causeway.protocols.ibc.keys import HEAD_KEY, TAIL_KEY, Part
from causeway.protocols.ibc.state import PROOFS_SCHEMA, SEND, State, keys_of
from causeway.protocols.ibc.unordered import present
from causeway.protocols.ibc.zones import Zones
from causeway.protocols.sections import section_digests

APPLICATION_PREFIX = b"app/"

COMMITTED = {
    "canisters": "accounts",
    "connections": "connections",
    "relayers": "relayers",
    "slots": "slots",
    "trust": "trust",
}
"""State tables, besides queues and programs, that are part of a zone's committed state, by their name in its keys."""

SEEN = ("peer_received", "peer_done")
"""Columns of ``connections`` that are the relayers' knowledge, not the zone's."""


class Committing(Protocol):
    """What a commitment needs to know; a block's ``Context`` says it."""

    @property
    def chains(self) -> npt.NDArray[np.uint32]:
        """Return the positions of the zones whose stores are committed, ascending."""
        ...

    @property
    def zones(self) -> Zones:
        """Return the fixed parts of the network."""
        ...


@dataclass(frozen=True)
class Store:
    """The stores of ``chains`` after a block.

    ``lanes``: the queues of connections, in the order of their keys; ``owner``: the place of each one's zone among
    ``chains``. ``heads``: where in its zone's tree the head of each queue is. ``first_entry``, ``counts``: the rows of
    ``entries`` (``state.leaves``) that are in each queue.
    """

    forest: Forest
    chains: npt.NDArray[np.uint32]
    lanes: Frame
    owner: Rows
    heads: Rows
    entries: Frame
    first_entry: Rows
    counts: Rows

    def roots(self) -> Digests:
        """Return the root of each zone's store, shape (zones, 32)."""
        return self.forest.roots()

    def prove_runs(self, runs: Frame) -> Frame:
        """Return the proofs (``PROOFS_SCHEMA``) of runs of entries (``RUNS_SCHEMA``) that are all in their queues."""
        if len(runs) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane = np.searchsorted(keys_of(self.lanes), keys_of(runs))
        own, asked = pair_codes((keys_of(self.entries), self.entries["index"]), (keys_of(runs), runs["first"]))
        rank = np.searchsorted(own, asked) - self.first_entry[lane]
        shown = runs.with_columns(part=np.uint8(Part.INDEX), pushed=runs["height"])
        return self._proofs(shown, lane, 1 + rank)

    def prove_positions(self, lanes: Frame, part: Part) -> Frame:
        """Return the proofs (``PROOFS_SCHEMA``) of the heads or tails of queues, which ``lanes`` names."""
        if len(lanes) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane = np.searchsorted(keys_of(self.lanes), keys_of(lanes))
        value = self.lanes["begin" if part == Part.HEAD else "next_index"][lane]
        shown = lanes.with_columns(
            part=np.uint8(part), pushed=np.uint64(0), first=value, count=np.ones(len(lanes), dtype=np.uint64)
        )
        offset = np.zeros(len(lanes), dtype=np.int64) if part == Part.HEAD else 1 + self.counts[lane]
        return self._proofs(shown, lane, offset)

    def _proofs(self, runs: Frame, lane: Rows, offset: Rows) -> Frame:
        tree, place = self.owner[lane], self.heads[lane] + offset
        digests, sides = self.forest.sides(tree, place, runs["count"].astype(np.int64))
        offsets = np.append(0, np.cumsum(sides * DIGEST_BYTES)).astype(np.int32)
        column = pa.BinaryArray.from_buffers(
            pa.binary(), len(runs), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digests))]
        )
        return runs.with_columns(
            place=place.astype(np.uint64), size=self.forest.sizes[tree].astype(np.uint64), sides=column
        ).select(PROOFS_SCHEMA.names)


def commit(state: State, context: Committing) -> Store:
    """Return the stores of a block's zones."""
    chains, queues = context.chains, state.queues
    lanes = queues.filter((queues["chain"] != queues["remote"]) & np.isin(queues["chain"], chains))
    entry_keys, lane_keys = keys_of(state.leaves), keys_of(lanes)
    first_entry = np.searchsorted(entry_keys, lane_keys)
    counts = np.searchsorted(entry_keys, lane_keys, side="right") - first_entry
    application = _application_leaves(state, context)
    fixed = application.shape[1]
    owner: Rows = np.asarray(np.searchsorted(chains, lanes["chain"]), dtype=np.int64)
    sizes = np.bincount(owner, weights=counts + 2, minlength=len(chains)).astype(np.int64) + fixed
    bases = np.cumsum(sizes) - sizes
    # Of all zones' queues joined, where each begins; less those of the zones before.
    joined = np.cumsum(counts + 2) - (counts + 2)
    heads: Rows = (fixed + joined - (bases - fixed * np.arange(len(chains)))[owner]).astype(np.int64)
    leaves = np.empty((int(sizes.sum()), DIGEST_BYTES), dtype=np.uint8)
    leaves[(bases[:, None] + np.arange(fixed)).reshape(-1)] = application.reshape(-1, DIGEST_BYTES)
    places = bases[owner] + heads
    leaves[places] = position_leaves(lanes, HEAD_KEY, lanes["begin"], context.zones)
    leaves[places + 1 + counts] = position_leaves(lanes, TAIL_KEY, lanes["next_index"], context.zones)
    rank = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    leaves[np.repeat(places + 1, counts) + rank] = state.leaves["digest"][np.repeat(first_entry, counts) + rank]
    return Store(Forest(leaves, sizes), chains, lanes, owner, heads, state.leaves, first_entry, counts)


def application_entries(state: State, context: Committing) -> list[dict[bytes, bytes]]:
    """Return the entries of each zone's store that belong to no queue, keys ascending."""
    tables: dict[str, Frame] = {key: getattr(state, name) for key, name in COMMITTED.items()}
    tables["connections"] = tables["connections"].select([name for name in state.connections.names if name not in SEEN])
    tables |= {PROGRAM_TABLE + name: frame for name, frame in state.programs.items()}
    entries: list[dict[bytes, bytes]] = [{} for _ in context.chains]
    for name in sorted(tables, key=str.encode):
        frame = tables[name]
        own = frame["chain"] if "chain" in frame else context.zones.host_of(frame["program"]).view(np.uint32)
        key = APPLICATION_PREFIX + name.encode()
        for zone, digest in zip(entries, section_digests(frame, own, context.chains), strict=True):
            zone[key] = digest
    return entries


def _application_leaves(state: State, context: Committing) -> Digests:
    """Return the leaf hashes of ``application_entries``, shape (zones, entries a zone, 32)."""
    entries = application_entries(state, context)
    hashed = b"".join(leaf_of(key, value) for zone in entries for key, value in zone.items())
    return np.frombuffer(hashed, dtype=np.uint8).reshape(len(entries), -1, DIGEST_BYTES)


def pending_runs(state: State) -> Frame:
    """Return the runs of queues (``RUNS_SCHEMA``) that relayers may still want a proof of.

    Of a send queue: what the remote chain, as far as relayers saw, has not received; of a receipt queue: what it has
    not processed. Of a receipt queue only what is written; of an unordered one only what is still there.
    """
    runs = state.runs
    apart = runs["chain"] != runs["remote"]
    runs = runs.filter(apart)
    if len(runs) == 0:
        return runs
    connections = state.connections
    place = np.searchsorted(
        lane_codes(connections["chain"], connections["remote"]), lane_codes(runs["chain"], runs["remote"])
    )
    sent = runs["substream"] == SEND
    seen: U64 = np.where(sent, connections["peer_received"][place], connections["peer_done"][place])
    runs = runs.filter(runs["first"] + runs["count"] > seen)
    lane = np.searchsorted(keys_of(state.queues), keys_of(runs))
    first = np.maximum(runs["first"], state.queues["begin"][lane])
    return present(runs.with_columns(first=first, count=runs["first"] + runs["count"] - first), state.leaves)


__all__ = ["Committing", "Store", "application_entries", "commit", "pending_runs"]
