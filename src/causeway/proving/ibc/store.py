"""Provable store of a zone at a committed height, read from a lake under ``ibc``.

    opened = open_lake("my-lake")
    store = open_store(opened, "A")                  # the last height; open_store(opened, "A", 17) another
    store.queues()                                   # the queues and their entries
    key = QueueKey("B", QueuePurpose.SEND, KeyPart.INDEX, 3).encode()
    store.value(key), store.prove_existence(key)     # V_send, and an encoded ICS-23 CommitmentProof
    store.run("B", QueuePurpose.SEND, 3, 9)          # entries 3 to 8, and one proof of all of them
    store.certification, store.signed                # the signed header with the store's root

Opening hashes the inner nodes of the zone's tree once, from the leaf digests in the lake. After that a
proof reads only the entries that it names.

A store holds only digests; the entries are rows of ``outbound`` at the heights that pushed them. The
table ``runs`` gives the height of recent entries. For older ones (receipts stay until they are cleaned
up) it follows from the tails of the queue: it is the first height whose tail is above the entry's
index, or, for a receipt of a delayed answer, the first whose store has the entry.
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
from causeway.protocols.ibc.state import RECEIPT, SEND, state_of_frames
from causeway.protocols.ibc.store import commit_stores
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS
from causeway.storage.lake import LakeError, Manifest

__all__ = ["ProvenQueue", "ZoneStore", "describe_queue", "open_store", "read_zones"]

CACHED_LAKES = 16
"""Maximum number of lakes in the cache."""


@lru_cache(maxsize=CACHED_LAKES)
def read_zones(opened: OpenedLake) -> ZoneNetwork:
    """Return the zones of a network under ``ibc``.

    Args:
        opened: The lake.

    Raises:
        InvalidInput: The network has another protocol.
    """
    if opened.protocol != "ibc":
        raise InvalidInput(
            f"lake: {opened.lake.storage.uri} is of the protocol {opened.protocol}; only one of ibc has zones"
        )
    return ZoneNetwork(opened.topology, IbcOptions(**opened.options))


CACHED_HEIGHTS = 1024
"""Heights whose queue tails are cached; searches share many of them."""


class PushedEntries:
    """Entries of a zone's queues at a height (``manifest``)."""

    def __init__(self, opened: OpenedLake, position: int, manifest: Manifest) -> None:
        self._opened, self._position, self._height = opened, position, manifest.height
        self._commit = manifest.number
        self._runs = self._state(manifest, "runs")
        self._tails = lru_cache(maxsize=CACHED_HEIGHTS)(self._read_tails)

    def rows(self, destination: int, substream: int, indices: U64) -> Frame:
        """Return entries of a queue (``ENTRIES_SCHEMA``) in the given order.

        Args:
            destination: Position of the other zone.
            substream: Kind of the queue.
            indices: Indices of the entries, ascending, distinct; all must be in the queue at this height.

        Raises:
            LakeError: The lake lacks one of them.
        """
        found: list[Frame] = []
        pending = indices
        for height, run_indices in self._known_pushes(destination, substream, indices):
            rows = self._read(height, destination, substream, run_indices)
            found.append(rows)
            pending = pending[~np.isin(pending, rows["index"])]
        height = 0
        while len(pending):
            height = self._first_with_tail(destination, substream, int(pending[0]), height)
            rows = self._read(height, destination, substream, pending)
            if len(rows) == 0 or rows["index"][0] != pending[0]:
                later = self._first_with_entry(destination, substream, int(pending[0]), height)
                rows = concat([rows, self._read(later, destination, substream, pending)])
            if not bool((rows["index"] == pending[0]).any()):
                raise LakeError(
                    f"lake: {self._opened.lake.storage.uri} has no outbound entry {int(pending[0])} of the queue "
                    f"{substream} of {self._opened.names[self._position]} for {self._opened.names[destination]}"
                )
            found.append(rows)
            pending = pending[~np.isin(pending, rows["index"])]
        joined = concat([empty_frame(ENTRIES_SCHEMA), *found])
        return joined.take(np.argsort(joined["index"], kind="stable"))

    def _known_pushes(self, destination: int, substream: int, indices: U64) -> list[tuple[int, U64]]:
        """Return the heights that ``runs`` names, each with its indices."""
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
        """Return the queue's entries at ``indices`` (ascending) pushed at a height, ascending."""
        opened, own = self._opened, self._position

        def select(batch: pa.RecordBatch) -> Mask:
            index = batch["index"].to_numpy()
            place = np.minimum(np.searchsorted(indices, index), len(indices) - 1)
            mask: Mask = indices[place] == index
            for name, value in zip(LANE, (own, destination, substream), strict=True):
                mask &= batch[name].to_numpy() == value
            return mask

        rows = opened.log_rows(
            "outbound", height, own, ENTRIES_SCHEMA.names, select, destination=destination, most=len(indices)
        )
        if rows is None or rows.num_rows == 0:
            return empty_frame(ENTRIES_SCHEMA)
        frame = from_table(rows)
        return frame.take(np.argsort(frame["index"], kind="stable"))

    def _first_with_tail(self, destination: int, substream: int, index: int, since: int) -> int:
        """Return the first height from ``since`` on at which the queue's tail is above ``index``."""

        def above(height: int) -> bool:
            return self._tails(height).get((destination, substream), 0) > index

        return self._first_height(above, since)

    def _first_with_entry(self, destination: int, substream: int, index: int, since: int) -> int:
        """Return the first height after ``since`` whose store has an entry; the last one has it."""

        def has_entry(height: int) -> bool:
            manifest = self._opened.lake.manifest(height)
            lane = (self._position, destination, substream, index)

            def select(batch: pa.RecordBatch) -> Mask:
                mask: Mask = np.ones(len(batch), dtype=bool)
                for name, value in zip(LANE_COLUMNS, lane, strict=True):
                    mask &= batch[name].to_numpy() == value
                return mask

            found = self._opened.chosen_rows(manifest, "leaves", self._position, LANE_COLUMNS, select)
            return found is not None and found.num_rows > 0

        return self._first_height(has_entry, since + 1)

    def _first_height(self, holds: Callable[[int], bool], since: int) -> int:
        """Return the first height from ``since`` on with a monotone property.

        The last height has it.

        The search covers the last heights of commits, which have files, then the heights of one commit.
        """
        lake = self._opened.lake

        def at_end(number: int) -> bool:
            return holds(lake.numbered(number).last)

        low, step = lake.manifest(min(since, self._height)).number - 1, 1
        while low + step < self._commit and not at_end(low + step):
            low, step = low + step, 2 * step
        commit = lake.numbered(_binary_search(at_end, low, min(low + step, self._commit)))
        return _binary_search(holds, max(commit.first, since) - 1, min(commit.last, self._height))

    def _read_tails(self, height: int) -> dict[tuple[int, int], int]:
        """Return the tails of the zone's queues at a height, by destination and substream."""
        manifest = self._opened.lake.manifest(height)
        queues = self._state(manifest, "queues")
        keys = zip(queues["destination"].tolist(), queues["substream"].tolist(), strict=True)
        return dict(zip(keys, queues["next_index"].tolist(), strict=True))

    def _state(self, manifest: Manifest, table: str) -> Frame:
        return self._opened.state_rows(manifest, table, self._position, read_zones(self._opened).host_of)


def _binary_search(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number above ``low`` with a monotone property; ``high`` has it."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


SUBSTREAMS = {QueuePurpose.RECEIPT: RECEIPT, QueuePurpose.SEND: SEND}
PURPOSES = {substream: purpose for purpose, substream in SUBSTREAMS.items()}

PIECE = 1 << 12
"""Entries read at once."""

LISTED = 8
"""Maximum number of names in an error."""

NOT_COMMITTED = ("runs", "proofs", "backoffs")
"""State tables outside the store."""


@dataclass(frozen=True)
class ZoneNetworkView:
    """Zone whose store is committed to."""

    chains: npt.NDArray[np.uint32]
    zones: ZoneNetwork


@dataclass(frozen=True)
class ProvenQueue:
    """Queue of a zone in its store.

    Attributes:
        counterparty: Name of the other zone.
        purpose: Kind of the queue.
        head: Index of its begin.
        tail: Next index.
        indices: Indices of its entries, ascending; may have gaps.
    """

    counterparty: str
    purpose: QueuePurpose
    head: int
    tail: int
    indices: U64


class ZoneStore(ProvableStore):
    """Store of a zone at a height, with all levels of its tree.

    Entries are read from the lake on demand.

    ``ProvableStore`` adds ``prove``, ``prove_existence``, ``existence_proofs`` and ``absence_proofs``. Use
    ``open_store`` to create one. Reading from several threads is safe.
    """

    def __init__(self, opened: OpenedLake, chain: str, manifest: Manifest) -> None:
        position, zones = opened.position(chain), read_zones(opened)
        self.opened, self.chain, self.height, self.tick = opened, chain, manifest.height, manifest.tick
        zone = ZoneNetworkView(np.array([position], dtype=np.uint32), zones)
        # The committed part of the state; the lake's table schemas replace those of the programs' classes.
        names = [name for name in opened.tables.state if name not in NOT_COMMITTED]
        state = state_of_frames(
            {name: opened.state_rows(manifest, name, position, zones.host_of) for name in names}, {}
        )
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

    # ---- content

    @property
    def root(self) -> bytes:
        """Root of the tree, 32 bytes."""
        return self.tree.root

    @cached_property
    def signed(self) -> HeaderUpdate | None:
        """Signed header with validators, based on the height before; None at height 0."""
        return decode_header_update(self.certification) if self.certification else None

    def queues(self) -> list[ProvenQueue]:
        """Return the zone's queues in the order of their keys."""
        return [self._queue(lane) for lane in range(len(self._lanes))]

    def queue(self, counterparty: str, purpose: QueuePurpose) -> ProvenQueue:
        """Return the zone's queue for a counterparty.

        Args:
            counterparty: Name of the other zone.
            purpose: Kind of the queue.

        Raises:
            InvalidInput: There is no such queue.
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
                f"it does for {_format_names(known)}"
            )
        return 2 * known.index(counterparty) + SUBSTREAMS[purpose]

    def header_at(self, height: int) -> HeaderUpdate | None:
        """Return the zone's signed header of another committed height, or None at height 0.

        Args:
            height: The height.

        Raises:
            LakeError: The height is not committed.
        """
        _, certification = self.opened.header(self.chain, height)
        return decode_header_update(certification) if certification else None

    def value(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None if it is not stored."""
        places, stored = self.locate(pa.array([key], pa.binary()))
        if not stored[0]:
            return None
        value: bytes = self.entries_at(places).values[0].as_py()
        return value

    def proved(self, key: bytes) -> tuple[bytes, bytes]:
        """Return the value of a key with its encoded CommitmentProof, from one read.

        Args:
            key: The key.

        Raises:
            UnknownKey: The key is not stored.
        """
        proof = self.prove_existence(key)
        return CommitmentProof.FromString(proof).exist.value, proof

    def run(self, counterparty: str, purpose: QueuePurpose, begin: int, end: int) -> tuple[Entries, bytes]:
        """Return entries ``begin`` to ``end`` - 1 of a queue with their encoded RangeProof.

        Args:
            counterparty: Name of the other zone.
            purpose: Kind of the queue.
            begin: Index of the first entry.
            end: Index after the last entry.

        Raises:
            InvalidInput: The queue is unknown, or lacks one of the entries.
        """
        queue, lane = self.queue(counterparty, purpose), self._lane(counterparty, purpose)
        count = end - begin
        first = int(np.searchsorted(queue.indices, np.uint64(begin))) if 0 <= begin < end <= MAX_INDEX else -1
        # Indices ascend, so the range is complete if its last index is at the expected position.
        if first < 0 or first + count > len(queue.indices) or int(queue.indices[first + count - 1]) != end - 1:
            raise InvalidInput(f"indices: {begin}:{end}: not all of them are there; {describe_queue(queue)}")
        start = int(self._heads[lane]) + 1 + first
        return self.range_proof(start, start + count - 1)

    def range_proof(self, first: int, last: int) -> tuple[Entries, bytes]:
        """Return entries at positions ``first`` to ``last`` with their encoded RangeProof.

        Args:
            first: First position.
            last: Last position, inclusive.

        Raises:
            InvalidInput: The entries exceed the verifier's size limit; reading stops there.
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

    def locate(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        """Return the position of each key, and a mask of the stored ones.

        Args:
            keys: The keys.

        Returns:
            Number of entries before each key, int64, and the mask.
        """
        found = [self.locate_key(key) for key in keys.to_pylist()]
        return np.array([place for place, _ in found], dtype=np.int64), np.array([stored for _, stored in found], bool)

    def locate_key(self, key: bytes) -> tuple[int, bool]:
        """Return the position of a key, and True if it is stored."""
        marks, places = self._marks
        mark = bisect_left(marks, key)
        if mark < len(marks) and marks[mark] == key:
            return places[mark], True
        mark_offset = mark - len(self._application)
        if mark_offset < 0 or mark_offset % 2 == 0:  # before a head, or among the application's entries
            return (places[mark] if mark < len(marks) else len(self)), False
        lane = mark_offset // 2
        # Between head and tail of a queue all keys begin with its name.
        rest = key[len(self._names[lane]) :]
        index = np.uint64(int.from_bytes(rest[:INDEX_BYTES].ljust(INDEX_BYTES, b"\0"), "big"))
        own = self._indices[self._first[lane] : self._first[lane] + self._counts[lane]]
        rank = int(np.searchsorted(own, index, side="right" if len(rest) > INDEX_BYTES else "left"))
        exists = len(rest) == INDEX_BYTES and rank < len(own) and own[rank] == index
        return int(self._heads[lane]) + 1 + rank, bool(exists)

    @cached_property
    def _marks(self) -> tuple[list[bytes], list[int]]:
        """Return the keys outside queues' entries, ascending, and their positions."""
        marks, places = [key for key, _ in self._application], list(range(len(self._application)))
        for name, head, count in zip(self._names, self._heads.tolist(), self._counts.tolist(), strict=True):
            marks += [name + HEAD_KEY, name + TAIL_KEY]
            places += [head, head + 1 + count]
        return marks, places

    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at positions, in that order.

        Args:
            positions: Positions in the store, int64.

        Raises:
            LakeError: The lake's outbound entries contradict the zone's commitment.
        """
        positions = np.asarray(positions, dtype=np.int64)
        lanes = np.searchsorted(self._heads, positions, side="right") - 1
        parts: list[tuple[Any, pa.BinaryArray, pa.BinaryArray]] = []
        for lane in np.unique(lanes).tolist():
            rows = np.flatnonzero(lanes == lane)
            parts += (
                self._application_entries(rows, positions) if lane < 0 else self._queue_entries(lane, rows, positions)
            )
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

    def _application_entries(self, rows: Any, positions: Positions) -> list[tuple[Any, pa.BinaryArray, pa.BinaryArray]]:
        entries = [self._application[position] for position in positions[rows].tolist()]
        return [(rows, *(pa.array([entry[place] for entry in entries], pa.binary()) for place in (0, 1)))]

    def _queue_entries(
        self, lane: int, rows: Any, positions: Positions
    ) -> list[tuple[Any, pa.BinaryArray, pa.BinaryArray]]:
        """Return the keys and values of ``rows``, all of one queue."""
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
        """Return the LeafOp of the spec."""
        return SIMPLE_LEAF_OP

    def steps(self, positions: Positions) -> list[tuple[Any, ...]]:
        """Return the steps from leaves to the root."""
        return sibling_steps(self.tree.siblings(positions))


def open_store(opened: OpenedLake, chain: str, height: int | None = None) -> ZoneStore:
    """Open the store of a zone.

    Args:
        opened: The lake.
        chain: Name of the zone.
        height: A committed height, by default the last.

    Raises:
        InvalidInput: The lake has another protocol or no such chain, or another lake runs the chain.
        LakeError: The height is not committed, or its state contradicts its header.
    """
    own = read_zones(opened).own  # report a wrong protocol first
    if opened.position(chain) not in own:
        raise InvalidInput(f"chain: {format_value(chain)}: is run by another lake, which has its store")
    return ZoneStore(opened, chain, opened.manifest(height))


def describe_queue(queue: ProvenQueue) -> str:
    """Describe the content of a queue in one line.

    Args:
        queue: The proven queue.

    Returns:
        Its purpose, counterparty and range of indices.
    """
    name = f"{queue.purpose.name.lower()} queue for {queue.counterparty}"
    if len(queue.indices) == 0:
        return f"the {name} is empty (head {queue.head}, tail {queue.tail})"
    first, last, count = int(queue.indices[0]), int(queue.indices[-1]), len(queue.indices)
    whole = "" if last - first + 1 == count else f", {count} of them"
    return f"the {name} holds {first} to {last}{whole}"


def _format_names(names: list[str]) -> str:
    if len(names) > LISTED:
        return f"{', '.join(names[:LISTED])} and {len(names) - LISTED} more"
    return ", ".join(names) or "none"
