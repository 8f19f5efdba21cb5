"""The leaves of queues' entries, queue by queue, with updates in O(changes).

As one frame, the table ``leaves`` would have to be rewritten for every added entry. So a state stores it by queue, in
buffers with spare room, and builds the frame on demand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import NotInQueue
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.order import U64, Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, LazyFrame, empty_frame
from causeway.protocols.contract import DIGEST, UINT64, table_schema
from causeway.protocols.shared.messages import LANE, LANE_FIELDS

LEAVES_SCHEMA = table_schema(*LANE_FIELDS, index=UINT64, digest=DIGEST)
"""One row an entry of a connection's queue: the hash of its leaf in the zone's store.

The entry itself is the row of ``outbound`` with the same lane and index.
"""

ROOM = 32
"""Minimum number of entries that a queue can add before its buffers are copied."""

Mask = npt.NDArray[np.bool_]
Zones = npt.NDArray[np.uint32]


class _Buffer:
    """Append-only storage for the entries of a queue, shared by several states."""

    __slots__ = ("digests", "index", "used")

    def __init__(self, room: int) -> None:
        self.index: U64 = np.empty(room, dtype=np.uint64)
        self.digests: Digests = np.empty((room, DIGEST_BYTES), dtype=np.uint8)
        self.used = 0


class QueueLeaves:
    """The entries of one queue: ascending indices and leaf hashes. Immutable."""

    __slots__ = ("_buffer", "_start", "_stop")

    def __init__(self, buffer: _Buffer, start: int, stop: int) -> None:
        self._buffer, self._start, self._stop = buffer, start, stop

    @classmethod
    def of(cls, index: U64, digests: Digests) -> QueueLeaves:
        """Create the leaves of at least one entry."""
        count = len(index)
        buffer = _Buffer(2 * count + ROOM)
        buffer.index[:count], buffer.digests[:count], buffer.used = index, digests, count
        return cls(buffer, 0, count)

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def index(self) -> U64:
        """Return the indices."""
        return self._buffer.index[self._start : self._stop]

    @property
    def digests(self) -> Digests:
        """Return the hashes of the leaves, shape (n, 32)."""
        return self._buffer.digests[self._start : self._stop]

    def indices_from(self, first: int) -> U64:
        """Return the indices of at least ``first``."""
        return self.index[int(np.searchsorted(self.index, np.uint64(first))) :]

    def has(self, index: U64) -> Mask:
        """Return a mask of the indices with an entry."""
        entries = self.index
        found: Mask = entries[np.minimum(np.searchsorted(entries, index), len(entries) - 1)] == index
        return found

    def append_entries(self, index: U64, digests: Digests) -> QueueLeaves:
        """Add entries, which ascend."""
        buffer, stop = self._buffer, self._stop + len(index)
        inside = index[0] < buffer.index[self._stop - 1]
        if inside or buffer.used != self._stop or stop > len(buffer.index):
            joined, beside = np.concatenate([self.index, index]), np.concatenate([self.digests, digests])
            order = np.argsort(joined, kind="stable") if inside else slice(None)
            return QueueLeaves.of(joined[order], beside[order])
        added = slice(self._stop, stop)
        buffer.index[added], buffer.digests[added], buffer.used = index, digests, stop
        return QueueLeaves(buffer, self._start, stop)

    def without(self, index: U64) -> QueueLeaves | None:
        """Remove present entries, which ascend; return None if none is left."""
        count = len(index)
        if count == len(self):
            return None
        if self.index[count - 1] == index[-1]:
            return QueueLeaves(self._buffer, self._start + count, self._stop)
        is_left = np.ones(len(self), dtype=bool)
        is_left[np.searchsorted(self.index, index)] = False
        return QueueLeaves.of(self.index[is_left], self.digests[is_left])

    def drop_below(self, limit: np.uint64) -> QueueLeaves | None:
        """Remove the entries below an index; return None if none is left."""
        count = int(np.searchsorted(self.index, limit))
        return QueueLeaves(self._buffer, self._start + count, self._stop) if count < len(self) else None

    def common_prefix_length(self, before: QueueLeaves) -> int:
        """Return the number of first entries shared with ``before``."""
        count = min(len(self), len(before))
        if self._buffer is before._buffer and self._start == before._start:
            return count  # buffers are append-only
        if count == 0 or self.index[0] != before.index[0]:
            return 0
        same = self.index[:count] == before.index[:count]
        same &= (self.digests[:count] == before.digests[:count]).all(axis=1)
        return count if same.all() else int(np.argmin(same))

    def first_missing(self, index: int) -> int:
        """Return the first index from ``index`` on without an entry."""
        entries = self.index
        start = int(np.searchsorted(entries, np.uint64(index)))
        # From the first that is missing on, every index is ahead of its rank.
        return index + bisect_left(range(len(entries) - start), 1, key=lambda n: int(entries[start + n]) > index + n)


class Leaves:
    """The entries of many queues. Immutable.

    ``merge``, ``delete`` and ``advance`` have the names of the queue algebra (``core.queues``).
    """

    __slots__ = ("_frame", "_lanes")

    def __init__(self, lanes: dict[int, QueueLeaves]) -> None:
        self._lanes = lanes
        self._frame: Frame | None = None

    @classmethod
    def of(cls, frame: Frame) -> Leaves:
        """Return the leaves of a table (``LEAVES_SCHEMA``), in its order."""
        index, digests = frame["index"], frame["digest"]
        found = cls({key: QueueLeaves.of(index[rows], digests[rows]) for key, rows in _by_lane(lane_keys(frame))})
        found._frame = frame
        return found

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def frame(self) -> Frame:
        """Return the table, built on first access to a column."""
        if self._frame is None:
            self._frame = LazyFrame(len(self), self._joined)
        return self._frame

    def get(self, lane: int) -> QueueLeaves | None:
        """Return the entries of the queue with a number (``lane_keys``), or None."""
        return self._lanes.get(lane)

    def changed(self, before: Leaves) -> set[int]:
        """Return the numbers of the queues with other entries than in ``before``."""
        own, others = self._lanes, before._lanes
        if own is others:
            return set()
        return {key for key, entries in own.items() if others.get(key) is not entries} | (others.keys() - own.keys())

    def counts(self, lanes: U64) -> Rows:
        """Return the number of entries of each queue; ``lanes``: queue numbers, ascending."""
        found = np.zeros(len(lanes), dtype=np.int64)
        keys = np.fromiter(self._lanes, np.uint64, len(self._lanes))
        counts = np.fromiter(map(len, self._lanes.values()), np.int64, len(self._lanes))
        rows = find_positions(lanes, keys)
        found[rows[rows >= 0]] = counts[rows >= 0]
        return found

    def own_entries(self, zones: Zones) -> Leaves:
        """Select the entries of the zones' own queues."""
        wanted = set(zones.tolist())
        return Leaves({key: entries for key, entries in self._lanes.items() if key >> 17 in wanted})

    def beside(self, others: Leaves) -> Leaves:
        """Merge with the entries of other zones."""
        return Leaves(self._lanes | others._lanes)

    def merge(self, numbered: Frame) -> Leaves:
        """Add entries (``LEAVES_SCHEMA``)."""
        if len(numbered) == 0:
            return self
        lanes, keys = dict(self._lanes), lane_keys(numbered)
        order = stable_order(keys, numbered["index"])
        index, digests = numbered["index"][order], numbered["digest"][order]
        for key, rows in _by_lane(keys[order]):
            entries = lanes.get(key)
            added = index[rows], digests[rows]
            lanes[key] = QueueLeaves.of(*added) if entries is None else entries.append_entries(*added)
        return Leaves(lanes)

    def delete(self, values: Frame) -> Leaves:
        """Remove entries by lane and index.

        Raises:
            NotInQueue: An entry is missing.
        """
        if len(values) == 0:
            return self
        lanes, keys = dict(self._lanes), lane_keys(values)
        order = stable_order(keys, values["index"])
        index = values["index"][order]
        for key, rows in _by_lane(keys[order]):
            entries, deleted = lanes.pop(key, None), index[rows]
            if entries is None or not entries.has(deleted).all():
                raise NotInQueue(f"queue {key} has not all of the entries {deleted.tolist()[:8]}")
            left = entries.without(deleted)
            if left is not None:
                lanes[key] = left
        return Leaves(lanes)

    def advance(self, queues: Frame, to: U64) -> Leaves:
        """Remove all entries below index ``to`` from each queue of ``queues``."""
        lanes = dict(self._lanes)
        for key, limit in zip(lane_keys(queues).tolist(), to, strict=True):
            entries = lanes.pop(key, None)
            left = None if entries is None else entries.drop_below(limit)
            if left is not None:
                lanes[key] = left
        return Leaves(lanes)

    def first(self, lanes: Frame, without: U64) -> U64:
        """Return the lowest index in each queue; ``without``: the default for an empty queue."""
        found = [self._lanes.get(key) for key in lane_keys(lanes).tolist()]
        firsts = (
            default if entries is None else entries.index[0] for entries, default in zip(found, without, strict=True)
        )
        return np.fromiter(firsts, np.uint64, len(found))

    def ranks(self, lanes: Frame, index: U64, *, right: bool = False) -> Rows:
        """Return the number of entries below each index (``right``: not above it) in its queue."""
        found = np.zeros(len(lanes), dtype=np.int64)
        for entries, rows in self._of_lanes(lanes):
            found[rows] = np.searchsorted(entries.index, index[rows], side="right" if right else "left")
        return found

    def holds(self, lanes: Frame, index: U64) -> Mask:
        """Return a mask of the indices with an entry in their queues."""
        found = np.zeros(len(lanes), dtype=bool)
        for entries, rows in self._of_lanes(lanes):
            found[rows] = entries.has(index[rows])
        return found

    def at(self, lanes: Frame, rank: Rows) -> U64:
        """Return the indices of the entries with these ranks, which exist."""
        found = np.zeros(len(lanes), dtype=np.uint64)
        for entries, rows in self._of_lanes(lanes):
            found[rows] = entries.index[rank[rows]]
        return found

    def _of_lanes(self, lanes: Frame) -> Iterator[tuple[QueueLeaves, Any]]:
        """Yield the entries of each queue of ``lanes``, and its rows."""
        keys = lane_keys(lanes)
        order = None if bool((keys[1:] >= keys[:-1]).all()) else np.argsort(keys, kind="stable")
        for key, rows in _by_lane(keys if order is None else keys[order]):
            entries = self._lanes.get(key)
            if entries is not None:
                yield entries, rows if order is None else order[rows]

    def _joined(self) -> Frame:
        keys = sorted(self._lanes)
        queues = [self._lanes[key] for key in keys]
        if not queues:
            return empty_frame(LEAVES_SCHEMA)
        counts = [len(one) for one in queues]
        columns: dict[str, Any] = {name: column.repeat(counts) for name, column in _lanes(keys).items()}
        columns["index"] = np.concatenate([one.index for one in queues])
        columns["digest"] = np.concatenate([one.digests for one in queues])
        return Frame(columns)


def lane_key(source: int, destination: int, substream: int) -> int:
    """Return the number of a lane."""
    return source << 17 | destination << 1 | substream


def lane_keys(rows: Frame) -> U64:
    """Return the number of each row's lane; numbers order like lanes.

    Positions of zones have 16 bits.
    """
    source, destination, substream = (rows[name].astype(np.uint64) for name in LANE)
    found: U64 = source << np.uint64(17) | destination << np.uint64(1) | substream
    return found


def find_row(keys: U64, key: int) -> int:
    """Return the row of a number in an ascending column, or -1."""
    row = int(np.searchsorted(keys, np.uint64(key)))
    return row if row < len(keys) and int(keys[row]) == key else -1


def _lanes(keys: list[int]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of lanes (``LANE``) from their numbers."""
    numbers = np.array(keys, dtype=np.uint64)
    source, destination = ((numbers >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.uint32) for shift in (17, 1))
    return dict(zip(LANE, (source, destination, numbers & np.uint64(1)), strict=True))


def _by_lane(keys: U64) -> Iterator[tuple[int, slice]]:
    """Yield each number and its rows; the numbers ascend."""
    groups = group_rows(keys)
    stops = (groups.starts + groups.counts).tolist()
    for key, start, stop in zip(keys[groups.starts].tolist(), groups.starts.tolist(), stops, strict=True):
        yield key, slice(start, stop)
