"""Rows of one run as numeric columns, and the outcome of its messages as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.audit.arrays import (
    MAX_DELAY,
    Array,
    Bytes,
    Codes,
    Ints,
    Words,
    all_valid_rows,
    content_words,
    describe_lane,
    encode_allowed_names,
    encode_message_ids,
    encode_names,
    is_one_of_codes,
    number_lane_rows,
    order_preserving_times,
    raw_words,
    to_numbers,
    to_single_array,
    valid_rows,
)
from causeway.audit.arrays import NO_TIME as NO_TIME
from causeway.audit.arrays import Bools as Bools
from causeway.ledger.encodings import UNSEEN_NAME, NameCodes
from causeway.ledger.outcomes import EVENT_BITS, OUTCOME_ERRORS, STATES_BY_EVENT_BITS
from causeway.ledger.parts import MessageRun
from causeway.ledger.row_order import EVENTS, SEGMENT_BITS
from causeway.ledger.row_rules import name_error
from causeway.ledger.schema import (
    EXPIRED,
    FORGED,
    LANE,
    LIMBS,
    REFUND_MESSAGES,
    REVERTED_EVENTS,
    REVISION_SHIFT,
    STOPPED,
    LedgerEvent,
    LedgerKind,
)
from causeway.ledger.windows import Lane, LanePromises

NO_HEIGHT = np.uint64(2**64 - 1)
KINDS = [kind.value for kind in LedgerKind]
REQUEST, CONTROL = KINDS.index(LedgerKind.REQUEST), KINDS.index(LedgerKind.CONTROL)
TIMEOUT = "timeout"
"""``detail`` of an observed event: the observer stopped waiting for the message."""


def event_code(event: LedgerEvent) -> int:
    """Return the code of an event in columns.

    Args:
        event: The event.
    """
    return EVENTS.index(event.value)


AT_DESTINATION = (LedgerEvent.RECEIVED, LedgerEvent.EXECUTED, LedgerEvent.FAILED, LedgerEvent.ANSWERED)
"""Events that happen only at the destination of a lane."""

_ERRING = frozenset(event_code(event) for event in OUTCOME_ERRORS)
"""Codes of events that an error code turns into another outcome."""


def order_heights(height: Words, revision: pa.Array) -> Words:
    """Combine heights and revisions to ascending numbers.

    Args:
        height: Heights, uint64; ``NO_HEIGHT``: unknown.
        revision: Revisions, uint64, nullable.

    Returns:
        Numbers, uint64; ``NO_HEIGHT``: unknown.
    """
    if revision.null_count == len(revision):
        return height
    above = to_numbers(revision, np.uint64(0)) << np.uint64(REVISION_SHIFT)
    return np.where(height == NO_HEIGHT, NO_HEIGHT, above | height)


def finality_delays(promised: Sequence[Mapping[str, int | None]]) -> Ints:
    """Return the guaranteed finality of each lane in microseconds, -1: none."""
    has_number, found = promise_numbers(promised, "final_after")
    return np.where(has_number, found, -1)


def promise_numbers(promised: Sequence[Mapping[str, int | None]], name: str) -> tuple[Bools, Ints]:
    """Return a mask of lanes with a numbered guarantee, and the numbers, at most ``MAX_DELAY``."""
    found = [each.get(name) for each in promised]
    return np.array([each is not None for each in found], bool), np.array(
        [min(each or 0, int(MAX_DELAY)) for each in found], np.int64
    )


@dataclass(frozen=True)
class RowColumns:
    """Rows in ledger order (``row_order.ledger_order``) as arrays.

    -1 and ``NO_...`` mean unknown. ``content`` and ``limbs`` are meaningless where ``has_content`` and ``has_amount``
    are 0.
    """

    rows: MessageRun
    lanes: list[Lane]
    lane: Codes
    indexed: Bytes
    index: Words
    ident: Codes
    kind: Codes
    event: Codes
    chains: list[str]
    chain: Codes
    height: Words
    position: Words
    time: Ints
    has_content: Bytes
    content: Words
    assets: list[str]
    asset: Codes
    has_amount: Bytes
    limbs: tuple[Words, Words, Words, Words]
    starts: Ints
    """First row of each message, followed by the number of rows."""

    @classmethod
    def of(cls, rows: MessageRun) -> RowColumns:
        """Read the columns of a run.

        Args:
            rows: Rows of the ledger.

        Raises:
            InvalidInput: An event or kind is unknown, or rows are out of ledger order.
        """
        from causeway.audit.column_loops import message_starts

        table = rows.table
        index = to_single_array(table["index"])
        indexed = valid_rows(index)
        chains, assets = NameCodes(), NameCodes()
        lanes, lane = number_lane_rows(table)
        ident = encode_message_ids(rows, indexed)
        index_words = to_numbers(index, np.uint64(0))
        starts = np.empty(len(lane) + 1, dtype=np.int64)
        messages = message_starts(lane, indexed, index_words, ident, starts)
        if messages < 0:
            raise InvalidInput(
                f"index: not in the order of the ledger in lane {describe_lane(lanes[lane[-1 - messages]])}"
            )
        hashes = to_single_array(table["payload_hash"])
        amounts = [to_single_array(table[name]) for name in LIMBS]
        one, two, three, four = (raw_words(column) for column in amounts)
        return cls(
            rows=rows,
            lanes=lanes,
            lane=lane,
            indexed=indexed,
            index=index_words,
            ident=ident,
            kind=encode_allowed_names(table["kind"], KINDS, "kind"),
            event=encode_allowed_names(table["event"], EVENTS, "event"),
            chain=encode_names(table["chain"], chains),
            chains=chains.known(),
            height=order_heights(
                to_numbers(to_single_array(table["height"]), NO_HEIGHT), to_single_array(table["revision"])
            ),
            position=to_numbers(to_single_array(table["position"]), NO_HEIGHT),
            time=to_numbers(to_single_array(table["time"]).cast(pa.timestamp("us", "UTC")).view(pa.int64()), NO_TIME),
            has_content=valid_rows(hashes),
            content=content_words(hashes),
            asset=encode_names(table["asset"], assets),
            assets=assets.known(),
            has_amount=all_valid_rows(amounts),
            limbs=(one, two, three, four),
            starts=starts[: messages + 1].copy(),
        )

    def __len__(self) -> int:
        return len(self.lane)

    @cached_property
    def events(self) -> frozenset[int]:
        """Codes of the present events."""
        return frozenset(np.flatnonzero(np.bincount(self.event, minlength=len(EVENTS))).tolist())

    @cached_property
    def lane_names(self) -> dict[str, pa.Array]:
        """The four names of each lane."""
        return {name: pa.array([lane[at] for lane in self.lanes], pa.string()) for at, name in enumerate(LANE)}

    @cached_property
    def all_have_position(self) -> bool:
        """True if every row has a height or a time."""
        seen = self.height != NO_HEIGHT
        return bool(seen.all()) or bool((seen | (self.time != NO_TIME)).all())

    @cached_property
    def _detail(self) -> tuple[NameCodes, Codes]:
        details = NameCodes((TIMEOUT, FORGED, EXPIRED, *EVENTS))
        if not self.rows.has("detail"):
            return details, np.full(len(self), UNSEEN_NAME, np.int32)
        return details, encode_names(self.rows.read(("detail",))["detail"], details)

    @cached_property
    def errors(self) -> Bytes:
        """Request rows with an error code (``outcomes.OUTCOME_ERRORS``); empty without any."""
        none = np.zeros(0, np.uint8)
        if not self.events.intersection(_ERRING) or not self.rows.has("code"):
            return none
        found = (to_numbers(self.code, 0) != 0) & is_one_of_codes(self.event, _ERRING) & (self.kind == REQUEST)
        return found.astype(np.uint8) if found.any() else none

    @cached_property
    def code(self) -> pa.Array:
        """Error code of each row, 0: success, null: none."""
        return to_single_array(self.rows.read(("code",))["code"])

    @cached_property
    def stopped_waiting(self) -> Bytes:
        """Rows whose observer stopped waiting; empty without ``observed`` rows."""
        if event_code(LedgerEvent.OBSERVED) not in self.events:
            return np.zeros(0, dtype=np.uint8)
        found: Bytes = ((self.event == event_code(LedgerEvent.OBSERVED)) & (self._detail[1] == 0)).astype(np.uint8)
        return found

    @cached_property
    def reverted_event(self) -> npt.NDArray[np.int8]:
        """Event that each ``reverted`` row reverts, -1 in other rows.

        Raises:
            InvalidInput: The ``detail`` of a reverted row is not an event.
        """
        names, codes = self._detail
        detail, reverted = codes - 3, self.event == event_code(LedgerEvent.REVERTED)
        known = np.isin(detail, [EVENTS.index(name) for name in REVERTED_EVENTS])
        unknown = codes[reverted & ~known]
        if len(unknown):
            value = None if unknown[0] < 0 else names.known()[unknown[0]]
            raise name_error("detail of a reverted row", value, REVERTED_EVENTS)
        return np.where(reverted, detail, -1).astype(np.int8)

    @cached_property
    def forged(self) -> Bools:
        """Mask of rows that declare a message as forged: no program sent it."""
        sent_or_observed = (self.event == event_code(LedgerEvent.SENT)) | (
            self.event == event_code(LedgerEvent.OBSERVED)
        )
        found: Bools = (self._detail[1] == 1) & sent_or_observed
        return found

    @cached_property
    def expired(self) -> Bools:
        """Mask of sendings of answers that only state that their request expired."""
        found: Bools = (self._detail[1] == 2) & (self.event == event_code(LedgerEvent.SENT))
        return found

    @cached_property
    def stopped(self) -> Ints:
        """Live rows that report a stopped chain."""
        if event_code(LedgerEvent.OBSERVED) not in self.events:
            return np.zeros(0, np.int64)
        rows = np.flatnonzero(
            (self.event == event_code(LedgerEvent.OBSERVED)) & (self.kind == CONTROL) & (self.alive > 0)
        )
        details, codes = self._detail
        stops = [code for code, name in enumerate(details.known()) if name.partition(" ")[0] == STOPPED]
        return rows[np.isin(codes[rows], stops)]

    @cached_property
    def alive(self) -> Bytes:
        """Mask of rows that are not reverted.

        Each ``reverted`` row reverts the earliest remaining event of its kind, message and chain that is not after it
        (``message_loops.mark_reverted``). Rows without index and ``message_id`` belong to no message.
        """
        from causeway.audit.message_loops import mark_reverted

        alive = self.indexed if not len(self.ident) else ((self.indexed == 1) | (self.ident >= 0)).astype(np.uint8)
        if event_code(LedgerEvent.REVERTED) not in self.events or not (self.reverted_event >= 0).any():
            return alive
        alive = alive.copy()
        # Only messages with a ``reverted`` row need a check.
        touched = np.zeros(len(self.starts) - 1, dtype=bool)
        touched[self.message[self.reverted_event >= 0]] = True
        rows = np.flatnonzero(touched[self.message])
        back = self.reverted_event[rows] >= 0
        event = np.where(back, self.reverted_event[rows], self.event[rows])
        times, heights = order_preserving_times(self.time[rows]), self.height[rows]
        places = np.where(back, heights, times), np.where(back, times, heights)
        order = np.lexsort((rows, *places, back, self.chain[rows], event, self.message[rows]))
        rows, back, event = rows[order], back[order], event[order]
        key = np.column_stack((self.message[rows], event, self.chain[rows]))
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (key[1:] != key[:-1]).any(axis=1)
        starts = np.append(np.flatnonzero(new), len(rows)).astype(np.int64)
        reverted = np.zeros(len(rows), np.uint8)
        mark_reverted(starts, back.view(np.uint8), self.time[rows], reverted)
        alive[rows[reverted == 1]] = 0
        return alive

    @cached_property
    def message(self) -> Ints:
        """Message number of each row."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def message_of(self, rows: Ints) -> Ints:
        """Return the message numbers of a few rows, without computing those of all."""
        found: Ints = np.searchsorted(self.starts, rows, side="right") - 1
        return found

    def rows_of(self, messages: Ints) -> Ints:
        """Return the rows of some messages, message by message."""
        counts = self.starts[messages + 1] - self.starts[messages]
        begins = self.starts[messages] - (np.cumsum(counts) - counts)
        return np.repeat(begins, counts) + np.arange(counts.sum())

    @cached_property
    def pieces(self) -> Ints:
        """First message of each piece, followed by the number of messages.

        A piece is a consecutive run of messages of one lane and segment.
        """
        first = self.starts[:-1]
        if self.rows.scattered:
            return np.arange(len(first) + 1, dtype=np.int64)
        key, lane = self.row_segments(first), self.lane[first]
        new = np.ones(len(first), dtype=bool)
        new[1:] = (lane[1:] != lane[:-1]) | (key[1:] != key[:-1])
        return np.append(np.flatnonzero(new), len(first)).astype(np.int64)

    @cached_property
    def lane_starts(self) -> Ints:
        """First message of each lane."""
        lane = self.lane[self.starts[:-1]]
        return np.searchsorted(lane, np.arange(len(self.lanes))).astype(np.int64)

    @cached_property
    def is_elsewhere(self) -> Bytes:
        """Mask of live rows on a chain where their event cannot happen.

        Messages are sent by the source of their lane, and received and executed by its destination.
        """
        from causeway.audit.column_loops import mark_elsewhere

        codes = {name: code for code, name in enumerate(self.chains)}
        # A chain without rows still differs from the chain of a row.
        names = [name for lane in self.lanes for name in lane[1:3]]
        ends = np.array([-1 if name is None else codes.get(name, len(codes)) for name in names], np.int32)
        side = np.full(len(EVENTS), -1, np.int32)
        side[event_code(LedgerEvent.SENT)] = 0
        side[[event_code(event) for event in AT_DESTINATION]] = 1
        marked = np.zeros(len(self), np.uint8)
        mark_elsewhere(self.lane, self.event, self.chain, self.alive, side, ends, marked)
        return marked

    @cached_property
    def elsewhere(self) -> Ints:
        """Live rows on a chain where their event cannot happen."""
        return np.flatnonzero(self.is_elsewhere)

    def row_segments(self, rows: Array) -> Ints:
        """Return the segment of each row in its lane, -1 without index."""
        segment = (self.index[rows] >> np.uint64(SEGMENT_BITS)).astype(np.int64)
        return np.where(self.indexed[rows] == 1, segment, -1)


@dataclass(frozen=True)
class MessageColumns:
    """Outcome of messages, from ``message_loops.evaluate_messages``.

    ``again`` and ``status`` are columns of rows, ``sum_lane``, ``sum_asset`` and ``sums`` of pairs of lane and asset,
    ``restarts`` and ``tolerance`` of chains, the others of messages.

    Attributes:
        firsts: First row of each message by event code; for received rows the receipt.
        earliest: First received row of each message whose content does not differ.
        state: State of each message by its events (``outcomes.MessageState``).
        undone: 1 if the receipt does not count: the message failed, and its value was returned.
        restarts: 1 for restarted chains; the last entry is for unknown chains.
        tolerance: Clock tolerance of chains, microseconds; the last entry is for unknown chains.
    """

    again: Bytes
    status: Bytes
    receives: Codes
    firsts: dict[int, Codes]
    earliest: Codes
    state: npt.NDArray[np.int8]
    undone: Bytes
    flags: Bytes
    contents: Codes
    value: Bytes
    value_by: npt.NDArray[np.float64]
    value_row: Codes
    sum_lane: Ints
    sum_asset: Ints
    sums: Words
    restarts: Bytes
    tolerance: Ints

    @classmethod
    def of(cls, columns: RowColumns, promises: LanePromises) -> MessageColumns:
        """Evaluate the messages of a run under the guarantees of lanes and chains."""
        from causeway.audit.message_loops import EVENTS as EVENT_COUNT
        from causeway.audit.message_loops import LIMBS as SUM_WORDS
        from causeway.audit.message_loops import NEEDED, SMALL, evaluate_messages

        rows, messages = len(columns), len(columns.starts) - 1
        promised = [promises.of(lane) for lane in columns.lanes]
        undoes = np.array([REFUND_MESSAGES not in each for each in promised], np.uint8)
        restarts = np.array([promises.restarts(chain) for chain in (*columns.chains, None)], np.uint8)
        tolerance = np.array([promises.tolerance(chain) for chain in (*columns.chains, None)], np.int64)
        codes, code_count = _content_codes(columns, SMALL)
        again, status = np.zeros(rows, np.uint8), np.zeros(rows, np.uint8)
        present = sorted(columns.events | set(NEEDED))
        slots = np.full(EVENT_COUNT, -1, np.int64)
        slots[present] = np.arange(len(present))
        firsts = np.full((len(present), messages), -1, np.int32)
        earliest = np.empty(messages, np.int32)
        receives, flags = np.zeros(messages, np.int32), np.zeros(messages, np.uint8)
        bits, undone = np.zeros(messages, np.int32), np.zeros(messages, np.uint8)
        contents = np.zeros(messages, np.int32)
        value, value_by = np.zeros(messages, np.uint8), np.zeros(messages, np.float64)
        value_row = np.empty(messages, np.int32)
        most = min(rows, len(columns.lanes) * len(columns.assets)) + 1
        pair_lane, pair_asset = np.zeros(most, np.int64), np.zeros(most, np.int64)
        sums = np.zeros((most, 4, SUM_WORDS), np.uint64)
        asset_count = len(columns.assets) + 1
        count = evaluate_messages(
            *(columns.lane, finality_delays(promised), undoes, restarts, tolerance),
            *(columns.starts, columns.alive, columns.is_elsewhere, columns.event, columns.chain),
            *(columns.height, columns.time, codes),
            *(columns.has_content, columns.content, columns.asset, columns.has_amount, *columns.limbs),
            *(columns.stopped_waiting, columns.errors, EVENT_BITS),
            *(slots, np.full((code_count, EVENT_COUNT), -1, np.int64)),
            *(again, status, receives, firsts, earliest, bits, undone, flags, contents, value, value_by, value_row),
            *(np.full(asset_count, -1, np.int64), np.zeros(asset_count, np.int64), pair_lane, pair_asset, sums),
        )
        found = (pair_lane[:count].copy(), pair_asset[:count].copy(), sums[:count].copy(), restarts, tolerance)
        by_event = {event: firsts[slot] for slot, event in enumerate(present)}
        of_messages = (by_event, earliest, STATES_BY_EVENT_BITS[bits], undone, flags, contents)
        return cls(again, status, receives, *of_messages, value, value_by, value_row, *found)


def _content_codes(columns: RowColumns, small: int) -> tuple[Ints, int]:
    """Encode the (message, content) pairs of large messages; return codes and their bound."""
    sizes = np.diff(columns.starts)
    large = sizes > small
    if not large.any():
        return np.zeros(0, dtype=np.int64), small
    codes = np.zeros(len(columns), dtype=np.int64)
    rows = np.flatnonzero(np.repeat(large, sizes))
    content = np.where(columns.has_content[rows, None] == 1, columns.content[rows], np.uint64(0))
    key = np.column_stack((columns.message[rows], columns.has_content[rows], content))
    found, numbers = np.unique(key.astype(np.uint64), axis=0, return_inverse=True)
    codes[rows] = numbers.reshape(-1) + small  # lower numbers belong to small messages
    return codes, len(found) + small
