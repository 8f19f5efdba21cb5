"""Messages of a run as its logs show them, and which of them other rows of the logs speak of.

A row of a log names a message by its place in a lane, or by its call: who calls whom, and which call of these it is.
Both names lead to the message that was made last by then: where chains have forks, a place may be given again.

Messages of a run by their names: by place in a lane, and by call.

Drafts of rows of the ledger: what a log row tells of a message, in numbers.
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
    "CALL",
    "COLLECTED",
    "DRAFT",
    "EVENTS_LOG",
    "LOGS",
    "NO_PLACE",
    "OUTBOUND",
    "DraftName",
    "MessageForm",
    "MessageReferences",
    "RunLogs",
    "RunMessageIndex",
    "answered_requests",
    "assign_positions",
    "build_drafts",
    "collected_places",
    "differs_from_message",
    "draft_column",
    "draft_reverts",
    "draft_sent_events",
    "empty_drafts",
    "extract_messages",
    "field_hashes",
    "find_referenced_messages",
    "has_event",
    "has_wanted_name",
    "is_answer_delivery",
    "is_call_reference",
    "is_chain_made_answer",
    "is_forged",
    "is_lane_reference",
    "number_rows",
    "payload_hashes",
    "read_run_logs",
]

Mask = npt.NDArray[np.bool_]

CALL = ("kind", "sender", "receiver", "callback")
"""What names a message by its call."""

_CARRIED = ("amount_high", "amount_low", "code")

NO_PLACE = 2**64 - 1
"""The index of a message that is in no lane."""


class MessageForm(IntEnum):
    """Where a message is, as far as its row says.

    ``LANE``: in a lane. ``QUEUED``: sent, and in no lane: it waits for one, or never came into one. ``MADE``: an answer
    that the chain of its receiver made itself, which is in no lane.
    """

    LANE = 0
    QUEUED = 1
    MADE = 2


class RunLogs(NamedTuple):
    """Rows of the log tables of one range of heights, with their ``height``, ``tick`` and ``number``: each one's place
    among those that its chain logged in the table at the height, from 1."""

    outbound: Frame
    events: Frame
    collected: Frame


class MessageReferences(NamedTuple):
    """Messages that rows speak of: ``lanes`` (``LANE_COLUMNS``, ``height``) by their places, ``calls`` (``CALL``,
    ``height``) by their calls, up to which height each was made."""

    lanes: Frame
    calls: Frame

    def __len__(self) -> int:
        return len(self.lanes) + len(self.calls)


def read_run_logs(outbound: pa.Table, events: pa.Table, collected: pa.Table) -> RunLogs:
    """Return log rows, those of one chain and height in the order in which it logged them, with their numbers."""
    told = _time_outs_told(number_rows(events, "chain"))
    return RunLogs(number_rows(outbound, "source"), told, number_rows(collected, "chain"))


def _time_outs_told(events: Frame) -> Frame:
    """Return rows of ``events`` in which what says that a message in a lane timed out says just that.

    What its chain is given instead of an answer is received in no lane. Of a control message no program hears, so that
    this row alone has its place: it is the time-out, and the one beside it without a place says nothing more.
    """
    on_lane, control = events["source"] != np.uint32(NO_CHAIN), events["kind"] == Kind.CONTROL
    given = on_lane & (events["via"] == Via.TIMEOUT) & has_event(events, Event.RECEIVED)
    again = control & ~on_lane & has_event(events, Event.TIMED_OUT)
    if not (given.any() or again.any()):
        return events
    bits = np.where(given & control, np.uint16(Event.TIMED_OUT), events["events"])
    apart = given & ~control
    ends = {name: np.where(apart, np.uint32(NO_CHAIN), events[name]) for name in LANE_COLUMNS[:2]}
    return events.with_columns(events=np.where(again, np.uint16(0), bits), **ends)


def number_rows(rows: pa.Table, owner: str) -> Frame:
    """Return rows of a log table with their numbers; ``owner``: the column with the chain whose a row is."""
    frame = from_table(rows)
    height = frame["height"].astype(np.uint64)
    order = stable_order(height, frame[owner])
    ranks = np.empty(len(frame), dtype=np.uint64)
    ranks[order] = group_rows(height[order], frame[owner][order]).ranks() + 1
    return frame.with_columns(number=ranks, height=height)


def extract_messages(logs: RunLogs) -> Frame:
    """Return the messages that rows show for the first time: ``form``, ``LANE_COLUMNS``, ``CALL``, what they carry,
    ``height``, ``tick``, ``sent_tick``, ``chain``, ``number``, ``hash``, and ``ended`` (1: the row that shows it says
    what else happened to it), in no order."""
    outbound, events = logs.outbound, logs.events
    in_lanes = outbound.select([*LANE_COLUMNS, *CALL, *_CARRIED, "height", "tick", "number"]).with_columns(
        form=np.uint8(MessageForm.LANE),
        chain=outbound["source"],
        queue_index=outbound["queue_index"],
        sent_tick=outbound["sent_tick"],
        ended=np.uint8(0),
        hash=payload_hashes(outbound["payload"]),
    )
    apart = events["source"] == np.uint32(NO_CHAIN)
    apart &= (events["kind"] != Kind.INGRESS) & (events["kind"] != Kind.CONTROL)
    queued, made = (
        apart & has_event(events, Event.SENT),
        apart & is_chain_made_answer(events) & has_event(events, Event.RECEIVED),
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
    """Return which rows of the log ``events`` have an event."""
    found: Mask = (events["events"] & np.uint16(event)) > 0
    return found


def is_chain_made_answer(events: Frame) -> Mask:
    """Return which rows tell of an answer that its receiver's chain made itself, in no lane."""
    via = events["via"]
    found: Mask = (events["source"] == np.uint32(NO_CHAIN)) & ((via == Via.SYNTHETIC) | (via == Via.TIMEOUT))
    return found & (has_event(events, Event.RECEIVED) | has_event(events, Event.DROPPED))


def is_lane_reference(events: Frame) -> Mask:
    """Return which rows are about the message at their place in a lane. Of control rows those that tell of a message
    that was received or timed out: others tell of what chains and carriers do."""
    on_lane = events["source"] != np.uint32(NO_CHAIN)
    told = has_event(events, Event.RECEIVED) | has_event(events, Event.TIMED_OUT)
    found: Mask = on_lane & ((events["kind"] != Kind.CONTROL) | told)
    return found


def is_call_reference(events: Frame) -> Mask:
    """Return which rows are about a message that was shown before, and name it by its call."""
    apart = events["source"] == np.uint32(NO_CHAIN)
    apart &= (events["kind"] != Kind.INGRESS) & (events["kind"] != Kind.CONTROL)
    found: Mask = (
        apart
        & ~has_event(events, Event.SENT)
        & ~is_chain_made_answer(events)
        & (events["queue_index"] != np.uint64(FORGED))
    )
    return found


def is_forged(messages: Frame) -> Mask:
    """Return a mask of the messages that a chain put into a lane without any program having sent them."""
    queue_index = messages["queue_index"]
    found: Mask = queue_index == np.uint64(FORGED)
    found |= (messages["kind"] == Kind.REQUEST) & (queue_index == np.uint64(NO_QUEUE))
    found &= messages["form"] == MessageForm.LANE
    return found


def is_answer_delivery(events: Frame) -> Mask:
    """Return which rows tell that an answer reached who called, so that its request is acknowledged there."""
    heard = has_event(events, Event.ANSWERED) | (has_event(events, Event.RECEIVED) & has_event(events, Event.DROPPED))
    found: Mask = (events["kind"] == Kind.RESPONSE) & heard & (events["via"] != Via.TIMEOUT)
    return found


def answered_requests(answers: Frame) -> Frame:
    """Return the calls (``CALL``, ``height``) that answers are to."""
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
    """Return the places (``LANE_COLUMNS``, ``height``) of the messages that chains collected, and the row of each."""
    ranges = np.flatnonzero(collected["what"] == COLLECTED_MESSAGES)
    rows, index = expand_ranges(collected["begin"][ranges], collected["end"][ranges])
    rows = ranges[rows]
    named = {name: collected[name][rows] for name in (*LANE_COLUMNS[:3], "height")}
    return Frame({**named, "index": index}, len(index)), rows


def payload_hashes(payload: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each payload, shape (n, 32)."""
    data, offsets = text_slices(payload)
    return digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])


def field_hashes(rows: Frame, before: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of what a log says of each message, shape (n, 32): kind, sender, receiver, callback, amount
    and code, as eight bytes each, little-endian, behind the digest ``before``, if one is given."""
    words = np.stack([rows[name].astype("<u8") for name in (*CALL, *_CARRIED)], axis=1)
    fields = np.ascontiguousarray(words).view(np.uint8).reshape(len(rows), -1)
    if before is not None:
        fields = np.concatenate([before, fields], axis=1)
    return digest_rows(HashFunction.SHA256, np.ascontiguousarray(fields))


def differs_from_message(rows: Frame, messages: Frame) -> Mask:
    """Return which rows say something else of their message than the message itself, row by row. The code of a request
    is none of its own: it is what came of it."""
    found: Mask = (rows["kind"] == Kind.RESPONSE) & (rows["code"] != messages["code"])
    for name in (*CALL, *_CARRIED[:2]):
        found |= rows[name] != messages[name]
    return found


MessageMask = npt.NDArray[np.bool_]
MessageNames = npt.NDArray[np.uint64]


class _ByName:
    """Rows ascending by height, found by the names in some columns."""

    def __init__(self, rows: Frame, keys: Sequence[str], chosen: MessageMask) -> None:
        from causeway.ledger.lake.message_loops import link_slots

        self._keys, self._heights = keys, np.ascontiguousarray(rows["height"])
        self._names = _names(rows, keys)
        self._heads = np.full(1 << max(int(chosen.sum()), 1).bit_length(), -1, dtype=np.int64)
        self._before = np.full(len(rows), -1, dtype=np.int64)
        link_slots(self._names, chosen.view(np.uint8), self._heads, self._before)

    def last(self, asked: Frame, heights: U64 | None = None) -> Rows:
        """Return the last row of each name up to its ``height`` (or of ``heights``), -1 where there is none."""
        from causeway.ledger.lake.message_loops import find_latest_rows

        found = np.empty(len(asked), dtype=np.int64)
        until = np.ascontiguousarray(asked["height"] if heights is None else heights)
        names = _names(asked, self._keys)
        find_latest_rows(self._names, self._heights, self._heads, self._before, names, until, found)
        return found


@dataclass
class RunMessageIndex:
    """Messages of a run (``run_messages.messages_of``), ``rows`` ascending by height."""

    rows: Frame

    @classmethod
    def of(cls, *parts: Frame) -> RunMessageIndex:
        """Return messages of several parts."""
        rows = concat([part.select(parts[0].names) for part in parts])
        heights = rows["height"]
        ascending = bool((heights[1:] >= heights[:-1]).all())
        return cls(rows if ascending else rows.take(stable_order(heights)))

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def find_by_position(self) -> _ByName:
        """Return those in lanes by their places."""
        return _ByName(self.rows, LANE_COLUMNS, self.rows["form"] == MessageForm.LANE)

    @cached_property
    def by_call(self) -> _ByName:
        """Index the messages that programs and chains sent by their calls."""
        return _ByName(self.rows, CALL, ~is_forged(self.rows))

    @cached_property
    def forged(self) -> _ByName:
        """Index the forged messages by their calls, which may be calls of other messages too."""
        return _ByName(self.rows, CALL, is_forged(self.rows))

    def last_call(self, asked: Frame) -> Rows:
        """Return the last message of each call up to its ``height``, -1 for none; a forged one only without another."""
        found = self.by_call.last(asked)
        missing = found < 0
        if missing.any():
            found[missing] = self.forged.last(asked.filter(missing))
        return found

    @cached_property
    def made(self) -> _ByName:
        """Return the answers that chains made themselves by their calls."""
        return _ByName(self.rows, CALL, self.rows["form"] == MessageForm.MADE)

    def missing(self, wanted: MessageReferences) -> MessageReferences:
        """Return what of ``wanted`` is not there."""
        lanes, calls = wanted
        return MessageReferences(
            lanes.filter(self.find_by_position.last(lanes) < 0), calls.filter(self.by_call.last(calls) < 0)
        )


def find_referenced_messages(logs: RunLogs, own: MessageMask, further: Sequence[Frame] = ()) -> MessageReferences:
    """Return what rows speak of. ``own``: which chains, by position, this run has: what others send is in no log of it.
    ``further``: other places (``LANE_COLUMNS``, ``height``) that are meant."""
    events = logs.events
    by_place = events.filter(is_lane_reference(events)).select([*LANE_COLUMNS, "height"])
    places = [collected_places(logs.collected)[0], *further]
    lanes = concat([by_place, *(each.select(by_place.names) for each in places)])
    lanes = lanes.filter(own[np.minimum(lanes["source"], np.uint32(len(own) - 1))])
    calls = events.filter(is_call_reference(events)).select([*CALL, "height"])
    return MessageReferences(
        lanes, concat([calls, answered_requests(events.filter(is_answer_delivery(events))).select(calls.names)])
    )


def has_wanted_name(messages: Frame, wanted: MessageReferences) -> MessageMask:
    """Return which messages have a name that is wanted, whenever."""
    found = np.zeros(len(messages), dtype=bool)
    for asked, keys in ((wanted.lanes, LANE_COLUMNS), (wanted.calls, CALL)):
        if len(asked):
            named = asked.with_columns(height=np.zeros(len(asked), dtype=np.uint64))
            index = _ByName(named, keys, np.ones(len(asked), dtype=bool))
            found |= index.last(messages) >= 0
    return found


def _names(rows: Frame, keys: Sequence[str]) -> MessageNames:
    """Return names as rows of words."""
    names = np.empty((len(rows), len(keys)), dtype=np.uint64)
    for place, key in enumerate(keys):
        names[:, place] = rows[key]
    return names


LOGS = ("outbound", "events", "collected")
"""The log tables, as ``source_file`` names them; a draft has the place of its own."""

OUTBOUND, EVENTS_LOG, COLLECTED = range(3)
_AMOUNT = ("amount_high", "amount_low")
_COPIED = (*LANE_COLUMNS, *CALL, *_AMOUNT, "code", "number", "tick")


class DraftName(IntEnum):
    """What a row's ``message_id`` is made of: the call; of a refused message from a user its place in what came in the
    tick; the place in a lane, of a control message; the place in the log, of a control row about no message."""

    CALL = 0
    REFUSED = 1
    PLACE = 2
    CONTROL = 3


def draft_sent_events(
    messages: Frame, chain: Any, event: Happened, *, log: int = OUTBOUND, detail: Any = UNSEEN_NAME, hashed: bool = True
) -> Frame:
    """Return the drafts that ``event`` happened to messages when they were made."""
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
    """Return drafts with the columns given, and what stands for nothing in the others.

    ``log``, ``at``, ``owner``, ``number``: the log row that tells it: its table (``LOGS``), height, chain and place.
    ``index``: ``NO_PLACE`` of what is in no lane; ``place``, ``came``: of a refused message from a user its place and
    the tick in which it came. ``event``: its place in ``order.EVENTS``. ``valued``: whether the amount says anything;
    ``of_programs``: whether sender and receiver do; ``hashed``: whether the hash does. ``named``: ``Name``.
    """
    return Frame({name: draft_column(name, columns.get(name, _DEFAULTS[name]), length) for name in DRAFT}, length)


def empty_drafts() -> Frame:
    """Return drafts without rows."""
    return build_drafts(0)


def draft_column(name: str, value: Any, length: int) -> npt.NDArray[Any]:
    """Return a column of drafts: values of each row, or one of all."""
    default = _DEFAULTS[name]
    if np.ndim(value) == np.ndim(default):
        return repeat_value(value if np.ndim(value) else default.dtype.type(value), length)
    found: npt.NDArray[Any] = value.astype(default.dtype, copy=False)
    return found


def draft_reverts(rows: Frame, reasons: NameCodes, at: int, tick: int) -> Frame:
    """Return rows that take back drafts, because of what their chain did at the height ``at``; ``position``: the height
    that is taken back."""
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
    """Return drafts with a position where several tell the same of one message at one height of a chain: the number of
    each in the log. They happened more than once; without it they were one event that was recorded more than once.

    Of all others no position is known: a log is not in the order of lanes.
    """
    words = np.zeros(len(rows), dtype=np.uint64)
    for name in _SAME:
        words = (words ^ rows[name].astype(np.uint64)) * _ODD
        words ^= words >> np.uint64(29)
    ordered = np.sort(words)
    alike = np.flatnonzero(np.isin(words, ordered[1:][ordered[1:] == ordered[:-1]]))
    if len(alike) == 0:
        return rows
    some = rows.take(alike)
    (key,) = encode_keys(_SAME, some.with_columns(event=some["event"].astype(np.uint8)))
    order = stable_order(key)
    groups = group_rows(key[order])
    again = np.zeros(len(some), dtype=bool)
    again[order] = groups.spread(groups.counts) > 1
    position = rows["position"].copy()
    position[alike] = np.where(again & (some["position"] == np.uint64(NO_PLACE)), some["number"], some["position"])
    return rows.with_columns(position=position)


_ODD = np.uint64(0x9E3779B97F4A7C15)
_SAME = (*LANE_COLUMNS, "named", *CALL, "place", "event", "chain", "height", "position")
