"""The messages of a run with their steps and outcomes as columns, and counts by code.

``ledger.outcomes`` defines the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.analysis.figures.positions import NO_TICK, EventPositions, no_positions
from causeway.analysis.figures.replies import AnswerSource, CrossLaneReplies
from causeway.audit.arrays import Array, Codes, Ints, Words, encode_names, to_numbers, to_single_array
from causeway.audit.bucket import BucketMessages
from causeway.audit.columns import KINDS, NO_HEIGHT, NO_TIME, REQUEST, Bools, event_code
from causeway.ledger.encodings import NameCodes, rank_names
from causeway.ledger.outcomes import NEXT_STATES, OUTCOMES, Outcome, OutcomeInput, call_outcomes
from causeway.ledger.schema import LedgerEvent, LedgerKind

__all__ = [
    "CODES_SCHEMA",
    "FORGED_KIND",
    "FROM_USERS",
    "NO_CAUSE",
    "MessageOutcomes",
    "calls_by_outcome",
    "count_codes",
    "dropped_calls",
    "merge_codes",
    "names_column",
    "select_kind",
]

PENDING, REFUNDED = (OUTCOMES.index(each) for each in (Outcome.PENDING, Outcome.REFUNDED))
DELIVERED, ANSWERED, REJECTED, UNKNOWN = (
    OUTCOMES.index(each) for each in (Outcome.DELIVERED, Outcome.ANSWERED, Outcome.REJECTED, Outcome.UNKNOWN)
)
DROPPED, TIMED_OUT, CONTRADICTED = (
    OUTCOMES.index(each) for each in (Outcome.DROPPED, Outcome.TIMED_OUT, Outcome.CONTRADICTED)
)
_TOLD = [OUTCOMES.index(each) for each in (Outcome.ANSWERED, Outcome.REJECTED, Outcome.FAILED, Outcome.REFUNDED)]
_REPLY_OF_KIND = {
    LedgerKind.RESPONSE: OutcomeInput.ANSWERED,
    LedgerKind.REJECT: OutcomeInput.ERRED,
    LedgerKind.REFUND: OutcomeInput.REFUNDED,
}
"""The step of a request that an answer on another lane stands for, by the kind of the answer."""

_CONTROL = KINDS.index(LedgerKind.CONTROL)
_CALLED = (
    *(
        LedgerEvent.SENT,
        LedgerEvent.COMMITTED,
        LedgerEvent.RELAYED,
        LedgerEvent.RECEIVED,
        LedgerEvent.ANSWERED,
        LedgerEvent.ACKNOWLEDGED,
    ),
    LedgerEvent.TIMED_OUT,
)
"""Events of requests sent by chains; requests of users have none of them."""


class MessageOutcomes:
    """The messages of a run with at least one valid row, in the order of the ledger.

    ``message``: number of each message in its run. ``lane``, ``kind``: codes (``columns.lanes``, ``KINDS``). ``base``:
    its
    naming row: its sending, else its first valid row. ``replies``: answers on other lanes.
    """

    def __init__(self, bucket: BucketMessages, replies: AnswerSource | None = None) -> None:
        columns = bucket.columns
        self.bucket, self.columns = bucket, columns
        rows = len(columns)
        self._counting = counting = (columns.alive == 1) & (columns.event != event_code(LedgerEvent.REVERTED))
        first = np.minimum.reduceat(np.where(counting, np.arange(rows), rows), columns.starts[:-1]) if rows else _NONE
        self.message = np.flatnonzero(first < rows)
        sent = bucket.first(LedgerEvent.SENT)[self.message]
        self.base: Ints = np.where(sent >= 0, sent, first[self.message]).astype(np.int64)
        self.lane = bucket.lane[self.message]
        self.kind = columns.kind[self.base]
        self.chains = columns.chains
        self._replied = None
        if replies is not None and len(open_ := self.unanswered):
            known = replies if isinstance(replies, CrossLaneReplies) else replies()
            self._replied = known.of(columns, self.base, open_)
        if self._replied is not None:
            self.chains = self._replied.chains

    def __len__(self) -> int:
        return len(self.message)

    @property
    def unanswered(self) -> Ints:
        """Return the numbers of sent requests without acknowledgement or time-out."""
        ended = self.has(LedgerEvent.ACKNOWLEDGED, LedgerEvent.TIMED_OUT)
        return np.flatnonzero((self.kind == REQUEST) & self.is_sent & ~ended)

    def row(self, event: LedgerEvent) -> Codes:
        """Return each message's first row of an event; -1 without one."""
        return self.bucket.first(event)[self.message]

    def has(self, *events: LedgerEvent) -> Bools:
        """Return a mask of messages with one of some events."""
        found = np.zeros(len(self), bool)
        for event in events:
            if event_code(event) in self.columns.events:
                found |= self.row(event) >= 0
        return found

    @cached_property
    def tick(self) -> Words:
        """Return the tick of each row of the run."""
        return to_numbers(to_single_array(self.columns.rows.read(("tick",))["tick"]), NO_TICK)

    def places(self, row: Array) -> EventPositions:
        """Return the positions of rows, one a message (-1: none)."""
        happened = row >= 0
        if not happened.any():
            return no_positions(len(row))
        columns, at = self.columns, np.maximum(row, 0)
        return EventPositions(
            happened,
            np.where(happened, columns.chain[at], np.int32(-1)),
            np.where(happened, columns.height[at], NO_HEIGHT),
            np.where(happened, self.tick[at], NO_TICK),
            np.where(happened, columns.time[at], NO_TIME),
        )

    @cached_property
    def sent(self) -> EventPositions:
        """Positions of sending."""
        return self.places(self.row(LedgerEvent.SENT))

    @cached_property
    def received(self) -> EventPositions:
        """Positions of receipt."""
        return self.places(self.row(LedgerEvent.RECEIVED))

    @cached_property
    def executed(self) -> EventPositions:
        """Positions of execution."""
        return self.places(self.row(LedgerEvent.EXECUTED))

    @cached_property
    def reply_positions(self) -> EventPositions:
        """Positions at which the source chain of a request received its answer."""
        requests = self.kind == REQUEST
        own = self.places(np.where(requests, self.row(LedgerEvent.ACKNOWLEDGED), -1))
        return own if self._replied is None else own.then(self._replied.places)

    @cached_property
    def ended(self) -> EventPositions:
        """Positions at which the source chain knew the outcome."""
        own = self.places(self.row(LedgerEvent.ACKNOWLEDGED))
        return own.then(self.reply_positions).then(self.places(self.row(LedgerEvent.TIMED_OUT)))

    @cached_property
    def is_sent(self) -> Bools:
        """Mask of messages sent, or committed in a root of the sending chain."""
        return self.has(LedgerEvent.SENT, LedgerEvent.COMMITTED)

    @cached_property
    def landed(self) -> EventPositions:
        """Positions at which messages left transit: by receipt, or by an event that rules it out."""
        found = self.received
        for event in _LANDED:
            found = found.then(self.places(self.row(event)))
        return found.then(self.ended)

    @cached_property
    def is_control(self) -> Bools:
        """Mask of protocol messages."""
        found: Bools = self.kind == _CONTROL
        return found

    @cached_property
    def forged(self) -> Bools:
        """Mask of messages reported as forged by their own chain."""
        found: Bools = self.bucket.forged[self.message]
        return found

    @cached_property
    def of_users(self) -> Bools:
        """Mask of messages from users to a chain."""
        named = np.array([any(name is not None for name in lane[1:]) for lane in self.columns.lanes], bool)
        called = self.has(*_CALLED) | (named[self.lane] if len(named) else False)
        found: Bools = (self.kind == REQUEST) & ~called & ~self.forged
        return found

    @cached_property
    def is_message(self) -> Bools:
        """Mask of messages between programs of chains, the ones counted as messages."""
        found: Bools = ~(self.is_control | self.forged | self.of_users)
        return found

    @cached_property
    def is_call(self) -> Bools:
        """Mask of requests sent by a program of a chain."""
        found: Bools = (self.kind == REQUEST) & self.is_message
        return found

    @cached_property
    def is_between_chains(self) -> Bools:
        """Mask of messages in a lane between two chains."""
        apart = np.array([lane[3] is not None and lane[1] != lane[2] for lane in self.columns.lanes], bool)
        return self.is_sent & (apart[self.lane] if len(apart) else False)

    @cached_property
    def state(self) -> npt.NDArray[np.int8]:
        """State of each message, of a request with its answer on another lane (``MessageState``)."""
        found = self.bucket.messages.state[self.message]
        if self._replied is not None:
            came, code = self._replied.places.happened, np.where(self._replied.has_code, self._replied.code, 0)
            for kind, reply in _REPLY_OF_KIND.items():
                own = came & (self._replied.kind == KINDS.index(kind))
                each = np.where(own & (code != 0) & (reply == OutcomeInput.ANSWERED), OutcomeInput.ERRED, reply)
                found = np.where(own, NEXT_STATES[found, each], found)
        return found.astype(np.int8)

    @cached_property
    def outcome(self) -> npt.NDArray[np.int8]:
        """Outcome of each message (codes of ``ledger.outcomes.OUTCOMES``)."""
        requests = self.kind == REQUEST
        promised = self.bucket.promised("answered")
        awaits = requests & self.is_sent & (promised[self.lane] if len(promised) else False)
        lost = np.zeros(len(self), bool) if self._replied is None else self._replied.lost
        found = call_outcomes(self.state, awaits, lost)
        # Only requests need an answer: the acknowledgement of another message confirms its receipt.
        found = np.where(~requests & (found == ANSWERED), np.int8(DELIVERED), found)
        # A relayed protocol message without a later event is not pending.
        return np.where(self.is_control & (found == PENDING), np.int8(UNKNOWN), found)

    @cached_property
    def over(self) -> EventPositions:
        """Positions at which messages reached their outcome; none for pending and unknown ones."""
        outcome = self.outcome
        decided = self.reply_positions
        for event in (
            LedgerEvent.ANSWERED,
            LedgerEvent.REJECTED,
            LedgerEvent.FAILED,
            LedgerEvent.REFUNDED,
            LedgerEvent.EXECUTED,
        ):
            decided = decided.then(self.places(self.row(event)))
        delivered = self.received
        for event in (LedgerEvent.EXECUTED, LedgerEvent.ANSWERED, LedgerEvent.ACKNOWLEDGED):
            delivered = delivered.then(self.places(self.row(event)))
        timed_out = np.isin(outcome, (TIMED_OUT, CONTRADICTED))
        return (
            decided.of(np.isin(outcome, _TOLD))
            .then(self.places(self.row(LedgerEvent.TIMED_OUT)).of(timed_out))
            .then(self.places(self.row(LedgerEvent.DROPPED)).of(outcome == DROPPED))
            .then(delivered.of(outcome == DELIVERED))
        )

    @cached_property
    def codes(self) -> tuple[Bools, Ints]:
        """Mask of messages with a code, and the code.

        It is the code of the answer, else of the refusal, else of another event.
        """
        return self._coded(
            (
                LedgerEvent.ACKNOWLEDGED,
                LedgerEvent.ANSWERED,
                LedgerEvent.REJECTED,
                LedgerEvent.FAILED,
                LedgerEvent.DROPPED,
                LedgerEvent.TIMED_OUT,
            ),
            (LedgerEvent.RECEIVED, LedgerEvent.EXECUTED, LedgerEvent.OBSERVED),
        )

    @cached_property
    def _code_column(self) -> tuple[Bools, Ints]:
        column = to_single_array(self.columns.rows.read(("code",))["code"])
        seen = np.asarray(column.is_valid())
        return seen, column.fill_null(0).to_numpy(zero_copy_only=False)

    def _coded(self, events: Sequence[LedgerEvent], others: Sequence[LedgerEvent]) -> tuple[Bools, Ints]:
        seen, column = self._code_column
        has, code = np.zeros(len(self), bool), np.zeros(len(self), np.int64)
        for number, event in enumerate((*events, *others)):
            if event_code(event) in self.columns.events and len(self):
                row = self.row(event)
                new = ~has & (row >= 0) & seen[np.maximum(row, 0)]
                code[new], has = column[row[new]], has | new
            if number == 0 and self._replied is not None:
                new = ~has & self._replied.has_code
                code[new], has = self._replied.code[new], has | new
        return has, code

    @cached_property
    def details(self) -> tuple[list[str], Codes]:
        """Names of reasons, and the reason of each message (-1: none).

        A call with a dropped answer has the reason of the drop.
        """
        names = NameCodes()
        column = encode_names(self.columns.rows.read(("detail",))["detail"], names)
        found = np.full(len(self), -1, np.int32)
        for event in _DETAILED:
            if event_code(event) in self.columns.events and len(self):
                row = self.row(event)
                found = np.where((found < 0) & (row >= 0), column[np.maximum(row, 0)], found)
        if self._replied is not None and self._replied.lost.any():
            own = np.array([*(names.code(cause) for cause in self._replied.causes), -1], np.int32)
            found = np.where((found < 0) & (self.outcome == DROPPED), own[self._replied.cause], found)
        return names.known(), found

    def first_seen(self, name: str) -> pa.Array:
        """Return a column's value of each message.

        It is the value of its ``base``, else of its first valid row with a value.
        """
        column = to_single_array(self.columns.rows.read((name,))[name])
        own = column.take(pa.array(self.base))
        if not own.null_count or column.null_count == len(column):
            return own
        seen, row, last = np.asarray(column.is_valid()), np.arange(len(column)), len(column)
        first = np.minimum.reduceat(np.where(seen & self._counting, row, last), self.columns.starts[:-1])[self.message]
        at = np.where(np.asarray(own.is_valid()), self.base, first)
        return column.take(pa.array(np.minimum(at, last - 1), mask=at == last))

    def of_lanes(self, chosen: Bools) -> Ints:
        """Return the number of selected messages of each lane of the run."""
        return np.bincount(self.lane[chosen], minlength=len(self.columns.lanes)).astype(np.int64)

    def only(self, chosen: Bools) -> MessageOutcomes:
        """Return the selected messages."""
        found = object.__new__(MessageOutcomes)
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
    *(
        LedgerEvent.EXECUTED,
        LedgerEvent.FAILED,
        LedgerEvent.ANSWERED,
        LedgerEvent.REJECTED,
        LedgerEvent.DROPPED,
        LedgerEvent.TIMED_OUT,
    ),
    LedgerEvent.REFUNDED,
)
"""Events other than receipt that end transit."""

_DETAILED = (
    *(LedgerEvent.REJECTED, LedgerEvent.DROPPED, LedgerEvent.TIMED_OUT, LedgerEvent.FAILED, LedgerEvent.REFUNDED),
    *(LedgerEvent.ACKNOWLEDGED, LedgerEvent.ANSWERED, LedgerEvent.EXECUTED),
    *(LedgerEvent.RECEIVED, LedgerEvent.OBSERVED, LedgerEvent.RELAYED, LedgerEvent.SENT),
)
"""Events by descending priority; the ``detail`` of a message is that of the first with one."""


def names_column(names: Sequence[Any], codes: Array) -> pa.Array:
    """Decode names as a column.

    Args:
        names: the names.
        codes: positions in ``names``; -1 gives null.

    Returns:
        The column.
    """
    return pa.array([*names, None], pa.string()).take(pa.array(np.where(codes < 0, len(names), codes)))


FROM_USERS, FORGED_KIND = "from_users", "forged"
"""Kinds of messages counted separately (with ``control``)."""

NO_CAUSE = "no cause recorded"
"""Cause of a dropped call without a recorded cause."""

_KINDS = (*KINDS, FROM_USERS, FORGED_KIND)
_OF = ("protocol", "kind", "outcome", "code", "detail")
_EXAMPLE = ("source", "destination", "lane", "index", "message_id")

CODES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("protocol", "kind", "outcome")),
        *(("code", pa.int64()), ("detail", pa.string()), pa.field("messages", pa.int64(), nullable=False)),
        pa.field("received", pa.int64(), nullable=False),
        *((name, pa.string()) for name in ("source", "destination", "lane")),
        *(("index", pa.uint64()), ("message_id", pa.string())),
    ]
)
"""Number of messages of a protocol and kind by outcome, code and reason, and the number ``received`` among them.

Also the first message of each, in the order of lanes. Kinds include ``NO_LANE``: ``from_users``, ``control``,
``forged``.
"""


def count_codes(outcomes: MessageOutcomes) -> pa.Table:
    """Count the outcomes of a run's messages.

    Args:
        outcomes: the messages.

    Returns:
        Rows of ``CODES_SCHEMA``.
    """
    if not len(outcomes):
        return CODES_SCHEMA.empty_table()
    columns = outcomes.columns
    names: dict[str | None, int] = {}
    protocol = np.array([names.setdefault(lane[0], len(names)) for lane in columns.lanes], np.int64)[outcomes.lane]
    has_code, code = outcomes.codes
    details, detail = outcomes.details
    kind = np.where(outcomes.of_users, _KINDS.index(FROM_USERS), outcomes.kind.astype(np.int64))
    kind[outcomes.forged & ~outcomes.is_control] = _KINDS.index(FORGED_KIND)
    keys: list[Any] = [protocol, kind, outcomes.outcome, has_code, np.where(has_code, code, 0), detail + 1]
    order = stable_order(*(np.ascontiguousarray(key, np.int64).view(np.uint64) for key in keys))
    groups = group_rows(*(key[order] for key in keys))
    first = order[groups.starts]  # messages stand in the order of their lanes
    base = outcomes.base[first]
    lanes = pa.array(outcomes.lane[first])
    content = {name: of.take(lanes) for name, of in columns.lane_names.items()}
    content |= {
        "kind": names_column(_KINDS, kind[first]),
        "outcome": names_column(OUTCOMES, outcomes.outcome[first]),
        "code": pa.array(code[first], mask=~has_code[first]),
        "detail": names_column(details, detail[first]),
        "messages": pa.array(groups.counts),
        "received": pa.array(np.add.reduceat(outcomes.received.happened[order], groups.starts, dtype=np.int64)),
        "index": pa.array(columns.index[base], mask=columns.indexed[base] == 0),
        "message_id": columns.rows.take(("message_id",), base)["message_id"].combine_chunks().cast(pa.string()),
    }
    return pa.table([content[name] for name in CODES_SCHEMA.names], CODES_SCHEMA)


def merge_codes(parts: Sequence[pa.Table]) -> pa.Table:
    """Merge the outcome counts of several parts, the most frequent outcome first.

    Args:
        parts: tables of ``CODES_SCHEMA``.

    Returns:
        Rows of ``CODES_SCHEMA``.
    """
    every = pa.concat_tables([CODES_SCHEMA.empty_table(), *parts]).combine_chunks()
    if not every.num_rows:
        return every
    groups = [_order_of(every[name]) for name in _OF]
    places = [_order_of(every[name]) for name in ("source", "destination", "lane")]
    missing = np.asarray(every["index"].is_null()).astype(np.uint64)
    places += [missing, every["index"].fill_null(0).to_numpy(), _order_of(every["message_id"])]
    order = stable_order(*groups, *places)
    found = group_rows(*(key[order] for key in groups))
    rows = every.take(pa.array(order[found.starts]))
    for name in ("received", "messages"):
        many = np.add.reduceat(every[name].to_numpy()[order], found.starts)
        rows = rows.set_column(rows.schema.get_field_index(name), CODES_SCHEMA.field(name), pa.array(many))
    return rows.take(pa.array(np.argsort(-many, kind="stable")))


def select_kind(codes: pa.Table, kind: str) -> pa.Table:
    """Select the rows of one kind.

    Args:
        codes: rows of ``CODES_SCHEMA``.
        kind: the kind.

    Returns:
        The selected rows.
    """
    return codes.filter(pc.equal(codes["kind"], kind))


def calls_by_outcome(codes: pa.Table) -> dict[str, int]:
    """Return the number of calls by outcome.

    Args:
        codes: rows of ``CODES_SCHEMA``.

    Returns:
        Counts by outcome.
    """
    rows = select_kind(codes, KINDS[REQUEST]).group_by("outcome").aggregate([("messages", "sum")]).sort_by("outcome")
    return dict(zip(rows["outcome"].to_pylist(), rows["messages_sum"].to_pylist(), strict=True))


def dropped_calls(codes: pa.Table) -> dict[str, int]:
    """Return the number of dropped calls by cause, the most frequent first.

    Args:
        codes: rows of ``CODES_SCHEMA``.

    Returns:
        Counts by cause.
    """
    rows = select_kind(codes, KINDS[REQUEST])
    rows = rows.filter(pc.equal(rows["outcome"], Outcome.DROPPED.value))
    found: dict[str, int] = {}
    for cause, count in zip(rows["detail"].to_pylist(), rows["messages"].to_pylist(), strict=True):
        found[cause or NO_CAUSE] = found.get(cause or NO_CAUSE, 0) + count
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _order_of(column: pa.ChunkedArray) -> U64:
    """Return numbers in the order of a column's values, null first."""
    if pa.types.is_string(column.type):
        return rank_names(column).astype(np.uint64)
    words = column.fill_null(0).to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    _, ranks = np.unique(words, return_inverse=True)
    return np.where(np.asarray(column.is_valid()), ranks.reshape(-1).astype(np.uint64) + np.uint64(1), np.uint64(0))
