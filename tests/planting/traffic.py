"""Traffic for planting: its rows as dicts by message, and the windows of the input."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from copy import deepcopy
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from causeway.ledger.schema import LIMBS
from tests.spec.audit.ledger import LATE, Lane, Ledger, Message, Row, lane_of
from tests.support.properties.audit_ledgers import Case

Named = tuple[str, str, str, Lane, Any]
"""A finding: check, verdict, reason, lane, and index, or ``message_id`` if a message has none."""

Span = tuple[str, int, int]
"""Heights of a chain, both included."""


ORDERS = {"sent": "ordered_sends", "received": "ordered_receives", "acknowledged": "ordered_acknowledgements"}
"""Guaranteed orders of events."""


class Planted(NamedTuple):
    """What was planted. ``violated``: all violations that must be found more than before. ``evidence``: the part of the
    input that shows them; where a window outside of it is missing, they are found all the same. ``suspects``: lanes of
    which something else may be found where half of the evidence is missing."""

    kind: str
    violated: frozenset[Named]
    evidence: tuple[Span, ...]
    suspects: frozenset[Lane] = frozenset()


def rows_of(table: pa.Table) -> list[Row]:
    """Rows of a table as dicts: times in microseconds, an amount as one number."""
    columns: dict[str, list[Any]] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        columns[field.name] = column.to_pylist()
    if LIMBS[0] in columns:
        limbs = [columns.pop(name) for name in LIMBS]
        columns["amount"] = [_amount(words) for words in zip(*limbs, strict=True)]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _amount(words: Iterable[int | None]) -> int | None:
    known = [word for word in words if word is not None]
    return sum(word << 64 * place for place, word in enumerate(known)) if known else None


def key_of(message: Message) -> Any:
    return message.index if message.index is not None else message.rows[0]["message_id"]


class Traffic:
    """The tables of a ledger. Faults are planted one after the other, each in its own messages and lanes."""

    def __init__(self, case: Case) -> None:
        self.rows, self.observed, self.promises = deepcopy(case.rows), deepcopy(case.observed), deepcopy(case.promises)
        self.watermarks, self.headers, self.value = (deepcopy(x) for x in (case.watermarks, case.headers, case.value))
        self.whole: set[Lane] = set()
        self.used: dict[int, Row] = {}  # rows of messages with planted faults, by identity
        self.index()

    def index(self) -> None:
        """Index the rows again after some were added, removed or altered."""
        for at, row in enumerate(self.rows):
            row["at"] = at
        self._along: dict[tuple[Lane, str], list[tuple[int, Row]]] = {}
        self.ledger = Ledger(self.rows, self.observed, self.promises, value=self.value)
        self.by_lane: dict[Lane, list[Message]] = {}
        for message in self.ledger.messages:
            self.by_lane.setdefault(message.lane, []).append(message)
        for messages in self.by_lane.values():
            messages.sort(key=lambda message: (message.index is None, message.index or 0))

    def case(self) -> Case:
        return Case(self.rows, self.observed, self.promises, self.watermarks, self.headers, self.value)

    # ---- positions for planting

    def messages(self, random: Random, *events: str) -> Iterator[Message]:
        """The messages with one row each of these events, none of them reverted or planted, in random order."""
        found = [
            message
            for message in self.ledger.messages
            if not self.taken(message) and all(len(message.all(event)) == 1 for event in events)
        ]
        back = {(lane_of(row), row["index"], row["message_id"]) for row in self.rows if row["event"] == "reverted"}
        random.shuffle(found)
        for message in found:
            row = message.rows[0] if message.rows else None
            if row and (message.lane, row["index"], row["message_id"]) not in back:
                yield message

    def lanes(self, random: Random, *promises: str) -> Iterator[Lane]:
        """The unused lanes with these guarantees, in random order."""
        found = sorted((lane for lane in self.by_lane if lane not in self.whole), key=repr)
        random.shuffle(found)
        return (lane for lane in found if all(self.ledger.promised(lane, promise) for promise in promises))

    def take(self, message: Message, *, lane: bool = False) -> None:
        """Exclude this message, or its ``lane``, from further planting."""
        self.used |= {id(row): row for row in message.rows}
        if lane:
            self.whole.add(message.lane)

    def taken(self, message: Message) -> bool:
        return message.lane in self.whole or any(id(row) in self.used for row in message.rows)

    # ---- changes

    def add(self, row: Row, **changes: Any) -> Row:
        self.rows.append({**row, "transaction": None, **changes})
        self.used[id(self.rows[-1])] = self.rows[-1]
        return self.rows[-1]

    def remove(self, rows: Iterable[Row]) -> None:
        gone = {id(row) for row in rows}
        self.rows = [row for row in self.rows if id(row) not in gone]

    # ---- facts about a lane

    def neighbours(self, message: Message, event: str) -> tuple[Row | None, Row | None]:
        """The rows of an event of the next message below and above that has one."""
        if (message.lane, event) not in self._along:
            messages = [other for other in self.by_lane[message.lane] if other.index is not None]
            rows = [(other.index, row) for other in messages if (row := other.first(event))]
            self._along[message.lane, event] = rows
        rows = self._along[message.lane, event]
        low = bisect_left(rows, message.index, key=itemgetter(0))
        high = bisect_right(rows, message.index, key=itemgetter(0))
        return rows[low - 1][1] if low else None, rows[high][1] if high < len(rows) else None

    def late_open(self, lane: Lane) -> bool:
        """Whether a message after all received ones is open."""
        numbered = [message for message in self.by_lane[lane] if message.index is not None]
        last = max((place for place, message in enumerate(numbered) if message.has("received")), default=-1)
        return any(message.is_open for message in numbered[last + 1 :])

    def windows(self, chain: str | None, kind: str, event: str) -> list[tuple[int, int]]:
        """The windows of a chain, in heights or times, with this event of every lane."""
        return [
            (row[f"first_{kind}"], row[f"last_{kind}"])
            for row in self.observed
            if row["chain"] == chain
            and (row["events"] is None or event in row["events"])
            and lane_of(row) == (None,) * 4
            and None not in (row[f"first_{kind}"], row[f"last_{kind}"])
        ]

    def window(self, chain: str | None, kind: str, low: int, high: int, event: str) -> bool:
        """Whether one window of a chain has all of an event from ``low`` to ``high``."""
        return any(first <= low and high <= last for first, last in self.windows(chain, kind, event))

    def end(self, chain: str | None, time: int, event: str) -> int | None:
        """The end of the window that has a time."""
        ends = [last for first, last in self.windows(chain, "time", event) if first <= time <= last]
        return max(ends, default=None)

    def flights(self, lane: Lane) -> list[tuple[int, float]]:
        """The heights of each message of a lane at which it was sent and ended on its source."""
        over = ("acknowledged", "timed_out", "collected", "dropped", "rejected")
        found = []
        for message in self.by_lane[lane]:
            sent = message.first("sent")
            rows = [row["height"] for row in message.rows if row["event"] in over and row["chain"] in (lane[1], None)]
            if sent and sent["height"] is not None:
                found.append((sent["height"], min((height for height in rows if height is not None), default=LATE)))
        return found

    def in_flight(self, lane: Lane, height: int) -> int:
        """The number of in-flight messages of a lane at the end of a block."""
        return sum(begin <= height < end for begin, end in self.flights(lane))

    def room(self, lane: Lane) -> bool:
        """Whether a message of a lane may stay in flight without violating a guarantee."""
        capacity = self.ledger.number(lane, "capacity")
        most = max((self.in_flight(lane, height) for height, _ in self.flights(lane)), default=0)
        return capacity is None or most + 1 <= capacity


def named(check: str, reason: str, message: Message) -> Named:
    return check, "violated", reason, message.lane, key_of(message)


def spans(*rows: Row | None) -> tuple[Span, ...]:
    """Positions of rows."""
    return tuple((row["chain"], row["height"], row["height"]) for row in rows if row and row["height"] is not None)


def later(row: Row) -> Row:
    """A block later."""
    return {name: None if row[name] is None else row[name] + 1 for name in ("height", "time")}


def other_content(random: Random) -> bytes:
    return hashlib.sha256(random.randbytes(8)).digest()
