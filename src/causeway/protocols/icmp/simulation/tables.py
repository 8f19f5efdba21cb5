"""The state tables of a simulated node, its log tables, and what is under way between nodes.

Numbers of queues, roots and blocks are those of the run (``relay.RelayChain``). What a node has or has seen of many
queues is one row of bits or bytes, from the first queue or root on that may still be live at that time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from causeway.protocols.contract import Shown, StateTable
from causeway.protocols.events import LEDGER_LOGS
from causeway.protocols.icmp.tickets import trading
from causeway.protocols.icmp.tickets.options import TicketOptions
from causeway.protocols.messages import LANE_FIELDS

HEADS_BYTES = 20
"""Five numbers of blocks, each as 32 bits, little-endian; ``NO_NUMBER`` for none or one that is not known."""

NO_NUMBER = 2**32 - 1

SALT_BYTES = 32

JUNK = 1 << 63
"""A queue that nobody posted has a number from here on."""

DECLARED, CLOSED, MALFORMED, SUBSCRIBED = range(4)
"""Kinds of packets: chain heads, the end of the connection, what cannot be decoded, what its source subscribes to."""

SKETCH, MORE, ASK, REQUEST, REPLY = range(5)
"""Kinds of what goes out where pools are reconciled: a sketch, one of a larger capacity is wanted, a queue is. And a
queue that who keeps it is asked for, and the answer."""


def _schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


_U8, _U32, _U64, _I64 = pa.uint8(), pa.uint32(), pa.uint64(), pa.int64()

COUNTERS = (
    "sent_queues",
    "sent_bytes",
    "sent_heads",
    "sent_sketches",
    "requests",
    "got_queues",
    "got_bytes",
    "new",
    "repeated",
    "answered",
    "wasted",
    "wasted_bytes",
    "most_pool_bytes",
)
"""What a node did since the beginning: queues, their bytes (with those of sketches), declarations and sketches that it
sent, and how often it asked who keeps a queue for it; queues that it got, and their bytes; of these the new ones, those
that it had; the answers that were good; queues that were wasteful or impolite; the most bytes of its pool after any
step."""

NODES = _schema(
    ("chain", _U32),
    ("purge", _U64),
    ("bytes", _U64),
    ("leaves", pa.binary(HEADS_BYTES)),
    ("first_queue", _U64),
    ("end_queue", _U64),
    ("pool", pa.binary()),
    ("first_root", _U64),
    ("hops", pa.binary()),
    *((name, _U64) for name in COUNTERS),
)
"""One row a node. ``pool``: a bit a queue up to ``end_queue``; ``hops``: a byte a root, over how many links its body
came, plus one."""

OWN = _schema(("chain", _U32), ("block", _U32))
"""Blocks of which a node keeps the topics."""

LINKS = _schema(
    ("chain", _U32),
    ("peer", _U32),
    ("reputation", _I64),
    ("impolite", _I64),
    ("count", _U64),
    ("heads", pa.binary(HEADS_BYTES)),
    ("salt", pa.binary(SALT_BYTES)),
    ("subscribed", _U8),
    ("first_queue", _U64),
    ("seen", pa.binary()),
)
"""Connected peers, and what each has declared. ``subscribed``: whether it has said to what. ``seen``: three bits a
queue, the flags of ``gossip.state``."""

ENDED = _schema(("chain", _U32), ("peer", _U32))
"""Peers that a node does not connect to any more."""

PACKETS = _schema(
    ("source", _U32),
    ("destination", _U32),
    ("order", _U32),
    ("at", _U64),
    ("kind", _U8),
    ("count", _U64),
    ("heads", pa.binary(HEADS_BYTES)),
)
BODIES = _schema(
    ("source", _U32),
    ("destination", _U32),
    ("order", _U32),
    ("at", _U64),
    ("queue", _U64),
    ("altered", _U8),
    ("hops", _U8),
)
"""What was sent in the last slice, and ``at`` what time it is there; ``order``: among what its source sent then."""

SKETCHES = _schema(
    ("source", _U32),
    ("destination", _U32),
    ("order", _U32),
    ("at", _U64),
    ("kind", _U8),
    ("value", _U64),
    ("data", pa.binary()),
)
"""The same of sketches and requests; ``value``: a capacity, the short id of a queue, or the number of an entry."""

_ENDS = ("source", "destination")
_SENT = ("source", "order")
_WAITING = ("destination", "at", "source", "order")

STATE_TABLES: Mapping[str, StateTable] = {
    "nodes": StateTable(NODES, "chain", ("chain",), ("chain",)),
    "own": StateTable(OWN, "chain", ("chain", "block"), ("chain",)),
    "links": StateTable(LINKS, "chain", ("chain", "peer"), ("chain", "peer")),
    "ended": StateTable(ENDED, "chain", ("chain", "peer"), ("chain", "peer")),
    "packets": StateTable(PACKETS, "source", _SENT, _ENDS, shown=Shown.DESTINATION),
    "bodies": StateTable(BODIES, "source", _SENT, _ENDS, shown=Shown.DESTINATION),
    "sketches": StateTable(SKETCHES, "source", _SENT, _ENDS, shown=Shown.DESTINATION),
    "waiting_packets": StateTable(PACKETS, "destination", _WAITING, _ENDS),
    "waiting_bodies": StateTable(BODIES, "destination", _WAITING, _ENDS),
    "waiting_sketches": StateTable(SKETCHES, "destination", _WAITING, _ENDS),
}
"""``packets``, ``bodies`` and ``sketches`` are what goes from node to node; what is not there yet waits at its
destination."""

UNDER_WAY = ("packets", "bodies", "sketches")

DELIVERY, TICKET = np.uint8(0), np.uint8(1)
"""Kinds of payments: serial number and commitment of a body, and a ticket."""

TENDERS = _schema(
    ("source", _U32), ("destination", _U32), ("order", _U32), ("at", _U64), ("kind", _U8), ("queue", _U64)
)
"""Offers and requests on their way (``tickets.trading``)."""

PAYMENTS = _schema(
    ("source", _U32),
    ("destination", _U32),
    ("order", _U32),
    ("at", _U64),
    ("kind", _U8),
    ("queue", _U64),
    ("serial", _U64),
    ("block", _U64),
    ("word", pa.binary(32)),
    ("signature", pa.binary(64)),
)
"""Deliveries and tickets on their way. ``word``: the commitment of a delivery, the nonce of a ticket. ``signature``:
zeros where it is not checked (``tickets.checked``)."""

PURSE_COUNTERS = ("offers", "requests", "deliveries", "tickets", "refused", "checked", "won", "bytes")
"""Of a node since the beginning: offers, requests, deliveries and tickets that it sent; tickets that it refused, of
which it checked the signature, and which won; bytes of all that it sent for tickets, bodies excluded."""

PURSES = _schema(("node", _U32), *((name, _U64) for name in PURSE_COUNTERS))

TRADED: Mapping[str, StateTable] = {
    "offers": StateTable(trading.OFFERS, "node", ("node", "queue", "since", "peer"), ("node", "peer")),
    "asked": StateTable(trading.ASKED, "node", ("node", "queue", "peer"), ("node", "peer")),
    "orders": StateTable(trading.ORDERS, "node", ("node", "peer", "since", "queue"), ("node", "peer")),
    "due": StateTable(trading.DUE, "node", ("node", "peer", "serial"), ("node", "peer")),
    "accounts": StateTable(trading.ACCOUNTS, "node", ("node", "peer"), ("node", "peer")),
}
"""The tables of ``tickets.trading.Trades``."""

TRADED_UNDER_WAY = ("tenders", "payments")

_TRADE_TABLES: Mapping[str, StateTable] = {
    **TRADED,
    "purses": StateTable(PURSES, "node", ("node",), ("node",)),
    "tenders": StateTable(TENDERS, "source", _SENT, _ENDS, shown=Shown.DESTINATION),
    "payments": StateTable(PAYMENTS, "source", _SENT, _ENDS, shown=Shown.DESTINATION),
    "waiting_tenders": StateTable(TENDERS, "destination", _WAITING, _ENDS),
    "waiting_payments": StateTable(PAYMENTS, "destination", _WAITING, _ENDS),
}


def state_tables(tickets: TicketOptions) -> Mapping[str, StateTable]:
    """Return the tables of a state: those of tickets only where these are on."""
    return {**STATE_TABLES, **_TRADE_TABLES} if tickets.mode == "on" else STATE_TABLES


def under_way(tickets: TicketOptions) -> tuple[str, ...]:
    """Return the tables of what goes from node to node."""
    return (*UNDER_WAY, *TRADED_UNDER_WAY) if tickets.mode == "on" else UNDER_WAY


OUTBOUND = _schema(*((item.name, item.type) for item in LANE_FIELDS), ("index", _U64))

GOT = _schema(("chain", _U32), ("root", _U32), ("peer", _U32), ("hops", _U8))
"""A body that is new in a node's pool; from itself where it kept it."""

SAMPLES = _schema(("chain", _U32), ("pool_bytes", _U64), ("pool_queues", _U64), *((name, _U64) for name in COUNTERS))

DISCONNECTED = _schema(("chain", _U32), ("peer", _U32), ("code", _U8))

PURSE_SAMPLES = _schema(("chain", _U32), *((name, _U64) for name in PURSE_COUNTERS))

CLAIMS = _schema(
    ("chain", _U32), ("peer", _U32), ("root", _U32), ("serial", _U64), ("block", _U64), ("nonce", pa.binary(32))
)
"""A winning ticket of ``peer`` that ``chain`` claims in the next relay block."""

TRACE_SENT = _schema(("chain", _U32), ("peer", _U32), ("queue", _U64), ("altered", _U8))
TRACE_GOT = _schema(("chain", _U32), ("peer", _U32), ("queue", _U64), ("code", _U8), ("change", _I64))
TRACE_LEAVES = _schema(("chain", _U32), ("block", _U32))
TRACE_PUT = _schema(("chain", _U32), ("queue", _U32))
TRACE_PURGED = _schema(("chain", _U32), ("queue", _U32))

LOGS: Mapping[str, pa.Schema] = {
    **LEDGER_LOGS,
    "got": GOT,
    "samples": SAMPLES,
    "disconnected": DISCONNECTED,
    "purse_samples": PURSE_SAMPLES,
    "claims": CLAIMS,
    "trace_sent": TRACE_SENT,
    "trace_got": TRACE_GOT,
    "trace_leaves": TRACE_LEAVES,
    "trace_put": TRACE_PUT,
    "trace_purged": TRACE_PURGED,
}
"""``trace_`` tables have rows with ``events = "all"`` only, ``purse_samples`` and ``claims`` with tickets."""
