"""Proofs taken from a lake: the store of one zone under ``ibc`` at one committed height, ready to prove what is in it.

    opened = open_lake("my-lake")
    store = store_at(opened, "A")                        # the last height; store_at(opened, "A", 17) another
    store.queues()                                       # which queues there are, and what is in them
    key = index_key("B", Purpose.SEND, 3)
    store.value(key), store.prove_existence(key)         # V_send, and an encoded ICS-23 CommitmentProof
    store.run("B", Purpose.SEND, 3, 9)                   # entries 3 to 8, and one proof of all of them
    store.certification, store.signed                    # the signed header whose root they are under

Opening hashes the inner nodes of the zone's tree once, from the leaves' digests that the lake has. After that a proof
costs the rows it names: no other entry is read.

The zones of the network in a lake.

Entries of a zone's queues, found in the outbound entries of the heights that pushed them.

A store has only digests of entries; the entries themselves are rows of ``outbound``. The table ``runs`` says at which
height an entry was pushed as long as somebody may ask for it. For older ones (receipts stay in a store until they are
cleaned up) that follows from the tails of the queue at the heights before: it is the first height whose tail is above
the entry's index, or, for a receipt whose program answered later, the first in which the store has the entry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import binary_rows
from causeway_proofs.ics23.entries import Entries, concat_columns, data_bytes, leaf_digests
from causeway_proofs.ics23.simple_store import SIMPLE_LEAF_OP, encode_range_proof, sibling_steps
from causeway_proofs.ics23.store_proofs import ProvableStore
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.merkle import Levels, Positions
from causeway_proofs.order import U64
from causeway_proofs.tendermint.trust import HeaderUpdate, decode_header_update
from causeway_proofs.wire.ics23_pb2 import CommitmentProof

from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.text import format_value
from causeway.network.opened_lake import Mask, OpenedLake
from causeway.protocols.ibc.context import ZoneNetwork
from causeway.protocols.ibc.keys import HEAD_KEY, INDEX_BYTES, MAX_INDEX, TAIL_KEY, QueuePurpose, queue_name
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.packets import encode_position
from causeway.protocols.ibc.queue_entries import ENTRIES_SCHEMA, entry_values
from causeway.protocols.ibc.state import RECEIPT, SEND, State, state_of_frames
from causeway.protocols.ibc.store import commit_stores
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS
from causeway.storage.lake import LakeError, Manifest

__all__ = ["ProvenQueue", "ZoneStore", "describe_queue", "open_store", "read_zones"]

KEPT = 16
"""Lakes of which they are kept in memory."""


@lru_cache(maxsize=KEPT)
def read_zones(opened: OpenedLake) -> ZoneNetwork:
    """Return the zones of a network under ``ibc``.

    Raises:
        InvalidInput: the network has another protocol.
    """
    if opened.protocol != "ibc":
        raise InvalidInput(
            f"lake: {opened.lake.storage.uri} is of the protocol {opened.protocol}; only one of ibc has zones"
        )
    return ZoneNetwork(opened.topology, IbcOptions(**opened.options))


KEPT_HEIGHTS = 1024
"""For so many heights the tails of queues are kept in memory: searches meet the same ones."""


class PushedEntries:
    """The entries of the queues that the zone at a position has at a height (``manifest``)."""

    def __init__(self, opened: OpenedLake, position: int, manifest: Manifest) -> None:
        self._opened, self._position, self._height = opened, position, manifest.height
        self._commit = manifest.number
        self._runs = self._state(manifest, "runs")
        self._tails = lru_cache(maxsize=KEPT_HEIGHTS)(self._read_tails)

    def rows(self, destination: int, substream: int, indices: U64) -> Frame:
        """Return the entries (``ENTRIES_SCHEMA``) at ``indices`` (ascending, none twice) of a queue, in that order.

        Every one of them must be in the queue at this height.

        Raises:
            LakeError: the lake does not have one of them.
        """
        found: list[Frame] = []
        left = indices
        for height, mine in self._known(destination, substream, indices):
            rows = self._read(height, destination, substream, mine)
            found.append(rows)
            left = left[~np.isin(left, rows["index"])]
        height = 0
        while len(left):
            height = self._first_with_tail(destination, substream, int(left[0]), height)
            rows = self._read(height, destination, substream, left)
            if len(rows) == 0 or rows["index"][0] != left[0]:
                later = self._first_with_entry(destination, substream, int(left[0]), height)
                rows = concat([rows, self._read(later, destination, substream, left)])
            if not bool((rows["index"] == left[0]).any()):
                raise LakeError(
                    f"lake: {self._opened.lake.storage.uri} has no outbound entry {int(left[0])} of the queue "
                    f"{substream} of {self._opened.names[self._position]} for {self._opened.names[destination]}"
                )
            found.append(rows)
            left = left[~np.isin(left, rows["index"])]
        joined = concat([empty_frame(ENTRIES_SCHEMA), *found])
        return joined.take(np.argsort(joined["index"], kind="stable"))

    def _known(self, destination: int, substream: int, indices: U64) -> list[tuple[int, U64]]:
        """Return the heights that the runs name for ``indices``, each with its indices."""
        runs = self._runs.filter((self._runs["destination"] == destination) & (self._runs["substream"] == substream))
        if len(runs) == 0:
            return []
        row = np.maximum(np.searchsorted(runs["first"], indices, side="right") - 1, 0)
        inside = (indices >= runs["first"][row]) & (indices - runs["first"][row] < runs["count"][row])
        heights, indices = runs["height"][row][inside], indices[inside]
        if len(indices) == 0:
            return []
        order = np.argsort(heights, kind="stable")
        names, starts = np.unique(heights[order], return_index=True)
        parts = np.split(indices[order], starts[1:])
        return list(zip(names.tolist(), parts, strict=True))

    def _read(self, height: int, destination: int, substream: int, indices: U64) -> Frame:
        """Return those of a queue's entries at ``indices`` (ascending) that were pushed at a height, ascending."""
        opened, own = self._opened, self._position

        def chosen(batch: pa.RecordBatch) -> Mask:
            index = batch["index"].to_numpy()
            place = np.minimum(np.searchsorted(indices, index), len(indices) - 1)
            mask: Mask = indices[place] == index
            for name, value in zip(LANE, (own, destination, substream), strict=True):
                mask &= batch[name].to_numpy() == value
            return mask

        rows = opened.log_rows(
            "outbound", height, own, ENTRIES_SCHEMA.names, chosen, destination=destination, most=len(indices)
        )
        if rows is None or rows.num_rows == 0:
            return empty_frame(ENTRIES_SCHEMA)
        frame = from_table(rows)
        return frame.take(np.argsort(frame["index"], kind="stable"))

    def _first_with_tail(self, destination: int, substream: int, index: int, since: int) -> int:
        """Return the first height from ``since`` on at which the tail of a queue is above ``index``."""

        def above(height: int) -> bool:
            return self._tails(height).get((destination, substream), 0) > index

        return self._first(above, since)

    def _first_with_entry(self, destination: int, substream: int, index: int, since: int) -> int:
        """Return the first height after ``since`` at which a store has an entry; it has it at the last."""

        def there(height: int) -> bool:
            manifest = self._opened.lake.manifest(height)
            lane = (self._position, destination, substream, index)

            def chosen(batch: pa.RecordBatch) -> Mask:
                mask: Mask = np.ones(len(batch), dtype=bool)
                for name, value in zip(LANE_COLUMNS, lane, strict=True):
                    mask &= batch[name].to_numpy() == value
                return mask

            found = self._opened.chosen_rows(manifest, "leaves", self._position, LANE_COLUMNS, chosen)
            return found is not None and found.num_rows > 0

        return self._first(there, since + 1)

    def _first(self, holds: Callable[[int], bool], since: int) -> int:
        """Return the first height from ``since`` on at which something holds that goes on to hold: it does at the last.

        Looked at are the last heights of commits, of which there is a file, and then those of one commit.
        """
        lake = self._opened.lake

        def at_end(number: int) -> bool:
            return holds(lake.numbered(number).last)

        low, step = lake.manifest(min(since, self._height)).number - 1, 1
        while low + step < self._commit and not at_end(low + step):
            low, step = low + step, 2 * step
        commit = lake.numbered(_first(at_end, low, min(low + step, self._commit)))
        return _first(holds, max(commit.first, since) - 1, min(commit.last, self._height))

    def _read_tails(self, height: int) -> dict[tuple[int, int], int]:
        """Return the tails of the zone's queues at a height, by the zone they are for and substream."""
        manifest = self._opened.lake.manifest(height)
        queues = self._state(manifest, "queues")
        keys = zip(queues["destination"].tolist(), queues["substream"].tolist(), strict=True)
        return dict(zip(keys, queues["next_index"].tolist(), strict=True))

    def _state(self, manifest: Manifest, table: str) -> Frame:
        return self._opened.state_rows(manifest, table, self._position, read_zones(self._opened).host_of)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number above ``low`` for which something holds that holds from some number up to ``high`` on."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


Flags = npt.NDArray[np.bool_]

SUBSTREAMS = {QueuePurpose.RECEIPT: RECEIPT, QueuePurpose.SEND: SEND}
PURPOSES = {substream: purpose for purpose, substream in SUBSTREAMS.items()}

PIECE = 1 << 12
"""Entries of a run that are read at once."""

LISTED = 8
"""Names that an error lists."""

NOT_COMMITTED = ("runs", "proofs", "backoffs")
"""State tables of which a store holds nothing."""


@dataclass(frozen=True)
class ZoneNetworkView:
    """A zone whose store is committed to."""

    chains: npt.NDArray[np.uint32]
    zones: ZoneNetwork


@dataclass(frozen=True)
class ProvenQueue:
    """A queue of a zone: what its store says of it.

    Attributes:
        counterparty, purpose: whom it is kept for, and what it holds.
        head, tail: where it begins, and the index that comes next.
        indices: the entries that are in it, ascending; not every index from head to tail has one.
    """

    counterparty: str
    purpose: QueuePurpose
    head: int
    tail: int
    indices: U64


class ZoneStore(ProvableStore):
    """The store of a zone at a height, with all levels of its tree. Entries are read from the lake when asked for.

    Besides what is here: ``prove``, ``prove_existence``, ``existence_proofs``, and ``absence_proofs``
    of ``ProvableStore``. Made by ``store_at``; reading of one store from several threads is safe.
    """

    def __init__(self, opened: OpenedLake, chain: str, manifest: Manifest) -> None:
        position = opened.position(chain)
        self.opened, self.chain, self.height, self.tick = opened, chain, manifest.height, manifest.tick
        zone = ZoneNetworkView(np.array([position], dtype=np.uint32), read_zones(opened))
        state = _state(opened, position, manifest)
        committed = commit_stores(state, zone)
        self.tree = Levels(committed.forest.nodes_of(0))
        self._application = list(committed.application.entries()[0].items())
        self._lanes, self._heads = committed.lanes, np.asarray(committed.heads, dtype=np.int64)
        self._counts = committed.counts
        self._first = np.cumsum(self._counts) - self._counts
        self._indices: U64 = state.leaves.frame()["index"]
        self._names = [
            queue_name(opened.names[destination], PURPOSES[substream])
            for destination, substream in zip(
                committed.lanes["destination"].tolist(), committed.lanes["substream"].tolist(), strict=True
            )
        ]
        self._pushed = PushedEntries(opened, position, manifest)
        root, self.certification = opened.header(chain, self.height)
        if root != self.root:
            raise LakeError(
                f"lake: {opened.lake.storage.uri}: the state of {chain} at height {self.height} has root "
                f"{self.root.hex()}, its header says {root.hex()}"
            )

    # ---- what there is

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes."""
        return self.tree.root

    @cached_property
    def signed(self) -> HeaderUpdate | None:
        """Return the signed header with its validators, building on the height before; None at height 0, which nobody
        signs.
        """
        return decode_header_update(self.certification) if self.certification else None

    def queues(self) -> list[ProvenQueue]:
        """Return the zone's queues in the order of their keys."""
        return [self._queue(lane) for lane in range(len(self._lanes))]

    def queue(self, counterparty: str, purpose: QueuePurpose) -> ProvenQueue:
        """Return the queue that the zone keeps for ``counterparty``.

        Raises:
            InvalidInput: there is none.
        """
        return self._queue(self._lane(counterparty, purpose))

    def _queue(self, lane: int) -> ProvenQueue:
        rows = self._lanes
        return ProvenQueue(
            self.opened.names[int(rows["destination"][lane])],
            PURPOSES[int(rows["substream"][lane])],
            int(rows["begin"][lane]),
            int(rows["next_index"][lane]),
            self._indices[self._first[lane] : self._first[lane] + self._counts[lane]],
        )

    def _lane(self, counterparty: str, purpose: QueuePurpose) -> int:
        known = [self.opened.names[place] for place in self._lanes["destination"][::2].tolist()]
        if counterparty not in known:
            raise InvalidInput(
                f"counterparty: {format_value(counterparty)}: {self.chain} keeps no queue for it; "
                f"it does for {_listed(known)}"
            )
        return 2 * known.index(counterparty) + SUBSTREAMS[purpose]

    def header_at(self, height: int) -> HeaderUpdate | None:
        """Return the zone's signed header of another committed height; None at height 0.

        Raises:
            LakeError: the height is not committed.
        """
        _, certification = self.opened.header(self.chain, height)
        return decode_header_update(certification) if certification else None

    def value(self, key: bytes) -> bytes | None:
        """Return what is stored under a key, None if nothing is."""
        places, there = self.locate(pa.array([key], pa.binary()))
        if not there[0]:
            return None
        value: bytes = self.entries_at(places).values[0].as_py()
        return value

    def proved(self, key: bytes) -> tuple[bytes, bytes]:
        """Return what is stored under a key, and the encoded CommitmentProof of it: one reading for both.

        Raises:
            UnknownKey: nothing is.
        """
        proof = self.prove_existence(key)
        return CommitmentProof.FromString(proof).exist.value, proof

    def run(self, counterparty: str, purpose: QueuePurpose, begin: int, end: int) -> tuple[Entries, bytes]:
        """Return entries ``begin`` to ``end`` - 1 of a queue, and the encoded RangeProof of all of them.

        Raises:
            InvalidInput: there is no such queue, or it does not have all of them.
        """
        queue, lane = self.queue(counterparty, purpose), self._lane(counterparty, purpose)
        count = end - begin
        first = int(np.searchsorted(queue.indices, np.uint64(begin))) if 0 <= begin < end <= MAX_INDEX else -1
        # Indices ascend, so these are all there if the last of as many is the one that is asked for.
        if first < 0 or first + count > len(queue.indices) or int(queue.indices[first + count - 1]) != end - 1:
            raise InvalidInput(f"indices: {begin}:{end}: not all of them are there; {describe_queue(queue)}")
        start = int(self._heads[lane]) + 1 + first
        return self.range_proof(start, start + count - 1)

    def range_proof(self, first: int, last: int) -> tuple[Entries, bytes]:
        """Return the entries at positions ``first`` to ``last`` of the store, and the encoded RangeProof of them.

        Raises:
            InvalidInput: they have more bytes than a verifier reads; no more than that is read here, either.
        """
        parts, total = [Entries.none()], 0
        for start in range(first, last + 1, PIECE):
            part = self.entries_at(np.arange(start, min(start + PIECE, last + 1), dtype=np.int64))
            total += data_bytes(part.keys) + data_bytes(part.values)
            if total > MAX_PROOF_BYTES:
                raise InvalidInput(f"a proof has at most {MAX_PROOF_BYTES} bytes, these entries have more: take fewer")
            parts.append(part)
        entries = Entries(
            pa.concat_arrays([part.keys for part in parts]), pa.concat_arrays([part.values for part in parts])
        )
        proof = encode_range_proof(entries, self.tree, first)
        if len(proof) > MAX_PROOF_BYTES:
            raise InvalidInput(f"a proof has at most {MAX_PROOF_BYTES} bytes, this would have {len(proof)}: take fewer")
        return entries, proof

    # ---- a ``ProvableStore``

    def __len__(self) -> int:
        return len(self.tree)

    def locate(self, keys: pa.BinaryArray) -> tuple[Positions, Flags]:
        """Return for each key how many entries come before it, and whether the entry there is its own."""
        found = [self.locate_key(key) for key in keys.to_pylist()]
        return np.array([place for place, _ in found], dtype=np.int64), np.array([there for _, there in found], bool)

    def locate_key(self, key: bytes) -> tuple[int, bool]:
        """Return how many entries come before a key, and whether the entry there is its own."""
        marks, places = self._marks
        mark = bisect_left(marks, key)
        if mark < len(marks) and marks[mark] == key:
            return places[mark], True
        between = mark - len(self._application)
        if between < 0 or between % 2 == 0:  # before a head, or among the application's entries
            return (places[mark] if mark < len(marks) else len(self)), False
        lane = between // 2
        # Between head and tail of a queue all keys begin with its name.
        rest = key[len(self._names[lane]) :]
        index = np.uint64(int.from_bytes(rest[:INDEX_BYTES].ljust(INDEX_BYTES, b"\0"), "big"))
        own = self._indices[self._first[lane] : self._first[lane] + self._counts[lane]]
        rank = int(np.searchsorted(own, index, side="right" if len(rest) > INDEX_BYTES else "left"))
        there = len(rest) == INDEX_BYTES and rank < len(own) and own[rank] == index
        return int(self._heads[lane]) + 1 + rank, bool(there)

    @cached_property
    def _marks(self) -> tuple[list[bytes], list[int]]:
        """Return the keys of all that is no entry of a queue, ascending, with their positions."""
        marks, places = [key for key, _ in self._application], list(range(len(self._application)))
        for name, head, count in zip(self._names, self._heads.tolist(), self._counts.tolist(), strict=True):
            marks += [name + HEAD_KEY, name + TAIL_KEY]
            places += [head, head + 1 + count]
        return marks, places

    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order.

        Raises:
            LakeError: the lake's outbound entries are not what the zone has committed to.
        """
        positions = np.asarray(positions, dtype=np.int64)
        lanes = np.searchsorted(self._heads, positions, side="right") - 1
        parts: list[tuple[Any, pa.BinaryArray, pa.BinaryArray]] = []
        for lane in np.unique(lanes).tolist():
            rows = np.flatnonzero(lanes == lane)
            parts += self._application_at(rows, positions) if lane < 0 else self._of_queue(lane, rows, positions)
        if not parts:
            return Entries.none()
        order = pa.array(np.argsort(np.concatenate([rows for rows, _, _ in parts]), kind="stable"))
        keys, values = (pa.concat_arrays([part[place] for part in parts]).take(order) for place in (1, 2))
        entries = Entries(keys, values)
        wrong = (leaf_digests(entries) != self.tree.levels[0][positions]).any(axis=1) if len(positions) else []
        if np.any(wrong):
            key = keys[int(np.argmax(wrong))].as_py()
            raise LakeError(
                f"lake: {self.opened.lake.storage.uri}: what it has for key {key.hex()} of {self.chain} at height "
                f"{self.height} is not what the zone has committed to"
            )
        return entries

    def _application_at(self, rows: Any, positions: Positions) -> list[tuple[Any, pa.BinaryArray, pa.BinaryArray]]:
        entries = [self._application[position] for position in positions[rows].tolist()]
        return [(rows, *(pa.array([entry[place] for entry in entries], pa.binary()) for place in (0, 1)))]

    def _of_queue(self, lane: int, rows: Any, positions: Positions) -> list[tuple[Any, pa.BinaryArray, pa.BinaryArray]]:
        """Return the keys and values of ``rows``, which are all of one queue."""
        rank = positions[rows] - self._heads[lane] - 1
        name, count = self._names[lane], int(self._counts[lane])
        parts = []
        for mask, part, column in ((rank < 0, HEAD_KEY, "begin"), (rank >= count, TAIL_KEY, "next_index")):
            if mask.any():
                value = encode_position(int(self._lanes[column][lane]))
                ends = (pa.array([item] * int(mask.sum()), pa.binary()) for item in (name + part, value))
                parts.append((rows[mask], *ends))
        inside = (rank >= 0) & (rank < count)
        if inside.any():
            index = self._indices[self._first[lane] + rank[inside]]
            wanted, row_of = np.unique(index, return_inverse=True)
            destination, substream = (int(self._lanes[name][lane]) for name in ("destination", "substream"))
            messages = self._pushed.rows(destination, substream, wanted).take(row_of)
            values = entry_values(messages, substream, read_zones(self.opened), self.opened.tick_ns)
            numbers = index.astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES)
            parts.append((rows[inside], concat_columns(name, binary_rows(numbers)), values))
        return parts

    def leaf_ops(self, positions: Positions) -> bytes:
        """Return the one LeafOp of the spec."""
        return SIMPLE_LEAF_OP

    def steps(self, positions: Positions) -> list[tuple[Any, ...]]:
        """Return the steps from leaves to the root."""
        return sibling_steps(self.tree.siblings(positions))


def open_store(opened: OpenedLake, chain: str, height: int | None = None) -> ZoneStore:
    """Return the store of a chain at a committed height, by default the last.

    Raises:
        InvalidInput: the lake is of another protocol, or has no such chain (``LakeError``: no such height, or a state
            that does not have the root of its header).
    """
    own = read_zones(opened).own  # what the protocol is, is told before anything else
    if opened.position(chain) not in own:
        raise InvalidInput(f"chain: {format_value(chain)}: is run by another lake, which has its store")
    return ZoneStore(opened, chain, opened.manifest(height))


def describe_queue(queue: ProvenQueue) -> str:
    """Return in one line what is in a queue."""
    name = f"{queue.purpose.name.lower()} queue for {queue.counterparty}"
    if len(queue.indices) == 0:
        return f"the {name} is empty (head {queue.head}, tail {queue.tail})"
    first, last, count = int(queue.indices[0]), int(queue.indices[-1]), len(queue.indices)
    whole = "" if last - first + 1 == count else f", {count} of them"
    return f"the {name} holds {first} to {last}{whole}"


def _listed(names: list[str]) -> str:
    if len(names) > LISTED:
        return f"{', '.join(names[:LISTED])} and {len(names) - LISTED} more"
    return ", ".join(names) or "none"


def _state(opened: OpenedLake, position: int, manifest: Manifest) -> State:
    """Return what a zone has committed to of its state at a height."""
    host_of = read_zones(opened).host_of
    names = [name for name in opened.tables.state if name not in NOT_COMMITTED]
    # What the lake says of its tables stands for the programs' classes: no schemas of theirs are needed.
    return state_of_frames({name: opened.state_rows(manifest, name, position, host_of) for name in names}, {})
