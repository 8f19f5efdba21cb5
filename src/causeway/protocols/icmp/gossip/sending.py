"""What goes out to peers (ICMP reference 3.8): ``allowed``, and the queues that are sent.

A queue is allowed for a peer if its root was neither received from the peer nor sent to it, and its topic is in
leafTopics of a block that both have. Where a root is allowed under several topics, it is sent under the first.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import over
from causeway.model.order import Rows, distinct, groups_of
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.output import QUEUES_SCHEMA
from causeway.protocols.icmp.gossip.state import SENT, GossipState, declared

PIECE = 1 << 21
"""Entries of the tables that are looked at in one piece."""


def common_blocks(state: GossipState, peers: Rows, heads: Rows) -> Rows:
    """Return the blocks that nodes have in common with peers (rows), ``nothing`` for fewer, shape (n, 5 (1 + a)).

    ``heads``: numbers of blocks of the peers, shape (n, MAX_CHAIN_HEADS). Of those that are the node's own, leaves or
    kept ancestors, the ancestors count as the peer's, too (5.1, 1).
    """
    nothing, own = state.listed.nothing, state.own.blocks
    node = state.node_of[peers][:, None]
    common = np.where(own[node, heads], heads, nothing)
    older = state.listed.ancestor_of[common]
    older = np.where(own[node[:, :, None], older], older, nothing)
    older = older.reshape(len(heads), older.shape[1] * older.shape[2])
    return np.concatenate([common, older], axis=1)


def implied(state: GossipState, common: Rows, topic: Rows) -> Mask:
    """Return of each row whether its topic (number, -1: not known) is in leafTopics of one of its common blocks."""
    found = np.zeros(len(topic), dtype=bool)
    if len(state.listed.topics):
        for column in common.T:
            found |= state.listed.leaf_topics[column, topic]
    return found & (topic >= 0)


def send_pool(state: GossipState, peers: Rows, heads: Rows) -> tuple[GossipState, Frame]:
    """Send to peers (rows, ascending, each once) all of the pool that is allowed by some ``heads`` of theirs:
    propagateTopic for each topic of each. Return the state and what is sent (``QUEUES_SCHEMA``)."""
    listed = state.listed
    common = common_blocks(state, peers, heads)
    some = (common != listed.nothing).any(axis=1)
    peers, common = peers[some], common[some]
    size = max(1, PIECE // max(1, len(listed.root_of)))
    sent = [empty_frame(QUEUES_SCHEMA)]
    for begin in range(0, len(peers), size):
        piece, blocks = peers[begin : begin + size], common[begin : begin + size]
        topics = np.zeros((len(piece), len(listed.topics)), dtype=bool)
        for column in blocks.T:
            topics |= listed.leaf_topics[column]
        unseen = state.seen[piece][:, listed.root_of] == 0
        row, queue = (state.pool[state.node_of[piece]] & unseen & topics[:, listed.topic_of]).nonzero()
        state, rows = _sent(state, piece[row], queue)
        sent.append(rows)
    return state, concat(sent)


def send_new(state: GossipState, nodes: Rows, queues: Rows) -> tuple[GossipState, Frame]:
    """Send queues (numbers) that are new in the pools of ``nodes`` (rows) to all peers for which they are allowed.

    The pairs ascend. Return the state and what is sent (``QUEUES_SCHEMA``).
    """
    groups = groups_of(nodes)
    degrees = np.diff(state.peer_begins)[nodes[groups.starts]]
    piece_of = np.cumsum(degrees * groups.counts) // PIECE
    cuts = np.append(groups.starts[groups_of(piece_of).starts], len(nodes))
    sent = [empty_frame(QUEUES_SCHEMA)]
    # A node is never cut: the order of what it sends must not depend on the others.
    for begin, end in itertools.pairwise(cuts.tolist()):
        state, rows = _send_some(state, nodes[begin:end], queues[begin:end])
        sent.append(rows)
    return state, concat(sent)


def _send_some(state: GossipState, nodes: Rows, queues: Rows) -> tuple[GossipState, Frame]:
    begins = state.peer_begins
    row, peer = over(begins[nodes], begins[nodes + 1])
    queue = queues[row]
    # A queue is allowed if its root was not seen with the peer, and a common block has its topic.
    unseen = state.seen[peer, state.listed.root_of[queue]] == 0
    peer, queue = peer[unseen], queue[unseen]
    asked = distinct(peer)
    heads = declared(state, state.peers["heads"][asked], state.peers["count"][asked])
    common = common_blocks(state, asked, heads)
    good = implied(state, common[asked.searchsorted(peer)], state.listed.topic_of[queue])
    peer, queue = peer[good], queue[good]
    order = np.lexsort((queue, peer))
    return _sent(state, peer[order], queue[order])


def _sent(state: GossipState, peers: Rows, queues: Rows) -> tuple[GossipState, Frame]:
    """Note queues as sent, each root once a peer; rows ascend by both."""
    listed = state.listed
    first = groups_of(peers, listed.root_of[queues]).starts
    peers, queues = peers[first], queues[first]
    if len(peers) == 0:
        return state, empty_frame(QUEUES_SCHEMA)
    root = listed.root_of[queues]
    seen = state.seen.copy()
    seen[peers, root] = SENT
    columns = {
        "node": state.peers["node"][peers],
        "peer": state.peers["peer"][peers],
        "topic": listed.topics[listed.topic_of[queues]],
        "root": listed.roots[root],
    }
    return replace(state, seen=seen), Frame(columns, len(peers))
