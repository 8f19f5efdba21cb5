"""The propagation pool (ICMP reference 3.8): ``put`` and ``purge``.

What goes out to peers (ICMP reference 3.8): ``allowed``, and the queues that are sent.

A queue is allowed for a peer if it was neither received from the peer nor sent to it, and a block that both have lists
it (``allowed_by = root``), or has its topic for whatever queue (``topic``).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from causeway_proofs.order import U64, Rows, distinct, group_rows, stable_order

from causeway.core.frame import Frame
from causeway.core.joins import expand_ranges
from causeway.gossip.listings import LeafListings, Mask
from causeway.gossip.options import GossipOptions
from causeway.gossip.state import EXCUSED, SENT, GossipState, compact, find_declared_heads
from causeway.gossip.step_io import StepOutput

PIECE = 1 << 21
"""Entries of the tables that are looked at in one piece."""


def common_blocks(state: GossipState, peers: Rows, heads: Rows | None = None) -> Rows:
    """Return the blocks that nodes have in common with peers (rows), ``nothing`` for fewer, shape (n, 5 (1 + a)).

    ``heads``: what the peers declare, as ``declared`` gives it; None: what they have declared. Of a leaf and its last a
    ancestors all are common from the first on that the peer declares (5.1, 1), as far as the node keeps their topics.
    """
    if heads is None:
        heads = find_declared_heads(state, state.peers["heads"][peers], state.peers["count"][peers])
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


def is_implied(
    listed: LeafListings, common: Rows, which: Rows, topic: Rows, queue: Rows, options: GossipOptions
) -> Mask:
    """Return of each queue (number) on a topic (number; -1: not known) whether one of the blocks in row ``which`` of
    ``common`` allows it."""
    table, column = (listed.lists, queue) if options.allowed_by == "root" else (listed.leaf_topics, topic)
    found = np.zeros(len(column), dtype=bool)
    for blocks in _used(listed, common) if table.shape[1] else ():
        found |= table[blocks[which], column]
    return found & (column >= 0)


def _used(listed: LeafListings, common: Rows) -> Rows:
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
    return record_sent(state, found)


def _allowed(listed: LeafListings, sets: Rows, options: GossipOptions) -> Mask:
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
    groups = group_rows(nodes)
    degrees = np.diff(state.peer_begins)[nodes[groups.starts]]
    piece_of = np.cumsum(degrees * groups.counts) // PIECE
    cuts = np.append(groups.starts[group_rows(piece_of).starts], len(nodes))
    # A node is never cut: the order of what it sends must not depend on the others.
    pieces = itertools.pairwise(cuts.tolist())
    return record_sent(state, [_new(state, nodes[begin:end], queues[begin:end], options) for begin, end in pieces])


def _new(state: GossipState, nodes: Rows, queues: Rows, options: GossipOptions) -> tuple[Rows, Rows]:
    """Return to which peers (rows) which of the queues go, ascending by both."""
    begins = state.peer_begins
    row, peer = expand_ranges(begins[nodes], begins[nodes + 1])
    queue = queues[row]
    unseen = state.seen[peer, queue] == 0
    peer, queue = peer[unseen], queue[unseen]
    wanted = state.wants(peer, queue)
    peer, queue = peer[wanted], queue[wanted]
    asked = distinct(peer)
    common, which = common_blocks(state, asked), asked.searchsorted(peer)
    good = is_implied(state.listed, common, which, state.listed.topic_of[queue], queue, options)
    peer, queue = peer[good], queue[good]
    order = stable_order(peer.astype(np.uint64), queue.astype(np.uint64))
    return peer[order], queue[order]


def record_sent(state: GossipState, found: list[tuple[Rows, Rows]]) -> tuple[GossipState, Frame]:
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


def fits_in_pool(state: GossipState, at: Rows, sizes: U64, options: GossipOptions) -> Mask:
    """Return which of the bodies, in the order in which they came to nodes (rows), the pools have room for: of each
    node those before the first that no longer fits."""
    order = stable_order(at.astype(np.uint64))
    groups = group_rows(at[order])
    total = np.cumsum(sizes[order])
    before = total[groups.starts] - sizes[order][groups.starts]
    total = total - groups.spread(before) + state.nodes["bytes"][at[order]]
    found = np.empty(len(at), dtype=bool)
    found[order] = total <= np.uint64(options.max_pool_bytes)
    return found


def put(
    state: GossipState, at: Rows, queue: Rows, sizes: U64, options: GossipOptions
) -> tuple[GossipState, StepOutput]:
    """Put queues (numbers) with bodies of these sizes into the pools of nodes (rows), where they are not yet and for
    which there is room; each pair once. Send them to all peers for which they are allowed."""
    if len(at) == 0:
        return state, StepOutput()
    order = stable_order(at.astype(np.uint64), queue.astype(np.uint64))
    at, queue, sizes = at[order], queue[order], sizes[order]
    listed = state.listed
    root = listed.root_of[queue]
    pool, used, known = state.pool.copy(), state.nodes["bytes"].copy(), state.sizes.copy()
    pool[at, queue] = True
    np.add.at(used, at, sizes)
    known[root] = sizes
    state = replace(state, sizes=known, pool=pool, nodes=state.nodes.with_columns(bytes=used))
    state, sent = send_new(state, at, queue, options)
    columns = {
        "node": state.nodes["node"][at],
        "root": listed.roots[root],
        "topic": listed.topics[listed.topic_of[queue]],
    }
    return state, StepOutput(queues=sent, got=Frame(columns, len(at)))


def purge(state: GossipState, time: int, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Purge the pools of the nodes whose interval is over at ``time`` (ms): topics without an entry in expectedQueues
    go (D-9), and with ``seen_until = purge`` what was seen of them; of the others peers may excuse themselves anew."""
    due = np.flatnonzero(state.nodes["purge"] <= np.uint64(time))
    if len(due) == 0:
        return state, StepOutput()
    listed = state.listed
    pool, seen, used = state.pool.copy(), state.seen.copy(), state.nodes["bytes"].copy()
    live = state.own.live[:, listed.topic_of]
    gone: list[tuple[Rows, Rows]] = []
    size = max(1, PIECE // max(1, len(listed.root_of)))
    for begin in range(0, len(due), size):
        piece = due[begin : begin + size]
        row, queue = (pool[piece] & ~live[state.own.set_of[piece]]).nonzero()
        gone.append((piece[row], queue))
    at, queue = (np.concatenate(parts) for parts in zip(*gone, strict=True))
    pool[at, queue] = False
    np.subtract.at(used, at, state.sizes[listed.root_of[queue]])
    if options.seen_until == "purge":
        purged = np.zeros(len(state.nodes), dtype=bool)
        purged[due] = True
        peers = np.flatnonzero(purged[state.node_of])
        for begin in range(0, len(peers), size):
            some = peers[begin : begin + size]
            seen[some] = (seen[some] & ~EXCUSED) * live[state.own.set_of[state.node_of[some]]]
    following = state.nodes["purge"].copy()
    following[due] = np.uint64(time + options.purge_interval)
    nodes = state.nodes.with_columns(purge=following, bytes=used)
    columns = {
        "node": nodes["node"][at],
        "root": listed.roots[listed.root_of[queue]],
        "topic": listed.topics[listed.topic_of[queue]],
    }
    state = compact(replace(state, pool=pool, seen=seen, nodes=nodes))
    return state, StepOutput(purged=Frame(columns, len(at)))
