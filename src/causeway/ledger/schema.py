"""The tables of the ledger: events, value, windows, guarantees, headers and watermarks.

They hold traffic of Causeway's own runs and recorded traffic. Names are text. Null means "unknown", never "none": no
check concludes anything from it. ``docs/reference/ledger.md`` describes the tables.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class LedgerKind(StrEnum):
    """Kind of a message."""

    REQUEST = "request"
    RESPONSE = "response"
    REJECT = "reject"
    REFUND = "refund"
    CONTROL = "control"


class LedgerEvent(StrEnum):
    """Event of a message.

    On the source: ``SENT``, ``COMMITTED`` (a root of the chain covers it), ``ACKNOWLEDGED`` (its arrival or answer was
    proved there), ``TIMED_OUT`` (its absence was proved there), ``REFUNDED`` (its value was returned), ``COLLECTED``
    (removed from the lane). On the way: ``RELAYED``. On the destination: ``RECEIVED``, ``EXECUTED``, ``FAILED``
    (executed, with effects undone), ``ANSWERED``, ``REJECTED``. On either: ``DROPPED``, ``FINAL`` (the block of an
    earlier event is irreversible), ``REVERTED`` (a fork undid the event named in ``detail``), ``REDUNDANT`` (a relay
    without effect), ``UPGRADED`` (a chain upgrade; ``revision`` counts from there). ``OBSERVED``: the recorder reports
    something outside of any chain, such as the end of its wait; ``detail`` names it.
    """

    SENT = "sent"
    COMMITTED = "committed"
    RELAYED = "relayed"
    RECEIVED = "received"
    EXECUTED = "executed"
    ANSWERED = "answered"
    ACKNOWLEDGED = "acknowledged"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    DROPPED = "dropped"
    COLLECTED = "collected"
    FINAL = "final"
    REVERTED = "reverted"
    OBSERVED = "observed"
    FAILED = "failed"
    REFUNDED = "refunded"
    REDUNDANT = "redundant"
    UPGRADED = "upgraded"


REVERTED_EVENTS = tuple(event.value for event in LedgerEvent if event is not LedgerEvent.REVERTED)
"""Events that a ``reverted`` row may name."""


LIMBS = ("amount_0", "amount_1", "amount_2", "amount_3")
"""An amount of up to 256 bits: four 64-bit words, least significant first; all null: unknown."""

LANE = ("protocol", "source", "destination", "lane")
"""Columns that identify a lane; ``index`` numbers the messages of a lane."""

REPORTER_COLUMN = "causeway"
"""Reporter of rows that are derived from a lake."""

STATEMENT = ("stated_by", "source_file", "source_row")
"""Columns of the origin of a row; they are no part of the event."""

DELTAS = ("index", "revision", "height", "position", "tick", "time", "timeout_height", "timeout_time", "source_row")
"""Columns whose consecutive values in a bucket are close, for delta encoding."""

SPARSE = ("revision", "block", "continues", "code", "detail", "timeout_revision", "timeout_height", "timeout_time")
"""Columns that are mostly null: row groups state this, and they are not read."""

BOUNDED = (*LANE, "index", "answers", "journey", "chain", "height", "time", *SPARSE)
"""Columns with minimum and maximum in each row group of a file."""

_NAME = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("us", "UTC")
_HASH = pa.binary(32)


def _seen(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_WHERE = [
    pa.field("chain", _NAME),
    pa.field("revision", pa.uint64()),
    pa.field("height", pa.uint64()),
    pa.field("position", pa.uint64()),
    pa.field("tick", pa.uint64()),
    pa.field("time", _TIME),
]

_AMOUNT = [pa.field("asset", _NAME), *(pa.field(name, pa.uint64()) for name in LIMBS)]

_STATED = [_seen("stated_by", _NAME), pa.field("source_file", _NAME), pa.field("source_row", pa.uint64())]

_LANE = [_seen("protocol", _NAME), pa.field("source", _NAME), pa.field("destination", _NAME), pa.field("lane", _NAME)]

LEDGER_SCHEMA = pa.schema(
    [
        *_LANE,
        pa.field("index", pa.uint64()),
        pa.field("message_id", pa.string()),
        pa.field("answers", pa.string()),
        pa.field("journey", pa.string()),
        pa.field("continues", pa.string()),
        _seen("kind", _NAME),
        _seen("event", _NAME),
        *_WHERE,
        pa.field("block", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("sender", pa.string()),
        pa.field("receiver", pa.string()),
        pa.field("payload_hash", _HASH),
        *_AMOUNT,
        pa.field("code", pa.int64()),
        pa.field("detail", _NAME),
        pa.field("timeout_revision", pa.uint64()),
        pa.field("timeout_height", pa.uint64()),
        pa.field("timeout_time", _TIME),
        *_STATED,
    ]
)
"""One row an event of one message.

``protocol``, ``source``, ``destination``, ``lane``: the lane of the message, by the names of the chains at its ends and
of the channel, stream or queue between them. ``index``: its number in the lane. A message is identified by lane and
index or, without index, by lane and ``message_id``. ``message_id``: its name in the protocol or the record;
``answers``: the ``message_id`` of the answered request; ``journey``: common name of the messages of one multi-hop
journey; ``continues``: the ``message_id`` of the message that continues under a new id. ``kind``: ``LedgerKind``;
``event``: ``LedgerEvent``.

``chain``, ``revision``, ``height``, ``position``: location of the event, down to its position in the block; heights
restart with each ``revision``; ``block``: hash of the block. ``tick``: of a run. ``time``: by the clock of that chain;
in a run, since 1970-01-01 as its first tick. ``transaction``: hash or name of the transaction. ``payload_hash``:
SHA-256 of the payload, or of its recorded fields: equal on all events of a message, or the content differs. ``asset``
and ``amount_0`` to ``amount_3`` (``LIMBS``): value of the message. ``code``: result of an answer or a refusal, 0:
success. ``detail``: name of a reason. ``timeout_revision``, ``timeout_height``, ``timeout_time``: block or time of the
destination from which the message has timed out. ``stated_by``: reporter of the row; ``source_file``, ``source_row``:
its origin, rows from 1."""

VALUE_SCHEMA = pa.schema(
    [
        *_LANE,
        pa.field("index", pa.uint64()),
        pa.field("message_id", pa.string()),
        *_WHERE,
        *_AMOUNT,
        _seen("why", _NAME),
        pa.field("from", pa.string()),
        pa.field("to", pa.string()),
        *_STATED,
    ]
)
"""One row a movement of value on ``chain``, from one holder to another: fees, deposits, mints, burns, transfers
(``why``), with the message that moves it, if any."""

OBSERVED_SCHEMA = pa.schema(
    [
        _seen("chain", _NAME),
        *(pa.field(name, _NAME) for name in LANE),
        pa.field("events", pa.list_(pa.string())),
        pa.field("revision", pa.uint64()),
        pa.field("first_height", pa.uint64()),
        pa.field("last_height", pa.uint64()),
        pa.field("first_time", _TIME),
        pa.field("last_time", _TIME),
        _seen("how", _NAME),
        *_STATED,
    ]
)
"""One row a window of ``chain`` that the input covers: from ``first`` to ``last``, inclusive, in heights or in time. A
lane (all four null: every lane) and ``events`` (null: every event, headers and movements of value; ``HEADER`` and
``VALUE`` stand for these) narrow it; heights belong to a ``revision``. ``how``: ``declared``, or ``inferred`` from
rows. The ledger is complete inside the windows of a chain; outside of them nothing is known."""

PROMISES_SCHEMA = pa.schema(
    [
        *(pa.field(name, _NAME) for name in LANE),
        _seen("promise", _NAME),
        pa.field("number", pa.uint64()),
        pa.field("detail", _NAME),
        _seen("stated_by", _NAME),
    ]
)
"""One row a guarantee of a lane (null: any name). ``promise``: ``numbered`` (indices without gaps),
``ordered_sends``, ``ordered_receives``, ``ordered_acknowledgements``, ``answered`` (each request gets one answer;
``number``: deadline in microseconds, null: none), ``final_after`` (``number``: minimum time between sending and
receipt, in microseconds), ``capacity`` (``number``: maximum number of unacknowledged messages), ``conserved``
(the received amount of an asset equals the sent one), ``received`` (``number``: deadline of arrival or end, in
microseconds), ``expected`` (the same as a default without guarantee: an open message is a violation then, a late
one is not), ``settled`` (nothing more will happen: an open message is lost), ``causal`` (the lane keeps the
causal order of its zones), ``may_drop`` (``detail``: a cause for which the protocol drops messages),
``refund_messages`` (the value of a failed message returns in a separate message), ``refunds_recorded`` (each
refund is an event), ``restarted`` (the heights of the chain ``source`` restarted without a new revision),
``clock_tolerance`` (``number``: maximum error of the clock of the chain ``source``, in microseconds)."""

RECEIVED_WITHIN, EXPECTED_WITHIN, ANSWERED_WITHIN = "received", "expected", "answered"
SETTLED, CAUSAL, MAY_DROP = "settled", "causal", "may_drop"
FORGED = "forged"
"""``detail`` of a sent row: the chain put the message into its lane without a program sending it."""

EXPIRED = "expired"
"""``detail`` of a sent row: the message only states that its request came too late. It is delivered only if the
requesting chain has not timed out the request itself."""

STOPPED = "stopped"
"""First word of the ``detail`` of an observed row of kind ``control``: its chain violated an invariant, and stopped."""

REFUND_MESSAGES, REFUNDS_RECORDED = "refund_messages", "refunds_recorded"
RESTARTED, CLOCK_TOLERANCE = "restarted", "clock_tolerance"
"""Names of guarantees."""

PROMISES = (
    "numbered", "ordered_sends", "ordered_receives", "ordered_acknowledgements", ANSWERED_WITHIN, "final_after",
    "capacity", "conserved", RECEIVED_WITHIN, EXPECTED_WITHIN, SETTLED, CAUSAL, MAY_DROP, REFUND_MESSAGES,
    REFUNDS_RECORDED, RESTARTED, CLOCK_TOLERANCE,
)  # fmt: skip
"""All names of guarantees (``promise`` in ``PROMISES_SCHEMA``)."""

REVISION_SHIFT = 38
"""Heights of several revisions of a chain are compared as ``revision << 38 | height``."""

MAX_HEIGHT, MAX_REVISION = (1 << REVISION_SHIFT) - 1, (1 << (64 - REVISION_SHIFT)) - 2
"""The greatest height with a revision, and the greatest revision."""

DECLARED, INFERRED = "declared", "inferred"
"""Origins of a window."""

REVERTED = "reverted"
"""``status`` of a header or watermark that a fork reverted."""

MESSAGE = "message"
"""Holder of value that is paid out of its message (``from``), or returned to it (``to``)."""

ABROAD = "abroad:"
"""Prefix of a holder whose value left a chain for another one; the name of that chain follows."""

VALUE = "value"
"""Name of movements of value in ``events`` of a window."""

HEADER = "header"
"""Name of headers in ``events`` of a window."""

HEADERS_SCHEMA = pa.schema(
    [
        _seen("chain", _NAME),
        pa.field("revision", pa.uint64()),
        pa.field("height", pa.uint64()),
        pa.field("time", _TIME),
        pa.field("tick", pa.uint64()),
        pa.field("hash", pa.string()),
        pa.field("parent", pa.string()),
        pa.field("root", pa.string()),
        pa.field("status", _NAME),
        *_STATED,
    ]
)
"""One row a header of ``chain``. ``height``: number of its block; ``hash``: name of the block, ``parent``: ``hash``
of the previous one; ``root``: state root after it. ``status``: null, or ``reverted`` if a fork reverted the
block. Of several statements about one block (chain, height and hash or, without hash, root) the one with the
highest ``tick`` counts."""

WATERMARKS_SCHEMA = pa.schema(
    [
        *_LANE,
        pa.field("chain", _NAME),
        _seen("name", _NAME),
        *_WHERE[1:],
        _seen("value", pa.uint64()),
        pa.field("status", _NAME),
        *_STATED,
    ]
)
"""One row a monotonic number of a lane on ``chain``, such as the highest sent, received or collected index.
``name``: the kind of number. ``status``: null, or ``reverted`` if a fork reverted the block."""

QUARANTINE_SCHEMA = pa.schema(
    [
        _seen("source_file", _NAME),
        pa.field("source_row", pa.uint64()),
        _seen("reason", _NAME),
        pa.field("field", _NAME),
        pa.field("value", pa.string()),
        _seen("row", pa.string()),
    ]
)
"""One row for each record of the input that the mapping cannot read: the ``reason``, the ``field``, its ``value``
and the whole ``row``, both truncated."""

TABLES = {
    "ledger": LEDGER_SCHEMA,
    "waiting": LEDGER_SCHEMA,
    "value": VALUE_SCHEMA,
    "observed": OBSERVED_SCHEMA,
    "promises": PROMISES_SCHEMA,
    "headers": HEADERS_SCHEMA,
    "watermarks": WATERMARKS_SCHEMA,
    "quarantine": QUARANTINE_SCHEMA,
}
"""The stored tables of a ledger. ``waiting``: ``ledger`` rows of messages that wait for a lane after the ingested
heights; the next commit may assign one."""
