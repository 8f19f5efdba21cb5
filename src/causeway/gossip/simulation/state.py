"""State of simulated nodes: tables, rows in flight, conversion to ``gossip.step``'s state.

Queues, roots and blocks are numbered for the whole run (``SimulatedRelayChain``). Per-queue flags of a
node are one row of bits or bytes, which starts at the first queue or root that may still be live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import Digests
from causeway_proofs.order import U64, Rows, distinct
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS

from causeway.core.frame import Frame, empty_frame
from causeway.gossip.listings import LeafListings, digest_positions
from causeway.gossip.simulation.relay_chain import SimulatedRelayChain
from causeway.gossip.simulation.relay_table import NO_BLOCK
from causeway.gossip.simulation.world import SimulationWorld
from causeway.gossip.state import (
    EXCUSED,
    FRESH,
    NO_INTEREST,
    RECEIVED,
    SENT,
    GossipState,
    OwnTopics,
    listings_from_tables,
)
from causeway.gossip.tickets import trading
from causeway.gossip.tickets.trading import TicketOptions
from causeway.protocols.contract import StateTable, Visibility
from causeway.protocols.shared.events import LEDGER_LOGS
from causeway.protocols.shared.messages import LANE_FIELDS

HEADS_BYTES = 20
"""Size of five block numbers of 32 bits, little-endian; ``NO_NUMBER`` for none or an unknown block."""

NO_NUMBER = 2**32 - 1

SALT_BYTES = 32

JUNK = 1 << 63
"""First number of unposted queues."""

DECLARED, CLOSED, MALFORMED, SUBSCRIBED = range(4)
"""Kinds of packets: chain heads, closed connection, undecodable packet, subscriptions."""

SKETCH, MORE, ASK, REQUEST, REPLY = range(5)
"""Kinds of reconciliation and fallback rows.

A sketch, a request for a larger sketch, a request by short id; a fallback request and its answer.
"""


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
"""Cumulative counters of a node.

Sent queues, bytes (with sketches), declarations and sketches; fallback requests; received queues and
their bytes; of these new and known ones; good answers; wasteful or impolite queues and their bytes;
maximum pool size in bytes after any step.
"""

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
"""One row a node.

``pool``: one bit a queue up to ``end_queue``; ``hops``: one byte a root, the hop count plus one.
"""

OWN = _schema(("chain", _U32), ("block", _U32))
"""Blocks whose topics a node keeps."""

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
"""Connected peers and their declarations.

``subscribed``: 1 once the peer sent its subscriptions. ``seen``: packed flags a queue (``_FLAGS``).
"""

ENDED = _schema(("chain", _U32), ("peer", _U32))
"""Peers that a node does not reconnect to."""

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
"""Rows sent in the last slice; ``at``: arrival time in ms, ``order``: position among its source's rows."""

SKETCHES = _schema(
    ("source", _U32),
    ("destination", _U32),
    ("order", _U32),
    ("at", _U64),
    ("kind", _U8),
    ("value", _U64),
    ("data", pa.binary()),
)
"""The same for sketches and requests; ``value``: capacity, short id of a queue, or number of an entry."""

_ENDS = ("source", "destination")
_SENT = ("source", "order")
_WAITING = ("destination", "at", "source", "order")

STATE_TABLES: Mapping[str, StateTable] = {
    "nodes": StateTable(NODES, "chain", ("chain",), ("chain",)),
    "own": StateTable(OWN, "chain", ("chain", "block"), ("chain",)),
    "links": StateTable(LINKS, "chain", ("chain", "peer"), ("chain", "peer")),
    "ended": StateTable(ENDED, "chain", ("chain", "peer"), ("chain", "peer")),
    "packets": StateTable(PACKETS, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "bodies": StateTable(BODIES, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "sketches": StateTable(SKETCHES, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "waiting_packets": StateTable(PACKETS, "destination", _WAITING, _ENDS),
    "waiting_bodies": StateTable(BODIES, "destination", _WAITING, _ENDS),
    "waiting_sketches": StateTable(SKETCHES, "destination", _WAITING, _ENDS),
}
"""State tables by name.

``packets``, ``bodies`` and ``sketches`` are exchanged between nodes; rows that are not due wait at
their destination.
"""

UNDER_WAY = ("packets", "bodies", "sketches")

DELIVERY, TICKET = np.uint8(0), np.uint8(1)
"""Kinds of payments: a body's serial number and commitment, and a ticket."""

TENDERS = _schema(
    ("source", _U32), ("destination", _U32), ("order", _U32), ("at", _U64), ("kind", _U8), ("queue", _U64)
)
"""Offers and requests in flight (``tickets.trading``)."""

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
"""Deliveries and tickets in flight.

``word``: commitment of a delivery, nonce of a ticket. ``signature``: zeros if it is not checked
(``tickets.checked``).
"""

PURSE_COUNTERS = ("offers", "requests", "deliveries", "tickets", "refused", "checked", "won", "bytes")
"""Cumulative trading counters of a node.

Sent offers, requests, deliveries and tickets; refused, checked and winning tickets; bytes sent for
tickets, without bodies.
"""

PURSES = _schema(("node", _U32), *((name, _U64) for name in PURSE_COUNTERS))

TRADED: Mapping[str, StateTable] = {
    "offers": StateTable(trading.OFFERS, "node", ("node", "queue", "since", "peer"), ("node", "peer")),
    "asked": StateTable(trading.ASKED, "node", ("node", "queue", "peer"), ("node", "peer")),
    "orders": StateTable(trading.ORDERS, "node", ("node", "peer", "since", "queue"), ("node", "peer")),
    "due": StateTable(trading.DUE, "node", ("node", "peer", "serial"), ("node", "peer")),
    "accounts": StateTable(trading.ACCOUNTS, "node", ("node", "peer"), ("node", "peer")),
}
"""State tables of ``tickets.trading.Trades``."""

TRADED_UNDER_WAY = ("tenders", "payments")

_TRADE_TABLES: Mapping[str, StateTable] = {
    **TRADED,
    "purses": StateTable(PURSES, "node", ("node",), ("node",)),
    "tenders": StateTable(TENDERS, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "payments": StateTable(PAYMENTS, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "waiting_tenders": StateTable(TENDERS, "destination", _WAITING, _ENDS),
    "waiting_payments": StateTable(PAYMENTS, "destination", _WAITING, _ENDS),
}


def state_tables(tickets: TicketOptions) -> Mapping[str, StateTable]:
    """Return the state tables by name; those of tickets only if these are on."""
    return {**STATE_TABLES, **_TRADE_TABLES} if tickets.mode == "on" else STATE_TABLES


def in_flight_tables(tickets: TicketOptions) -> tuple[str, ...]:
    """Return the names of the tables that nodes exchange."""
    return (*UNDER_WAY, *TRADED_UNDER_WAY) if tickets.mode == "on" else UNDER_WAY


OUTBOUND = _schema(*((item.name, item.type) for item in LANE_FIELDS), ("index", _U64))

GOT = _schema(("chain", _U32), ("root", _U32), ("peer", _U32), ("hops", _U8))
"""New body in a node's pool; ``peer`` is ``ITSELF`` for a body of its own queue."""

SAMPLES = _schema(("chain", _U32), ("pool_bytes", _U64), ("pool_queues", _U64), *((name, _U64) for name in COUNTERS))

DISCONNECTED = _schema(("chain", _U32), ("peer", _U32), ("code", _U8))

PURSE_SAMPLES = _schema(("chain", _U32), *((name, _U64) for name in PURSE_COUNTERS))

CLAIMS = _schema(
    ("chain", _U32), ("peer", _U32), ("root", _U32), ("serial", _U64), ("block", _U64), ("nonce", pa.binary(32))
)
"""Winning ticket of ``peer`` that ``chain`` claims in the next relay block."""

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
"""Log tables by name.

``trace_`` tables have rows only with ``events = "all"``, ``purse_samples`` and ``claims`` only with
tickets.
"""


Bytes = npt.NDArray[np.uint8]

_FLAGS: Bytes = np.array([RECEIVED, SENT, FRESH, EXCUSED], dtype=np.uint8)


@dataclass(frozen=True)
class LiveWindow:
    """Range of queues and roots that may be live at a time; ends are exclusive."""

    first_queue: int
    end_queue: int
    first_root: int
    end_root: int

    @classmethod
    def at(cls, world: SimulationWorld, time: int) -> LiveWindow:
        """Compute the window of a time in ms."""
        relay = world.relay
        block_count = int(np.count_nonzero(relay.times <= time))
        ends = [int(np.count_nonzero(issued < block_count)) for issued in (relay.queue_issued, relay.root_issued)]
        first_queue, first_root = world.first_queue(time)
        return cls(min(first_queue, ends[0]), ends[0], min(first_root, ends[1]), ends[1])

    @property
    def queues(self) -> int:
        """Number of queues."""
        return self.end_queue - self.first_queue

    @property
    def roots(self) -> int:
        """Number of roots."""
        return self.end_root - self.first_root


@dataclass(frozen=True)
class State:
    """State of nodes.

    Attributes:
        world: The simulation.
        window: Live queues and roots.
        gossip: State of ``gossip.step``, converted from and to the tables.
        hops: Hop counts plus one, shape (nodes, roots of the window).
        counters: Shape (counters, nodes).
        rows: The other tables by name.
    """

    world: SimulationWorld
    window: LiveWindow
    gossip: GossipState
    hops: Bytes
    counters: U64
    rows: Mapping[str, Frame]

    def frames(self) -> Mapping[str, Frame]:
        """Return the tables by name; those of ``gossip`` are built on access."""
        return self._tables

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self)


@dataclass
class Tables(Mapping[str, Frame]):
    """Tables of a state by name, built on access."""

    of: State
    _built: dict[str, Frame] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Frame:
        if name in self.of.rows:
            return self.of.rows[name]
        if name not in self._built:
            self._built[name] = _PACKED[name](self.of)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(state_tables(self.of.world.options.tickets))

    def __len__(self) -> int:
        return len(state_tables(self.of.world.options.tickets))


def heads_bytes(relay: SimulatedRelayChain, heads: Bytes) -> Bytes:
    """Encode hashes of heads, shape (n, 5, 32), as block numbers."""
    numbers = relay.block_numbers(heads.reshape(-1, 32))
    return np.where(numbers == NO_BLOCK, NO_NUMBER, numbers).astype("<u4").reshape(-1, MAX_CHAIN_HEADS).view(np.uint8)


def heads_hashes(relay: SimulatedRelayChain, numbers: Bytes) -> Bytes:
    """Decode block numbers to hashes of heads; zeros for no block."""
    hashes = np.concatenate([relay.hashes, np.zeros((1, 32), dtype=np.uint8)])
    found = head_numbers(numbers)
    return hashes[np.where(found == NO_NUMBER, len(relay.hashes), found)]


def head_numbers(packed: Bytes) -> Rows:
    """Unpack block numbers, shape (n, 5)."""
    return np.ascontiguousarray(packed).view("<u4").reshape(-1, MAX_CHAIN_HEADS).astype(np.int64)


def _to_binary_column(rows: Bytes) -> pa.BinaryArray:
    """Convert a matrix of bytes to a binary column."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


def _to_byte_matrix(column: pa.BinaryArray) -> Bytes:
    """Convert a binary column to a matrix of bytes."""
    count = len(column)
    if count == 0:
        return np.zeros((0, 0), dtype=np.uint8)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset : column.offset + count + 1]
    if offsets[0] == offsets[-1]:
        return np.zeros((count, 0), dtype=np.uint8)
    return np.frombuffer(column.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(count, -1)


def _pack_nodes(state: State) -> Frame:
    gossip, relay, window = state.gossip, state.world.relay, state.window
    listed, count = gossip.listed, len(gossip.nodes)
    used = np.flatnonzero(np.logical_or.reduce(gossip.pool, axis=0))
    queue = relay.queue_numbers(listed.roots[listed.root_of[used]], listed.topics[listed.topic_of[used]])
    pool = np.zeros((count, window.queues), dtype=np.uint8)
    pool[:, queue - window.first_queue] = gossip.pool[:, used]
    hashes = np.concatenate([listed.blocks, np.zeros((1, 32), dtype=np.uint8)])
    columns = {
        "chain": gossip.nodes["node"],
        "purge": gossip.nodes["purge"],
        "bytes": gossip.nodes["bytes"],
        "leaves": heads_bytes(relay, hashes[gossip.leaf]),
        "first_queue": np.full(count, window.first_queue, dtype=np.uint64),
        "end_queue": np.full(count, window.end_queue, dtype=np.uint64),
        "pool": _to_binary_column(np.packbits(pool, axis=1)),
        "first_root": np.full(count, window.first_root, dtype=np.uint64),
        "hops": _to_binary_column(state.hops),
        **dict(zip(COUNTERS, state.counters, strict=True)),
    }
    return Frame(columns, count)


def _pack_own(state: State) -> Frame:
    own, listed = state.gossip.own, state.gossip.listed
    row, block = own.blocks[:, :-1].nonzero()
    number = state.world.relay.block_numbers(listed.blocks)[block].astype(np.uint32)
    chain = state.gossip.nodes["node"][row]
    order = np.lexsort((number, chain))
    return Frame({"chain": chain[order], "block": number[order]}, len(order))


def _pack_links(state: State) -> Frame:
    gossip, relay, window = state.gossip, state.world.relay, state.window
    peers, listed = gossip.peers, gossip.listed
    used = np.flatnonzero(np.logical_or.reduce(gossip.seen > 0, axis=0)) if len(peers) else np.empty(0, dtype=np.int64)
    queue = relay.queue_numbers(listed.roots[listed.root_of[used]], listed.topics[listed.topic_of[used]])
    seen = np.zeros((len(peers), window.queues, len(_FLAGS)), dtype=np.uint8)
    seen[:, queue - window.first_queue] = gossip.seen[:, used, None] & _FLAGS > 0
    packed = np.packbits(seen.reshape(len(peers), window.queues * len(_FLAGS)), axis=1)
    columns = {
        "chain": peers["node"],
        **{name: peers[name] for name in ("peer", "reputation", "impolite", "count")},
        "heads": heads_bytes(relay, peers["heads"]),
        "salt": peers["salt"] if "salt" in peers else np.zeros((len(peers), SALT_BYTES), dtype=np.uint8),
        "subscribed": _has_subscribed(peers),
        "first_queue": np.full(len(peers), window.first_queue, dtype=np.uint64),
        "seen": _to_binary_column(packed),
    }
    return Frame(columns, len(peers))


def _has_subscribed(peers: Frame) -> Bytes:
    """Return a mask of peers that sent their subscriptions."""
    if "interests" not in peers:
        return np.zeros(len(peers), dtype=np.uint8)
    return np.asarray((peers["interests"] != NO_INTEREST).any(axis=1)).astype(np.uint8)


_PACKED = {"nodes": _pack_nodes, "own": _pack_own, "links": _pack_links}


def unpack_state(world: SimulationWorld, frames: Mapping[str, Frame]) -> State:
    """Build the state from its tables.

    Args:
        world: The simulation.
        frames: Tables by name; missing ones are empty.
    """
    rows = {
        name: frames.get(name, empty_frame(table.schema)) for name, table in state_tables(world.options.tickets).items()
    }
    nodes, own, links = rows.pop("nodes"), rows.pop("own"), rows.pop("links")
    if len(nodes) == 0:
        window = LiveWindow.at(world, 0)
    else:
        first_queue, end_queue, first_root = (
            int(nodes[name][0]) for name in ("first_queue", "end_queue", "first_root")
        )
        window = LiveWindow(first_queue, end_queue, first_root, first_root + _to_byte_matrix(nodes["hops"]).shape[1])
    pool = np.unpackbits(_to_byte_matrix(nodes["pool"]), axis=1, count=window.queues if len(nodes) else 0)
    width = window.queues if len(links) else 0
    bits = np.unpackbits(_to_byte_matrix(links["seen"]), axis=1, count=len(_FLAGS) * width)
    bits = bits.reshape(len(links), width, len(_FLAGS))
    seen = (bits * _FLAGS).sum(axis=2, dtype=np.uint8)
    pooled = np.flatnonzero(pool.any(axis=0)) + window.first_queue
    known = np.flatnonzero(seen.any(axis=0)) + window.first_queue
    leaves = head_numbers(nodes["leaves"])
    blocks = distinct(np.concatenate([own["block"].astype(np.int64), leaves[leaves != NO_NUMBER]]))
    listed = _build_listings(world, blocks, np.union1d(pooled, known))
    number = np.full(len(world.relay.hashes) + 1, listed.nothing, dtype=np.int64)
    number[blocks] = digest_positions(listed.blocks, world.relay.hashes[blocks])
    leaf = number[np.where(leaves == NO_NUMBER, len(world.relay.hashes), leaves)]
    own_mask = np.zeros((len(nodes), listed.nothing + 1), dtype=bool)
    own_mask[nodes["chain"].searchsorted(own["chain"]), number[own["block"].astype(np.int64)]] = True
    relay = world.relay
    pool_mask = np.zeros((len(nodes), len(listed.root_of)), dtype=bool)
    pool_mask[:, _listing_columns(relay, listed, pooled)] = pool[:, pooled - window.first_queue]
    seen_flags = np.zeros((len(links), len(listed.root_of)), dtype=np.uint8)
    seen_flags[:, _listing_columns(relay, listed, known)] = seen[:, known - window.first_queue]
    peers = {
        "node": links["chain"],
        **{name: links[name] for name in ("peer", "reputation", "impolite", "count")},
        "heads": heads_hashes(relay, links["heads"]),
    }
    if world.options.gossip.reconciliation != "off":
        peers["salt"] = links["salt"]
    own_nodes = Frame({"node": nodes["chain"], "purge": nodes["purge"], "bytes": nodes["bytes"]}, len(nodes))
    if world.options.gossip.topology == "from_to":
        own_nodes = own_nodes.with_columns(interests=world.interests[nodes["chain"].astype(np.int64)])
        interests = world.interests[links["peer"].astype(np.int64)]
        peers["interests"] = np.where(links["subscribed"][:, None] > 0, interests, NO_INTEREST)
    sizes = relay.sizes[relay.root_numbers(listed.roots)]
    gossip = GossipState(
        OwnTopics(own_mask, listed), own_nodes, leaf, pool_mask, sizes, Frame(peers, len(links)), seen_flags
    )
    counters = np.array([nodes[name] for name in COUNTERS], dtype=np.uint64).reshape(len(COUNTERS), len(nodes))
    return State(world, window, gossip, _to_byte_matrix(nodes["hops"]).copy(), counters, rows)


def _listing_columns(relay: SimulatedRelayChain, listed: LeafListings, queues: Rows) -> Rows:
    """Return the positions of queues in the listings."""
    queue_digests = _queue_columns(relay, queues)
    return listed.queue_numbers(
        digest_positions(listed.roots, queue_digests["root"]), digest_positions(listed.topics, queue_digests["topic"])
    )


def _build_listings(world: SimulationWorld, blocks: Rows, queues: Rows) -> LeafListings:
    """Build the listings of blocks, with additional queues."""
    relay = world.relay
    frame, _ = relay.context(blocks)
    most = world.options.gossip.max_leaf_queues
    entries = [relay.unrouted[block][:most] for block in blocks.tolist()]
    entry = np.concatenate([np.empty(0, dtype=np.int64), *entries])
    listing_block = np.repeat(blocks, [relay.topic_counts * len(rows) for rows in entries])
    lists = relay.queues_of(entry)
    listed = {"block": relay.hashes[listing_block], **_queue_columns(relay, lists)}
    extra = Frame(_queue_columns(relay, queues), len(queues))
    labels = Frame({}, 0)
    if world.options.gossip.topology == "from_to":
        known = np.union1d(lists, queues)
        labels = Frame({"topic": relay.queue_topic[known], "label": relay.queue_label[known]}, len(known))
    tables = {"blocks": frame, "listed": Frame(listed, len(lists)), "pool": extra, "seen": extra}
    return listings_from_tables({**tables, "labels": labels})


def _queue_columns(relay: SimulatedRelayChain, queue: Rows) -> dict[str, Digests]:
    return {"root": relay.roots[relay.queue_root[queue]], "topic": relay.queue_topic[queue]}
