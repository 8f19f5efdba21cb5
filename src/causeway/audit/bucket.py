"""The messages of one run of a bucket, with what their lanes promise: what the checks ask of them.

Names of rows as numbers that mean the same in every run: digests of texts, and what they begin with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import HashFunction, digest_slices

from causeway.audit.arrays import (
    MAX_DELAY,
    MIN_DELAY,
    NO_TIME,
    Array,
    Codes,
    Ints,
    Words,
    is_one_of_codes,
    time_differences,
    to_numbers,
    to_single_array,
)
from causeway.audit.columns import (
    NO_HEIGHT,
    Bools,
    MessageColumns,
    RowColumns,
    event_code,
    order_heights,
    promise_numbers,
)
from causeway.audit.findings import UNKNOWN, VIOLATED, Finding
from causeway.audit.lane_context import NOT_SENT_YET, UNDECIDED, LaneContext, unsent_reason, unsent_verdict
from causeway.ledger.encodings import NameCodes, text_slices
from causeway.ledger.outcomes import MessageState
from causeway.ledger.schema import LedgerEvent
from causeway.ledger.windows import Lane, ObservedSpans

ENDED_AT_SOURCE = (LedgerEvent.TIMED_OUT, LedgerEvent.DROPPED, LedgerEvent.REJECTED)
ENDED_AT_DESTINATION = (LedgerEvent.RECEIVED, LedgerEvent.DROPPED, LedgerEvent.REJECTED)
"""How a message may end on its two chains: where one that looks open would show it, the windows must have these."""

EXECUTIONS = (LedgerEvent.EXECUTED, LedgerEvent.FAILED, LedgerEvent.ANSWERED)
"""Events that show the execution of a message."""

RELAYED = (LedgerEvent.RECEIVED, LedgerEvent.ACKNOWLEDGED)
"""Events that a relayer may submit again."""

_OTHER_CONTENT = 3
"""The status of a received row whose content no sending has (``message_loops.DIFFERS``)."""

ORDERED = {
    "ordered_sends": LedgerEvent.SENT,
    "ordered_receives": LedgerEvent.RECEIVED,
    "ordered_acknowledgements": LedgerEvent.ACKNOWLEDGED,
}
"""Promises of order, and of which event, in the order in which ``lane_loops.walk`` has them."""

DONE_EVENTS = (LedgerEvent.ACKNOWLEDGED, LedgerEvent.TIMED_OUT, LedgerEvent.COLLECTED)
REFUSED = (LedgerEvent.DROPPED, LedgerEvent.REJECTED)
"""With what the chain that sent a message is done with it: events of that chain, and those that may be of either."""

_NOTHING = np.zeros(0, dtype=np.int64)


TIMEOUTS = ("timeout_revision", "timeout_height", "timeout_time")
"""The columns that limit messages."""


class TimeoutLimits(NamedTuple):
    """From which ``height`` and ``time`` of its destination on each message may no longer be received; ``NO_HEIGHT``
    and ``NO_TIME`` where it has no such limit."""

    height: Words
    time: Ints


class BucketMessages:
    """One bucket's rows with what its messages come to, and lanes' promises as columns.

    ``columns``: those given, in which relays that changed nothing are ``redundant`` whoever recorded them.
    """

    def __init__(self, columns: RowColumns, known: LaneContext) -> None:
        self.columns, self.known = columns, known
        self.lane = columns.lane[columns.starts[:-1]]
        self._promised = [known.promises.of(lane) for lane in columns.lanes]
        self.messages = MessageColumns.of(columns, known.promises)
        self._none = np.full(len(self.lane), -1, np.int32)
        self._has: dict[int, Bools] = {}
        relays = _redundant_relays(self)
        if len(relays):
            event = columns.event.copy()
            event[relays] = event_code(LedgerEvent.REDUNDANT)
            self.columns = replace(columns, event=event)
            self.messages = MessageColumns.of(self.columns, known.promises)
            self._has.clear()

    def promised(self, name: str) -> Bools:
        """Return which lanes promise something."""
        return np.array([name in promised for promised in self._promised], dtype=bool)

    def numbers(self, name: str) -> tuple[Bools, Array]:
        """Return of each lane whether its promise has a number, and the number (that of ``MOST`` where it is more)."""
        return promise_numbers(self._promised, name)

    def floats(self, name: str) -> Array:
        """Return the number of each lane's promise, rounded."""
        return np.array([float(promised.get(name) or 0) for promised in self._promised])

    def first(self, event: LedgerEvent) -> Array:
        """Return each message's first row of an event (of received ones the receipt), -1 for none."""
        return self.messages.firsts.get(event_code(event), self._none)

    def has(self, *events: LedgerEvent) -> Bools:
        """Return which messages have one of some events."""
        found = np.zeros(len(self.lane), dtype=bool)
        for event in events:
            code = event_code(event)
            if code in self.messages.firsts:
                if code not in self._has:
                    self._has[code] = self.messages.firsts[code] >= 0
                found |= self._has[code]
        return found

    @cached_property
    def timeouts(self) -> TimeoutLimits:
        """The limits of each message."""
        count = len(self.lane)
        height, time = np.full(count, NO_HEIGHT), np.full(count, NO_TIME)
        if not self.columns.rows.has(*TIMEOUTS):
            return TimeoutLimits(height, time)
        rows = self.columns.rows.read(TIMEOUTS)
        revisions, heights, times = (to_single_array(rows[name]) for name in TIMEOUTS)
        if heights.null_count < len(heights):
            height = self._least(order_heights(to_numbers(heights, NO_HEIGHT), revisions), NO_HEIGHT)
        if times.null_count < len(times):
            time = self._least(to_numbers(times.cast(pa.timestamp("us", "UTC")).view(pa.int64()), NO_TIME), NO_TIME)
        return TimeoutLimits(height, time)

    def _least(self, values: Array, unseen: Any) -> Array:
        """Return the least value of the rows of each message, ``unseen`` where none has one."""
        columns = self.columns
        counts = (columns.alive > 0) & (columns.event != event_code(LedgerEvent.REVERTED))
        found: Array = np.minimum.reduceat(np.where(counts, values, unseen), columns.starts[:-1])
        return found

    @cached_property
    def deadlines(self) -> tuple[Ints, Bools]:
        """In how many microseconds the messages of each lane arrive (-1: no deadline), and whether that is promised,
        not a default."""
        found = [self.known.promises.deadline(lane) for lane in self.columns.lanes]
        limits = np.array([-1 if limit is None else min(limit, int(MAX_DELAY)) for limit, _ in found], np.int64)
        return limits, np.array([promised for _, promised in found], bool)

    @cached_property
    def counted_receipts(self) -> Codes:
        """The receipt of each message that counts as received value, -1 for none: not of those that failed."""
        return np.where(self.messages.undone > 0, np.int32(-1), self.first(LedgerEvent.RECEIVED))

    @cached_property
    def refunds(self) -> Codes:
        """The row of each message that gives its value back, -1 for none: its time-out, else its refund."""
        timed_out = self.first(LedgerEvent.TIMED_OUT)
        return np.where(timed_out >= 0, timed_out, self.first(LedgerEvent.REFUNDED))

    @cached_property
    def forged(self) -> Bools:
        """Which messages no program sent, as their chain says itself."""
        found = np.zeros(len(self.lane), bool)
        found[self.columns.message_of(np.flatnonzero(self.columns.forged & (self.columns.alive > 0)))] = True
        return found

    @cached_property
    def is_open(self) -> Bools:
        """Which messages were sent, and nothing says that they came or will not come."""
        found: Bools = self.has(LedgerEvent.SENT) & (self.messages.state == MessageState.PENDING)
        return found

    @cached_property
    def is_unacknowledged(self) -> Bools:
        """Which messages were sent, and nothing says that the chain that sent them is done with them."""
        found = self.has(LedgerEvent.SENT) & ~self.has(*DONE_EVENTS)
        columns = self.columns
        rows = np.flatnonzero(is_one_of_codes(columns.event, map(event_code, REFUSED)))
        if len(rows) and found.any():
            # Wherever they happen: on the chain that the message goes to they are not known at its source.
            codes = {name: code for code, name in enumerate(columns.chains)}
            source = np.array([codes.get(lane[1] or "", -1) for lane in columns.lanes], np.int64)
            chain = columns.chain[rows]
            rows = rows[(columns.alive[rows] > 0) & ((chain < 0) | (chain == source[columns.lane[rows]]))]
            found[columns.message_of(rows)] = False
        return found

    def count(self, messages: Bools) -> Ints:
        """Return how many of some messages each lane has."""
        return self.total(messages)

    def total(self, numbers: Array) -> Ints:
        """Return the sum of the numbers of each lane's messages."""
        return np.add.reduceat(numbers, self.columns.lane_starts, dtype=np.int64) if len(numbers) else _NOTHING

    def first_sent(self, messages: Bools) -> Ints:
        """Return when the first of some sent messages of each lane was sent, ``NO_TIME``: not seen of any."""
        if not len(messages):
            return _NOTHING
        times = np.full(len(messages), NO_TIME, np.int64)
        times[messages] = self.columns.time[self.first(LedgerEvent.SENT)[messages]]
        found: Ints = np.minimum.reduceat(times, self.columns.lane_starts)
        return found

    def microseconds_between(self, one: Array, other: Array) -> tuple[Ints, Bools]:
        """Return the microseconds from rows to others, and of which both times were seen."""
        return time_differences(self.columns.time[one], self.columns.time[other])

    def slack(self, rows: Ints) -> Ints:
        """Return by how many microseconds the clocks of the two chains of each row's lane may differ."""
        promises, columns = self.known.promises, self.columns
        each = [promises.tolerance(lane[1]) + promises.tolerance(lane[2]) for lane in columns.lanes]
        found: Ints = np.array([*each, 0], np.int64)[columns.lane[rows]]
        return found

    @cached_property
    def open_until(self) -> Ints:
        """Until which time it is sure of open messages of lanes with ordered receives that they ended nowhere on the
        chain that sent them, ``NEVER`` of others: the last window of each event that would say so has their sending, in
        heights and in times, and the first of these ends then (``MOST``: no window of the chain is declared)."""
        chosen = np.flatnonzero(self.is_open & self.promised("ordered_receives")[self.lane])
        found = np.full(len(self.lane), MIN_DELAY)
        found[chosen] = MAX_DELAY
        rows = self.first(LedgerEvent.SENT)[chosen]
        for event in ENDED_AT_SOURCE if len(rows) else ():
            for places, spans, lane in self.spans(rows, self.columns.chain[rows], event):
                if not self.known.windows.declares(self._chain_of(rows[places[0]]), lane):
                    continue
                height, time = self.columns.height[rows[places]], self.columns.time[rows[places]]
                by_height = (height != NO_HEIGHT) & bool(len(spans.heights[0]))
                by_time = (time != NO_TIME) & spans.is_in_last_time_window(time)
                has = np.where(by_height, spans.is_in_last_height_window(height), by_time)
                last = spans.times[1][-1] if len(spans.times[1]) else MIN_DELAY
                found[chosen[places]] = np.where(has & by_time, np.minimum(found[chosen[places]], last), MIN_DELAY)
        return found

    def by_lane(self, rows: Array) -> Iterator[tuple[Lane, Array]]:
        """Yield each lane of some rows, and where its rows stand among these."""
        if not len(rows):
            return
        lanes = self.columns.lane[rows]
        order = np.argsort(lanes, kind="stable")
        starts = np.flatnonzero(np.diff(lanes[order], prepend=-1))
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            yield self.columns.lanes[lanes[order[begin]]], order[begin:end]

    def _chain_of(self, row: int) -> str | None:
        code = int(self.columns.chain[row])
        return self.columns.chains[code] if code >= 0 else None

    def spans(
        self, rows: Array, chains: Array | None, event: LedgerEvent | str, *, closing: bool = False
    ) -> Iterator[tuple[Array, ObservedSpans, Lane]]:
        """Yield where rows stand that have one lane and chain (``chains``: codes; None: the lane's source), and the
        windows of that chain (``closing``: as of ``Windows.of``)."""
        columns = self.columns
        lanes = columns.lane[rows]
        codes = np.zeros(len(rows), np.int64) if chains is None else chains.astype(np.int64)
        pairs, at = np.unique(np.column_stack((lanes, codes)), axis=0, return_inverse=True)
        order = np.argsort(at.reshape(-1), kind="stable")
        bounds = np.searchsorted(at.reshape(-1)[order], np.arange(len(pairs) + 1))
        for number, (lane_code, code) in enumerate(pairs.tolist()):
            lane = columns.lanes[lane_code]
            chain = lane[1] if chains is None else (columns.chains[code] if code >= 0 else None)
            places = order[bounds[number] : bounds[number + 1]]
            yield places, self.known.windows.of(chain, lane, str(event), closing=closing), lane

    def together(self, one: Array, other: Array, event: LedgerEvent, *, closing: bool = False) -> Bools:
        """Return whether pairs of rows are on one chain and in one of its windows, in heights or in times."""
        columns = self.columns
        covered = np.zeros(len(one), dtype=bool)
        same = columns.chain[one] == columns.chain[other]
        heights = (columns.height[one] != NO_HEIGHT) & (columns.height[other] != NO_HEIGHT)
        times = (columns.time[one] != NO_TIME) & (columns.time[other] != NO_TIME)
        for places, spans, _ in self.spans(one, columns.chain[one], event, closing=closing):
            a, b = one[places], other[places]
            by_height = spans.share_height_window(columns.height[a], columns.height[b])
            by_time = spans.share_time_window(columns.time[a], columns.time[b])
            covered[places] = (heights[places] & by_height) | (times[places] & by_time)
        return np.asarray(covered & same)

    def unsent(self, check: str, rows: Ints) -> list[Finding]:
        """Return what rows are that say that a message was sent which no row shows as sent: ``UNDECIDED`` in the first
        look, in which it is not known what lanes sent, else what ``why_unsent`` says."""
        if not len(rows):
            return []
        early = self._before_lower_ones(rows)
        found = [Finding(check, VIOLATED, NOT_SENT_YET, rows[early])]
        rows = rows[~early]
        if not self.known.complete:
            return [*found, Finding(check, UNKNOWN, UNDECIDED, rows)]
        columns = self.columns
        places = columns.indexed[rows] == 1, columns.index[rows], columns.time[rows]
        reasons = unsent_reason(self.known, columns.lanes, columns.lane[rows], *places)
        return [
            *found,
            *(
                Finding(check, unsent_verdict(reason), reason, rows[reasons == reason])
                for reason in sorted(set(reasons.tolist()))
            ),
        ]

    def _before_lower_ones(self, rows: Ints) -> Bools:
        """Return which rows are of a time before a message of this run with a lower index was sent, in lanes with
        ordered sends."""
        columns = self.columns
        early = np.zeros(len(rows), dtype=bool)
        asked = self.promised("ordered_sends")[columns.lane[rows]] & (columns.indexed[rows] == 1)
        sent = self.first(LedgerEvent.SENT)
        ends = np.append(self.columns.lane_starts, len(sent))
        for lane in np.unique(columns.lane[rows[asked]]).tolist():
            messages = np.arange(ends[lane], ends[lane + 1])
            own = sent[messages]
            times = np.where((own >= 0) & (columns.time[own] != NO_TIME), columns.time[own], MIN_DELAY)
            latest = np.maximum.accumulate(times)
            chosen = np.flatnonzero(asked & (columns.lane[rows] == lane))
            at = columns.message[rows[chosen]] - ends[lane] - 1
            early[chosen] = (at >= 0) & (columns.time[rows[chosen]] < latest[np.maximum(at, 0)])
        return early


def _redundant_relays(bucket: BucketMessages) -> Ints:
    """Return the rows of a run that repeat a receipt or an acknowledgement, in a transaction of their own, of messages
    that were executed once; acknowledgements also of messages that were received once."""
    columns, messages = bucket.columns, bucket.messages
    again = np.flatnonzero(messages.again)
    event, message = columns.event[again], columns.message_of(again)
    if not is_one_of_codes(event, map(event_code, RELAYED)).any():
        return again[:0]
    executed_again, taken_again = np.zeros(len(bucket.lane), bool), np.zeros(len(bucket.lane), bool)
    executed_again[message[is_one_of_codes(event, map(event_code, EXECUTIONS))]] = True
    taken_again[message[event == event_code(LedgerEvent.RECEIVED)]] = True
    executed, received = (
        np.logical_or.reduce([bucket.first(each)[message] >= 0 for each in events])
        for events in (EXECUTIONS, (LedgerEvent.RECEIVED,))
    )
    executed_once = executed & ~executed_again[message]
    received_once = received & ~taken_again[message] & ~executed_again[message]
    found = np.zeros(len(again), bool)
    for each in RELAYED:
        once = executed_once if each is LedgerEvent.RECEIVED else executed_once | received_once
        own = np.flatnonzero(once & (event == event_code(each)) & (messages.status[again] != _OTHER_CONTENT))
        if not len(own):
            continue
        first = bucket.first(each)[message[own]]
        names = NameCodes()
        one, other = (
            names.codes(columns.rows.take(("transaction",), rows)["transaction"]) for rows in (again[own], first)
        )
        found[own] = (one >= 0) & (other >= 0) & (one != other)
    return again[found]


def text_digests(columns: RowColumns, rows: Ints, name: str) -> tuple[Words, Bools]:
    """Return half of the SHA-256 of the texts of rows in a column, as two words each, and which rows have one."""
    texts = _taken(columns, rows, name)
    named = np.asarray(texts.is_valid()) if texts.null_count else np.ones(len(rows), bool)
    data, offsets = text_slices(texts)
    digests = digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])
    words = np.ascontiguousarray(digests[:, :16]).view("<u8").astype(np.uint64, copy=False)
    return words.reshape(-1, 2), named


def message_keys(columns: RowColumns, rows: Ints) -> dict[str, Words]:
    """Return what tells messages without index apart, of rows of them: ``begin``, the first eight bytes of their
    ``message_id`` as a number of the same order, and its digest ``own_0``, ``own_1``; 0 for those with an index."""
    begin, own = np.zeros(len(rows), np.uint64), np.zeros((len(rows), 2), np.uint64)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        texts = _taken(columns, rows[unindexed], "message_id").to_pylist()
        content = b"".join((text or "").encode()[:8].ljust(8, b"\0") for text in texts)
        begin[unindexed] = np.frombuffer(content, ">u8")
        own[unindexed] = text_digests(columns, rows[unindexed], "message_id")[0]
    return {"begin": begin, "own_0": np.ascontiguousarray(own[:, 0]), "own_1": np.ascontiguousarray(own[:, 1])}


def id_prefixes(columns: RowColumns, rows: Ints) -> tuple[Words, Words]:
    """Return the first sixteen bytes of the ``message_id`` of rows without index as two numbers, which together have
    its order; 0 for rows with an index."""
    octets = np.zeros((len(rows), 16), np.uint8)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        texts = _taken(columns, rows[unindexed], "message_id")
        data, offsets = text_slices(texts)
        for place in range(16):
            at = offsets[:-1] + place
            inside = np.flatnonzero(at < offsets[1:])
            octets[unindexed[inside], place] = data[at[inside]]
    words = octets.view(">u8").astype(np.uint64)
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])


def _taken(columns: RowColumns, rows: Ints, name: str) -> pa.Array:
    texts = columns.rows.take((name,), rows)[name].combine_chunks()
    return pa.concat_arrays(texts.chunks) if isinstance(texts, pa.ChunkedArray) else texts
