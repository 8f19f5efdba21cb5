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

from causeway.model.frame import Frame, empty_frame, repeated
from causeway.model.joins import codes, lookup, over
from causeway.model.order import U64, Rows
from causeway.proofs.forest import Forest
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.protocols.execution import PROGRAM_TABLE
from causeway.protocols.ibc.entries import hashed_positions, leaf_of, position_leaves
from causeway.protocols.ibc.keys import HEAD_KEY, MAX_INDEX, TAIL_KEY, Part
from causeway.protocols.ibc.state import PROOFS_SCHEMA, RUNS_SCHEMA, SEND, STATE_TABLES, State, connection_rows
from causeway.protocols.ibc.unordered import present
from causeway.protocols.ibc.zones import Zones
from causeway.protocols.messages import LANE, LANE_COLUMNS
from causeway.protocols.sections import section_digests

APPLICATION_PREFIX = b"app/"

COMMITTED = {
    "canisters": "accounts",
    "connections": "connections",
    "relayers": "relayers",
    "slots": "slots",
    "trust": "trust",
}
"""By its name in the keys of a store: the state table, besides queues and programs, that is committed under it."""

SEEN = ("peer_received", "peer_done")
"""Columns of ``connections`` that are the relayers' knowledge, not the zone's."""

WAITED = ("added_time",)
"""Columns of ``trust`` on which something depends only where headers have a delay."""


def _not_pushed(length: int) -> dict[str, U64]:
    """Return the columns of proofs that only those of entries have."""
    return {name: repeated(np.uint64(0), length) for name in ("pushed", "tick", "max_height")}


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

    ``lanes``: the queues of connections, in the order of their keys; ``owner``: the row of each one's zone in
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
        lane = lookup(self.lanes, runs, LANE)
        first = runs.select(LANE).with_columns(index=runs["first"])
        rank = lookup(self.entries, first, LANE_COLUMNS) - self.first_entry[lane]
        shown = runs.with_columns(part=np.uint8(Part.INDEX), pushed=runs["height"])
        return self._proofs(shown, lane, 1 + rank)

    def prove_positions(self, lanes: Frame, part: Part) -> Frame:
        """Return the proofs (``PROOFS_SCHEMA``) of the heads or tails of queues, which ``lanes`` names."""
        if len(lanes) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane = lookup(self.lanes, lanes, LANE)
        value = self.lanes["begin" if part == Part.HEAD else "next_index"][lane]
        shown = lanes.with_columns(
            part=np.uint8(part), **_not_pushed(len(lanes)), first=value, count=np.ones(len(lanes), dtype=np.uint64)
        )
        offset = np.zeros(len(lanes), dtype=np.int64) if part == Part.HEAD else 1 + self.counts[lane]
        return self._proofs(shown, lane, offset)

    def prove_absences(self, asked: Frame, receipts: Frame) -> Frame:
        """Return the proofs (``PROOFS_SCHEMA``, ``part`` ABSENT) that cover the indices ``begin`` to ``end`` - 1 of
        receipt queues (``asked``: lanes with both) that have no entry; ``receipts``: the hashes of those that have."""
        if len(asked) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane = lookup(self.lanes, asked, LANE)
        of_lane = asked.select(LANE)
        ends = (of_lane.with_columns(index=asked[name]) for name in ("begin", "end"))
        keys, *bounds = codes(LANE_COLUMNS, self.entries, *ends)
        low, high = (np.searchsorted(keys, bound) for bound in bounds)
        # Gap ``behind`` lies between the entries ``behind`` - 1 and ``behind``, the head before the first of a queue.
        row, behind = over(low, high + 1)
        lane = lane[row]
        rank = behind - self.first_entry[lane]
        index = np.append(self.entries["index"], np.uint64(0))
        first = np.where(rank == 0, np.uint64(0), index[behind - 1] + np.uint64(1))
        last = rank == self.counts[lane]
        end = np.where(last, np.uint64(MAX_INDEX), index[behind])
        wanted = np.maximum(first, asked["begin"][row]) < np.minimum(end, asked["end"][row])
        lane, rank, last, behind, first, end, row = (
            column[wanted] for column in (lane, rank, last, behind, first, end, row)
        )
        values = np.empty((len(lane), 2, DIGEST_BYTES), dtype=np.uint8)
        for side, at_end, name, entry in ((0, rank == 0, "begin", behind - 1), (1, last, "next_index", behind)):
            values[at_end, side] = hashed_positions(self.lanes[name][lane[at_end]])
            held = lookup(receipts, self.entries.select(LANE_COLUMNS).take(entry[~at_end]), LANE_COLUMNS)
            values[~at_end, side] = receipts["value"][held]
        shown = of_lane.take(row).with_columns(
            part=repeated(np.uint8(Part.ABSENT), len(row)), **_not_pushed(len(row)), first=first, count=end - first
        )
        return self._proofs(shown, lane, rank, values)

    def _proofs(self, runs: Frame, lane: Rows, offset: Rows, beside: Digests | None = None) -> Frame:
        """Return runs with their proofs; ``beside``: the values that come before the sides of two leaves each."""
        tree, position = self.owner[lane], self.heads[lane] + offset
        counts = runs["count"].astype(np.int64) if beside is None else np.full(len(runs), 2, dtype=np.int64)
        digests, sides = self.forest.sides(tree, position, counts)
        if beside is not None:
            starts = np.cumsum(sides) - sides
            digests = np.insert(digests, np.repeat(starts, 2), beside.reshape(-1, DIGEST_BYTES), axis=0)
            sides = sides + 2
        offsets = np.append(0, np.cumsum(sides * DIGEST_BYTES)).astype(np.int32)
        column = pa.BinaryArray.from_buffers(
            pa.binary(), len(runs), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digests))]
        )
        return runs.with_columns(
            position=position.astype(np.uint64), size=self.forest.sizes[tree].astype(np.uint64), sides=column
        ).select(PROOFS_SCHEMA.names)


def commit(state: State, context: Committing) -> Store:
    """Return the stores of a block's zones."""
    chains, queues = context.chains, state.queues.counters
    lanes = queues.filter((queues["source"] != queues["destination"]) & np.isin(queues["source"], chains))
    entry_keys, lane_keys = codes(LANE, state.leaves, lanes)
    first_entry = np.searchsorted(entry_keys, lane_keys)
    counts = np.searchsorted(entry_keys, lane_keys, side="right") - first_entry
    application = _application_leaves(state, context)
    fixed = application.shape[1]
    owner: Rows = np.asarray(np.searchsorted(chains, lanes["source"]), dtype=np.int64)
    sizes = np.bincount(owner, weights=counts + 2, minlength=len(chains)).astype(np.int64) + fixed
    bases = np.cumsum(sizes) - sizes
    # Of all zones' queues joined, where each begins; less those of the zones before.
    joined = np.cumsum(counts + 2) - (counts + 2)
    heads: Rows = (fixed + joined - (bases - fixed * np.arange(len(chains)))[owner]).astype(np.int64)
    leaves = np.empty((int(sizes.sum()), DIGEST_BYTES), dtype=np.uint8)
    leaves[(bases[:, None] + np.arange(fixed)).reshape(-1)] = application.reshape(-1, DIGEST_BYTES)
    first_leaf = bases[owner] + heads
    leaves[first_leaf] = position_leaves(lanes, HEAD_KEY, lanes["begin"], context.zones)
    leaves[first_leaf + 1 + counts] = position_leaves(lanes, TAIL_KEY, lanes["next_index"], context.zones)
    lane, entry = over(first_entry, first_entry + counts)
    leaves[(first_leaf + 1 - first_entry)[lane] + entry] = state.leaves["digest"][entry]
    return Store(Forest(leaves, sizes), chains, lanes, owner, heads, state.leaves, first_entry, counts)


def application_entries(state: State, context: Committing) -> list[dict[bytes, bytes]]:
    """Return the entries of each zone's store that belong to no queue, keys ascending."""
    tables: dict[str, Frame] = {key: getattr(state, name) for key, name in COMMITTED.items()}
    tables["connections"] = tables["connections"].select([name for name in state.connections.names if name not in SEEN])
    if not context.zones.options.delay_ns:
        tables["trust"] = tables["trust"].select([name for name in state.trust.names if name not in WAITED])
    tables |= {PROGRAM_TABLE + name: frame for name, frame in state.programs.items()}
    entries: list[dict[bytes, bytes]] = [{} for _ in context.chains]
    for name in sorted(tables, key=str.encode):
        frame = tables[name]
        owner = STATE_TABLES[COMMITTED[name]].owner if name in COMMITTED else "program"
        own = context.zones.host_of(frame[owner]).view(np.uint32) if owner == "program" else frame[owner]
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

    Of a send queue: what the destination, as far as relayers saw, has not received; of a receipt queue: what it has
    not processed. Of a receipt queue only what is written; of an unordered one only what is still there.
    """
    runs = state.runs
    runs = runs.filter(runs["source"] != runs["destination"])
    if len(runs) == 0:
        return runs
    connections = state.connections
    connection = connection_rows(connections, runs["source"], runs["destination"])
    sent = runs["substream"] == SEND
    seen: U64 = np.where(sent, connections["peer_received"][connection], connections["peer_done"][connection])
    runs = runs.with_columns(seen=seen).filter(runs["first"] + runs["count"] > seen)
    first = np.maximum(runs["first"], state.queues.count_of("begin", runs))
    runs = present(runs.with_columns(first=first, count=runs["first"] + runs["count"] - first), state.leaves)
    # Where entries are gone, what is left of a run may end before what is wanted begins.
    return runs.filter(runs["first"] + runs["count"] > runs["seen"]).select(RUNS_SCHEMA.names)


__all__ = ["Committing", "Store", "application_entries", "commit", "pending_runs"]
