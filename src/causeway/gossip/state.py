"""State of any set of nodes (ICMP reference 2.5), and its conversion to tables.

Knowledge about queues is a matrix with a row a node, or a peer of a node, and a column a listed queue.
Each query is one table access, and memory is bounded by the listings of own leaves, not by peers.

Tables store digests for numbers, to save, compare, split and merge states. Tables with a column
``node`` belong to nodes; ``blocks``, ``listed`` and ``roots`` are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import Digests
from causeway_proofs.order import U64, Rows, distinct
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.gossip.listings import (
    NO_DIGESTS,
    NO_LABELS,
    LeafListings,
    Mask,
    digest_column,
    digest_positions,
    merge_digests,
    restrict_listings,
)
from causeway.gossip.options import GossipOptions

RECEIVED, SENT, FRESH, EXCUSED = np.uint8(1), np.uint8(2), np.uint8(4), np.uint8(8)
"""Flags of a queue with a peer.

Received from the peer; sent to the peer; must not arrive again (3.7, 1); excused since the last purge by
a declaration of the peer.
"""

Flags = npt.NDArray[np.uint8]

Heads = npt.NDArray[np.uint8]
"""Declared chain heads, shape (n, MAX_CHAIN_HEADS, 32), zero-padded."""


@dataclass(frozen=True)
class OwnTopics:
    """Blocks whose topics nodes keep, shape (nodes, blocks + 1), and their listings."""

    blocks: Mask
    listed: LeafListings

    @cached_property
    def _sets(self) -> tuple[Mask, Rows]:
        """Return the distinct sets of blocks and the index of each node's set."""
        sets, which = np.unique(self.blocks, axis=0, return_inverse=True)
        return sets, which.reshape(-1)

    @property
    def set_of(self) -> Rows:
        """Row of each node in ``expected`` and ``live``; nodes with the same blocks share one."""
        return self._sets[1]

    @cached_property
    def expected(self) -> Mask:
        """Mask of expectedQueues, shape (sets, queues)."""
        return _union_rows(self._sets[0], self.listed.lists)

    @cached_property
    def live(self) -> Mask:
        """Mask of the topics with an entry in expectedQueues, shape (sets, topics)."""
        return _union_rows(self._sets[0], self.listed.leaf_topics)

    def expects(self, nodes: Rows, queues: Rows) -> Mask:
        """Return a mask of pairs of node (row) and queue (number) in expectedQueues."""
        return np.asarray(self.expected[self.set_of[nodes], queues])


NO_INTEREST = np.uint64(2**64 - 1)
"""Padding of subscriptions."""

NOBODY_BANNED = Frame(
    {
        "node": np.empty(0, dtype=np.uint32),
        "peer": np.empty(0, dtype=np.uint32),
        "until": np.empty(0, dtype=np.uint64),
    }
)


@dataclass(frozen=True)
class GossipState:
    """State of nodes.

    Attributes:
        own: Blocks whose topics the nodes keep.
        nodes: ``node`` (u32, ascending), ``purge`` (time of the next purge, ms), ``bytes`` (pool size); with
            ``from_to`` also ``interests`` (subscriptions).
        leaf: Block numbers of each node's leaves, the best first, shape (nodes, MAX_CHAIN_HEADS).
        pool: Mask of pooled queues, shape (nodes, queues).
        sizes: Size in bytes of each root's body, 0 until a node has had it.
        peers: ``node``, ``peer`` (u32, ascending by both), ``reputation``, ``impolite`` (i64), ``count``
            (u64), ``heads``; with sketches also ``salt``, with ``from_to`` also ``interests``.
        seen: Flags, shape (peers, queues).
        banned: ``node``, ``peer``, ``until`` (u64, ms), ascending by the first two.
    """

    own: OwnTopics
    nodes: Frame
    leaf: Rows
    pool: Mask
    sizes: U64
    peers: Frame
    seen: Flags
    banned: Frame = NOBODY_BANNED

    @property
    def listed(self) -> LeafListings:
        """Listings of the blocks."""
        return self.own.listed

    def expects(self, nodes: Rows, queues: Rows) -> Mask:
        """Return a mask of pairs of node (row) and queue that the node expects.

        An own block lists the queue, and its topic is subscribed.
        """
        return self.own.expects(nodes, queues) & self.subscribes(nodes, queues)

    def subscribes(self, nodes: Rows, queues: Rows) -> Mask:
        """Return a mask of pairs of node (row) and queue whose topic the node subscribes to."""
        return self._is_subscribed(self.nodes, nodes, queues)

    def wants(self, peers: Rows, queues: Rows) -> Mask:
        """Return a mask of pairs of peer (row) and queue whose topic the peer subscribes to."""
        return self._is_subscribed(self.peers, peers, queues)

    def _is_subscribed(self, subscribers: Frame, rows: Rows, queues: Rows) -> Mask:
        if "interests" not in subscribers:
            return np.ones(len(rows), dtype=bool)
        labels = self.listed.labels[self.listed.topic_of[queues]]
        return np.asarray((subscribers["interests"][rows] == labels[:, None]).any(axis=1))

    @cached_property
    def node_of(self) -> Rows:
        """Row of each peer's node."""
        rows: Rows = self.nodes["node"].searchsorted(self.peers["node"])
        return rows

    @cached_property
    def peer_begins(self) -> Rows:
        """Offsets of each node's peers, shape (nodes + 1)."""
        return np.append(self.peers["node"].searchsorted(self.nodes["node"]), len(self.peers))

    def node_rows(self, nodes: npt.NDArray[np.uint32], input_name: str) -> Rows:
        """Return the row of each node.

        Args:
            nodes: Numbers of the nodes.
            input_name: Name of the input, for the error.

        Raises:
            InvalidInput: A node is unknown.
        """
        rows = lookup_rows(self.nodes, Frame({"node": nodes}, len(nodes)), ("node",))
        if (rows < 0).any():
            raise InvalidInput(f"{input_name}: node {nodes[rows < 0][0]} is not among the nodes of the state")
        return rows

    def peer_rows(self, pairs: Frame) -> Rows:
        """Return the row of each pair (``node``, ``peer``), or -1 if it is not connected."""
        return lookup_rows(self.peers, pairs, ("node", "peer"))

    def drop_peers(self, gone: Mask) -> GossipState:
        """Remove peers and their flags."""
        if not gone.any():
            return self
        return replace(self, peers=self.peers.filter(~gone), seen=self.seen[~gone])


def _union_rows(sets: Mask, tables: Mask) -> Mask:
    """Return the union of the ``tables`` rows of each set of blocks."""
    found = np.zeros((len(sets), tables.shape[1]), dtype=bool)
    for block in np.flatnonzero(sets.any(axis=0)).tolist():
        found[sets[:, block]] |= tables[block]
    return found


def start_nodes(nodes: npt.NDArray[np.uint32], options: GossipOptions) -> GossipState:
    """Create the state of nodes without leaves and peers.

    Args:
        nodes: Numbers of the nodes, distinct.
        options: Options of gossip.
    """
    nodes = np.unique(nodes)
    count = len(nodes)
    zeros = np.zeros(count, dtype=np.uint64)
    none = np.empty(0, dtype=np.uint32)
    amounts = np.empty(0, dtype=np.int64)
    peers = {
        "node": none,
        "peer": none,
        "reputation": amounts,
        "impolite": amounts,
        "count": amounts.astype(np.uint64),
        "heads": np.empty((0, MAX_CHAIN_HEADS, 32), dtype=np.uint8),
    }
    if options.reconciliation == "minisketch":
        peers["salt"] = np.empty((0, 32), dtype=np.uint8)
    columns = {"node": nodes, "purge": zeros, "bytes": zeros}
    if options.topology == "from_to":
        columns["interests"] = np.full((count, options.max_subscriptions), NO_INTEREST)
        peers["interests"] = np.empty((0, options.max_subscriptions), dtype=np.uint64)
    # Empty listings.
    nowhere = np.empty(0, dtype=np.int64)
    ancestors = np.empty((0, options.ancestors, 32), dtype=np.uint8)
    lists = np.zeros((1, 0), dtype=bool)
    return GossipState(
        OwnTopics(
            np.zeros((count, 1), dtype=bool),
            LeafListings(
                NO_DIGESTS, nowhere.astype(np.uint64), ancestors, NO_DIGESTS, NO_DIGESTS, nowhere, nowhere, lists
            ),
        ),
        Frame(columns, count),
        np.zeros((count, MAX_CHAIN_HEADS), dtype=np.int64),
        np.zeros((count, 0), dtype=bool),
        np.empty(0, dtype=np.uint64),
        Frame(peers, 0),
        np.empty((0, 0), dtype=np.uint8),
    )


def renumber(state: GossipState, listed: LeafListings) -> GossipState:
    """Convert the state to extended listings."""
    before = state.listed
    block = np.append(digest_positions(listed.blocks, before.blocks), listed.nothing)
    root, topic = digest_positions(listed.roots, before.roots), digest_positions(listed.topics, before.topics)
    queue = listed.queue_numbers(root[before.root_of], topic[before.topic_of])
    own = np.zeros((len(state.nodes), listed.nothing + 1), dtype=bool)
    own[:, block] = state.own.blocks
    pool = np.zeros((len(state.pool), len(listed.root_of)), dtype=bool)
    pool[:, queue] = state.pool
    seen = np.zeros((len(state.seen), len(listed.root_of)), dtype=np.uint8)
    seen[:, queue] = state.seen
    sizes = np.zeros(len(listed.roots), dtype=np.uint64)
    sizes[root] = state.sizes
    return replace(state, own=OwnTopics(own, listed), leaf=block[state.leaf], pool=pool, sizes=sizes, seen=seen)


def compact(state: GossipState) -> GossipState:
    """Remove blocks, queues and roots that no node refers to."""
    blocks: Mask = np.logical_or.reduce(state.own.blocks[:, :-1], axis=0)
    queues: Mask = np.logical_or.reduce(state.pool, axis=0)
    queues |= np.logical_or.reduce(state.listed.lists[:-1][blocks], axis=0)
    queues |= np.maximum.reduce(state.seen, axis=0, initial=0) > 0
    if blocks.all() and queues.all():
        return state
    listed = restrict_listings(state.listed, blocks, queues)
    number = np.full(len(blocks) + 1, listed.nothing, dtype=np.int64)
    number[:-1][blocks] = np.arange(listed.nothing)
    return replace(
        state,
        own=OwnTopics(state.own.blocks[:, np.append(blocks, True)], listed),
        leaf=number[state.leaf],
        pool=state.pool[:, queues],
        sizes=state.sizes[digest_positions(state.listed.roots, listed.roots)],
        seen=state.seen[:, queues],
    )


def declared_heads(state: GossipState, nodes: Rows) -> tuple[npt.NDArray[np.uint64], Heads]:
    """Return the number of leaves of nodes (rows) and their hashes for a declaration."""
    leaf = state.leaf[nodes]
    present = leaf != state.listed.nothing
    hashes = np.concatenate([state.listed.blocks, np.zeros((1, 32), dtype=np.uint8)])
    return present.sum(axis=1).astype(np.uint64), hashes[leaf]


def find_declared_heads(state: GossipState, heads: Heads, count: npt.NDArray[np.uint64]) -> Rows:
    """Return the positions of declared heads in the headers, shape (n, MAX_CHAIN_HEADS), or -2."""
    found = digest_positions(state.listed.headers, heads).reshape(len(heads), MAX_CHAIN_HEADS)
    given = np.arange(MAX_CHAIN_HEADS) < count[:, None].astype(np.int64)
    return np.where(given & (found >= 0), found, -2)


def state_to_tables(state: GossipState) -> dict[str, Frame]:
    """Convert the state to tables (2.5), sorted by their columns.

    Returns:
        Tables by name. Of nodes: ``nodes``, ``peers`` and ``banned`` as in the state, ``leaves`` (``node``,
        ``place``, ``hash``), ``own`` (``node``, ``hash``: blocks with kept topics), ``pool`` (``node``,
        ``root``, ``topic``), ``seen`` (``node``, ``peer``, ``root``, ``topic``, ``flags``). Derived:
        ``topics`` (``node``, ``topic``), ``expected`` (``node``, ``root``, ``topic``). Shared: ``blocks``
        (``hash``, ``number``, ``ancestors``), ``listed`` (``block``, ``root``, ``topic``), ``labels``
        (``topic``, ``label``; with ``from_to``), ``roots`` (``root``, ``size``: of bodies in pools).
    """
    state = compact(state)
    listed, own, node = state.listed, state.own, state.nodes["node"]
    found: dict[str, Frame] = {"nodes": state.nodes, "peers": state.peers, "banned": state.banned}
    row, place = (state.leaf != listed.nothing).nonzero()
    found["leaves"] = _frame(node=node[row], place=place, hash=listed.blocks[state.leaf[row, place]])
    row, block = own.blocks.nonzero()
    found["own"] = _frame(node=node[row], hash=listed.blocks[block])
    row, topic = own.live[own.set_of].nonzero()
    found["topics"] = _frame(node=node[row], topic=listed.topics[topic])
    for name, mask in (("expected", own.expected[own.set_of]), ("pool", state.pool)):
        row, queue = mask.nonzero()
        if name == "expected":
            expected = state.expects(row, queue)
            row, queue = row[expected], queue[expected]
        found[name] = _frame(node=node[row], **_queues(listed, queue))
    row, queue = state.seen.nonzero()
    peers = {name: state.peers[name][row] for name in ("node", "peer")}
    found["seen"] = _frame(**peers, **_queues(listed, queue), flags=state.seen[row, queue])
    found["blocks"] = _frame(hash=listed.blocks, number=listed.heights, ancestors=listed.ancestors)
    block, queue = listed.lists.nonzero()
    found["listed"] = _frame(block=listed.blocks[block], **_queues(listed, queue))
    root = np.unique(listed.root_of[state.pool.any(axis=0)])
    found["labels"] = _frame(topic=listed.topics[: len(listed.labels)], label=listed.labels)
    found["roots"] = _frame(root=listed.roots[root], size=state.sizes[root])
    return found


def _frame(**columns: npt.NDArray[np.generic]) -> Frame:
    return Frame(columns)


def _queues(listed: LeafListings, queue: Rows) -> dict[str, Digests]:
    return {"root": listed.roots[listed.root_of[queue]], "topic": listed.topics[listed.topic_of[queue]]}


def state_from_tables(frames: Mapping[str, Frame]) -> GossipState:
    """Build the state from ``state_to_tables``; rows in any order, shared rows may repeat."""
    nodes = frames["nodes"].take(np.argsort(frames["nodes"]["node"], kind="stable"))
    peers, banned = (
        rows.take(np.lexsort((rows["peer"], rows["node"]))) for rows in (frames["peers"], frames["banned"])
    )
    listed = listings_from_tables(frames)

    def at(name: str) -> Rows:
        return lookup_rows(nodes, frames[name], ("node",))

    leaf = np.full((len(nodes), MAX_CHAIN_HEADS), listed.nothing, dtype=np.int64)
    leaves = frames["leaves"]
    leaf[at("leaves"), leaves["place"]] = digest_positions(listed.blocks, leaves["hash"])
    blocks = np.zeros((len(nodes), listed.nothing + 1), dtype=bool)
    blocks[at("own"), digest_positions(listed.blocks, frames["own"]["hash"])] = True
    pool = np.zeros((len(nodes), len(listed.root_of)), dtype=bool)
    pool[at("pool"), _numbers(listed, frames["pool"])] = True
    seen = np.zeros((len(peers), len(listed.root_of)), dtype=np.uint8)
    rows = lookup_rows(peers, frames["seen"], ("node", "peer"))
    seen[rows, _numbers(listed, frames["seen"])] = frames["seen"]["flags"]
    sizes = np.zeros(len(listed.roots), dtype=np.uint64)
    sizes[digest_positions(listed.roots, frames["roots"]["root"])] = frames["roots"]["size"]
    return GossipState(OwnTopics(blocks, listed), nodes, leaf, pool, sizes, peers, seen, banned)


def _numbers(listed: LeafListings, queues: Frame) -> Rows:
    return listed.queue_numbers(
        digest_positions(listed.roots, queues["root"]), digest_positions(listed.topics, queues["topic"])
    )


def listings_from_tables(frames: Mapping[str, Frame]) -> LeafListings:
    """Build listings from ``blocks`` and ``listed``, with the queues of ``pool`` and ``seen``."""
    _, first = np.unique(digest_column(frames["blocks"]["hash"]), return_index=True)
    blocks = frames["blocks"].take(first)
    rows = frames["listed"]
    queues = [frames[name] for name in ("listed", "pool", "seen")]
    roots, topics = (merge_digests(*(some[name] for some in queues)) for name in ("root", "topic"))
    width = max(len(roots), 1)
    codes_by_table = [
        digest_positions(topics, some["topic"]) * width + digest_positions(roots, some["root"]) for some in queues
    ]
    codes = distinct(np.concatenate(codes_by_table))
    lists = np.zeros((len(blocks) + 1, len(codes)), dtype=bool)
    lists[digest_positions(blocks["hash"], rows["block"]), codes.searchsorted(codes_by_table[0])] = True
    numbers = {"root_of": codes % width, "topic_of": codes // width}
    labels, label_rows = NO_LABELS, frames.get("labels")
    if label_rows is not None and len(label_rows):
        labels = np.empty(len(topics), dtype=np.uint64)
        labels[digest_positions(topics, label_rows["topic"])] = label_rows["label"]
    columns = {"roots": roots, "topics": topics, "lists": lists, "labels": labels, **numbers}
    return LeafListings(blocks["hash"], blocks["number"], blocks["ancestors"], **columns)
