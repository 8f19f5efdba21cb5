"""One message of a ledger with all that belongs to it: what a user names, found and followed over lanes and hops.

The lives of messages: what happened to each, in order, from its rows of a ledger.
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
from causeway.core.text import format_value, to_one_line
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
    "FOLLOWED_COLUMNS",
    "MAX_INDEX",
    "NAME_COLUMNS",
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
"""Notes of a step: what was received is not what was sent; the event is on another chain than it can be; it happened
before; a fork took it back. They are those of the audit (``Columns``, ``Messages``)."""

FAULT_REMARKS = frozenset((OTHER_CONTENT, OTHER_CHAIN, AGAIN))
"""Notes of a step that breaks a guarantee."""

STEP_REMARKS = {OTHER_CONTENT: "foreign receipt", OTHER_CHAIN: "foreign receipt", AGAIN: "repeated receipt"}
"""Receipts that the headline of a message counts, by their note."""

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
"""The states of a message, as a person reads them."""

NEVER_SENT, NOTHING = "never sent, as far as the input shows", "reverted: no event of it counts"
DROPPED_STEPS = "the recorder stopped waiting for it"


@dataclass(frozen=True)
class MessageStep:
    """One row of a message's life. ``since``: the time since the first genuine step, or the first one where none is
    genuine, as far as both times were seen. ``notes``: of ``OTHER_CONTENT``, ``OTHER_CHAIN``, ``AGAIN``,
    ``TAKEN_BACK``; ``row``: all columns of the ledger."""

    event: str
    chain: str | None
    height: int | None
    time: datetime | None
    since: timedelta | None
    notes: tuple[str, ...]
    row: Mapping[str, Any] = field(repr=False)

    @property
    def is_genuine(self) -> bool:
        """Return whether the step counts for its message: it has no note."""
        return not self.notes


@dataclass(frozen=True)
class MessageHistory:
    """A message and what happened to it. ``lane``: protocol, source, destination and lane; ``outcome``: what it has
    come to, in words; ``continues``: the message that it carries on under a new id; ``amount``: decimal digits;
    ``deciding``: the genuine step with which it came to its outcome, None where none did."""

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
        """Return whether nothing says that it came, or that it will not."""
        return self.outcome in (_OUTCOMES[MessageState.PENDING], NEVER_SENT, NOTHING, DROPPED_STEPS)

    @property
    def took(self) -> timedelta | None:
        """Return the time from the beginning until the message came to its outcome, where it was seen.

        Of a delivered message that is its first genuine receipt: what comes later, or is foreign, decides nothing.
        """
        return None if self.is_open or self.deciding is None else self.deciding.since

    @property
    def duration_ticks(self) -> int | None:
        """Return the same in ticks, where all genuine steps have theirs."""
        ticks = [step.row["tick"] for step in self.steps if step.is_genuine]
        if self.is_open or self.deciding is None or None in ticks:
            return None
        return int(self.deciding.row["tick"] - min(ticks))

    @property
    def remarks(self) -> Mapping[str, int]:
        """Return how many receipts of it are foreign (with another content, or on another chain) or repeated."""
        receipts = [step for step in self.steps if step.event == LedgerEvent.RECEIVED]
        kinds = [next((STEP_REMARKS[note] for note in STEP_REMARKS if note in step.notes), None) for step in receipts]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(STEP_REMARKS.values()) if kind in kinds}


def message_histories(rows: pa.Table, promises: pa.Table | None = None) -> list[MessageHistory]:
    """Return the lives of the messages that rows are about, those first that began first.

    Args:
        rows: of ``LEDGER_SCHEMA``, in its order; all of each message. Rows without index and ``message_id`` are passed
            over.
        promises: of ``PROMISES_SCHEMA``, what lanes promise: which of several equal receipts is the first depends on
            ``final_after``; None: nothing.

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
        found.append(_life(own, alive, again, messages.status[start:stop].tolist(), elsewhere))
    return sorted(_carried_on(found), key=_beginning)


def _carried_on(lives: list[MessageHistory]) -> list[MessageHistory]:
    """Return lives in which messages that others carry on are not open."""
    found = []
    names = {(life.lane[0], life.continues): life.message_id or str(life.index) for life in lives if life.continues}
    for life in lives:
        name = None if life.message_id is None else names.get((life.lane[0], life.message_id))
        found.append(replace(life, outcome=f"carried on by {name}") if name is not None and life.is_open else life)
    return found


def _life(
    rows: list[dict[str, Any]], alive: list[int], again: list[int], status: list[int], elsewhere: list[int]
) -> MessageHistory:
    from causeway.audit.message_loops import DIFFERS

    notes = [
        tuple(
            note
            for note, holds in (
                (TAKEN_BACK, not lives and row["event"] != LedgerEvent.REVERTED),
                (AGAIN, lives and repeats),
                (OTHER_CONTENT, lives and what == DIFFERS),
                (OTHER_CHAIN, lives and other),
            )
            if holds
        )
        for row, lives, repeats, what, other in zip(rows, alive, again, status, elsewhere, strict=True)
    ]
    counting = [row for row, lives, each in zip(rows, alive, notes, strict=True) if lives and OTHER_CONTENT not in each]
    order = sorted(range(len(rows)), key=lambda number: _place(rows, number))
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
    said = {name: _first_seen([first, *counting, *rows], name) for name in names}
    lane = tuple(first[name] for name in LANE)
    deciding = _deciding(steps, _state(counting))
    outcome = _outcome(counting)
    return MessageHistory(
        lane, first["index"], kind=first["kind"], outcome=outcome, steps=steps, deciding=deciding, **said
    )


def _deciding(steps: Sequence[MessageStep], end: int) -> MessageStep | None:
    """Return the genuine step with which a message came to its last state."""
    bits = 0
    for step in steps:
        if step.is_genuine:
            bits |= event_bit(step.event, step.row["code"], step.row["kind"])
            if STATES_BY_EVENT_BITS[bits] == end:
                return step
    return None


def _place(rows: list[dict[str, Any]], number: int) -> tuple[Any, ...]:
    """Return where a row stands in a life: by time where all have one, else by what happens before what."""
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
    """Return the state to which events bring a message."""
    return int(STATES_BY_EVENT_BITS[sum({event_bit(row["event"], row["code"], row["kind"]) for row in rows})])


def _first_seen(rows: list[dict[str, Any]], name: str) -> Any:
    return next((row[name] for row in rows if row[name] is not None), None)


def _beginning(life: MessageHistory) -> tuple[Any, ...]:
    time = next((step.time for step in life.steps if step.time is not None), None)
    names = tuple((name is not None, name or "") for name in (*life.lane, life.message_id))
    return (time is None, time.timestamp() if time is not None else 0.0, names, life.index or 0)


FOLLOWED_COLUMNS = 64
"""Messages of one journey that are looked at."""

ROWS_AT_ONCE = 8
"""Messages of one transaction that are shown; more are several."""

MAX_INDEX = (1 << 64) - 1

MIN_BEGIN = 6
"""So many characters of a name are enough, where they are of one message only."""

MIN_SHORTENED = "…"
"""What stands for the middle of a long name (``model.text``)."""

_NARROWING = ("lane", "source", "destination", "sender", "index")

ReadRoots = Mapping[EventPosition, Sequence[Mapping[str, Any]]]
"""Headers that chains made where something happened."""


class SeveralMessages(InvalidInput):
    """Several messages that do not belong together are meant; ``keys`` are those."""

    def __init__(self, text: str, keys: Sequence[MessageKey]) -> None:
        super().__init__(text)
        self.keys = tuple(keys)


@dataclass(frozen=True)
class MessageTrace:
    """Messages that belong together, those first that began first. ``headers``: of the blocks in which something
    happened to them, as far as the ledger has them; ``more``: how many more belong to them."""

    lives: tuple[MessageHistory, ...]
    headers: ReadRoots
    more: int

    def roots(self, step: MessageStep) -> list[str]:
        """Return the roots (or hashes) that the ledger has of the block of a step."""
        found = {row["root"] or row["hash"] for place in _tracing_place(step) for row in self.headers.get(place, ())}
        return sorted(root for root in found if root)


NAME_COLUMNS = "its id, lane and index, journey, or the hash of a transaction"
"""The ways to name a message, for error messages."""


def trace_message(ledger: Ledger, message: str | None = None, **narrowing: str | int | None) -> MessageTrace:
    """Find a message by what names it, and follow it.

    Args:
        ledger: as of a commit.
        message: its ``message_id``, its lane (or source) and index as in ``channel-141/123``, its journey, or the hash
            of a transaction; of these but the lane also the beginning, of ``LEAST_BEGIN`` characters, or a shortened
            form as a terminal shows it (``0x7ca6c18aa678d735…0b46``).
        narrowing: ``lane``, ``source``, ``destination``, ``sender``, ``index``; without ``message`` these name it.

    Raises:
        InvalidInput: nothing is named, or no such message is there.
        SeveralMessages: several are meant.
        LedgerDamaged: a file is not what was written.
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
        said = [f"{name} {values[0]}" for name, values in narrowed.items()]
        sought = to_one_line(", ".join([*([] if message is None else [message]), *said]))
        raise InvalidInput(f"{sought}: no such message; allowed: {NAME_COLUMNS}, as the command ledger lists them")
    rows = read_message_rows(ledger, found[:FOLLOWED_COLUMNS])
    if len(found) > 1 and not _belong_together(rows, message, len(found)):
        raise SeveralMessages(f"{len(found):,} messages are meant", found)
    keys = dict.fromkeys([*found, *find_related(ledger, rows, FOLLOWED_COLUMNS)])
    new = [*keys]
    while new and len(keys) < FOLLOWED_COLUMNS:
        carried = find_related(
            ledger, read_message_rows(ledger, new[:FOLLOWED_COLUMNS]), FOLLOWED_COLUMNS, CONTINUATIONS
        )
        new = [key for key in carried if key not in keys]
        keys |= dict.fromkeys(new)
    found_lives = message_histories(read_message_rows(ledger, [*keys][:FOLLOWED_COLUMNS]), ledger.table("promises"))
    headers = headers_at(ledger, _places(found_lives))
    return MessageTrace(tuple(found_lives), headers, len(keys) - len(found_lives))


def read_histories(ledger: Ledger, messages: Sequence[MessageKey]) -> MessageTrace:
    """Return the lives of messages that are known by their keys, in no search, without those that belong to them.

    Raises ``LedgerDamaged``.
    """
    found = message_histories(read_message_rows(ledger, messages), ledger.table("promises"))
    return MessageTrace(tuple(found), headers_at(ledger, _places(found)), 0)


def _places(found: Sequence[MessageHistory]) -> set[EventPosition]:
    return {place for life in found for step in life.steps for place in _tracing_place(step)}


def _tracing_place(step: MessageStep) -> list[EventPosition]:
    """Return where a step happened; nothing where that was not seen."""
    if step.chain is None or step.height is None:
        return []
    return [EventPosition(step.chain, step.height, step.row["tick"])]


def history_to_dict(life: MessageHistory, found: MessageTrace) -> dict[str, Any]:
    """Return a life as JSON: the message, what it came to, and a dict for each step."""
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
    """Yield conditions of which a row of the message fulfils one; later ones count if nothing fulfils the earlier.
    Raises ``InvalidInput``."""
    if message is None:
        if "index" not in narrowed and "sender" not in narrowed:
            raise InvalidInput("message: missing; name it, or give an index with its lane, sender or source")
        yield [narrowed]
        return
    before, _, number = message.rpartition("/")
    if before and number.isascii() and number.isdecimal() and len(number) <= 20 and int(number) <= MAX_INDEX:
        yield [{**narrowed, name: (before,), "index": (int(number),)} for name in ("lane", "source")]
    yield [{**narrowed, name: (message,)} for name in ("message_id", "transaction", "journey")]
    like = _like(message)
    if len(like.begin) >= MIN_BEGIN:
        yield [{**narrowed, name: like} for name in ("message_id", "transaction", "journey")]


def _like(message: str) -> TextPattern:
    """Return what begins as a name of a message does; of a shortened one, as a terminal shows it, what ends so, too."""
    begin, _, end = message.partition(MIN_SHORTENED)
    return TextPattern(begin, end)


def _belong_together(rows: pa.Table, message: str | None, count: int) -> bool:
    """Return whether messages belong to one journey, to one rerouted answer, or (if few) to one transaction."""
    journeys = set(rows["journey"].to_pylist())
    if len(journeys) == 1 and None not in journeys:
        return True
    answers = set(zip(rows["message_id"].to_pylist(), rows["answers"].to_pylist(), strict=True))
    if len(answers) == 1 and None not in answers.pop():
        return True
    if count > ROWS_AT_ONCE or message is None:
        return False
    of_messages: dict[tuple[Any, ...], set[str]] = {}
    like = _like(message)
    for row in rows.select([*LANE, "index", "message_id", "transaction"]).to_pylist():
        key = (*(row[name] for name in LANE), row["message_id"] if row["index"] is None else row["index"])
        of_messages.setdefault(key, set()).update({row["transaction"]} if like.matches(row["transaction"]) else ())
    return bool(set.intersection(*of_messages.values()))
