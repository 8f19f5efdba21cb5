"""The Merkle stores of zones (IBC reference 2.6, ``proof = simple``): one tree a zone over all its entries.

In the order of their keys: what belongs to applications and light clients (``application``), then the queues by remote
zone, the receipt queue first: its head, its entries, its tail.

``committing`` makes them; here are the proofs that they give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, empty_frame, repeated
from causeway.model.joins import lookup, over
from causeway.model.order import U64, Rows
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.kept_forest import KeptForest
from causeway.protocols.ibc.application import Application
from causeway.protocols.ibc.entries import hashed_positions
from causeway.protocols.ibc.keys import MAX_INDEX, Part
from causeway.protocols.ibc.leaves import Leaves, lane_keys
from causeway.protocols.ibc.state import PROOFS_SCHEMA, RUNS_SCHEMA, SEND, State, connection_rows
from causeway.protocols.ibc.unordered import present
from causeway.protocols.messages import LANE, LANE_COLUMNS


def _not_pushed(length: int) -> dict[str, U64]:
    """Return the columns of proofs that only those of entries have."""
    return {name: repeated(np.uint64(0), length) for name in ("pushed", "tick", "max_height")}


@dataclass(frozen=True)
class Queued:
    """The queues of zones' connections, in the order of their keys in the stores.

    ``counters``: the table that they are rows ``rows`` of. ``lanes``: what they are called, and where they begin and
    end; ``keys``: their numbers; ``owner``: the row of each one's zone among the zones.
    """

    counters: Frame
    rows: Rows
    lanes: Frame
    keys: U64
    owner: Rows

    @classmethod
    def of(cls, state: State, chains: npt.NDArray[np.uint32], before: Queued | None) -> Queued:
        """Return the queues of a state's zones; ``before``: those of the same zones in an earlier state."""
        counters = state.queues.counters
        ends = ("begin", "next_index")
        if before is not None and all(
            (counters[name] is before.counters[name] or np.array_equal(counters[name], before.counters[name]))
            for name in LANE
        ):
            moved = {name: counters[name][before.rows] for name in ends}
            return replace(before, counters=counters, lanes=before.lanes.with_columns(**moved))
        apart = (counters["source"] != counters["destination"]) & np.isin(counters["source"], chains)
        rows = np.flatnonzero(apart)
        lanes = counters.select((*LANE, *ends)).take(rows)
        owner: Rows = np.asarray(np.searchsorted(chains, lanes["source"]), dtype=np.int64)
        return cls(counters, rows, lanes, lane_keys(lanes), owner)


@dataclass(frozen=True)
class Store:
    """The stores of ``chains`` after a block.

    ``heads``: where in its zone's tree the head of each queue is; ``ends``: the leaves of heads and tails, shape
    (queues, 2, 32). ``leaves``, ``counts``: the entries of the queues, and how many each has. ``application``: what
    belongs to no queue. ``roots``: of each zone's store, shape (zones, 32). ``forest``: the trees, as the block of
    ``version`` left them: a later one changes them, and then there are no proofs any more.
    """

    chains: npt.NDArray[np.uint32]
    queued: Queued
    heads: Rows
    ends: Digests
    leaves: Leaves
    counts: Rows
    application: Application
    roots: Digests
    forest: KeptForest
    version: int

    @property
    def lanes(self) -> Frame:
        """Return the queues, in the order of their keys."""
        return self.queued.lanes

    @property
    def is_current(self) -> bool:
        """Return whether the trees are still those of this block."""
        return self.version == self.forest.version

    def prove_runs(self, runs: Frame) -> Frame:
        """Return the proofs (``PROOFS_SCHEMA``) of runs of entries (``RUNS_SCHEMA``) that are all in their queues."""
        if len(runs) == 0:
            return empty_frame(PROOFS_SCHEMA)
        lane, rank = lookup(self.lanes, runs, LANE), self.leaves.ranks(runs, runs["first"])
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
        low, high = (self.leaves.ranks(asked, asked[name]) for name in ("begin", "end"))
        # Gap ``rank`` lies between the entries ``rank`` - 1 and ``rank``, the head before the first of a queue.
        row, rank = over(low, high + 1)
        lane = lane[row]
        last = rank == self.counts[lane]
        first, end = np.zeros(len(row), dtype=np.uint64), np.full(len(row), MAX_INDEX, dtype=np.uint64)
        behind, before = np.flatnonzero(~last), np.flatnonzero(rank > 0)
        end[behind] = self.leaves.at(of_lane.take(row[behind]), rank[behind])
        first[before] = self.leaves.at(of_lane.take(row[before]), rank[before] - 1) + np.uint64(1)
        wanted = np.maximum(first, asked["begin"][row]) < np.minimum(end, asked["end"][row])
        lane, rank, last, first, end, row = (column[wanted] for column in (lane, rank, last, first, end, row))
        values = np.empty((len(lane), 2, DIGEST_BYTES), dtype=np.uint8)
        for side, at_end, name, index in ((0, rank == 0, "begin", first - np.uint64(1)), (1, last, "next_index", end)):
            values[at_end, side] = hashed_positions(self.lanes[name][lane[at_end]])
            entry = of_lane.take(row[~at_end]).with_columns(index=index[~at_end])
            values[~at_end, side] = receipts["value"][lookup(receipts, entry, LANE_COLUMNS)]
        shown = of_lane.take(row).with_columns(
            part=repeated(np.uint8(Part.ABSENT), len(row)), **_not_pushed(len(row)), first=first, count=end - first
        )
        return self._proofs(shown, lane, rank, values)

    def _proofs(self, runs: Frame, lane: Rows, offset: Rows, beside: Digests | None = None) -> Frame:
        """Return runs with their proofs; ``beside``: the values that come before the sides of two leaves each."""
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


__all__ = ["Queued", "Store", "pending_runs"]
