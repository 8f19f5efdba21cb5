"""Messages of one run of a bucket, with the guarantees of their lanes: input of all checks.

Names that must agree across runs are compared by digests and prefixes of their texts.
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
"""Final events of a message on its source."""
ENDED_AT_DESTINATION = (LedgerEvent.RECEIVED, LedgerEvent.DROPPED, LedgerEvent.REJECTED)
"""Final events of a message on its destination. A message counts as open only if the windows cover these events."""

EXECUTIONS = (LedgerEvent.EXECUTED, LedgerEvent.FAILED, LedgerEvent.ANSWERED)
"""Events of the execution of a message."""

RELAYED = (LedgerEvent.RECEIVED, LedgerEvent.ACKNOWLEDGED)
"""Events that a relayer may submit again."""

_OTHER_CONTENT = 3
"""Status of a received row whose content differs from every sending (``message_loops.DIFFERS``)."""

ORDERED = {
    "ordered_sends": LedgerEvent.SENT,
    "ordered_receives": LedgerEvent.RECEIVED,
    "ordered_acknowledgements": LedgerEvent.ACKNOWLEDGED,
}
"""Order guarantees and their events, in the order of ``lane_loops.scan_lanes``."""

DONE_EVENTS = (LedgerEvent.ACKNOWLEDGED, LedgerEvent.TIMED_OUT, LedgerEvent.COLLECTED)
"""Events that complete a message at its source."""
REFUSED = (LedgerEvent.DROPPED, LedgerEvent.REJECTED)
"""Events that complete a message at its source, and may also happen at its destination."""

_NOTHING = np.zeros(0, dtype=np.int64)


TIMEOUTS = ("timeout_revision", "timeout_height", "timeout_time")
"""Columns that limit the reception of a message."""


class TimeoutLimits(NamedTuple):
    """Limits of messages at their destination; ``NO_HEIGHT`` and ``NO_TIME`` without a limit.

    Attributes:
        height: First height after the time-out of each message, uint64.
        time: First time after the time-out of each message, int64 microseconds.
    """

    height: Words
    time: Ints


class BucketMessages:
    """Rows of a run, the outcome of its messages, and the guarantees of lanes as columns.

    Attributes:
        columns: The rows; relays without effect have the event ``redundant``, independent of the reporter.
        known: Windows and guarantees.
        lane: Lane of each message.
        messages: Outcome of each message.
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
        """Return a mask of lanes with a guarantee."""
        return np.array([name in promised for promised in self._promised], dtype=bool)

    def numbers(self, name: str) -> tuple[Bools, Array]:
        """Return the numbers of a guarantee by lane.

        Args:
            name: Name of the guarantee.

        Returns:
            A mask of lanes with a number, and the numbers, at most ``MAX_DELAY``.
        """
        return promise_numbers(self._promised, name)

    def floats(self, name: str) -> Array:
        """Return the number of each lane's guarantee as a float."""
        return np.array([float(promised.get(name) or 0) for promised in self._promised])

    def first(self, event: LedgerEvent) -> Array:
        """Return each message's first row of an event (the receipt for received rows), or -1."""
        return self.messages.firsts.get(event_code(event), self._none)

    def has(self, *events: LedgerEvent) -> Bools:
        """Return a mask of messages with at least one of some events."""
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
        """Timeout limits of each message."""
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
        """Return the minimum over the rows of each message, or ``unseen``."""
        columns = self.columns
        counts = (columns.alive > 0) & (columns.event != event_code(LedgerEvent.REVERTED))
        found: Array = np.minimum.reduceat(np.where(counts, values, unseen), columns.starts[:-1])
        return found

    @cached_property
    def deadlines(self) -> tuple[Ints, Bools]:
        """Deadline of each lane in microseconds (-1: none), and a mask of guaranteed ones."""
        found = [self.known.promises.deadline(lane) for lane in self.columns.lanes]
        limits = np.array([-1 if limit is None else min(limit, int(MAX_DELAY)) for limit, _ in found], np.int64)
        return limits, np.array([promised for _, promised in found], bool)

    @cached_property
    def counted_receipts(self) -> Codes:
        """Receipt of each message that counts as received value, or -1; failed messages have none."""
        return np.where(self.messages.undone > 0, np.int32(-1), self.first(LedgerEvent.RECEIVED))

    @cached_property
    def refunds(self) -> Codes:
        """Row that returns the value of each message: its time-out, else its refund, or -1."""
        timed_out = self.first(LedgerEvent.TIMED_OUT)
        return np.where(timed_out >= 0, timed_out, self.first(LedgerEvent.REFUNDED))

    @cached_property
    def forged(self) -> Bools:
        """Mask of messages that no program sent, according to their chain."""
        found = np.zeros(len(self.lane), bool)
        found[self.columns.message_of(np.flatnonzero(self.columns.forged & (self.columns.alive > 0)))] = True
        return found

    @cached_property
    def is_open(self) -> Bools:
        """Mask of sent messages without any final event."""
        found: Bools = self.has(LedgerEvent.SENT) & (self.messages.state == MessageState.PENDING)
        return found

    @cached_property
    def is_unacknowledged(self) -> Bools:
        """Mask of sent messages that their source is not done with."""
        found = self.has(LedgerEvent.SENT) & ~self.has(*DONE_EVENTS)
        columns = self.columns
        rows = np.flatnonzero(is_one_of_codes(columns.event, map(event_code, REFUSED)))
        if len(rows) and found.any():
            # Refusals at the destination are unknown to the source.
            codes = {name: code for code, name in enumerate(columns.chains)}
            source = np.array([codes.get(lane[1] or "", -1) for lane in columns.lanes], np.int64)
            chain = columns.chain[rows]
            rows = rows[(columns.alive[rows] > 0) & ((chain < 0) | (chain == source[columns.lane[rows]]))]
            found[columns.message_of(rows)] = False
        return found

    def count(self, messages: Bools) -> Ints:
        """Return the number of messages of a mask in each lane."""
        return self.total(messages)

    def total(self, numbers: Array) -> Ints:
        """Return the sum over each lane's messages."""
        return np.add.reduceat(numbers, self.columns.lane_starts, dtype=np.int64) if len(numbers) else _NOTHING

    def first_sent(self, messages: Bools) -> Ints:
        """Return the earliest send time of some sent messages of each lane, or ``NO_TIME``."""
        if not len(messages):
            return _NOTHING
        times = np.full(len(messages), NO_TIME, np.int64)
        times[messages] = self.columns.time[self.first(LedgerEvent.SENT)[messages]]
        found: Ints = np.minimum.reduceat(times, self.columns.lane_starts)
        return found

    def microseconds_between(self, one: Array, other: Array) -> tuple[Ints, Bools]:
        """Return the time from rows to others in microseconds, and a mask of known ones."""
        return time_differences(self.columns.time[one], self.columns.time[other])

    def slack(self, rows: Ints) -> Ints:
        """Return the joint clock tolerance of both chains of each row's lane, in microseconds."""
        promises, columns = self.known.promises, self.columns
        each = [promises.tolerance(lane[1]) + promises.tolerance(lane[2]) for lane in columns.lanes]
        found: Ints = np.array([*each, 0], np.int64)[columns.lane[rows]]
        return found

    @cached_property
    def open_until(self) -> Ints:
        """Time up to which open messages certainly did not end at their source.

        Only lanes with ordered receives count. The time is the earliest end of the last windows that cover each final
        event and, in heights and in times, the sending. ``MAX_DELAY``: no window of the chain is declared.
        ``MIN_DELAY``: uncertain, and all other messages.
        """
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
        """Yield each lane of some rows, and the positions of its rows among these."""
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
        """Yield the windows of each lane and chain of some rows.

        Args:
            rows: Rows of the run.
            chains: Chain code of each row; None for the lane's source.
            event: Event that the windows cover.
            closing: As of ``ObservedWindowTable.of``.

        Yields:
            Positions among ``rows``, the windows, and the lane.
        """
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
        """Return a mask of pairs of rows in one window of their common chain.

        Args:
            one: First rows.
            other: Second rows.
            event: Event that the windows cover.
            closing: As of ``ObservedWindowTable.of``.
        """
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
        """Return findings about rows that imply a sending without any sent row.

        In the first pass they are ``UNDECIDED``, as the sendings of other buckets are unknown.

        Args:
            check: Name of the check.
            rows: Rows of the run.
        """
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
        """Return a mask of rows earlier than the sending of a lower index.

        Only lanes with ordered sends count.
        """
        columns = self.columns
        early = np.zeros(len(rows), dtype=bool)
        ordered = self.promised("ordered_sends")[columns.lane[rows]] & (columns.indexed[rows] == 1)
        sent = self.first(LedgerEvent.SENT)
        ends = np.append(self.columns.lane_starts, len(sent))
        for lane in np.unique(columns.lane[rows[ordered]]).tolist():
            messages = np.arange(ends[lane], ends[lane + 1])
            own = sent[messages]
            times = np.where((own >= 0) & (columns.time[own] != NO_TIME), columns.time[own], MIN_DELAY)
            latest = np.maximum.accumulate(times)
            chosen = np.flatnonzero(ordered & (columns.lane[rows] == lane))
            at = columns.message[rows[chosen]] - ends[lane] - 1
            early[chosen] = (at >= 0) & (columns.time[rows[chosen]] < latest[np.maximum(at, 0)])
        return early


def _redundant_relays(bucket: BucketMessages) -> Ints:
    """Return relays without effect: repeated receipts or acknowledgements.

    They have a transaction of their own. Their messages were executed once; for acknowledgements, having been received
    once suffices.
    """
    columns, messages = bucket.columns, bucket.messages
    again = np.flatnonzero(messages.again)
    event, message = columns.event[again], columns.message_of(again)
    if not is_one_of_codes(event, map(event_code, RELAYED)).any():
        return again[:0]
    executed_again, received_again = np.zeros(len(bucket.lane), bool), np.zeros(len(bucket.lane), bool)
    executed_again[message[is_one_of_codes(event, map(event_code, EXECUTIONS))]] = True
    received_again[message[event == event_code(LedgerEvent.RECEIVED)]] = True
    executed, received = (
        np.logical_or.reduce([bucket.first(each)[message] >= 0 for each in events])
        for events in (EXECUTIONS, (LedgerEvent.RECEIVED,))
    )
    executed_once = executed & ~executed_again[message]
    received_once = received & ~received_again[message] & ~executed_again[message]
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
    """Hash the texts of rows in a column.

    Args:
        columns: Rows of a run.
        rows: Row numbers.
        name: Name of the column.

    Returns:
        Half of the SHA-256 of each text, shape (n, 2), uint64, and a mask of non-null texts.
    """
    texts = _take_texts(columns, rows, name)
    named = np.asarray(texts.is_valid()) if texts.null_count else np.ones(len(rows), bool)
    data, offsets = text_slices(texts)
    digests = digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])
    words = np.ascontiguousarray(digests[:, :16]).view("<u8").astype(np.uint64, copy=False)
    return words.reshape(-1, 2), named


def message_keys(columns: RowColumns, rows: Ints) -> dict[str, Words]:
    """Return keys that distinguish messages without index; zeros for messages with one.

    ``begin`` has the first eight bytes of the ``message_id``, in its order. ``own_0`` and ``own_1`` have its digest.
    """
    begin, own = np.zeros(len(rows), np.uint64), np.zeros((len(rows), 2), np.uint64)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        texts = _take_texts(columns, rows[unindexed], "message_id").to_pylist()
        content = b"".join((text or "").encode()[:8].ljust(8, b"\0") for text in texts)
        begin[unindexed] = np.frombuffer(content, ">u8")
        own[unindexed] = text_digests(columns, rows[unindexed], "message_id")[0]
    return {"begin": begin, "own_0": np.ascontiguousarray(own[:, 0]), "own_1": np.ascontiguousarray(own[:, 1])}


def id_prefixes(columns: RowColumns, rows: Ints) -> tuple[Words, Words]:
    """Return the first sixteen bytes of ``message_id`` as two ordered words.

    Rows with an index have 0.
    """
    octets = np.zeros((len(rows), 16), np.uint8)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        texts = _take_texts(columns, rows[unindexed], "message_id")
        data, offsets = text_slices(texts)
        for place in range(16):
            at = offsets[:-1] + place
            inside = np.flatnonzero(at < offsets[1:])
            octets[unindexed[inside], place] = data[at[inside]]
    words = octets.view(">u8").astype(np.uint64)
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])


def _take_texts(columns: RowColumns, rows: Ints, name: str) -> pa.Array:
    return to_single_array(columns.rows.take((name,), rows)[name])
