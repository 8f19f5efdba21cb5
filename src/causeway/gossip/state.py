"""The state of any set of nodes (ICMP reference 2.5): leaves, pool, peers and what went between them.

What nodes know of queues is a matrix: a row a node, or a peer of a node, a column a queue that is listed now. So one
question is one table access, and memory is bounded by what own leaves list, whatever peers send.

The state of nodes as tables, digests for numbers, and back: to keep it, to compare it, to cut and to join it.

Tables with a column ``node`` are of nodes; ``blocks``, ``listed`` and ``roots`` are the same for all that have them.
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
"""What is seen of a queue with a peer: it came from the peer, it went to the peer, it may not come again (3.7, 1), and
since the last purge a declaration of the peer allowed that it comes again."""

Flags = npt.NDArray[np.uint8]

Heads = npt.NDArray[np.uint8]
"""Declared chain heads, shape (n, MAX_CHAIN_HEADS, 32), zeros behind the last."""


@dataclass(frozen=True)
class OwnTopics:
    """Which blocks' topics nodes keep, leaves and ancestors: shape (nodes, blocks + 1), and what these list."""

    blocks: Mask
    listed: LeafListings

    @cached_property
    def _sets(self) -> tuple[Mask, Rows]:
        """Return the different sets of blocks that nodes have, and which one each node has."""
        sets, which = np.unique(self.blocks, axis=0, return_inverse=True)
        return sets, which.reshape(-1)

    @property
    def set_of(self) -> Rows:
        """The row in ``expected`` and ``live`` of each node: nodes with the same blocks have one."""
        return self._sets[1]

    @cached_property
    def expected(self) -> Mask:
        """Which queues are expected (expectedQueues), shape (sets, queues)."""
        return _joined(self._sets[0], self.listed.lists)

    @cached_property
    def live(self) -> Mask:
        """Which topics have an entry in expectedQueues, shape (sets, topics)."""
        return _joined(self._sets[0], self.listed.leaf_topics)

    def expects(self, nodes: Rows, queues: Rows) -> Mask:
        """Return of each row whether the node (row) expects the queue (number)."""
        return np.asarray(self.expected[self.set_of[nodes], queues])


NO_INTEREST = np.uint64(2**64 - 1)
"""In place of a subscription: none."""

NOBODY_BANNED = Frame(
    {
        "node": np.empty(0, dtype=np.uint32),
        "peer": np.empty(0, dtype=np.uint32),
        "until": np.empty(0, dtype=np.uint64),
    }
)


@dataclass(frozen=True)
class GossipState:
    """The state of nodes.

    ``nodes``: ``node`` (u32, ascending), ``purge`` (when its pool is purged next, ms), ``bytes`` (of its pool).
    ``leaf``: numbers of each node's leaves, best first, shape (nodes, MAX_CHAIN_HEADS). ``pool``: shape (nodes,
    queues). ``sizes``: bytes of each root's body, 0 while nobody has had it. ``peers``: ``node``, ``peer`` (u32,
    ascending by both), ``reputation``, ``impolite`` (i64), ``count`` (u64), ``heads``, and with sketches the ``salt``
    of the connection. With ``from_to``, nodes and peers have ``interests`` (``subscriptions``). ``seen``: flags, shape
    (peers, queues). ``banned``: ``node``, ``peer``, ``until`` (u64, ms), ascending by the first two.
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
        """What the blocks list."""
        return self.own.listed

    def expects(self, nodes: Rows, queues: Rows) -> Mask:
        """Return of each row whether the node (row) expects the queue (number): a block of its own lists it, and it
        subscribes to the topic."""
        return self.own.expects(nodes, queues) & self.subscribes(nodes, queues)

    def subscribes(self, nodes: Rows, queues: Rows) -> Mask:
        """Return of each row whether the node (row) subscribes to the topic of the queue (number)."""
        return self._interested(self.nodes, nodes, queues)

    def wants(self, peers: Rows, queues: Rows) -> Mask:
        """Return of each row whether the peer (row) subscribes to the topic of the queue (number)."""
        return self._interested(self.peers, peers, queues)

    def _interested(self, who: Frame, rows: Rows, queues: Rows) -> Mask:
        if "interests" not in who:
            return np.ones(len(rows), dtype=bool)
        labels = self.listed.labels[self.listed.topic_of[queues]]
        return np.asarray((who["interests"][rows] == labels[:, None]).any(axis=1))

    @cached_property
    def node_of(self) -> Rows:
        """Return the row of each peer's node."""
        rows: Rows = self.nodes["node"].searchsorted(self.peers["node"])
        return rows

    @cached_property
    def peer_begins(self) -> Rows:
        """Return where the peers of each node begin, and at last where they end, shape (nodes + 1)."""
        return np.append(self.peers["node"].searchsorted(self.nodes["node"]), len(self.peers))

    def node_rows(self, nodes: npt.NDArray[np.uint32], what: str) -> Rows:
        """Return the row of each node. Raises ``InvalidInput`` for one that is not there; ``what`` names the input."""
        rows = lookup_rows(self.nodes, Frame({"node": nodes}, len(nodes)), ("node",))
        if (rows < 0).any():
            raise InvalidInput(f"{what}: node {nodes[rows < 0][0]} is not among the nodes of the state")
        return rows

    def peer_rows(self, asked: Frame) -> Rows:
        """Return the row of each (``node``, ``peer``), -1 where they are not connected."""
        return lookup_rows(self.peers, asked, ("node", "peer"))

    def drop_peers(self, gone: Mask) -> GossipState:
        """Return the state without some peers, and without what was seen of them."""
        if not gone.any():
            return self
        return replace(self, peers=self.peers.filter(~gone), seen=self.seen[~gone])


def _joined(sets: Mask, tables: Mask) -> Mask:
    """Return for each set of blocks the union of their rows in ``tables``."""
    found = np.zeros((len(sets), tables.shape[1]), dtype=bool)
    for block in np.flatnonzero(sets.any(axis=0)).tolist():
        found[sets[:, block]] |= tables[block]
    return found


def start_nodes(nodes: npt.NDArray[np.uint32], options: GossipOptions) -> GossipState:
    """Return the state of nodes (each once) that have no leaves and no peers."""
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
    # What no block lists; `depth`: the ancestors that are kept of each.
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
    """Return the state with ``listed``, which has more than it has."""
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
    """Return the state without blocks, queues and roots that no node has any more."""
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
    """Return how many leaves nodes (rows) have, and their hashes as they are declared."""
    leaf = state.leaf[nodes]
    there = leaf != state.listed.nothing
    hashes = np.concatenate([state.listed.blocks, np.zeros((1, 32), dtype=np.uint8)])
    return there.sum(axis=1).astype(np.uint64), hashes[leaf]


def find_declared_heads(state: GossipState, heads: Heads, count: npt.NDArray[np.uint64]) -> Rows:
    """Return the numbers of declared heads among the headers, shape (n, MAX_CHAIN_HEADS), -2 for those not known."""
    found = digest_positions(state.listed.headers, heads).reshape(len(heads), MAX_CHAIN_HEADS)
    given = np.arange(MAX_CHAIN_HEADS) < count[:, None].astype(np.int64)
    return np.where(given & (found >= 0), found, -2)


def state_to_tables(state: GossipState) -> dict[str, Frame]:
    """Return the state as tables (2.5), each in the order of its columns.

    Of nodes: ``nodes``, ``peers`` and ``banned`` as in the state, ``leaves`` (``node``, ``place``, ``hash``), ``own``
    (``node``, ``hash``: blocks of which it keeps the topics), ``pool`` (``node``, ``root``, ``topic``), ``seen``
    (``node``, ``peer``, ``root``, ``topic``, ``flags``); what follows from these: ``topics`` (``node``, ``topic``) and
    ``expected`` (``node``, ``root``, ``topic``). Of all: ``blocks`` (``hash``, ``number``, ``ancestors``), ``listed``
    (``block``, ``root``, ``topic``), ``labels`` (``topic``, ``label``: with ``from_to``), ``roots``
    (``root``, ``size``: of bodies in pools).
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
            mine = state.expects(row, queue)
            row, queue = row[mine], queue[mine]
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
    """Return the state that has these ``tables``; rows of nodes in any order, those of all any number of times."""
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
    """Return what the ``blocks`` of the tables list, with the queues of ``pool`` and the roots of ``seen``."""
    _, first = np.unique(digest_column(frames["blocks"]["hash"]), return_index=True)
    blocks = frames["blocks"].take(first)
    rows = frames["listed"]
    queues = [frames[name] for name in ("listed", "pool", "seen")]
    roots, topics = (merge_digests(*(some[name] for some in queues)) for name in ("root", "topic"))
    width = max(len(roots), 1)
    named = [digest_positions(topics, some["topic"]) * width + digest_positions(roots, some["root"]) for some in queues]
    codes = distinct(np.concatenate(named))
    lists = np.zeros((len(blocks) + 1, len(codes)), dtype=bool)
    lists[digest_positions(blocks["hash"], rows["block"]), codes.searchsorted(named[0])] = True
    numbers = {"root_of": codes % width, "topic_of": codes // width}
    labels, told = NO_LABELS, frames.get("labels")
    if told is not None and len(told):
        labels = np.empty(len(topics), dtype=np.uint64)
        labels[digest_positions(topics, told["topic"])] = told["label"]
    columns = {"roots": roots, "topics": topics, "lists": lists, "labels": labels, **numbers}
    return LeafListings(blocks["hash"], blocks["number"], blocks["ancestors"], **columns)
