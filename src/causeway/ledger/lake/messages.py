"""Messages of a run, indexed by position and by call, and drafts of ledger rows.

A log row names a message by its position in a lane, or by its call (kind, sender, receiver, callback). Both resolve to
the latest message up to the row's height: on chains with forks, a position may be used again. Drafts are ledger rows
with numbers in place of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import HashFunction, digest_rows, digest_slices
from causeway_proofs.order import U64, Rows, group_rows, stable_order

from causeway.core.frame import Frame, concat, from_table, repeat_value
from causeway.core.joins import encode_keys, expand_ranges
from causeway.core.vocabulary import COLLECTED_MESSAGES, NO_CHAIN, Event, Kind, Via
from causeway.ledger.encodings import UNSEEN_NAME, NameCodes, text_slices
from causeway.ledger.row_order import EVENTS
from causeway.ledger.schema import LedgerEvent as Happened
from causeway.protocols.shared.messages import FORGED, LANE_COLUMNS, NO_QUEUE

__all__ = [
    "CALL", "COLLECTED", "DRAFT", "EVENTS_LOG", "LOGS", "NO_PLACE", "OUTBOUND", "DraftName", "MessageForm",
    "MessageReferences", "RunLogs", "RunMessageIndex", "answered_requests", "assign_positions", "build_drafts",
    "collected_places", "differs_from_message", "draft_column", "draft_reverts", "draft_sent_events",
    "empty_drafts", "extract_messages", "field_hashes", "find_referenced_messages", "has_event", "has_wanted_name",
    "is_answer_delivery", "is_call_reference", "is_chain_made_answer", "is_forged", "is_lane_reference",
    "number_rows", "payload_hashes", "read_run_logs",
]  # fmt: skip

Mask = npt.NDArray[np.bool_]

CALL = ("kind", "sender", "receiver", "callback")
"""Columns that name a message by its call."""

_CARRIED = ("amount_high", "amount_low", "code")

NO_PLACE = 2**64 - 1
"""Index of a message in no lane."""


class MessageForm(IntEnum):
    """Location of a message, according to its row.

    ``LANE``: in a lane. ``QUEUED``: sent, but in no lane (yet). ``MADE``: an answer made by the receiver's own chain,
    in no lane.
    """

    LANE = 0
    QUEUED = 1
    MADE = 2


class RunLogs(NamedTuple):
    """Log rows of a range of heights, with ``height``, ``tick`` and ``number``.

    The number is the rank of a row in its chain, table and height, from 1.
    """

    outbound: Frame
    events: Frame
    collected: Frame


class MessageReferences(NamedTuple):
    """References to messages, each with the maximum height of the message.

    Attributes:
        lanes: References by position (``LANE_COLUMNS``, ``height``).
        calls: References by call (``CALL``, ``height``).
    """

    lanes: Frame
    calls: Frame

    def __len__(self) -> int:
        return len(self.lanes) + len(self.calls)


def read_run_logs(outbound: pa.Table, events: pa.Table, collected: pa.Table) -> RunLogs:
    """Convert log tables to frames with numbered rows.

    Args:
        outbound: Rows of the log ``outbound``.
        events: Rows of the log ``events``, of the same heights.
        collected: Rows of the log ``collected``, of the same heights.

    Returns:
        The frames; in ``events`` the rows of a timed-out message are reduced to its time-out.
    """
    timed_out = _normalize_timeouts(number_rows(events, "chain"))
    return RunLogs(number_rows(outbound, "source"), timed_out, number_rows(collected, "chain"))


def _normalize_timeouts(events: Frame) -> Frame:
    """Reduce rows of a timed-out message to its time-out.

    The substitute for an answer is received in no lane. No program hears of a control message: its row with a position
    is the time-out, and the row without a position is redundant.
    """
    on_lane, control = events["source"] != np.uint32(NO_CHAIN), events["kind"] == Kind.CONTROL
    timeouts = on_lane & (events["via"] == Via.TIMEOUT) & has_event(events, Event.RECEIVED)
    redundant = control & ~on_lane & has_event(events, Event.TIMED_OUT)
    if not (timeouts.any() or redundant.any()):
        return events
    bits = np.where(timeouts & control, np.uint16(Event.TIMED_OUT), events["events"])
    on_no_lane = timeouts & ~control
    ends = {name: np.where(on_no_lane, np.uint32(NO_CHAIN), events[name]) for name in LANE_COLUMNS[:2]}
    return events.with_columns(events=np.where(redundant, np.uint16(0), bits), **ends)


def number_rows(rows: pa.Table, owner: str) -> Frame:
    """Assign numbers to the rows of a log table in each chain and height.

    Args:
        rows: Rows of a log table.
        owner: Column with the chain of a row.

    Returns:
        The rows, with ``number``.
    """
    frame = from_table(rows)
    height = frame["height"].astype(np.uint64)
    order = stable_order(height, frame[owner])
    ranks = np.empty(len(frame), dtype=np.uint64)
    ranks[order] = group_rows(height[order], frame[owner][order]).ranks() + 1
    return frame.with_columns(number=ranks, height=height)


def extract_messages(logs: RunLogs) -> Frame:
    """Extract the messages that log rows show for the first time, in no particular order.

    Args:
        logs: Logs of a range of heights.

    Returns:
        Columns ``form``, ``LANE_COLUMNS``, ``CALL``, the payload fields, ``height``, ``tick``, ``sent_tick``,
        ``chain``, ``number``, ``hash`` and ``ended`` (1: the row also has the end of the message).
    """
    outbound, events = logs.outbound, logs.events
    in_lanes = outbound.select([*LANE_COLUMNS, *CALL, *_CARRIED, "height", "tick", "number"]).with_columns(
        form=np.uint8(MessageForm.LANE),
        chain=outbound["source"],
        queue_index=outbound["queue_index"],
        sent_tick=outbound["sent_tick"],
        ended=np.uint8(0),
        hash=payload_hashes(outbound["payload"]),
    )
    outside = events["source"] == np.uint32(NO_CHAIN)
    outside &= (events["kind"] != Kind.INGRESS) & (events["kind"] != Kind.CONTROL)
    queued, made = (
        outside & has_event(events, Event.SENT),
        outside & is_chain_made_answer(events) & has_event(events, Event.RECEIVED),
    )
    parts = [in_lanes]
    for form, rows in ((MessageForm.QUEUED, events.filter(queued)), (MessageForm.MADE, events.filter(made))):
        if not len(rows):
            continue
        named = rows.select([*CALL, *_CARRIED, "height", "tick", "number", "chain"])
        named = named.with_columns(
            form=np.uint8(form),
            source=np.uint32(NO_CHAIN),
            destination=np.uint32(NO_CHAIN),
            substream=np.uint64(0),
            index=np.uint64(NO_PLACE),
            queue_index=rows["queue_index"],
            sent_tick=rows["tick"].astype(np.uint64),
            ended=(rows["events"] != np.uint16(Event.SENT)).astype(np.uint8),
            hash=field_hashes(rows),
        )
        parts.append(named.select(in_lanes.names))
    return concat(parts)


def has_event(events: Frame, event: Event) -> Mask:
    """Return a mask of rows of the log ``events`` with an event.

    Args:
        events: Rows of the log ``events``.
        event: The flag.

    Returns:
        Mask, shape (n,).
    """
    found: Mask = (events["events"] & np.uint16(event)) > 0
    return found


def is_chain_made_answer(events: Frame) -> Mask:
    """Return a mask of rows about an answer of the receiver's own chain, in no lane.

    Args:
        events: Rows of the log ``events``.

    Returns:
        Mask, shape (n,).
    """
    via = events["via"]
    found: Mask = (events["source"] == np.uint32(NO_CHAIN)) & ((via == Via.SYNTHETIC) | (via == Via.TIMEOUT))
    return found & (has_event(events, Event.RECEIVED) | has_event(events, Event.DROPPED))


def is_lane_reference(events: Frame) -> Mask:
    """Return a mask of rows about the message at their position in a lane.

    Control rows count only with a receipt or a time-out; others describe actions of chains and relayers.

    Args:
        events: Rows of the log ``events``.

    Returns:
        Mask, shape (n,).
    """
    on_lane = events["source"] != np.uint32(NO_CHAIN)
    ends = has_event(events, Event.RECEIVED) | has_event(events, Event.TIMED_OUT)
    found: Mask = on_lane & ((events["kind"] != Kind.CONTROL) | ends)
    return found


def is_call_reference(events: Frame) -> Mask:
    """Return a mask of rows that refer to an earlier message by its call.

    Args:
        events: Rows of the log ``events``.

    Returns:
        Mask, shape (n,).
    """
    outside = events["source"] == np.uint32(NO_CHAIN)
    outside &= (events["kind"] != Kind.INGRESS) & (events["kind"] != Kind.CONTROL)
    found: Mask = (
        outside
        & ~has_event(events, Event.SENT)
        & ~is_chain_made_answer(events)
        & (events["queue_index"] != np.uint64(FORGED))
    )
    return found


def is_forged(messages: Frame) -> Mask:
    """Return a mask of messages that a chain put into a lane without a program sending them.

    Args:
        messages: Messages, from ``extract_messages``.

    Returns:
        Mask, shape (n,).
    """
    queue_index = messages["queue_index"]
    found: Mask = queue_index == np.uint64(FORGED)
    found |= (messages["kind"] == Kind.REQUEST) & (queue_index == np.uint64(NO_QUEUE))
    found &= messages["form"] == MessageForm.LANE
    return found


def is_answer_delivery(events: Frame) -> Mask:
    """Return a mask of rows that deliver an answer to its caller and so acknowledge the request.

    Args:
        events: Rows of the log ``events``.

    Returns:
        Mask, shape (n,).
    """
    delivered = has_event(events, Event.ANSWERED) | (
        has_event(events, Event.RECEIVED) & has_event(events, Event.DROPPED)
    )
    found: Mask = (events["kind"] == Kind.RESPONSE) & delivered & (events["via"] != Via.TIMEOUT)
    return found


def answered_requests(answers: Frame) -> Frame:
    """Return the calls (``CALL``, ``height``) that answers respond to.

    Args:
        answers: Rows of the log ``events`` about answers.

    Returns:
        One row an answer; sender and receiver are exchanged.
    """
    return Frame(
        {
            "kind": np.full(len(answers), Kind.REQUEST, dtype=np.uint8),
            "sender": answers["receiver"],
            "receiver": answers["sender"],
            "callback": answers["callback"],
            "height": answers["height"],
        },
        len(answers),
    )


def collected_places(collected: Frame) -> tuple[Frame, Rows]:
    """Return the positions (``LANE_COLUMNS``, ``height``) of collected messages, and their rows.

    Args:
        collected: Rows of the log ``collected``: ranges of indices of a lane.

    Returns:
        One position a message, and the row of ``collected`` that has it, int64.
    """
    ranges = np.flatnonzero(collected["what"] == COLLECTED_MESSAGES)
    rows, index = expand_ranges(collected["begin"][ranges], collected["end"][ranges])
    rows = ranges[rows]
    named = {name: collected[name][rows] for name in (*LANE_COLUMNS[:3], "height")}
    return Frame({**named, "index": index}, len(index)), rows


def payload_hashes(payload: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each payload, shape (n, 32).

    Args:
        payload: Bytes or texts, n values.

    Returns:
        Digests, uint8.
    """
    data, offsets = text_slices(payload)
    return digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])


def field_hashes(rows: Frame, before: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of the logged fields of each message, shape (n, 32), uint8.

    The fields are kind, sender, receiver, callback, amount and code, as eight bytes each, little-endian, after the
    digest ``before`` if given.

    Args:
        rows: Rows with ``CALL``, ``amount_high``, ``amount_low`` and ``code``, unsigned.
        before: Digests, shape (n, 32), uint8; or None.

    Returns:
        Digests.
    """
    words = np.stack([rows[name].astype("<u8") for name in (*CALL, *_CARRIED)], axis=1)
    fields = np.ascontiguousarray(words).view(np.uint8).reshape(len(rows), -1)
    if before is not None:
        fields = np.concatenate([before, fields], axis=1)
    return digest_rows(HashFunction.SHA256, np.ascontiguousarray(fields))


def differs_from_message(rows: Frame, messages: Frame) -> Mask:
    """Return a mask of rows that contradict their message.

    The code of a request is excluded: it is the outcome of the request.

    Args:
        rows: Rows of a log about messages.
        messages: The message of each row.

    Returns:
        Mask, shape (n,).
    """
    found: Mask = (rows["kind"] == Kind.RESPONSE) & (rows["code"] != messages["code"])
    for name in (*CALL, *_CARRIED[:2]):
        found |= rows[name] != messages[name]
    return found


class _ByName:
    """Index of rows, ascending by height, by the names in some columns."""

    def __init__(self, rows: Frame, keys: Sequence[str], chosen: Mask) -> None:
        from causeway.ledger.lake.message_loops import link_slots

        self._keys, self._heights = keys, np.ascontiguousarray(rows["height"])
        self._names = _names(rows, keys)
        self._heads = np.full(1 << max(int(chosen.sum()), 1).bit_length(), -1, dtype=np.int64)
        self._before = np.full(len(rows), -1, dtype=np.int64)
        link_slots(self._names, chosen.view(np.uint8), self._heads, self._before)

    def last(self, asked: Frame, heights: U64 | None = None) -> Rows:
        """Return the last row of each name up to its ``height`` (or ``heights``), -1 without one."""
        from causeway.ledger.lake.message_loops import find_latest_rows

        found = np.empty(len(asked), dtype=np.int64)
        until = np.ascontiguousarray(asked["height"] if heights is None else heights)
        names = _names(asked, self._keys)
        find_latest_rows(self._names, self._heights, self._heads, self._before, names, until, found)
        return found


@dataclass
class RunMessageIndex:
    """Index of the messages of a run (``extract_messages``), ``rows`` ascending by height."""

    rows: Frame

    @classmethod
    def of(cls, *parts: Frame) -> RunMessageIndex:
        """Merge messages of several parts."""
        rows = concat([part.select(parts[0].names) for part in parts])
        heights = rows["height"]
        ascending = bool((heights[1:] >= heights[:-1]).all())
        return cls(rows if ascending else rows.take(stable_order(heights)))

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def find_by_position(self) -> _ByName:
        """Messages in lanes, by position."""
        return _ByName(self.rows, LANE_COLUMNS, self.rows["form"] == MessageForm.LANE)

    @cached_property
    def by_call(self) -> _ByName:
        """Messages sent by programs and chains, by call."""
        return _ByName(self.rows, CALL, ~is_forged(self.rows))

    @cached_property
    def forged(self) -> _ByName:
        """Forged messages by call; another message may have the same call."""
        return _ByName(self.rows, CALL, is_forged(self.rows))

    def last_call(self, asked: Frame) -> Rows:
        """Return the last message of each call up to its ``height``, -1 without; forged ones last."""
        found = self.by_call.last(asked)
        missing = found < 0
        if missing.any():
            found[missing] = self.forged.last(asked.filter(missing))
        return found

    @cached_property
    def made(self) -> _ByName:
        """Answers that chains made themselves, by call."""
        return _ByName(self.rows, CALL, self.rows["form"] == MessageForm.MADE)

    def missing(self, wanted: MessageReferences) -> MessageReferences:
        """Return the references that this index cannot resolve."""
        lanes, calls = wanted
        return MessageReferences(
            lanes.filter(self.find_by_position.last(lanes) < 0), calls.filter(self.by_call.last(calls) < 0)
        )


def find_referenced_messages(logs: RunLogs, own: Mask, further: Sequence[Frame] = ()) -> MessageReferences:
    """Find the references of log rows to messages.

    Args:
        logs: Logs of a range of heights.
        own: Mask of chains, by position, that this run executes; other chains have no logs here.
        further: Additional positions (``LANE_COLUMNS``, ``height``).

    Returns:
        The references.
    """
    events = logs.events
    by_place = events.filter(is_lane_reference(events)).select([*LANE_COLUMNS, "height"])
    places = [collected_places(logs.collected)[0], *further]
    lanes = concat([by_place, *(each.select(by_place.names) for each in places)])
    lanes = lanes.filter(own[np.minimum(lanes["source"], np.uint32(len(own) - 1))])
    calls = events.filter(is_call_reference(events)).select([*CALL, "height"])
    return MessageReferences(
        lanes, concat([calls, answered_requests(events.filter(is_answer_delivery(events))).select(calls.names)])
    )


def has_wanted_name(messages: Frame, wanted: MessageReferences) -> Mask:
    """Return a mask of messages with a wanted name, at any height.

    Args:
        messages: Messages, from ``extract_messages``.
        wanted: References by position and by call; their heights are ignored.

    Returns:
        Mask, shape (n,).
    """
    found = np.zeros(len(messages), dtype=bool)
    for references, keys in ((wanted.lanes, LANE_COLUMNS), (wanted.calls, CALL)):
        if len(references):
            named = references.with_columns(height=np.zeros(len(references), dtype=np.uint64))
            index = _ByName(named, keys, np.ones(len(references), dtype=bool))
            found |= index.last(messages) >= 0
    return found


def _names(rows: Frame, keys: Sequence[str]) -> U64:
    """Return names as rows of words, shape (n, keys), uint64."""
    names = np.empty((len(rows), len(keys)), dtype=np.uint64)
    for place, key in enumerate(keys):
        names[:, place] = rows[key]
    return names


LOGS = ("outbound", "events", "collected")
"""Log tables, as ``source_file`` names them; a draft has the index of its table."""

OUTBOUND, EVENTS_LOG, COLLECTED = range(3)
_AMOUNT = ("amount_high", "amount_low")
_COPIED = (*LANE_COLUMNS, *CALL, *_AMOUNT, "code", "number", "tick")


class DraftName(IntEnum):
    """Source of a row's ``message_id``.

    ``CALL``: the call. ``REFUSED``: the arrival position in its tick, of a refused user message. ``PLACE``: the
    position in a lane, of a control message. ``CONTROL``: the position in the log, of a control row about no message.
    """

    CALL = 0
    REFUSED = 1
    PLACE = 2
    CONTROL = 3


def draft_sent_events(
    messages: Frame, chain: Any, event: Happened, *, log: int = OUTBOUND, detail: Any = UNSEEN_NAME, hashed: bool = True
) -> Frame:
    """Return drafts of an event of messages at the time of their sending.

    Args:
        messages: Messages, from ``extract_messages``.
        chain: Chain of the event, uint32, a value for each message or one for all.
        event: The event.
        log: Log of the row (index in ``LOGS``).
        detail: Code of the detail, int32, a value for each message or one for all.
        hashed: The hash of the message is meaningful for this event.

    Returns:
        One draft a message, at its height.
    """
    in_lane = messages["form"] == MessageForm.LANE
    control = in_lane & (messages["kind"] == Kind.CONTROL)
    return build_drafts(
        len(messages),
        **{name: messages[name] for name in _COPIED},
        log=np.uint8(log),
        at=messages["height"],
        height=messages["height"],
        owner=chain,
        chain=chain,
        event=np.int8(EVENTS.index(event)),
        detail=detail,
        named=np.where(control, np.uint8(DraftName.PLACE), np.uint8(DraftName.CALL)),
        hash=messages["hash"],
        hashed=hashed,
        of_programs=~control,
    )


_DEFAULTS: dict[str, Any] = {
    "log": np.uint8(0),
    "at": np.uint64(0),
    "owner": np.uint32(NO_CHAIN),
    "number": np.uint64(0),
    "source": np.uint32(NO_CHAIN),
    "destination": np.uint32(NO_CHAIN),
    "substream": np.uint64(0),
    "index": np.uint64(NO_PLACE),
    "place": np.uint64(0),
    "came": np.int64(0),
    "kind": np.uint8(0),
    "sender": np.uint64(0),
    "receiver": np.uint64(0),
    "callback": np.uint64(0),
    "amount_high": np.uint64(0),
    "amount_low": np.uint64(0),
    "valued": np.bool_(True),
    "of_programs": np.bool_(True),
    "code": np.uint8(0),
    "event": np.int8(0),
    "chain": np.uint32(NO_CHAIN),
    "height": np.uint64(0),
    "position": np.uint64(NO_PLACE),
    "tick": np.int64(0),
    "detail": np.int32(UNSEEN_NAME),
    "named": np.uint8(0),
    "hash": np.zeros(32, dtype=np.uint8),
    "hashed": np.bool_(False),
}
DRAFT = [*_DEFAULTS]


def build_drafts(length: int, **columns: Any) -> Frame:
    """Build drafts from columns; missing columns get defaults.

    Args:
        length: Number of drafts.
        columns: Values of a column, or one value for all rows. ``log``, ``at``, ``owner``, ``number``: table
            (``LOGS``), height, chain and number of the log row. ``index``: ``NO_PLACE`` outside of lanes. ``place``,
            ``came``: position and arrival tick of a refused user message. ``event``: index in ``EVENTS``. ``valued``:
            the amount is meaningful; ``of_programs``: sender and receiver are; ``hashed``: the hash is. ``named``:
            ``DraftName``.

    Returns:
        The drafts.
    """
    return Frame({name: draft_column(name, columns.get(name, _DEFAULTS[name]), length) for name in DRAFT}, length)


def empty_drafts() -> Frame:
    """Return drafts without rows."""
    return build_drafts(0)


def draft_column(name: str, value: Any, length: int) -> npt.NDArray[Any]:
    """Return a column of drafts from one value a row, or one for all.

    Args:
        name: Name of a column of drafts (``DRAFT``).
        value: Array with a value for each row, or one value for all.
        length: Number of drafts.

    Returns:
        The column, of the dtype of drafts; shape (length,), or (length, 32) for ``hash``.
    """
    default = _DEFAULTS[name]
    if np.ndim(value) == np.ndim(default):
        return repeat_value(value if np.ndim(value) else default.dtype.type(value), length)
    found: npt.NDArray[Any] = value.astype(default.dtype, copy=False)
    return found


def draft_reverts(rows: Frame, reasons: NameCodes, at: int, tick: int) -> Frame:
    """Return rows that revert drafts due to a fork at ``at``; ``position``: the reverted height.

    Args:
        rows: Drafts to revert.
        reasons: Codes of details; names of events are added.
        at: Height of the reversal.
        tick: Tick of the reversal.

    Returns:
        The drafts of the reversals, with the reverted event as ``detail``.
    """
    names = np.array([reasons.code(name) for name in EVENTS], dtype=np.int32)
    return rows.with_columns(
        detail=names[rows["event"]],
        event=np.int8(EVENTS.index(Happened.REVERTED)),
        height=np.uint64(at),
        position=rows["at"],
        tick=np.int64(tick),
        at=np.uint64(at),
        hashed=np.bool_(False),
    )


def assign_positions(rows: Frame) -> Frame:
    """Assign positions to repeated events of a message at one height of a chain.

    The position is the number of the row in the log. Without a position they would count as one event, recorded more
    than once. Other rows have no known position: a log is not in lane order.

    Args:
        rows: Drafts of one or more logs.

    Returns:
        The drafts, with ``position`` where repeated.
    """
    words = np.zeros(len(rows), dtype=np.uint64)
    for name in _SAME:
        words = (words ^ rows[name].astype(np.uint64)) * _ODD
        words ^= words >> np.uint64(29)
    ordered = np.sort(words)
    alike = np.flatnonzero(np.isin(words, ordered[1:][ordered[1:] == ordered[:-1]]))
    if len(alike) == 0:
        return rows
    candidates = rows.take(alike)
    (key,) = encode_keys(_SAME, candidates.with_columns(event=candidates["event"].astype(np.uint8)))
    order = stable_order(key)
    groups = group_rows(key[order])
    repeated = np.zeros(len(candidates), dtype=bool)
    repeated[order] = groups.spread(groups.counts) > 1
    position = rows["position"].copy()
    position[alike] = np.where(
        repeated & (candidates["position"] == np.uint64(NO_PLACE)), candidates["number"], candidates["position"]
    )
    return rows.with_columns(position=position)


_ODD = np.uint64(0x9E3779B97F4A7C15)
_SAME = (*LANE_COLUMNS, "named", *CALL, "place", "event", "chain", "height", "position")
