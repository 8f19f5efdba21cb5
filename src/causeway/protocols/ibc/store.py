"""The Merkle stores of zones: one tree per zone over all its entries.

They implement ``proof = simple`` (IBC reference 2.6).

Entries are in key order: tables of applications and light clients (``app/<table>``, one digest of the zone's rows
each), then the queues by remote zone, each receipt queue first: its head, its entries, its tail (IBC reference 2.6).

The trees are cached with the state and derived from its tables. A block hashes changed leaves and moved leaves: an
added or removed entry costs the leaves after it and the paths above them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.merkle_forest import MerkleForest
from causeway_proofs.order import U64, Rows, find_positions

from causeway.core.frame import Frame, empty_frame, repeat_value
from causeway.core.joins import expand_ranges, lookup_rows
from causeway.protocols.contract import Chains
from causeway.protocols.ibc.context import ZoneNetwork
from causeway.protocols.ibc.keys import HEAD_KEY, MAX_INDEX, TAIL_KEY, KeyPart
from causeway.protocols.ibc.leaves import Leaves, lane_keys
from causeway.protocols.ibc.queue_entries import entry_leaf, position_hashes, position_leaves, split_present_runs
from causeway.protocols.ibc.state import PROOFS_SCHEMA, RUNS_SCHEMA, SEND, STATE_TABLES, State, connection_rows
from causeway.protocols.shared.digests import TableDigests, digest_rows_by_chain
from causeway.protocols.shared.execution import PROGRAM_TABLE
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS

__all__ = [
    "ApplicationEntries",
    "CommitmentContext",
    "ConnectionQueues",
    "Store",
    "application_entries",
    "pending_runs",
]

APPLICATION_PREFIX = b"app/"

COMMITTED = {
    "canisters": "accounts",
    "connections": "connections",
    "funds": "funds",
    "relayers": "relayers",
    "slots": "slots",
    "trust": "trust",
}
"""Committed state tables besides queues, by their name in the keys of a store."""

NOT_COMMITTED = {
    "connections": ("peer_received", "peer_done"),
    "funds": ("stopped", "stops"),
    "trust": ("added_time",),
}
"""Columns that are not committed.

Those of ``connections`` and ``funds`` are the relayers' knowledge, not the zone's. That of ``trust`` matters only where
headers have a delay.
"""


class CommitmentContext(Protocol):
    """The part of a block's ``Context`` that a commitment needs."""

    @property
    def chains(self) -> npt.NDArray[np.uint32]:
        """Return the positions of the committing zones, ascending."""
        ...

    @property
    def zones(self) -> ZoneNetwork:
        """Return the constant parts of the network."""
        ...


@dataclass(frozen=True)
class ApplicationEntries:
    """The entries of zones' stores outside the queues.

    Attributes:
        tables: The digested tables by name, in key order.
        sections: Their digests.
        leaves: The leaf hashes of the entries, shape (zones, tables, 32).
    """

    tables: Mapping[str, Frame]
    sections: Mapping[str, TableDigests]
    leaves: Digests

    def entries(self) -> list[dict[bytes, bytes]]:
        """Return the entries of each zone's store, in key order."""
        zones = zip(*(section.digests for section in self.sections.values()), strict=True)
        return [dict(zip(map(_key, self.sections), digests, strict=True)) for digests in zones]


def application_entries(
    state: State, context: CommitmentContext, before: ApplicationEntries | None = None
) -> ApplicationEntries:
    """Return the entries of zones' stores outside the queues.

    Args:
        state: The state of the zones.
        context: The zones.
        before: Earlier entries of the same zones, to avoid hashing unchanged tables.
    """
    tables: dict[str, Frame] = {key: getattr(state, name) for key, name in COMMITTED.items()}
    if context.zones.options.relay.accounts is None:
        del tables["funds"]
    tables |= {PROGRAM_TABLE + name: frame for name, frame in state.programs.items()}
    tables = {name: tables[name] for name in sorted(tables, key=str.encode)}
    if before is None or list(before.tables) != list(tables):
        before = None
    if before is not None and all(before.tables[name] is frame for name, frame in tables.items()):
        return before
    shape = len(context.chains), len(tables), DIGEST_BYTES
    leaves = np.empty(shape, dtype=np.uint8) if before is None else before.leaves.copy()
    sections: dict[str, TableDigests] = {}
    for column, (name, frame) in enumerate(tables.items()):
        known = None if before is None else before.sections[name]
        if before is not None and known is not None and before.tables[name] is frame:
            sections[name] = known
            continue
        # The digests of the zones' rows of a table.
        owner = STATE_TABLES[COMMITTED[name]].owner if name in COMMITTED else "program"
        own = context.zones.host_of(frame[owner]).view(np.uint32) if owner == "program" else frame[owner]
        left_out = NOT_COMMITTED.get(name, ())
        if name == "trust" and context.zones.options.delay_ns:
            left_out = ()
        committed = frame.select([column for column in frame.names if column not in left_out])
        section = sections[name] = digest_rows_by_chain(committed, own, context.chains, known)
        changed = range(len(context.chains)) if known is None else section.changed.tolist()
        for zone in changed:
            leaf = entry_leaf(_key(name), section.digests[zone])
            leaves[zone, column] = np.frombuffer(leaf, dtype=np.uint8)
    return ApplicationEntries(tables, sections, leaves)


def _key(name: str) -> bytes:
    return APPLICATION_PREFIX + name.encode()


def _not_pushed(length: int) -> dict[str, U64]:
    """Return constant values of the proof columns that only entries use."""
    return {name: repeat_value(np.uint64(0), length) for name in ("pushed", "tick", "max_height")}


@dataclass(frozen=True)
class ConnectionQueues:
    """The queues of zones' connections, in key order.

    Attributes:
        counters: The table of queue counters.
        rows: The rows of the queues in it.
        lanes: The lanes of the queues, with begin and end.
        keys: The numbers of the lanes.
        owner: The row of each queue's zone among the zones.
    """

    counters: Frame
    rows: Rows
    lanes: Frame
    keys: U64
    owner: Rows

    @classmethod
    def of(cls, state: State, chains: npt.NDArray[np.uint32], before: ConnectionQueues | None) -> ConnectionQueues:
        """Return the queues of a state's zones, reusing ``before``, those of the same zones earlier."""
        counters = state.queues.counters
        ends = ("begin", "next_index")
        if before is not None and all(
            (counters[name] is before.counters[name] or np.array_equal(counters[name], before.counters[name]))
            for name in LANE
        ):
            moved = {name: counters[name][before.rows] for name in ends}
            return replace(before, counters=counters, lanes=before.lanes.with_columns(**moved))
        is_remote = (counters["source"] != counters["destination"]) & np.isin(counters["source"], chains)
        rows = np.flatnonzero(is_remote)
        lanes = counters.select((*LANE, *ends)).take(rows)
        owner: Rows = np.asarray(np.searchsorted(chains, lanes["source"]), dtype=np.int64)
        return cls(counters, rows, lanes, lane_keys(lanes), owner)


@dataclass(frozen=True)
class Store:
    """The stores of ``chains`` after a block.

    Attributes:
        chains: Positions of the zones.
        queued: The queues.
        heads: The position of each queue's head in its zone's tree.
        ends: The leaves of heads and tails, shape (queues, 2, 32).
        leaves: The entries of the queues.
        counts: The number of entries of each queue.
        application: The entries outside the queues.
        roots: The root of each zone's store, shape (zones, 32).
        forest: The trees. A later block changes them, after which this store gives no proofs.
        version: The version of the forest after the block.
    """

    chains: npt.NDArray[np.uint32]
    queued: ConnectionQueues
    heads: Rows
    ends: Digests
    leaves: Leaves
    counts: Rows
    application: ApplicationEntries
    roots: Digests
    forest: MerkleForest
    version: int

    @property
    def lanes(self) -> Frame:
        """Return the queues, in key order."""
        return self.queued.lanes

    @property
    def is_current(self) -> bool:
        """Return True if the trees are still those of this block."""
        return self.version == self.forest.version

    def prove_runs(self, runs: Frame) -> Frame:
        """Return proofs (``PROOFS_SCHEMA``) of runs (``RUNS_SCHEMA``) of present entries."""
        if len(runs) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane, rank = lookup_rows(self.lanes, runs, LANE), self.leaves.ranks(runs, runs["first"])
        proved = runs.with_columns(part=np.uint8(KeyPart.INDEX), pushed=runs["height"])
        return self._proofs(proved, lane, 1 + rank)

    def prove_positions(self, lanes: Frame, part: KeyPart) -> Frame:
        """Return proofs (``PROOFS_SCHEMA``) of the heads or tails of the queues ``lanes``."""
        if len(lanes) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane = lookup_rows(self.lanes, lanes, LANE)
        value = self.lanes["begin" if part == KeyPart.HEAD else "next_index"][lane]
        proved = lanes.with_columns(
            part=np.uint8(part), **_not_pushed(len(lanes)), first=value, count=np.ones(len(lanes), dtype=np.uint64)
        )
        offset = np.zeros(len(lanes), dtype=np.int64) if part == KeyPart.HEAD else 1 + self.counts[lane]
        return self._proofs(proved, lane, offset)

    def prove_absences(self, ranges: Frame, receipts: Frame) -> Frame:
        """Return proofs of the missing indices of ranges of receipt queues.

        They have ``PROOFS_SCHEMA`` with ``part`` ABSENT.

        Args:
            ranges: Lanes with ``begin`` and ``end``.
            receipts: The hashes of the present receipts.
        """
        if len(ranges) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane = lookup_rows(self.lanes, ranges, LANE)
        of_lane = ranges.select(LANE)
        low, high = (self.leaves.ranks(ranges, ranges[name]) for name in ("begin", "end"))
        # Gap ``rank`` lies between the entries ``rank`` - 1 and ``rank``, the head before the first of a queue.
        row, rank = expand_ranges(low, high + 1)
        lane = lane[row]
        last = rank == self.counts[lane]
        first, end = np.zeros(len(row), dtype=np.uint64), np.full(len(row), MAX_INDEX, dtype=np.uint64)
        behind, before = np.flatnonzero(~last), np.flatnonzero(rank > 0)
        end[behind] = self.leaves.at(of_lane.take(row[behind]), rank[behind])
        first[before] = self.leaves.at(of_lane.take(row[before]), rank[before] - 1) + np.uint64(1)
        wanted = np.maximum(first, ranges["begin"][row]) < np.minimum(end, ranges["end"][row])
        lane, rank, last, first, end, row = (column[wanted] for column in (lane, rank, last, first, end, row))
        values = np.empty((len(lane), 2, DIGEST_BYTES), dtype=np.uint8)
        for side, at_end, name, index in ((0, rank == 0, "begin", first - np.uint64(1)), (1, last, "next_index", end)):
            values[at_end, side] = position_hashes(self.lanes[name][lane[at_end]])
            entry = of_lane.take(row[~at_end]).with_columns(index=index[~at_end])
            values[~at_end, side] = receipts["value"][lookup_rows(receipts, entry, LANE_COLUMNS)]
        proved = of_lane.take(row).with_columns(
            part=repeat_value(np.uint8(KeyPart.ABSENT), len(row)),
            **_not_pushed(len(row)),
            first=first,
            count=end - first,
        )
        return self._proofs(proved, lane, rank, values)

    def _proofs(self, runs: Frame, lane: Rows, offset: Rows, beside: Digests | None = None) -> Frame:
        """Return runs with proofs; ``beside``: values that precede the sides, for two leaves each."""
        tree, position = self.queued.owner[lane], self.heads[lane] + offset
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


def pending_runs(state: State) -> Frame:
    """Return the runs of queues (``RUNS_SCHEMA``) that may still need a proof.

    In a send queue: entries that the destination, as seen by relayers, has not received. In a receipt queue: written,
    unpruned entries that it has not processed.

    Args:
        state: State of the chains.

    Returns:
        Rows of ``RUNS_SCHEMA``.
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
    first = np.maximum(runs["first"], state.queues.read_counters("begin", runs))
    runs = split_present_runs(runs.with_columns(first=first, count=runs["first"] + runs["count"] - first), state.leaves)
    # After pruning, the rest of a run may end before the pending entries begin.
    return runs.filter(runs["first"] + runs["count"] > runs["seen"]).select(RUNS_SCHEMA.names)


Mask = npt.NDArray[np.bool_]

_NO_ROOTS = np.empty((0, DIGEST_BYTES), dtype=np.uint8)

HEAD, TAIL = 0, 1
"""Columns of the leaves of queues' ends."""


def commit_stores(state: State, context: CommitmentContext) -> Store:
    """Return the stores of a state's zones.

    The trees of ``state.kept`` are updated if they are of these zones and no other block has changed them; else all are
    rebuilt.

    Args:
        state: The state of the zones.
        context: The zones.
    """
    chains: Chains = context.chains
    before = state.kept.store if isinstance(state.kept.store, Store) else None
    if before is not None and not ((before.forest.version == before.version) and np.array_equal(before.chains, chains)):
        before = None
    queued = ConnectionQueues.of(state, chains, None if before is None else before.queued)
    if before is not None and queued.keys is not before.queued.keys:
        before = None
    application = application_entries(state, context, None if before is None else before.application)
    counts = state.leaves.counts(queued.keys)
    fixed = application.leaves.shape[1]
    sizes = np.bincount(queued.owner, weights=counts + 2, minlength=len(chains)).astype(np.int64) + fixed
    bases = np.cumsum(sizes) - sizes
    # The position of each queue in its own zone's tree.
    joined = np.cumsum(counts + 2) - (counts + 2)
    heads: Rows = fixed + joined - (bases - fixed * np.arange(len(chains)))[queued.owner]
    moved = _moved_ends(queued, before)
    # The leaves of the heads and tails of queues, shape (queues, 2, 32).
    lanes = queued.lanes
    ends = np.empty((len(lanes), 2, DIGEST_BYTES), dtype=np.uint8) if before is None else before.ends.copy()
    for side, name, key in ((HEAD, "begin", HEAD_KEY), (TAIL, "next_index", TAIL_KEY)):
        rows = np.flatnonzero(moved[:, side])
        if len(rows):
            changed = lanes.take(rows)
            ends[rows, side] = position_leaves(changed, key, changed[name], context.zones)
    forest = MerkleForest(sizes) if before is None else before.forest
    same = {} if before is None else _same_first(queued, state.leaves, before)
    shifts = np.zeros(len(chains), dtype=np.int64)
    if before is not None:
        if not same and not moved.any() and application.leaves is before.application.leaves:
            return before
        shifts = sizes.copy()
        resized = [row for row in same if counts[row] != before.counts[row]]
        unchanged = np.array([same[row] for row in resized], dtype=np.int64)
        np.minimum.at(shifts, queued.owner[resized], heads[resized] + 1 + unchanged)
        forest.resize(sizes)
    store = Store(chains, queued, heads, ends, state.leaves, counts, application, _NO_ROOTS, forest, forest.version)
    _write(store, shifts, same, moved, before)
    return replace(store, roots=forest.roots())


def _moved_ends(queued: ConnectionQueues, before: Store | None) -> Mask:
    """Return a mask of changed heads and tails, shape (queues, 2)."""
    names = ("begin", "next_index")
    if before is None:
        return np.ones((len(queued.lanes), 2), dtype=bool)
    return np.stack([queued.lanes[name] != before.lanes[name] for name in names], axis=1)


def _same_first(queued: ConnectionQueues, leaves: Leaves, before: Store) -> dict[int, int]:
    """Return the number of unchanged first entries of each changed queue, by row of ``lanes``."""
    keys = sorted(leaves.changed(before.leaves))
    rows = find_positions(queued.keys, np.array(keys, dtype=np.uint64))
    found = {}
    for key, row in zip(keys, rows.tolist(), strict=True):
        entries, known = leaves.get(key), before.leaves.get(key)
        if row >= 0:
            found[row] = 0 if entries is None or known is None else entries.common_prefix_length(known)
    return found


def _write(store: Store, shifts: Rows, same: dict[int, int], moved: Mask, before: Store | None) -> None:
    """Write the new and moved leaves, and hash the paths above them.

    Args:
        store: The store.
        shifts: The position of the first moved leaf of each tree.
        same: See ``_same_first``.
        moved: Mask of the changed ends of queues.
        before: The store before the block.
    """
    forest, owner, heads, counts = store.forest, store.queued.owner, store.heads, store.counts
    leaves, bases, shift = forest.leaves, forest.offsets[owner], shifts[owner]
    application = store.application.leaves
    changed = np.ones(application.shape[:2], dtype=bool)
    if before is not None:
        changed = (application != before.application.leaves).any(axis=2)
    zone, column = np.nonzero(changed)
    leaves[forest.offsets[zone] + column] = application[zone, column]
    written = [(zone, column)]
    for side, position in ((HEAD, heads), (TAIL, heads + 1 + counts)):
        rows = np.flatnonzero(moved[:, side] | (position >= shift))
        leaves[(bases + position)[rows]] = store.ends[rows, side]
        written.append((owner[rows], position[rows]))
    behind = np.flatnonzero((counts > 0) & (heads + 1 + counts > shift))
    first = dict(zip(behind.tolist(), np.maximum(shift - heads - 1, 0)[behind].tolist(), strict=True))
    for row, rank in {**same, **first}.items():
        entries = store.leaves.get(int(store.queued.keys[row]))
        if entries is not None and rank < len(entries):
            at = int(bases[row] + heads[row]) + 1
            leaves[at + rank : at + len(entries)] = entries.digests[rank:]
            positions = np.arange(rank, len(entries)) + (heads[row] + 1)
            written.append((np.full(len(positions), owner[row]), positions))
    tree, position = (np.concatenate(column) for column in zip(*written, strict=True))
    node_keys = tree << 40 | position
    if not bool((node_keys[1:] > node_keys[:-1]).all()):
        node_keys.sort()
        node_keys = node_keys[np.append(True, node_keys[1:] != node_keys[:-1])]
    forest.rehash(node_keys >> 40, node_keys & ((1 << 40) - 1))
