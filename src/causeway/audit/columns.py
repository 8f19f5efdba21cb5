"""The rows of one bucket as columns of numbers, and what each of its messages comes to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.windows import Lane
from causeway.ledger.codes import Names
from causeway.ledger.order import EVENTS, SEGMENT_BITS, lane_numbers
from causeway.ledger.schema import LIMBS, Event, Kind
from causeway.model.errors import InvalidInput

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

NO_HEIGHT = np.uint64(2**64 - 1)
NO_TIME = np.int64(2**63 - 1)
KINDS = [kind.value for kind in Kind]
REQUEST = KINDS.index(Kind.REQUEST)
TIMEOUT = "timeout"
"""``detail`` of an observed event: who observed the message stopped waiting for it."""

READ = (
    *("protocol", "source", "destination", "lane", "index", "message_id", "kind", "event", "chain", "height"),
    *("position", "time", "payload_hash", "asset", *LIMBS, "detail"),
)
"""Columns that a pass reads of every row; of rows that it names it reads all."""


def code_of(event: Event) -> int:
    """Return the number of an event in columns."""
    return EVENTS.index(event.value)


@dataclass(frozen=True)
class Columns:
    """Rows in the order of the ledger (``order.sorted_order``), a column an array; -1 and ``NO_...``: not seen."""

    lanes: list[Lane]
    lane: Ints
    indexed: npt.NDArray[np.uint8]
    index: npt.NDArray[np.uint64]
    ident: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int8]
    event: npt.NDArray[np.int8]
    chains: list[str]
    chain: npt.NDArray[np.int32]
    height: npt.NDArray[np.uint64]
    position: npt.NDArray[np.uint64]
    time: Ints
    has_content: npt.NDArray[np.uint8]
    content: npt.NDArray[np.uint64]
    assets: list[str]
    asset: npt.NDArray[np.int32]
    has_amount: npt.NDArray[np.uint8]
    limbs: npt.NDArray[np.uint64]
    stopped_waiting: npt.NDArray[np.uint8]
    taken_back: npt.NDArray[np.int8]

    @classmethod
    def of(cls, rows: pa.Table) -> Columns:
        """Read the columns of a table of the ledger.

        Raises:
            InvalidInput: an event or kind has no known name.
        """
        rows = rows.select(READ).combine_chunks()
        lanes, lane = lane_numbers(rows)
        indexed = _seen(rows["index"])
        chains, assets = Names(), Names()
        chain, asset = chains.codes(rows["chain"]), assets.codes(rows["asset"])
        event = _known(rows["event"], EVENTS, "event")
        details = Names((TIMEOUT, *EVENTS))
        detail = details.codes(rows["detail"])
        amounts = [_seen(rows[name]) for name in LIMBS]
        has_content = _seen(rows["payload_hash"])
        reverted = event == code_of(Event.REVERTED)
        return cls(
            lanes=[(a, b, c, d) for a, b, c, d in lanes],
            lane=np.ascontiguousarray(lane, dtype=np.int64),
            indexed=indexed,
            index=_numbers(rows["index"], np.uint64(0)),
            ident=_idents(rows["message_id"], indexed),
            kind=_known(rows["kind"], KINDS, "kind"),
            event=event,
            chains=chains.known(),
            chain=np.ascontiguousarray(chain),
            height=_numbers(rows["height"], NO_HEIGHT),
            position=_numbers(rows["position"], NO_HEIGHT),
            time=_numbers(rows["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), NO_TIME),
            has_content=has_content,
            content=_words(rows["payload_hash"], has_content),
            assets=assets.known(),
            asset=np.ascontiguousarray(asset),
            has_amount=np.minimum.reduce(amounts),
            limbs=_limbs(rows),
            stopped_waiting=((event == code_of(Event.OBSERVED)) & (detail == 0)).astype(np.uint8),
            taken_back=np.where(reverted & (detail > 0) & (detail <= len(EVENTS)), detail - 1, -1).astype(np.int8),
        )

    def __len__(self) -> int:
        return len(self.lane)

    @cached_property
    def alive(self) -> npt.NDArray[np.uint8]:
        """Which rows no ``reverted`` row takes back: each one takes back the earliest that is left of the event that
        it names, of its message and on its chain. Rows without index and ``message_id`` say nothing of any message."""
        alive: npt.NDArray[np.uint8] = ((self.indexed == 1) | (self.ident >= 0)).astype(np.uint8)
        if not (self.taken_back >= 0).any():
            return alive
        # Only what is in a message with such a row is looked at.
        touched = np.zeros(len(self.starts) - 1, dtype=bool)
        touched[self.message[self.taken_back >= 0]] = True
        rows = np.flatnonzero(touched[self.message])
        back = self.taken_back[rows] >= 0
        event = np.where(back, self.taken_back[rows], self.event[rows])
        order = np.lexsort(
            (rows, self.time[rows], self.height[rows], back, self.chain[rows], event, self.message[rows])
        )
        rows, back, event = rows[order], back[order], event[order]
        key = np.column_stack((self.message[rows], event, self.chain[rows]))
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (key[1:] != key[:-1]).any(axis=1)
        group = np.cumsum(new) - 1
        rank = np.arange(len(rows)) - np.flatnonzero(new)[group]
        alive[rows[~back & (rank < np.bincount(group, weights=back)[group])]] = 0
        return alive

    @cached_property
    def starts(self) -> Ints:
        """Where each message begins, and at the end the number of rows."""
        from causeway.audit.message_loops import message_starts

        starts = np.empty(len(self) + 1, dtype=np.int64)
        count = message_starts(self.lane, self.indexed, self.index, self.ident, starts)
        return starts[: count + 1].copy()

    @cached_property
    def message(self) -> Ints:
        """The number of each row's message."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @cached_property
    def segment_starts(self) -> Ints:
        """Where each segment begins, as numbers of messages, and at the end how many messages there are."""
        first = self.starts[:-1]
        key, lane = self.segment_of(first), self.lane[first]
        new = np.ones(len(first), dtype=bool)
        new[1:] = (lane[1:] != lane[:-1]) | (key[1:] != key[:-1])
        return np.append(np.flatnonzero(new), len(first)).astype(np.int64)

    def segment_of(self, rows: Array) -> Ints:
        """Return the segment of each row in its lane, -1 for one without index."""
        segment = (self.index[rows] >> np.uint64(SEGMENT_BITS)).astype(np.int64)
        return np.where(self.indexed[rows] == 1, segment, -1)


@dataclass(frozen=True)
class Messages:
    """What ``message_loops.judge`` finds: of rows ``again`` and ``status``, the rest of messages or of their sums."""

    again: npt.NDArray[np.uint8]
    status: npt.NDArray[np.uint8]
    firsts: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]
    value: npt.NDArray[np.uint8]
    value_by: npt.NDArray[np.float64]
    value_row: npt.NDArray[np.int32]
    sum_lane: Ints
    sum_asset: Ints
    sums: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, columns: Columns) -> Messages:
        """Judge the messages of a bucket."""
        from causeway.audit.message_loops import EVENTS as EVENT_COUNT
        from causeway.audit.message_loops import LIMBS as SUM_WORDS
        from causeway.audit.message_loops import SMALL, judge

        rows, messages = len(columns), len(columns.starts) - 1
        codes, code_count = _content_codes(columns, SMALL)
        again, status = np.zeros(rows, np.uint8), np.zeros(rows, np.uint8)
        firsts, flags = np.empty((messages, EVENT_COUNT), np.int32), np.zeros(messages, np.uint8)
        value, value_by, value_row = (
            np.zeros(messages, np.uint8),
            np.zeros(messages, np.float64),
            np.empty(messages, np.int32),
        )
        most = min(rows, len(columns.lanes) * len(columns.assets)) + 1
        pair_lane, pair_asset = np.zeros(most, np.int64), np.zeros(most, np.int64)
        sums = np.zeros((most, 4, SUM_WORDS), np.uint64)
        stamps, slots = np.full(len(columns.assets) + 1, -1, np.int64), np.zeros(len(columns.assets) + 1, np.int64)
        count = judge(
            *(columns.lane, columns.starts, columns.alive, columns.event, columns.height, columns.time, codes),
            *(columns.has_content, columns.content, columns.asset, columns.has_amount, columns.limbs),
            *(columns.stopped_waiting, np.full((code_count, EVENT_COUNT), -1, np.int64)),
            *(again, status, firsts, flags, value, value_by, value_row, stamps, slots, pair_lane, pair_asset, sums),
        )
        found = (pair_lane[:count].copy(), pair_asset[:count].copy(), sums[:count].copy())
        return cls(again, status, firsts, flags, value, value_by, value_row, *found)


def _content_codes(columns: Columns, small: int) -> tuple[Ints, int]:
    """Return a number for each (message, content) of messages with many rows, and how many numbers there are."""
    codes = np.zeros(len(columns), dtype=np.int64)
    sizes = np.diff(columns.starts)
    large = sizes > small
    if not large.any():
        return codes, small
    rows = np.flatnonzero(np.repeat(large, sizes))
    key = np.column_stack((columns.message[rows], columns.has_content[rows], columns.content[rows]))
    found, numbers = np.unique(key.astype(np.uint64), axis=0, return_inverse=True)
    codes[rows] = numbers.reshape(-1) + small  # the numbers below are those of small messages, one after the other
    return codes, len(found) + small


def _seen(column: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    if not column.null_count:
        return np.ones(len(column), dtype=np.uint8)
    return np.asarray(column.is_valid()).astype(np.uint8)


def _numbers(column: pa.ChunkedArray, missing: Any) -> Array:
    return np.ascontiguousarray(column.fill_null(missing).to_numpy() if column.null_count else column.to_numpy())


def _known(column: pa.ChunkedArray, allowed: list[str], field: str) -> npt.NDArray[np.int8]:
    names = Names(allowed)
    codes = names.codes(column)
    if len(names) > len(allowed) or (codes < 0).any():
        bad = names.known()[len(allowed)] if len(names) > len(allowed) else None
        raise InvalidInput(f"{field} {bad!r}: must be one of {', '.join(allowed)}")
    return codes.astype(np.int8)


def _idents(column: pa.ChunkedArray, indexed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    idents = np.full(len(column), -1, dtype=np.int32)
    unnumbered = np.flatnonzero(indexed == 0)
    if len(unnumbered):
        taken = pc.dictionary_encode(column.take(pa.array(unnumbered))).combine_chunks()
        idents[unnumbered] = taken.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return idents


def _words(column: pa.ChunkedArray, seen: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    words = np.zeros((len(column), 4), dtype=np.uint64)
    if not seen.any():
        return words
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    data = np.frombuffer(whole.buffers()[1], dtype=np.uint8)
    lying = data[whole.offset * 32 : (whole.offset + len(whole)) * 32].view(np.uint64).reshape(-1, 4)
    if seen.all():
        return np.ascontiguousarray(lying)
    words[seen == 1] = lying[seen == 1]
    return words


def _limbs(rows: pa.Table) -> npt.NDArray[np.uint64]:
    limbs = np.zeros((rows.num_rows, len(LIMBS)), dtype=np.uint64)
    for place, name in enumerate(LIMBS):
        if rows[name].null_count < rows.num_rows:
            limbs[:, place] = _numbers(rows[name], np.uint64(0))
    return limbs
