"""The state of simulated nodes: what ``gossip.step`` keeps of them, and the tables that it is stored as.

The state tables of a simulated node, its log tables, and what is under way between nodes.

Numbers of queues, roots and blocks are those of the run (``relay.RelayChain``). What a node has or has seen of many
queues is one row of bits or bytes, from the first queue or root on that may still be live at that time.
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
    "packets": StateTable(PACKETS, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "bodies": StateTable(BODIES, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "sketches": StateTable(SKETCHES, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
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
    "tenders": StateTable(TENDERS, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "payments": StateTable(PAYMENTS, "source", _SENT, _ENDS, shown=Visibility.DESTINATION),
    "waiting_tenders": StateTable(TENDERS, "destination", _WAITING, _ENDS),
    "waiting_payments": StateTable(PAYMENTS, "destination", _WAITING, _ENDS),
}


def state_tables(tickets: TicketOptions) -> Mapping[str, StateTable]:
    """Return the tables of a state: those of tickets only where these are on."""
    return {**STATE_TABLES, **_TRADE_TABLES} if tickets.mode == "on" else STATE_TABLES


def in_flight_tables(tickets: TicketOptions) -> tuple[str, ...]:
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


Bytes = npt.NDArray[np.uint8]

_FLAGS: Bytes = np.array([RECEIVED, SENT, FRESH, EXCUSED], dtype=np.uint8)


@dataclass(frozen=True)
class LiveWindow:
    """Queues and roots that may be live at a time: from the first ones up to the ends."""

    first_queue: int
    end_queue: int
    first_root: int
    end_root: int

    @classmethod
    def at(cls, world: SimulationWorld, time: int) -> LiveWindow:
        """Return the window of a time (ms)."""
        relay = world.relay
        made = int(np.count_nonzero(relay.times <= time))
        ends = [int(np.count_nonzero(issued < made)) for issued in (relay.queue_issued, relay.root_issued)]
        first_queue, first_root = world.first_queue(time)
        return cls(min(first_queue, ends[0]), ends[0], min(first_root, ends[1]), ends[1])

    @property
    def queues(self) -> int:
        """How many queues it has."""
        return self.end_queue - self.first_queue

    @property
    def roots(self) -> int:
        """How many roots it has."""
        return self.end_root - self.first_root


@dataclass(frozen=True)
class State:
    """Nodes at a time. ``gossip``: derived from the tables (``unpacked``), and what the tables are made of. ``hops``:
    shape (nodes, roots of the window), over how many links a body came, plus one. ``counters``: shape (counters,
    nodes). ``rows``: the other tables."""

    world: SimulationWorld
    window: LiveWindow
    gossip: GossipState
    hops: Bytes
    counters: U64
    rows: Mapping[str, Frame]

    def frames(self) -> Mapping[str, Frame]:
        """Return the tables; those of what nodes have are made when they are asked for."""
        return self._tables

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self)


@dataclass
class Tables(Mapping[str, Frame]):
    """The tables of a state by name."""

    of: State
    _made: dict[str, Frame] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Frame:
        if name in self.of.rows:
            return self.of.rows[name]
        if name not in self._made:
            self._made[name] = _PACKED[name](self.of)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(state_tables(self.of.world.options.tickets))

    def __len__(self) -> int:
        return len(state_tables(self.of.world.options.tickets))


def heads_bytes(relay: SimulatedRelayChain, heads: Bytes) -> Bytes:
    """Return hashes of heads, shape (n, 5, 32), as numbers of blocks in bytes."""
    numbers = relay.block_numbers(heads.reshape(-1, 32))
    return np.where(numbers == NO_BLOCK, NO_NUMBER, numbers).astype("<u4").reshape(-1, MAX_CHAIN_HEADS).view(np.uint8)


def heads_hashes(relay: SimulatedRelayChain, numbers: Bytes) -> Bytes:
    """Return the inverse of ``heads_bytes``, zeros for what is no block."""
    hashes = np.concatenate([relay.hashes, np.zeros((1, 32), dtype=np.uint8)])
    found = head_numbers(numbers)
    return hashes[np.where(found == NO_NUMBER, len(relay.hashes), found)]


def head_numbers(packed: Bytes) -> Rows:
    """Return the numbers of blocks that are packed in bytes, shape (n, 5)."""
    return np.ascontiguousarray(packed).view("<u4").reshape(-1, MAX_CHAIN_HEADS).astype(np.int64)


def _column(rows: Bytes) -> pa.BinaryArray:
    """Return rows of equally many bytes as a column."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])


def _matrix(column: pa.BinaryArray) -> Bytes:
    """Return the inverse of ``_column``."""
    count = len(column)
    if count == 0:
        return np.zeros((0, 0), dtype=np.uint8)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset : column.offset + count + 1]
    if offsets[0] == offsets[-1]:
        return np.zeros((count, 0), dtype=np.uint8)
    return np.frombuffer(column.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(count, -1)


def _nodes(state: State) -> Frame:
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
        "pool": _column(np.packbits(pool, axis=1)),
        "first_root": np.full(count, window.first_root, dtype=np.uint64),
        "hops": _column(state.hops),
        **dict(zip(COUNTERS, state.counters, strict=True)),
    }
    return Frame(columns, count)


def _own(state: State) -> Frame:
    own, listed = state.gossip.own, state.gossip.listed
    row, block = own.blocks[:, :-1].nonzero()
    number = state.world.relay.block_numbers(listed.blocks)[block].astype(np.uint32)
    chain = state.gossip.nodes["node"][row]
    order = np.lexsort((number, chain))
    return Frame({"chain": chain[order], "block": number[order]}, len(order))


def _links(state: State) -> Frame:
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
        "subscribed": _subscribed(peers),
        "first_queue": np.full(len(peers), window.first_queue, dtype=np.uint64),
        "seen": _column(packed),
    }
    return Frame(columns, len(peers))


def _subscribed(peers: Frame) -> Bytes:
    """Return which peers have told what they subscribe to."""
    if "interests" not in peers:
        return np.zeros(len(peers), dtype=np.uint8)
    return np.asarray((peers["interests"] != NO_INTEREST).any(axis=1)).astype(np.uint8)


_PACKED = {"nodes": _nodes, "own": _own, "links": _links}


def unpack_state(world: SimulationWorld, frames: Mapping[str, Frame]) -> State:
    """Return the state that has these tables."""
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
        window = LiveWindow(first_queue, end_queue, first_root, first_root + _matrix(nodes["hops"]).shape[1])
    pool = np.unpackbits(_matrix(nodes["pool"]), axis=1, count=window.queues if len(nodes) else 0)
    width = window.queues if len(links) else 0
    bits = np.unpackbits(_matrix(links["seen"]), axis=1, count=len(_FLAGS) * width)
    bits = bits.reshape(len(links), width, len(_FLAGS))
    seen = (bits * _FLAGS).sum(axis=2, dtype=np.uint8)
    pooled = np.flatnonzero(pool.any(axis=0)) + window.first_queue
    known = np.flatnonzero(seen.any(axis=0)) + window.first_queue
    leaves = head_numbers(nodes["leaves"])
    blocks = distinct(np.concatenate([own["block"].astype(np.int64), leaves[leaves != NO_NUMBER]]))
    listed = _listed(world, blocks, np.union1d(pooled, known))
    number = np.full(len(world.relay.hashes) + 1, listed.nothing, dtype=np.int64)
    number[blocks] = digest_positions(listed.blocks, world.relay.hashes[blocks])
    leaf = number[np.where(leaves == NO_NUMBER, len(world.relay.hashes), leaves)]
    mine = np.zeros((len(nodes), listed.nothing + 1), dtype=bool)
    mine[nodes["chain"].searchsorted(own["chain"]), number[own["block"].astype(np.int64)]] = True
    relay = world.relay
    has = np.zeros((len(nodes), len(listed.root_of)), dtype=bool)
    has[:, _columns(relay, listed, pooled)] = pool[:, pooled - window.first_queue]
    noted = np.zeros((len(links), len(listed.root_of)), dtype=np.uint8)
    noted[:, _columns(relay, listed, known)] = seen[:, known - window.first_queue]
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
        told = world.interests[links["peer"].astype(np.int64)]
        peers["interests"] = np.where(links["subscribed"][:, None] > 0, told, NO_INTEREST)
    sizes = relay.sizes[relay.root_numbers(listed.roots)]
    gossip = GossipState(OwnTopics(mine, listed), own_nodes, leaf, has, sizes, Frame(peers, len(links)), noted)
    counters = np.array([nodes[name] for name in COUNTERS], dtype=np.uint64).reshape(len(COUNTERS), len(nodes))
    return State(world, window, gossip, _matrix(nodes["hops"]).copy(), counters, rows)


def _columns(relay: SimulatedRelayChain, listed: LeafListings, queues: Rows) -> Rows:
    """Return where queues of the run are among what is listed."""
    digests = _queue_columns(relay, queues)
    return listed.queue_numbers(
        digest_positions(listed.roots, digests["root"]), digest_positions(listed.topics, digests["topic"])
    )


def _listed(world: SimulationWorld, blocks: Rows, queues: Rows) -> LeafListings:
    """Return what ``blocks`` list, with further queues."""
    relay = world.relay
    frame, _ = relay.context(blocks)
    most = world.options.gossip.max_leaf_queues
    entries = [relay.unrouted[block][:most] for block in blocks.tolist()]
    entry = np.concatenate([np.empty(0, dtype=np.int64), *entries])
    of = np.repeat(blocks, [relay.topic_counts * len(rows) for rows in entries])
    lists = relay.queues_of(entry)
    listed = {"block": relay.hashes[of], **_queue_columns(relay, lists)}
    more = Frame(_queue_columns(relay, queues), len(queues))
    labels = Frame({}, 0)
    if world.options.gossip.topology == "from_to":
        known = np.union1d(lists, queues)
        labels = Frame({"topic": relay.queue_topic[known], "label": relay.queue_label[known]}, len(known))
    tables = {"blocks": frame, "listed": Frame(listed, len(lists)), "pool": more, "seen": more}
    return listings_from_tables({**tables, "labels": labels})


def _queue_columns(relay: SimulatedRelayChain, queue: Rows) -> dict[str, Digests]:
    return {"root": relay.roots[relay.queue_root[queue]], "topic": relay.queue_topic[queue]}
