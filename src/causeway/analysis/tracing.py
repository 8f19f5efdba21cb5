"""Trace one message of a ledger with its related messages, over lanes and hops.

A message history is the ordered list of a message's events, from its rows in the ledger. A trace finds the message that
a user names, and follows answers, continuations and journeys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.audit.columns import MessageColumns, RowColumns
from causeway.core.arrow_types import to_python_rows
from causeway.core.text import format_value, shorten_name
from causeway.ledger.encodings import amount_texts
from causeway.ledger.outcomes import STATES_BY_EVENT_BITS, MessageState, event_bit
from causeway.ledger.parts import READ_COLUMNS, MessageRun, TablePart
from causeway.ledger.row_order import EVENTS
from causeway.ledger.schema import LANE, LIMBS, PROMISES_SCHEMA, LedgerEvent
from causeway.ledger.search import (
    CONTINUATIONS,
    Condition,
    EventPosition,
    MessageKey,
    TextPattern,
    find_messages,
    find_related,
    headers_at,
    read_message_rows,
)
from causeway.ledger.store import Ledger
from causeway.ledger.windows import LanePromises

__all__ = [
    "AGAIN",
    "FAULT_REMARKS",
    "MAX_INDEX",
    "MAX_TRACED",
    "MESSAGE_NAMES",
    "OTHER_CHAIN",
    "OTHER_CONTENT",
    "TAKEN_BACK",
    "MessageHistory",
    "MessageStep",
    "MessageTrace",
    "SeveralMessages",
    "history_to_dict",
    "message_histories",
    "read_histories",
    "trace_message",
]

OTHER_CONTENT, OTHER_CHAIN, AGAIN, TAKEN_BACK = "another content", "on another chain", "again", "taken back"
"""Notes of a step, as in the audit (``RowColumns``, ``MessageColumns``).

The received content differs from the sent one; the event is on an impossible chain; it is a repetition; a fork reverted
it.
"""

FAULT_REMARKS = frozenset((OTHER_CONTENT, OTHER_CHAIN, AGAIN))
"""Notes of steps that violate a guarantee."""

STEP_REMARKS = {OTHER_CONTENT: "foreign receipt", OTHER_CHAIN: "foreign receipt", AGAIN: "repeated receipt"}
"""Notes of receipts counted in the headline of a message, with their names."""

_OUTCOMES = {
    MessageState.PENDING: "pending",
    MessageState.DELIVERED: "received",
    MessageState.EXECUTED: "executed",
    MessageState.FAILED: "failed",
    MessageState.ANSWERED: "answered",
    MessageState.REFUSED: "rejected",
    MessageState.REJECTED: "rejected",
    MessageState.RETURNED: "refunded",
    MessageState.REFUNDED: "refunded",
    MessageState.TIMED_OUT: "timed out",
    MessageState.DROPPED: "dropped",
    MessageState.DISCARDED: "dropped after it was received",
    MessageState.CONTRADICTED: "contradicted: its two chains report different ends",
}
"""The states of a message, in words."""

NEVER_SENT, NOTHING = "never sent in this input", "reverted: all its events were reverted"
DROPPED_STEPS = "the recorder stopped waiting for it"


@dataclass(frozen=True)
class MessageStep:
    """One row of a message history.

    ``since``: time since the first genuine step, or the first step if none is genuine; None if unknown. ``notes``: of
    ``OTHER_CONTENT``, ``OTHER_CHAIN``, ``AGAIN``, ``TAKEN_BACK``. ``row``: all columns of the ledger.
    """

    event: str
    chain: str | None
    height: int | None
    time: datetime | None
    since: timedelta | None
    notes: tuple[str, ...]
    row: Mapping[str, Any] = field(repr=False)

    @property
    def is_genuine(self) -> bool:
        """Return True if the step counts for its message: it has no note."""
        return not self.notes


@dataclass(frozen=True)
class MessageHistory:
    """A message and its events.

    ``lane``: protocol, source, destination and lane. ``outcome``: in words. ``continues``: the message that it
    continues
    under a new id. ``amount``: decimal digits. ``deciding``: the genuine step that led to the outcome, or None.
    """

    lane: tuple[str | None, ...]
    index: int | None
    message_id: str | None
    answers: str | None
    journey: str | None
    continues: str | None
    kind: str
    sender: str | None
    receiver: str | None
    asset: str | None
    amount: str | None
    outcome: str
    steps: tuple[MessageStep, ...]
    deciding: MessageStep | None

    @property
    def is_open(self) -> bool:
        """Return True without evidence of arrival or of a failure."""
        return self.outcome in (_OUTCOMES[MessageState.PENDING], NEVER_SENT, NOTHING, DROPPED_STEPS)

    @property
    def took(self) -> timedelta | None:
        """Return the time from the beginning to the outcome, if known.

        The outcome of a delivered message is its first genuine receipt; later or foreign receipts do not count.
        """
        return None if self.is_open or self.deciding is None else self.deciding.since

    @property
    def duration_ticks(self) -> int | None:
        """Return the ticks from the beginning to the outcome, if all genuine steps have ticks."""
        ticks = [step.row["tick"] for step in self.steps if step.is_genuine]
        if self.is_open or self.deciding is None or None in ticks:
            return None
        return int(self.deciding.row["tick"] - min(ticks))

    @property
    def remarks(self) -> Mapping[str, int]:
        """Return the number of foreign receipts (other content or chain) and of repeated ones."""
        receipts = [step for step in self.steps if step.event == LedgerEvent.RECEIVED]
        kinds = [next((STEP_REMARKS[note] for note in STEP_REMARKS if note in step.notes), None) for step in receipts]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(STEP_REMARKS.values()) if kind in kinds}


def message_histories(rows: pa.Table, promises: pa.Table | None = None) -> list[MessageHistory]:
    """Build the histories of the messages in some rows, by beginning.

    Args:
        rows: rows of ``LEDGER_SCHEMA``, in its order, with all rows of each message. Rows without index and
            ``message_id`` are skipped.
        promises: the guarantees of lanes (``PROMISES_SCHEMA``); ``final_after`` decides the first of several equal
            receipts. None: no guarantees.

    Returns:
        The histories.

    Raises:
        InvalidInput: an event or kind has no known name, or rows are not in the order of the ledger.
    """
    if not rows.num_rows:
        return []
    columns = RowColumns.of(
        MessageRun(rows.select(READ_COLUMNS).combine_chunks(), ((TablePart(rows), 0, rows.num_rows),))
    )
    promised = LanePromises(PROMISES_SCHEMA.empty_table() if promises is None else promises)
    messages = MessageColumns.of(columns, promised)
    content = to_python_rows(rows)
    for row, amount in zip(content, amount_texts([rows[name] for name in LIMBS]).to_pylist(), strict=True):
        row["amount"] = amount
    found = []
    for start, stop in zip(columns.starts[:-1].tolist(), columns.starts[1:].tolist(), strict=True):
        own = content[start:stop]
        if own[0]["index"] is None and own[0]["message_id"] is None:
            continue
        alive, again = columns.alive[start:stop].tolist(), messages.again[start:stop].tolist()
        elsewhere = columns.is_elsewhere[start:stop].tolist()
        found.append(_build_history(own, alive, again, messages.status[start:stop].tolist(), elsewhere))
    return sorted(_mark_continued(found), key=_history_order)


def _mark_continued(histories: list[MessageHistory]) -> list[MessageHistory]:
    """Set the outcome of open messages that other messages continue."""
    updated = []
    names = {
        (history.lane[0], history.continues): history.message_id or str(history.index)
        for history in histories
        if history.continues
    }
    for history in histories:
        name = None if history.message_id is None else names.get((history.lane[0], history.message_id))
        updated.append(
            replace(history, outcome=f"carried on by {name}") if name is not None and history.is_open else history
        )
    return updated


def _build_history(
    rows: list[dict[str, Any]], alive: list[int], again: list[int], status: list[int], elsewhere: list[int]
) -> MessageHistory:
    from causeway.audit.message_loops import DIFFERS

    notes = [
        tuple(
            note
            for note, holds in (
                (TAKEN_BACK, not is_valid and row["event"] != LedgerEvent.REVERTED),
                (AGAIN, is_valid and repeats),
                (OTHER_CONTENT, is_valid and what == DIFFERS),
                (OTHER_CHAIN, is_valid and other),
            )
            if holds
        )
        for row, is_valid, repeats, what, other in zip(rows, alive, again, status, elsewhere, strict=True)
    ]
    counting = [
        row for row, is_valid, each in zip(rows, alive, notes, strict=True) if is_valid and OTHER_CONTENT not in each
    ]
    order = sorted(range(len(rows)), key=lambda number: _sort_key(rows, number))
    genuine = [row["time"] for row, each in zip(rows, notes, strict=True) if not each and row["time"] is not None]
    begin = min(genuine or [row["time"] for row in rows if row["time"] is not None], default=None)
    steps = tuple(
        MessageStep(
            rows[number]["event"],
            rows[number]["chain"],
            rows[number]["height"],
            rows[number]["time"],
            None if begin is None or rows[number]["time"] is None else rows[number]["time"] - begin,
            notes[number],
            rows[number],
        )
        for number in order
    )
    first = min(counting or rows, key=lambda row: EVENTS.index(row["event"]))
    names = ("message_id", "answers", "journey", "continues", "sender", "receiver", "asset", "amount")
    first_values = {name: _first_seen([first, *counting, *rows], name) for name in names}
    lane = tuple(first[name] for name in LANE)
    deciding = _deciding_step(steps, _state(counting))
    outcome = _outcome(counting)
    return MessageHistory(
        lane, first["index"], kind=first["kind"], outcome=outcome, steps=steps, deciding=deciding, **first_values
    )


def _deciding_step(steps: Sequence[MessageStep], end: int) -> MessageStep | None:
    """Return the genuine step that led to a message's last state."""
    bits = 0
    for step in steps:
        if step.is_genuine:
            bits |= event_bit(step.event, step.row["code"], step.row["kind"])
            if STATES_BY_EVENT_BITS[bits] == end:
                return step
    return None


def _sort_key(rows: list[dict[str, Any]], number: int) -> tuple[Any, ...]:
    """Return the sort key of a row in its history: time if all rows have one, else causal order."""
    row = rows[number]
    rank = EVENTS.index(row["event"])
    at = (row["height"] is None, row["height"] or 0, row["position"] is None, row["position"] or 0, number)
    if all(other["time"] is not None for other in rows):
        return (row["time"], rank, *at)
    return (rank, *at)


def _outcome(counting: list[dict[str, Any]]) -> str:
    events = {row["event"] for row in counting}
    state = _state(counting)
    if state == MessageState.UNKNOWN:
        return DROPPED_STEPS if LedgerEvent.OBSERVED in events else NEVER_SENT if events else NOTHING
    sent = state == MessageState.PENDING or LedgerEvent.SENT in events or LedgerEvent.COMMITTED in events
    return _OUTCOMES[MessageState(state)] if sent else f"{_OUTCOMES[MessageState(state)]}; {NEVER_SENT}"


def _state(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the state that follows from some events."""
    return int(STATES_BY_EVENT_BITS[sum({event_bit(row["event"], row["code"], row["kind"]) for row in rows})])


def _first_seen(rows: list[dict[str, Any]], name: str) -> Any:
    return next((row[name] for row in rows if row[name] is not None), None)


def _history_order(life: MessageHistory) -> tuple[Any, ...]:
    time = next((step.time for step in life.steps if step.time is not None), None)
    names = tuple((name is not None, name or "") for name in (*life.lane, life.message_id))
    return (time is None, time.timestamp() if time is not None else 0.0, names, life.index or 0)


MAX_TRACED = 64
"""Limit of messages of one journey in a trace."""

MAX_TRANSACTION_MESSAGES = 8
"""Limit of messages of one transaction in a trace; more are ambiguous."""

MAX_INDEX = (1 << 64) - 1

MIN_PREFIX = 6
"""Least length of a name's beginning that identifies a message."""

ELLIPSIS = "…"
"""Mark of the omitted middle of a shortened name (``core.text``)."""

_NARROWING = ("lane", "source", "destination", "sender", "index")

HeadersByPosition = Mapping[EventPosition, Sequence[Mapping[str, Any]]]
"""Headers of chains, by the position of an event."""


class SeveralMessages(InvalidInput):
    """The name matches several unrelated messages, ``keys``."""

    def __init__(self, text: str, keys: Sequence[MessageKey]) -> None:
        super().__init__(text)
        self.keys = tuple(keys)


@dataclass(frozen=True)
class MessageTrace:
    """Related messages, by beginning.

    ``headers``: known headers of the blocks with their events. ``more``: number of further related messages.
    """

    lives: tuple[MessageHistory, ...]
    headers: HeadersByPosition
    more: int

    def roots(self, step: MessageStep) -> list[str]:
        """Return the known roots (or hashes) of the block of a step."""
        found = {row["root"] or row["hash"] for place in _step_positions(step) for row in self.headers.get(place, ())}
        return sorted(root for root in found if root)


MESSAGE_NAMES = "its id, lane and index, journey, or the hash of a transaction"
"""The ways to name a message, for error messages."""


def trace_message(ledger: Ledger, message: str | None = None, **narrowing: str | int | None) -> MessageTrace:
    """Find a message by name, and follow its related messages.

    Args:
        ledger: as of a commit.
        message: its ``message_id``, its lane (or source) and index as in ``channel-141/123``, its journey, or the hash
            of a transaction. Except for a lane, also a beginning of at least ``MIN_PREFIX`` characters, or a shortened
            form as printed on a terminal (``0x7ca6c18aa678d735…0b46``).
        narrowing: ``lane``, ``source``, ``destination``, ``sender``, ``index``; they suffice without ``message``.

    Returns:
        The trace.

    Raises:
        InvalidInput: no name is given, or no message matches.
        SeveralMessages: several unrelated messages match.
        LedgerDamaged: a file is corrupted.
    """
    narrowed = {name: (value,) for name, value in narrowing.items() if value is not None}
    for name in narrowed:
        if name not in _NARROWING:
            raise InvalidInput(f"{name}: must be one of {', '.join(_NARROWING)}")
    for name, value in {"message": message, **narrowing}.items():
        whole = type(value) is int and 0 <= value <= MAX_INDEX
        if value is not None and not (whole if name == "index" else isinstance(value, str)):
            wanted = f"a whole number from 0 to {MAX_INDEX}" if name == "index" else "a text"
            raise InvalidInput(f"{name}: {format_value(value)}: must be {wanted}")
    found: list[MessageKey] = []
    for conditions in _conditions(message, narrowed):
        found = found or find_messages(ledger, conditions)
    if not found:
        if message == "":
            raise InvalidInput(f"message: empty; allowed: {MESSAGE_NAMES}")
        narrowings = [f"{name} {shorten_name(str(values[0]))}" for name, values in narrowed.items()]
        sought = ", ".join([*([] if message is None else [shorten_name(message)]), *narrowings])
        raise InvalidInput(f"{sought}: no such message; allowed: {MESSAGE_NAMES}, as the command ledger lists them")
    rows = read_message_rows(ledger, found[:MAX_TRACED])
    if len(found) > 1 and not _belong_together(rows, message, len(found)):
        raise SeveralMessages(f"{len(found):,} messages are meant", found)
    keys = dict.fromkeys([*found, *find_related(ledger, rows, MAX_TRACED)])
    new = [*keys]
    while new and len(keys) < MAX_TRACED:
        carried = find_related(ledger, read_message_rows(ledger, new[:MAX_TRACED]), MAX_TRACED, CONTINUATIONS)
        new = [key for key in carried if key not in keys]
        keys |= dict.fromkeys(new)
    found_lives = message_histories(read_message_rows(ledger, [*keys][:MAX_TRACED]), ledger.table("promises"))
    headers = headers_at(ledger, _event_positions(found_lives))
    return MessageTrace(tuple(found_lives), headers, len(keys) - len(found_lives))


def read_histories(ledger: Ledger, messages: Sequence[MessageKey]) -> MessageTrace:
    """Read the histories of messages by key, without related messages.

    Args:
        ledger: as of a commit.
        messages: their keys.

    Returns:
        A trace of these messages.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    found = message_histories(read_message_rows(ledger, messages), ledger.table("promises"))
    return MessageTrace(tuple(found), headers_at(ledger, _event_positions(found)), 0)


def _event_positions(found: Sequence[MessageHistory]) -> set[EventPosition]:
    return {place for life in found for step in life.steps for place in _step_positions(step)}


def _step_positions(step: MessageStep) -> list[EventPosition]:
    """Return the position of a step; empty if unknown."""
    if step.chain is None or step.height is None:
        return []
    return [EventPosition(step.chain, step.height, step.row["tick"])]


def history_to_dict(life: MessageHistory, found: MessageTrace) -> dict[str, Any]:
    """Return a history as JSON: the message, its outcome, and a dict for each step.

    Args:
        life: the history.
        found: its trace.

    Returns:
        The JSON object.
    """
    names = dict(zip((*LANE, "index", "message_id"), (*life.lane, life.index, life.message_id), strict=True))
    return {
        **names,
        **{name: getattr(life, name) for name in ("answers", "journey", "continues")},
        **{name: getattr(life, name) for name in ("kind", "sender", "receiver", "asset")},
        "amount": life.amount,
        "outcome": life.outcome,
        "open": life.is_open,
        "seconds": None if life.took is None else life.took.total_seconds(),
        "foreign_receipts": life.remarks.get("foreign receipt", 0),
        "repeated_receipts": life.remarks.get("repeated receipt", 0),
        "events": [_step_as_dict(step, found) for step in life.steps],
    }


def _step_as_dict(step: MessageStep, found: MessageTrace) -> dict[str, Any]:
    row = step.row
    hashed = row["payload_hash"]
    return {
        "event": step.event,
        "chain": step.chain,
        "height": step.height,
        "position": row["position"],
        "tick": row["tick"],
        "time": None if step.time is None else step.time.isoformat(),
        "seconds": None if step.since is None else step.since.total_seconds(),
        "transaction": row["transaction"],
        "payload_hash": None if hashed is None else hashed.hex(),
        "amount": row["amount"],
        "code": row["code"],
        "detail": row["detail"],
        "notes": [*step.notes],
        "roots": found.roots(step),
        "stated_by": row["stated_by"],
        "source_file": row["source_file"],
        "source_row": row["source_row"],
    }


def _conditions(message: str | None, narrowed: Mapping[str, tuple[str | int, ...]]) -> Iterator[list[Condition]]:
    """Yield alternative conditions on the rows of the message, by descending priority.

    Raises:
        InvalidInput: the message is not sufficiently named.
    """
    if message is None:
        if "index" not in narrowed and "sender" not in narrowed:
            raise InvalidInput("message: missing; name it, or give an index with its lane, sender or source")
        yield [narrowed]
        return
    before, _, number = message.rpartition("/")
    if before and number.isascii() and number.isdecimal() and len(number) <= 20 and int(number) <= MAX_INDEX:
        yield [{**narrowed, name: (before,), "index": (int(number),)} for name in ("lane", "source")]
    yield [{**narrowed, name: (message,)} for name in ("message_id", "transaction", "journey")]
    like = _name_pattern(message)
    if len(like.begin) >= MIN_PREFIX:
        yield [{**narrowed, name: like} for name in ("message_id", "transaction", "journey")]


def _name_pattern(message: str) -> TextPattern:
    """Return a pattern of a name's beginning, and of its end if it is shortened."""
    begin, _, end = message.partition(ELLIPSIS)
    return TextPattern(begin, end)


def _belong_together(rows: pa.Table, message: str | None, count: int) -> bool:
    """Return True for messages of one journey, rerouted answer, or (if few) transaction."""
    journeys = set(rows["journey"].to_pylist())
    if len(journeys) == 1 and None not in journeys:
        return True
    answers = set(zip(rows["message_id"].to_pylist(), rows["answers"].to_pylist(), strict=True))
    if len(answers) == 1 and None not in answers.pop():
        return True
    if count > MAX_TRANSACTION_MESSAGES or message is None:
        return False
    of_messages: dict[tuple[Any, ...], set[str]] = {}
    like = _name_pattern(message)
    for row in rows.select([*LANE, "index", "message_id", "transaction"]).to_pylist():
        key = (*(row[name] for name in LANE), row["message_id"] if row["index"] is None else row["index"])
        of_messages.setdefault(key, set()).update({row["transaction"]} if like.matches(row["transaction"]) else ())
    return bool(set.intersection(*of_messages.values()))
