"""The ledger's vocabulary: kinds of messages, lifecycle events, and how they are stored.

A stored event row says what happened to one message on one chain at one height as a set of events (a bit each), because
a message is mostly received and executed in the same round. The ledger view gives one row an event.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import pyarrow as pa

from causeway.proofs.kinds import Kind as Kind


class Event(IntFlag):
    """What happened to a message."""

    SENT = 1
    COMMITTED = 2
    RELAYED = 4
    RECEIVED = 8
    EXECUTED = 16
    ANSWERED = 32
    ACKNOWLEDGED = 64
    REJECTED = 128
    TIMED_OUT = 256
    DROPPED = 512
    COLLECTED = 1024
    STOPPED = 2048


class Via(IntEnum):
    """By which way a message came to its receiver's queue."""

    NONE = 0
    LANE = 1
    LOOPBACK = 2
    SYNTHETIC = 3
    INGRESS = 4
    TIMEOUT = 5


NO_CHAIN = 2**32 - 1
"""In a column of chains: none, for events that belong to no lane."""

EVENTS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("events", pa.uint16(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("via", pa.uint8(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("index", pa.uint64(), nullable=False),
        pa.field("sender", pa.uint64(), nullable=False),
        pa.field("receiver", pa.uint64(), nullable=False),
        pa.field("callback", pa.uint64(), nullable=False),
        pa.field("amount_high", pa.uint64(), nullable=False),
        pa.field("amount_low", pa.uint64(), nullable=False),
        pa.field("queue_index", pa.uint64(), nullable=False),
        pa.field("code", pa.uint8(), nullable=False),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    ]
)
"""``chain``: where it happened. ``events``: a set of ``Event``. ``source``, ``destination``: the ends of the lane that
the message travels in (``NO_CHAIN``: none); ``substream``, ``index``: its position there. ``sender``, ``receiver``,
``callback``: the message's identity with ``kind``. Ingress that was refused has its position in the chain's payload of
that tick, from 1, as both ``index`` and ``callback``. ``amount_high``, ``amount_low``: the value attached to the
request or refunded by the response, so that the log alone tells where value goes and what is lost; of the end of a
program (control, DROPPED) its balance, in several rows where it is past 128 bits. ``queue_index``: the position in the
queue named by the event (input queue for received and executed, output queue for sent). ``code``: the reject code or 0.
``reason``: the stable name of a reason, cause or error, or empty."""

FAILURES_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("program", pa.uint64(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("sender", pa.uint64(), nullable=False),
        pa.field("callback", pa.uint64(), nullable=False),
        pa.field("handler", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("error", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("line", pa.uint32(), nullable=False),
    ]
)
"""One row a handler call that raised: ``program`` on ``chain``, on the message named by ``kind``, ``sender`` and
``callback``. ``handler``: the method; ``error``: what it raised; ``file`` and ``line``: where in the program. A program
that rejects a request on purpose has not failed. No root depends on these rows."""

COLLECTED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("what", pa.uint8(), nullable=False),
        pa.field("begin", pa.uint64(), nullable=False),
        pa.field("end", pa.uint64(), nullable=False),
    ]
)
"""One row a run of indices that ``chain`` collected: ``what`` 0 = messages of a lane (acknowledged and removed from it,
by their source), 1 = signals about messages of a lane (by their destination); indices ``begin`` to ``end`` - 1."""

REVERTED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("first", pa.uint64(), nullable=False),
        pa.field("last", pa.uint64(), nullable=False),
    ]
)
"""One row a fork of ``chain`` that took blocks back, at the height of the row: those that it made at heights ``first``
to ``last``, both included. What it logged there, and in the lanes that it is the source of, counts for nothing."""

REVERTED = "reverted"
"""The log table with these rows, of protocols whose chains have forks; and what the ledger calls an event that was
taken back."""

COLLECTED_MESSAGES = 0
COLLECTED_SIGNALS = 1
