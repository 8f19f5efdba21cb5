"""The tables of the ledger: one row an event of one message; beside it value, windows, promises, headers, watermarks.

They hold traffic that Causeway ran and traffic that was recorded anywhere else. Names are text; null means "not seen",
never "none": a check takes nothing from what was not seen. ``docs/ledger.md`` is the page about them.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class LedgerKind(StrEnum):
    """What a message is."""

    REQUEST = "request"
    RESPONSE = "response"
    REJECT = "reject"
    REFUND = "refund"
    CONTROL = "control"


class LedgerEvent(StrEnum):
    """What happened to a message.

    On the source: ``SENT``, ``COMMITTED`` (a root of that chain covers it), ``ACKNOWLEDGED`` (that it arrived, or its
    answer, was proved there), ``TIMED_OUT`` (that it never arrives was proved there), ``REFUNDED`` (its value was given
    back), ``COLLECTED`` (it was removed there). On the way: ``RELAYED``. On the destination: ``RECEIVED``,
    ``EXECUTED``, ``FAILED`` (executed, and its effects were undone), ``ANSWERED``, ``REJECTED``. On either:
    ``DROPPED``, ``FINAL`` (the block of an earlier event cannot be reverted any more), ``REVERTED`` (a fork undid the
    event that ``detail`` names), ``REDUNDANT`` (a relay that changed nothing), ``UPGRADED`` (the chain was upgraded:
    ``revision`` counts from there). ``OBSERVED``: the recorder reports something that no chain did, such as that it
    stopped waiting; ``detail`` says what.
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
"""What a ``reverted`` row may name."""


LIMBS = ("amount_0", "amount_1", "amount_2", "amount_3")
"""An amount of up to 256 bits: four words of 64 bits, the least significant first; null in all four: not seen."""

LANE = ("protocol", "source", "destination", "lane")
"""What names a lane: messages of one lane are numbered by ``index``."""

REPORTER_COLUMN = "causeway"
"""Who states what a ledger has of a lake that Causeway ran."""

STATEMENT = ("stated_by", "source_file", "source_row")
"""Who says what a row says, and where: no part of what happened."""

DELTAS = ("index", "revision", "height", "position", "tick", "time", "timeout_height", "timeout_time", "source_row")
"""Columns of the tables of which neighbours in a bucket lie close together."""

SPARSE = ("revision", "block", "continues", "code", "detail", "timeout_revision", "timeout_height", "timeout_time")
"""Columns that most ledgers do not fill: a row group states that it has none, and they are not read."""

BOUNDED = (*LANE, "index", "answers", "journey", "chain", "height", "time", *SPARSE)
"""Columns of the tables of which each row group of a file states the least and the largest value."""

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

``protocol``, ``source``, ``destination``, ``lane``: the lane that the message travels in, by the names of the chains at
its ends and of the channel, stream or queue between them. ``index``: its number in the lane. A message is its lane and
index; where there is no index, its lane and ``message_id``. ``message_id``: the name by which its protocol, or who
recorded it, calls it; ``answers``: the ``message_id`` of the request that a response answers, ``journey``: what the
messages of one journey over several hops have in common, ``continues``: the ``message_id`` of the message that this one
carries on under a new id. ``kind``: ``Kind``, ``event``: ``Event``.

``chain``, ``revision``, ``height``, ``position``: where it happened: the position of the event in its block; heights
begin anew in a new ``revision`` of the chain; ``block``: the hash of the block. ``tick``: of a run. ``time``: by the
clock of that chain; of a run, since 1970-01-01 as if that were its first tick. ``transaction``: the hash or name of the
transaction that did it. ``payload_hash``: SHA-256 of what the message carries, or of those fields of it that were
recorded: equal on all events of a message, or its content differs. ``asset`` and ``amount_0`` to ``amount_3``
(``LIMBS``): the value that the message carries. ``code``: of an answer or a refusal, 0: good. ``detail``: the name of a
reason. ``timeout_revision``, ``timeout_height``, ``timeout_time``: from this block or time of the destination on the
message may no longer be received. ``stated_by``: whose statement the row is; ``source_file``, ``source_row``: where it
stood there, rows from 1."""

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
"""One row a movement of value on ``chain``, from who had it to who has it then: fees, deposits, mints, burns, transfers
(``why``), and the message that moves it, if one does."""

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
"""One row a window of ``chain`` that the input covers: from ``first`` to ``last``, both included, in heights or in
time. A lane (all four null: every lane) and ``events`` (null: every event, headers and movements of value; ``HEADER``
and ``VALUE`` mean these) narrow it; heights are those of a ``revision``. ``how``: ``declared``, or ``inferred`` from
the rows. What happened inside the windows of its chain is in the ledger; outside of them nothing is known."""

PROMISES_SCHEMA = pa.schema(
    [
        *(pa.field(name, _NAME) for name in LANE),
        _seen("promise", _NAME),
        pa.field("number", pa.uint64()),
        pa.field("detail", _NAME),
        _seen("stated_by", _NAME),
    ]
)
"""One row a promise of a lane (null: of every lane that the others name). ``promise``: ``numbered`` (indices are given
without holes), ``ordered_sends``, ``ordered_receives``, ``ordered_acknowledgements``, ``answered`` (each request gets
one answer; ``number``: microseconds until then, null: at some time), ``final_after`` (``number``: microseconds between
sending and receiving at least), ``capacity`` (``number``: messages sent and not yet acknowledged, at most),
``conserved`` (what is received of an asset is what was sent of it), ``received`` (``number``: microseconds until a
message arrives or ends at most), ``expected`` (the same as a default that nobody promised: an open message is a
violation then, a late one is not), ``settled`` (nothing more will happen: an open message is lost), ``causal`` (the
lane keeps the causal order of the zones it joins), ``may_drop`` (``detail``: a cause for which the protocol drops
messages), ``refund_messages`` (value of a failed message comes back in a message of its own), ``refunds_recorded``
(each refund is an event), ``restarted`` (the heights of the chain ``source`` began anew, with no revision that tells),
``clock_tolerance`` (``number``: microseconds by which the clock of the chain ``source`` may
be wrong)."""

RECEIVED_WITHIN, EXPECTED_WITHIN, ANSWERED_WITHIN = "received", "expected", "answered"
SETTLED, CAUSAL, MAY_DROP = "settled", "causal", "may_drop"
FORGED = "forged"
"""``detail`` of a sent row: the chain put the message into its lane though no program of it sent it."""

EXPIRED = "expired"
"""``detail`` of a sent row: the message says only that its request came too late. It is carried only where the chain
that asked has not timed the request out by itself."""

STOPPED = "stopped"
"""First word of the ``detail`` of an observed row of kind ``control``: its chain violated an invariant, and stopped."""

REFUND_MESSAGES, REFUNDS_RECORDED = "refund_messages", "refunds_recorded"
RESTARTED, CLOCK_TOLERANCE = "restarted", "clock_tolerance"
"""Promises by name."""

REVISION_SHIFT = 38
"""Heights of several revisions of a chain are compared as ``revision << 38 | height``."""

MAX_HEIGHT, MAX_REVISION = (1 << REVISION_SHIFT) - 1, (1 << (64 - REVISION_SHIFT)) - 2
"""The greatest height beside a revision, and the greatest revision."""

DECLARED, INFERRED = "declared", "inferred"
"""How a window is known."""

REVERTED = "reverted"
"""The ``status`` of a header or watermark that a fork took back."""

MESSAGE = "message"
"""Who has value that is paid out of the message that moves it, in ``from``; or gets it back, in ``to``."""

ABROAD = "abroad:"
"""How the name of who has what has left a chain for another one begins; the name of that chain follows."""

VALUE = "value"
"""The name by which ``events`` of a window mean movements of value."""

HEADER = "header"
"""The name by which ``events`` of a window mean headers."""

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
"""One row a header of ``chain``. ``height``: the number of its block; ``hash``: what names the block, ``parent``: the
``hash`` of the one before it; ``root``: of the state after it. ``status``: null, or ``reverted`` where a fork took the
block back. Of several statements about one block (its chain, height and hash, without hash its root) that with the
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
"""One row a number of a lane that never falls, as ``chain`` has it at a place: up to which index messages were sent,
received, collected. ``name``: which number it is. ``status``: null, or ``reverted`` where a fork took the block
back."""

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
"""One row of the input that could not be read as the mapping says: the name of the ``reason``, the ``field``, its
``value`` and the whole ``row``, both cut off where they are long."""

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
"""The stored tables of a ledger. ``waiting``: rows of ``ledger`` of messages that wait for a lane at the end of what
was taken: with the next commit they may have one."""
