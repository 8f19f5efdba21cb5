"""The messages of a run with their steps and outcomes, as columns (``ledger.outcomes`` has the model)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.audit.arrays import Array, Codes, Ints, Words, codes_of, numbers, whole
from causeway.audit.bucket import Bucket
from causeway.audit.columns import KINDS, NO_HEIGHT, NO_TIME, REQUEST, Bools, code_of
from causeway.figures.places import NO_TICK, Places, nowhere
from causeway.figures.replies import Answers, Replies
from causeway.ledger.codes import Names
from causeway.ledger.outcomes import AFTER, OUTCOMES, Input, Outcome, call_outcomes
from causeway.ledger.schema import Event, Kind

PENDING, REFUNDED = (OUTCOMES.index(each) for each in (Outcome.PENDING, Outcome.REFUNDED))
DELIVERED, ANSWERED, REJECTED, UNKNOWN = (
    OUTCOMES.index(each) for each in (Outcome.DELIVERED, Outcome.ANSWERED, Outcome.REJECTED, Outcome.UNKNOWN)
)
DROPPED, TIMED_OUT, CONTRADICTED = (
    OUTCOMES.index(each) for each in (Outcome.DROPPED, Outcome.TIMED_OUT, Outcome.CONTRADICTED)
)
_TOLD = [OUTCOMES.index(each) for each in (Outcome.ANSWERED, Outcome.REJECTED, Outcome.FAILED, Outcome.REFUNDED)]
_REPLY_OF_KIND = {Kind.RESPONSE: Input.ANSWERED, Kind.REJECT: Input.ERRED, Kind.REFUND: Input.REFUNDED}
"""What an answer over another lane is to its request."""

_CONTROL = KINDS.index(Kind.CONTROL)
_CALLED = (
    *(Event.SENT, Event.COMMITTED, Event.RELAYED, Event.RECEIVED, Event.ANSWERED, Event.ACKNOWLEDGED),
    Event.TIMED_OUT,
)
"""Events of which a request that some chain sent has one; those of a user have none of them."""


class Outcomes:
    """The messages of a run of which any row counts, in the order of the ledger.

    ``message``: the number of each in its run; ``lane``, ``kind``: codes (``columns.lanes``, ``KINDS``); ``base``: the
    row that names it: that of its sending, else its first one that counts. ``replies``: answers that came over other
    lanes.
    """

    def __init__(self, bucket: Bucket, replies: Answers | None = None) -> None:
        columns = bucket.columns
        self.bucket, self.columns = bucket, columns
        rows = len(columns)
        self._counting = counting = (columns.alive == 1) & (columns.event != code_of(Event.REVERTED))
        first = np.minimum.reduceat(np.where(counting, np.arange(rows), rows), columns.starts[:-1]) if rows else _NONE
        self.message = np.flatnonzero(first < rows)
        sent = bucket.first(Event.SENT)[self.message]
        self.base: Ints = np.where(sent >= 0, sent, first[self.message]).astype(np.int64)
        self.lane = bucket.lane[self.message]
        self.kind = columns.kind[self.base]
        self.chains = columns.chains
        self._replied = None
        if replies is not None and len(open_ := self.unanswered):
            known = replies if isinstance(replies, Replies) else replies()
            self._replied = known.of(columns, self.base, open_)
        if self._replied is not None:
            self.chains = self._replied.chains

    def __len__(self) -> int:
        return len(self.message)

    @property
    def unanswered(self) -> Ints:
        """Return the numbers of the requests that were sent and neither acknowledged nor timed out."""
        ended = self.has(Event.ACKNOWLEDGED, Event.TIMED_OUT)
        return np.flatnonzero((self.kind == REQUEST) & self.is_sent & ~ended)

    def row(self, event: Event) -> Codes:
        """Return each message's first row of an event, -1: none."""
        return self.bucket.first(event)[self.message]

    def has(self, *events: Event) -> Bools:
        """Return which messages have one of some events."""
        found = np.zeros(len(self), bool)
        for event in events:
            if code_of(event) in self.columns.events:
                found |= self.row(event) >= 0
        return found

    @cached_property
    def tick(self) -> Words:
        """Return the tick of each row of the run."""
        return numbers(whole(self.columns.rows.read(("tick",))["tick"]), NO_TICK)

    def places(self, row: Array) -> Places:
        """Return where rows are, one a message (-1: none)."""
        happened = row >= 0
        if not happened.any():
            return nowhere(len(row))
        columns, at = self.columns, np.maximum(row, 0)
        return Places(
            happened,
            np.where(happened, columns.chain[at], np.int32(-1)),
            np.where(happened, columns.height[at], NO_HEIGHT),
            np.where(happened, self.tick[at], NO_TICK),
            np.where(happened, columns.time[at], NO_TIME),
        )

    @cached_property
    def sent(self) -> Places:
        """Where each was sent."""
        return self.places(self.row(Event.SENT))

    @cached_property
    def received(self) -> Places:
        """Where each was received."""
        return self.places(self.row(Event.RECEIVED))

    @cached_property
    def executed(self) -> Places:
        """Where each was executed."""
        return self.places(self.row(Event.EXECUTED))

    @cached_property
    def replied(self) -> Places:
        """Where the chain that a request comes from had its answer."""
        requests = self.kind == REQUEST
        own = self.places(np.where(requests, self.row(Event.ACKNOWLEDGED), -1))
        return own if self._replied is None else own.then(self._replied.places)

    @cached_property
    def ended(self) -> Places:
        """Where the chain that each comes from knew its outcome."""
        own = self.places(self.row(Event.ACKNOWLEDGED))
        return own.then(self.replied).then(self.places(self.row(Event.TIMED_OUT)))

    @cached_property
    def is_sent(self) -> Bools:
        """Which were sent, or are in a root of the chain that sent them."""
        return self.has(Event.SENT, Event.COMMITTED)

    @cached_property
    def landed(self) -> Places:
        """Where each was no longer on its way: it came, or it will not."""
        found = self.received
        for event in _LANDED:
            found = found.then(self.places(self.row(event)))
        return found.then(self.ended)

    @cached_property
    def is_control(self) -> Bools:
        """Which are messages of the protocol itself."""
        found: Bools = self.kind == _CONTROL
        return found

    @cached_property
    def forged(self) -> Bools:
        """Which no program sent, as their chain says itself."""
        found: Bools = self.bucket.forged[self.message]
        return found

    @cached_property
    def of_users(self) -> Bools:
        """Which are from users to a chain: no chain sent them."""
        named = np.array([any(name is not None for name in lane[1:]) for lane in self.columns.lanes], bool)
        called = self.has(*_CALLED) | (named[self.lane] if len(named) else False)
        found: Bools = (self.kind == REQUEST) & ~called & ~self.forged
        return found

    @cached_property
    def is_message(self) -> Bools:
        """Which are what programs of chains say to each other: what is counted as messages."""
        found: Bools = ~(self.is_control | self.forged | self.of_users)
        return found

    @cached_property
    def is_call(self) -> Bools:
        """Which are requests that a program of a chain sent."""
        found: Bools = (self.kind == REQUEST) & self.is_message
        return found

    @cached_property
    def is_between_chains(self) -> Bools:
        """Which came into a lane between two chains."""
        apart = np.array([lane[3] is not None and lane[1] != lane[2] for lane in self.columns.lanes], bool)
        return self.is_sent & (apart[self.lane] if len(apart) else False)

    @cached_property
    def state(self) -> npt.NDArray[np.int8]:
        """The state of each message, of a request with its answer over another lane (``ledger.outcomes.State``)."""
        found = self.bucket.messages.state[self.message]
        if self._replied is not None:
            came, code = self._replied.places.happened, np.where(self._replied.has_code, self._replied.code, 0)
            for kind, reply in _REPLY_OF_KIND.items():
                own = came & (self._replied.kind == KINDS.index(kind))
                each = np.where(own & (code != 0) & (reply == Input.ANSWERED), Input.ERRED, reply)
                found = np.where(own, AFTER[found, each], found)
        return found.astype(np.int8)

    @cached_property
    def outcome(self) -> npt.NDArray[np.int8]:
        """What became of each (codes of ``ledger.outcomes.OUTCOMES``)."""
        requests = self.kind == REQUEST
        promised = self.bucket.promised("answered")
        awaits = requests & self.is_sent & (promised[self.lane] if len(promised) else False)
        lost = np.zeros(len(self), bool) if self._replied is None else self._replied.lost
        found = call_outcomes(self.state, awaits, lost)
        # What is no request needs no answer: an acknowledgement says that it came.
        found = np.where(~requests & (found == ANSWERED), np.int8(DELIVERED), found)
        # A message of the protocol itself that was carried, and of which nothing more is said, waits for nobody.
        return np.where(self.is_control & (found == PENDING), np.int8(UNKNOWN), found)

    @cached_property
    def over(self) -> Places:
        """Where each came to its outcome; nowhere for what is pending or unknown."""
        outcome = self.outcome
        told = self.replied
        for event in (Event.ANSWERED, Event.REJECTED, Event.FAILED, Event.REFUNDED, Event.EXECUTED):
            told = told.then(self.places(self.row(event)))
        delivered = self.received
        for event in (Event.EXECUTED, Event.ANSWERED, Event.ACKNOWLEDGED):
            delivered = delivered.then(self.places(self.row(event)))
        timed_out = np.isin(outcome, (TIMED_OUT, CONTRADICTED))
        return (
            told.of(np.isin(outcome, _TOLD))
            .then(self.places(self.row(Event.TIMED_OUT)).of(timed_out))
            .then(self.places(self.row(Event.DROPPED)).of(outcome == DROPPED))
            .then(delivered.of(outcome == DELIVERED))
        )

    @cached_property
    def codes(self) -> tuple[Bools, Ints]:
        """Which have a code, and the code: of the answer, else of the refusal, else of what else was said."""
        return self._coded(
            (Event.ACKNOWLEDGED, Event.ANSWERED, Event.REJECTED, Event.FAILED, Event.DROPPED, Event.TIMED_OUT),
            (Event.RECEIVED, Event.EXECUTED, Event.OBSERVED),
        )

    @cached_property
    def _code_column(self) -> tuple[Bools, Ints]:
        column = whole(self.columns.rows.read(("code",))["code"])
        seen = np.asarray(column.is_valid())
        return seen, column.fill_null(0).to_numpy(zero_copy_only=False)

    def _coded(self, events: Sequence[Event], others: Sequence[Event]) -> tuple[Bools, Ints]:
        seen, column = self._code_column
        has, code = np.zeros(len(self), bool), np.zeros(len(self), np.int64)
        for number, event in enumerate((*events, *others)):
            if code_of(event) in self.columns.events and len(self):
                row = self.row(event)
                new = ~has & (row >= 0) & seen[np.maximum(row, 0)]
                code[new], has = column[row[new]], has | new
            if number == 0 and self._replied is not None:
                new = ~has & self._replied.has_code
                code[new], has = self._replied.code[new], has | new
        return has, code

    @cached_property
    def details(self) -> tuple[list[str], Codes]:
        """The names of reasons, and that of each message, -1: none. A call whose answer was dropped has its reason."""
        names = Names()
        column = codes_of(self.columns.rows.read(("detail",))["detail"], names)
        found = np.full(len(self), -1, np.int32)
        for event in _DETAILED:
            if code_of(event) in self.columns.events and len(self):
                row = self.row(event)
                found = np.where((found < 0) & (row >= 0), column[np.maximum(row, 0)], found)
        if self._replied is not None and self._replied.lost.any():
            own = np.array([*(names.code(cause) for cause in self._replied.causes), -1], np.int32)
            found = np.where((found < 0) & (self.outcome == DROPPED), own[self._replied.cause], found)
        return names.known(), found

    def first_seen(self, name: str) -> pa.Array:
        """Return of each message the value of a column: of its ``base``, else of the first row that counts and has
        one."""
        column = whole(self.columns.rows.read((name,))[name])
        own = column.take(pa.array(self.base))
        if not own.null_count or column.null_count == len(column):
            return own
        seen, row, last = np.asarray(column.is_valid()), np.arange(len(column)), len(column)
        first = np.minimum.reduceat(np.where(seen & self._counting, row, last), self.columns.starts[:-1])[self.message]
        at = np.where(np.asarray(own.is_valid()), self.base, first)
        return column.take(pa.array(np.minimum(at, last - 1), mask=at == last))

    def of_lanes(self, chosen: Bools) -> Ints:
        """Return how many of some messages each lane of the run has."""
        return np.bincount(self.lane[chosen], minlength=len(self.columns.lanes)).astype(np.int64)

    def only(self, chosen: Bools) -> Outcomes:
        """Return some of these messages."""
        found = object.__new__(Outcomes)
        found.__dict__ |= {name: self.__dict__[name] for name in ("bucket", "columns", "chains", "_counting")}
        for name in ("message", "base", "lane", "kind"):
            found.__dict__[name] = self.__dict__[name][chosen]
        found._replied = None if self._replied is None else self._replied.at(chosen)
        for name in ("tick", "_code_column"):
            if name in self.__dict__:
                found.__dict__[name] = self.__dict__[name]
        return found


_NONE = np.zeros(0, np.int64)

_LANDED = (
    *(Event.EXECUTED, Event.FAILED, Event.ANSWERED, Event.REJECTED, Event.DROPPED, Event.TIMED_OUT),
    Event.REFUNDED,
)
"""With what a message is no longer on its way, besides its receipt."""

_DETAILED = (
    *(Event.REJECTED, Event.DROPPED, Event.TIMED_OUT, Event.FAILED, Event.REFUNDED),
    *(Event.ACKNOWLEDGED, Event.ANSWERED, Event.EXECUTED),
    *(Event.RECEIVED, Event.OBSERVED, Event.RELAYED, Event.SENT),
)
"""Which row's ``detail`` a message has: that of the first of these that has one."""


def strings(names: Sequence[Any], codes: Array) -> pa.Array:
    """Return names by their codes as a column, null for -1."""
    return pa.array([*names, None], pa.string()).take(pa.array(np.where(codes < 0, len(names), codes)))


__all__ = ["Outcomes", "strings"]
