"""What goes out to peers (ICMP reference 3.8): ``allowed``, and the queues that are sent.

A queue is allowed for a peer if it was neither received from the peer nor sent to it, and a block that both have lists
it (``allowed_by = root``), or has its topic for whatever queue (``topic``).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import over
from causeway.model.order import Rows, distinct, groups_of, stable_order
from causeway.protocols.icmp.gossip.listed import Listed, Mask
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.state import SENT, GossipState, declared

PIECE = 1 << 21
"""Entries of the tables that are looked at in one piece."""


def common_blocks(state: GossipState, peers: Rows, heads: Rows | None = None) -> Rows:
    """Return the blocks that nodes have in common with peers (rows), ``nothing`` for fewer, shape (n, 5 (1 + a)).

    ``heads``: what the peers declare, as ``declared`` gives it; None: what they have declared. Of a leaf and its last a
    ancestors all are common from the first on that the peer declares (5.1, 1), as far as the node keeps their topics.
    """
    if heads is None:
        heads = declared(state, state.peers["heads"][peers], state.peers["count"][peers])
    listed, node = state.listed, state.node_of[peers]
    leaf = state.leaf[node]
    meets = (listed.paths[leaf][:, :, :, None] == heads[:, None, None, :]).any(axis=3)
    blocks = listed.path_blocks[leaf]
    meets = np.logical_or.accumulate(meets, axis=2) & state.own.blocks[node[:, None, None], blocks]
    return np.where(meets, blocks, listed.nothing).reshape(len(peers), blocks.shape[1] * blocks.shape[2])


def new_blocks(common: Rows, before: Rows, nothing: int) -> Rows:
    """Return the ``common`` blocks of each row that are not among those of ``before``."""
    known = (common[:, :, None] == before[:, None, :]).any(axis=2)
    return np.where(known, nothing, common)


def implied(listed: Listed, common: Rows, which: Rows, topic: Rows, queue: Rows, options: GossipOptions) -> Mask:
    """Return of each queue (number) on a topic (number; -1: not known) whether one of the blocks in row ``which`` of
    ``common`` allows it."""
    table, column = (listed.lists, queue) if options.allowed_by == "root" else (listed.leaf_topics, topic)
    found = np.zeros(len(column), dtype=bool)
    for blocks in _used(listed, common) if table.shape[1] else ():
        found |= table[blocks[which], column]
    return found & (column >= 0)


def _used(listed: Listed, common: Rows) -> Rows:
    """Return the columns of common blocks that have some."""
    return np.asarray(common.T[(common != listed.nothing).any(axis=0)])


def send_pool(state: GossipState, peers: Rows, common: Rows, options: GossipOptions) -> tuple[GossipState, Frame]:
    """Send to peers (rows, ascending, each once) all of the pool that is allowed by some of their ``common`` blocks:
    propagateTopic for each topic of each. Return the state and what is sent (``QUEUES_SCHEMA``)."""
    listed = state.listed
    some = (common != listed.nothing).any(axis=1)
    peers, common = peers[some], common[some]
    sets, set_of = np.unique(np.sort(common, axis=1), axis=0, return_inverse=True)
    allowed = _allowed(listed, sets, options)
    size = max(1, PIECE // max(1, len(listed.root_of)))
    found: list[tuple[Rows, Rows]] = []
    for begin in range(0, len(peers), size):
        piece = peers[begin : begin + size]
        goes = state.pool[state.node_of[piece]] & allowed[set_of.reshape(-1)[begin : begin + size]]
        goes &= state.seen[piece] == 0
        row, queue = goes.nonzero()
        wanted = state.wants(piece[row], queue)
        found.append((piece[row[wanted]], queue[wanted]))
    return sent_pairs(state, found)


def _allowed(listed: Listed, sets: Rows, options: GossipOptions) -> Mask:
    """Return which queues each set of common blocks allows, shape (sets, queues)."""
    table = listed.lists if options.allowed_by == "root" else listed.leaf_topics
    found = np.zeros((len(sets), table.shape[1]), dtype=bool)
    for blocks in _used(listed, sets):
        found |= table[blocks]
    return found if options.allowed_by == "root" else found[:, listed.topic_of]


def send_new(state: GossipState, nodes: Rows, queues: Rows, options: GossipOptions) -> tuple[GossipState, Frame]:
    """Send queues (numbers) that are new in the pools of ``nodes`` (rows) to all peers for which they are allowed.

    The pairs ascend. Return the state and what is sent (``QUEUES_SCHEMA``).
    """
    groups = groups_of(nodes)
    degrees = np.diff(state.peer_begins)[nodes[groups.starts]]
    piece_of = np.cumsum(degrees * groups.counts) // PIECE
    cuts = np.append(groups.starts[groups_of(piece_of).starts], len(nodes))
    # A node is never cut: the order of what it sends must not depend on the others.
    pieces = itertools.pairwise(cuts.tolist())
    return sent_pairs(state, [_new(state, nodes[begin:end], queues[begin:end], options) for begin, end in pieces])


def _new(state: GossipState, nodes: Rows, queues: Rows, options: GossipOptions) -> tuple[Rows, Rows]:
    """Return to which peers (rows) which of the queues go, ascending by both."""
    begins = state.peer_begins
    row, peer = over(begins[nodes], begins[nodes + 1])
    queue = queues[row]
    unseen = state.seen[peer, queue] == 0
    peer, queue = peer[unseen], queue[unseen]
    wanted = state.wants(peer, queue)
    peer, queue = peer[wanted], queue[wanted]
    asked = distinct(peer)
    common, which = common_blocks(state, asked), asked.searchsorted(peer)
    good = implied(state.listed, common, which, state.listed.topic_of[queue], queue, options)
    peer, queue = peer[good], queue[good]
    order = stable_order(peer.astype(np.uint64), queue.astype(np.uint64))
    return peer[order], queue[order]


def sent_pairs(state: GossipState, found: list[tuple[Rows, Rows]]) -> tuple[GossipState, Frame]:
    """Note queues (numbers) as sent to peers (rows); pairs ascend. Return the state and what is sent."""
    none = np.empty(0, dtype=np.int64)
    peers, queues = (np.concatenate(parts) for parts in zip((none, none), *found, strict=True))
    listed = state.listed
    columns = {
        "node": state.peers["node"][peers],
        "peer": state.peers["peer"][peers],
        "topic": listed.topics[listed.topic_of[queues]],
        "root": listed.roots[listed.root_of[queues]],
    }
    if len(peers):
        seen = state.seen.copy()
        seen[peers, queues] = SENT
        state = replace(state, seen=seen)
    return state, Frame(columns, len(peers))
