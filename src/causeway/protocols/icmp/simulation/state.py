"""The state of simulated nodes: what ``gossip.step`` keeps of them, and the tables that it is stored as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, empty_frame
from causeway.model.order import U64, Rows, distinct
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate.gossip import MAX_CHAIN_HEADS
from causeway.protocols.icmp.gossip.listed import Listed
from causeway.protocols.icmp.gossip.numbers import places
from causeway.protocols.icmp.gossip.state import EXCUSED, FRESH, NO_INTEREST, RECEIVED, SENT, GossipState, Own
from causeway.protocols.icmp.gossip.tabled import listed_of
from causeway.protocols.icmp.simulation.relay import RelayChain
from causeway.protocols.icmp.simulation.relay_table import NO_BLOCK
from causeway.protocols.icmp.simulation.tables import COUNTERS, NO_NUMBER, SALT_BYTES, state_tables
from causeway.protocols.icmp.simulation.world import World

Bytes = npt.NDArray[np.uint8]

_FLAGS: Bytes = np.array([RECEIVED, SENT, FRESH, EXCUSED], dtype=np.uint8)


@dataclass(frozen=True)
class Window:
    """Queues and roots that may be live at a time: from the first ones up to the ends."""

    first_queue: int
    end_queue: int
    first_root: int
    end_root: int

    @classmethod
    def at(cls, world: World, time: int) -> Window:
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

    world: World
    window: Window
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


def heads_bytes(relay: RelayChain, heads: Bytes) -> Bytes:
    """Return hashes of heads, shape (n, 5, 32), as numbers of blocks in bytes."""
    numbers = relay.block_numbers(heads.reshape(-1, 32))
    return np.where(numbers == NO_BLOCK, NO_NUMBER, numbers).astype("<u4").reshape(-1, MAX_CHAIN_HEADS).view(np.uint8)


def heads_hashes(relay: RelayChain, numbers: Bytes) -> Bytes:
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


def unpacked(world: World, frames: Mapping[str, Frame]) -> State:
    """Return the state that has these tables."""
    rows = {
        name: frames.get(name, empty_frame(table.schema)) for name, table in state_tables(world.options.tickets).items()
    }
    nodes, own, links = rows.pop("nodes"), rows.pop("own"), rows.pop("links")
    if len(nodes) == 0:
        window = Window.at(world, 0)
    else:
        first_queue, end_queue, first_root = (
            int(nodes[name][0]) for name in ("first_queue", "end_queue", "first_root")
        )
        window = Window(first_queue, end_queue, first_root, first_root + _matrix(nodes["hops"]).shape[1])
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
    number[blocks] = places(listed.blocks, world.relay.hashes[blocks])
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
    gossip = GossipState(Own(mine, listed), own_nodes, leaf, has, sizes, Frame(peers, len(links)), noted)
    counters = np.array([nodes[name] for name in COUNTERS], dtype=np.uint64).reshape(len(COUNTERS), len(nodes))
    return State(world, window, gossip, _matrix(nodes["hops"]).copy(), counters, rows)


def _columns(relay: RelayChain, listed: Listed, queues: Rows) -> Rows:
    """Return where queues of the run are among what is listed."""
    digests = _queue_columns(relay, queues)
    return listed.queue_numbers(places(listed.roots, digests["root"]), places(listed.topics, digests["topic"]))


def _listed(world: World, blocks: Rows, queues: Rows) -> Listed:
    """Return what ``blocks`` list, with further queues."""
    relay = world.relay
    frame, _ = relay.context(blocks)
    most = world.options.gossip.max_leaf_queues
    entries = [relay.unrouted[block][:most] for block in blocks.tolist()]
    entry = np.concatenate([np.empty(0, dtype=np.int64), *entries])
    of = np.repeat(blocks, [relay.topics_an_entry * len(rows) for rows in entries])
    lists = relay.queues_of(entry)
    listed = {"block": relay.hashes[of], **_queue_columns(relay, lists)}
    more = Frame(_queue_columns(relay, queues), len(queues))
    labels = Frame({}, 0)
    if world.options.gossip.topology == "from_to":
        known = np.union1d(lists, queues)
        labels = Frame({"topic": relay.queue_topic[known], "label": relay.queue_label[known]}, len(known))
    tables = {"blocks": frame, "listed": Frame(listed, len(lists)), "pool": more, "seen": more}
    return listed_of({**tables, "labels": labels})


def _queue_columns(relay: RelayChain, queue: Rows) -> dict[str, Digests]:
    return {"root": relay.roots[relay.queue_root[queue]], "topic": relay.queue_topic[queue]}
