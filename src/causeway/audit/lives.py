"""The lives of messages: what happened to each, in order, from its rows of a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from causeway.audit.columns import Columns, Messages
from causeway.audit.parts import READ, Run, TablePart
from causeway.audit.windows import Promises
from causeway.ledger.limbs import amount_texts
from causeway.ledger.order import EVENTS
from causeway.ledger.outcomes import STATE_OF_BITS, State, bit_of
from causeway.ledger.schema import LANE, LIMBS, PROMISES_SCHEMA, Event
from causeway.ledger.typed import plain_rows

OTHER_CONTENT, OTHER_CHAIN, AGAIN, TAKEN_BACK = "another content", "on another chain", "again", "taken back"
"""Notes of a step: what was received is not what was sent; the event is on another chain than it can be; it happened
before; a fork took it back. They are those of the audit (``Columns``, ``Messages``)."""

WRONG = frozenset((OTHER_CONTENT, OTHER_CHAIN, AGAIN))
"""Notes of a step that breaks a guarantee."""

REMARKS = {OTHER_CONTENT: "foreign receipt", OTHER_CHAIN: "foreign receipt", AGAIN: "repeated receipt"}
"""Receipts that the headline of a message counts, by their note."""

_OUTCOMES = {
    State.PENDING: "pending", State.DELIVERED: "received", State.EXECUTED: "executed",
    State.FAILED: "failed", State.ANSWERED: "answered", State.REFUSED: "rejected",
    State.REJECTED: "rejected", State.RETURNED: "refunded", State.REFUNDED: "refunded",
    State.TIMED_OUT: "timed out", State.DROPPED: "dropped", State.DISCARDED: "dropped after it was received",
    State.CONTRADICTED: "contradicted: its two chains report different ends",
}  # fmt: skip
"""The states of a message, as a person reads them."""

NEVER_SENT, NOTHING = "never sent, as far as the input shows", "reverted: no event of it counts"
GIVEN_UP = "the recorder stopped waiting for it"


@dataclass(frozen=True)
class Step:
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
class Life:
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
    steps: tuple[Step, ...]
    deciding: Step | None

    @property
    def is_open(self) -> bool:
        """Return whether nothing says that it came, or that it will not."""
        return self.outcome in (_OUTCOMES[State.PENDING], NEVER_SENT, NOTHING, GIVEN_UP)

    @property
    def took(self) -> timedelta | None:
        """Return the time from the beginning until the message came to its outcome, where it was seen.

        Of a delivered message that is its first genuine receipt: what comes later, or is foreign, decides nothing.
        """
        return None if self.is_open or self.deciding is None else self.deciding.since

    @property
    def took_ticks(self) -> int | None:
        """Return the same in ticks, where all genuine steps have theirs."""
        ticks = [step.row["tick"] for step in self.steps if step.is_genuine]
        if self.is_open or self.deciding is None or None in ticks:
            return None
        return int(self.deciding.row["tick"] - min(ticks))

    @property
    def remarks(self) -> Mapping[str, int]:
        """Return how many receipts of it are foreign (with another content, or on another chain) or repeated."""
        receipts = [step for step in self.steps if step.event == Event.RECEIVED]
        kinds = [next((REMARKS[note] for note in REMARKS if note in step.notes), None) for step in receipts]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(REMARKS.values()) if kind in kinds}


def lives_of(rows: pa.Table, promises: pa.Table | None = None) -> list[Life]:
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
    columns = Columns.of(Run(rows.select(READ).combine_chunks(), ((TablePart(rows), 0, rows.num_rows),)))
    promised = Promises(PROMISES_SCHEMA.empty_table() if promises is None else promises)
    messages = Messages.of(columns, promised)
    content = plain_rows(rows)
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


def _carried_on(lives: list[Life]) -> list[Life]:
    """Return lives in which messages that others carry on are not open."""
    found = []
    names = {(life.lane[0], life.continues): life.message_id or str(life.index) for life in lives if life.continues}
    for life in lives:
        name = None if life.message_id is None else names.get((life.lane[0], life.message_id))
        found.append(replace(life, outcome=f"carried on by {name}") if name is not None and life.is_open else life)
    return found


def _life(
    rows: list[dict[str, Any]], alive: list[int], again: list[int], status: list[int], elsewhere: list[int]
) -> Life:
    from causeway.audit.message_loops import DIFFERS

    notes = [
        tuple(
            note
            for note, holds in (
                (TAKEN_BACK, not lives and row["event"] != Event.REVERTED),
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
        Step(
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
    return Life(lane, first["index"], kind=first["kind"], outcome=outcome, steps=steps, deciding=deciding, **said)


def _deciding(steps: Sequence[Step], end: int) -> Step | None:
    """Return the genuine step with which a message came to its last state."""
    bits = 0
    for step in steps:
        if step.is_genuine:
            bits |= bit_of(step.event, step.row["code"], step.row["kind"])
            if STATE_OF_BITS[bits] == end:
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
    if state == State.UNKNOWN:
        return GIVEN_UP if Event.OBSERVED in events else NEVER_SENT if events else NOTHING
    sent = state == State.PENDING or Event.SENT in events or Event.COMMITTED in events
    return _OUTCOMES[State(state)] if sent else f"{_OUTCOMES[State(state)]}; {NEVER_SENT}"


def _state(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the state to which events bring a message."""
    return int(STATE_OF_BITS[sum({bit_of(row["event"], row["code"], row["kind"]) for row in rows})])


def _first_seen(rows: list[dict[str, Any]], name: str) -> Any:
    return next((row[name] for row in rows if row[name] is not None), None)


def _beginning(life: Life) -> tuple[Any, ...]:
    time = next((step.time for step in life.steps if step.time is not None), None)
    names = tuple((name is not None, name or "") for name in (*life.lane, life.message_id))
    return (time is None, time.timestamp() if time is not None else 0.0, names, life.index or 0)


__all__ = ["AGAIN", "OTHER_CHAIN", "OTHER_CONTENT", "TAKEN_BACK", "WRONG", "Life", "Step", "lives_of"]
