"""Propagation pool (ICMP reference 3.8): ``put``, ``purge``, ``allowed``, and queues to send.

A queue is allowed for a peer if it was neither received from the peer nor sent to it, and a common
block lists it (``allowed_by = root``) or lists its topic for any queue (``topic``).
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
"""Maximum number of table entries processed at a time."""


def common_blocks(state: GossipState, peers: Rows, heads: Rows | None = None) -> Rows:
    """Return the common blocks of nodes and peers, padded with ``nothing``.

    The shape is (n, 5 (1 + a)).

    Of a leaf and its last a ancestors, all from the first that the peer declares are common (5.1, 1), as
    far as the node keeps their topics.

    Args:
        state: State of the nodes.
        peers: Rows of the peers.
        heads: Heads of the peers, as from ``find_declared_heads``; None for their last declarations.
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
    """Return the ``common`` blocks of each row that are not in ``before``."""
    known = (common[:, :, None] == before[:, None, :]).any(axis=2)
    return np.where(known, nothing, common)


def is_implied(
    listed: LeafListings, common: Rows, which: Rows, topic: Rows, queue: Rows, options: GossipOptions
) -> Mask:
    """Return a mask of the queues that a common block allows.

    Args:
        listed: The listings.
        common: Common blocks by peer.
        which: Row in ``common`` of each queue.
        topic: Topic number of each queue, -1 if unknown.
        queue: Number of each queue, -1 if unknown.
        options: Options of gossip.
    """
    table, column = (listed.lists, queue) if options.allowed_by == "root" else (listed.leaf_topics, topic)
    found = np.zeros(len(column), dtype=bool)
    for blocks in _block_columns(listed, common) if table.shape[1] else ():
        found |= table[blocks[which], column]
    return found & (column >= 0)


def _block_columns(listed: LeafListings, common: Rows) -> Rows:
    """Return the non-empty columns of common blocks."""
    return np.asarray(common.T[(common != listed.nothing).any(axis=0)])


def send_pool(state: GossipState, peers: Rows, common: Rows, options: GossipOptions) -> tuple[GossipState, Frame]:
    """Send peers all pooled queues that some of their ``common`` blocks allow.

    This is propagateTopic for each topic of each block.

    Args:
        state: State of the nodes.
        peers: Rows of the peers, ascending and distinct.
        common: Blocks of each peer.
        options: Options of gossip.

    Returns:
        The state and the sent queues (``QUEUES_SCHEMA``).
    """
    listed = state.listed
    some = (common != listed.nothing).any(axis=1)
    peers, common = peers[some], common[some]
    sets, set_of = np.unique(np.sort(common, axis=1), axis=0, return_inverse=True)
    allowed = _allowed(listed, sets, options)
    size = max(1, PIECE // max(1, len(listed.root_of)))
    found: list[tuple[Rows, Rows]] = []
    for begin in range(0, len(peers), size):
        piece = peers[begin : begin + size]
        sendable = state.pool[state.node_of[piece]] & allowed[set_of.reshape(-1)[begin : begin + size]]
        sendable &= state.seen[piece] == 0
        row, queue = sendable.nonzero()
        wanted = state.wants(piece[row], queue)
        found.append((piece[row[wanted]], queue[wanted]))
    return record_sent(state, found)


def _allowed(listed: LeafListings, sets: Rows, options: GossipOptions) -> Mask:
    """Return a mask of the queues that each set of common blocks allows, shape (sets, queues)."""
    table = listed.lists if options.allowed_by == "root" else listed.leaf_topics
    found = np.zeros((len(sets), table.shape[1]), dtype=bool)
    for blocks in _block_columns(listed, sets):
        found |= table[blocks]
    return found if options.allowed_by == "root" else found[:, listed.topic_of]


def _recipients(state: GossipState, nodes: Rows, queues: Rows, options: GossipOptions) -> tuple[Rows, Rows]:
    """Return the peers (rows) and queues to send, ascending by both."""
    begins = state.peer_begins
    row, peer = expand_ranges(begins[nodes], begins[nodes + 1])
    queue = queues[row]
    unseen = state.seen[peer, queue] == 0
    peer, queue = peer[unseen], queue[unseen]
    wanted = state.wants(peer, queue)
    peer, queue = peer[wanted], queue[wanted]
    receivers = distinct(peer)
    common, which = common_blocks(state, receivers), receivers.searchsorted(peer)
    good = is_implied(state.listed, common, which, state.listed.topic_of[queue], queue, options)
    peer, queue = peer[good], queue[good]
    order = stable_order(peer.astype(np.uint64), queue.astype(np.uint64))
    return peer[order], queue[order]


def record_sent(state: GossipState, pieces: list[tuple[Rows, Rows]]) -> tuple[GossipState, Frame]:
    """Mark queues as sent to peers; pairs ascend.

    Args:
        state: State of the nodes.
        pieces: Rows of peers and numbers of queues, in pieces.

    Returns:
        The state and the sent queues (``QUEUES_SCHEMA``).
    """
    none = np.empty(0, dtype=np.int64)
    peers, queues = (np.concatenate(parts) for parts in zip((none, none), *pieces, strict=True))
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
    """Return a mask of the bodies that fit into the pools.

    Of each node these are the bodies before the first that exceeds ``max_pool_bytes``.

    Args:
        state: State of the nodes.
        at: Row of the node of each body, in order of arrival.
        sizes: Size in bytes of each body.
        options: Options of gossip.
    """
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
    """Add queues to the pools of nodes, and send them to all peers for which they are allowed.

    Args:
        state: State of the nodes.
        at: Rows of the nodes; each pair is distinct, not yet pooled, and fits.
        queue: Numbers of the queues.
        sizes: Sizes in bytes of the bodies.
        options: Options of gossip.
    """
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
    # Send queues that are new in the pools of nodes to all peers for which they are allowed.
    groups = group_rows(at)
    degrees = np.diff(state.peer_begins)[at[groups.starts]]
    piece_of = np.cumsum(degrees * groups.counts) // PIECE
    cuts = np.append(groups.starts[group_rows(piece_of).starts], len(at))
    # A node's rows stay in one piece, so its output order does not depend on other nodes.
    pieces = itertools.pairwise(cuts.tolist())
    state, sent = record_sent(
        state, [_recipients(state, at[begin:end], queue[begin:end], options) for begin, end in pieces]
    )
    columns = {
        "node": state.nodes["node"][at],
        "root": listed.roots[root],
        "topic": listed.topics[listed.topic_of[queue]],
    }
    return state, StepOutput(queues=sent, got=Frame(columns, len(at)))


def purge(state: GossipState, time: int, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Purge the pools of the nodes whose interval has elapsed.

    Topics without an entry in expectedQueues are removed (D-9). With ``seen_until = purge`` their flags
    are removed too, and peers may excuse resends of the other topics again.

    Args:
        state: State of the nodes.
        time: Time in ms.
        options: Options of gossip.
    """
    due = np.flatnonzero(state.nodes["purge"] <= np.uint64(time))
    if len(due) == 0:
        return state, StepOutput()
    listed = state.listed
    pool, seen, used = state.pool.copy(), state.seen.copy(), state.nodes["bytes"].copy()
    live = state.own.live[:, listed.topic_of]
    removed: list[tuple[Rows, Rows]] = []
    size = max(1, PIECE // max(1, len(listed.root_of)))
    for begin in range(0, len(due), size):
        piece = due[begin : begin + size]
        row, queue = (pool[piece] & ~live[state.own.set_of[piece]]).nonzero()
        removed.append((piece[row], queue))
    at, queue = (np.concatenate(parts) for parts in zip(*removed, strict=True))
    pool[at, queue] = False
    np.subtract.at(used, at, state.sizes[listed.root_of[queue]])
    if options.seen_until == "purge":
        purged = np.zeros(len(state.nodes), dtype=bool)
        purged[due] = True
        peers = np.flatnonzero(purged[state.node_of])
        for begin in range(0, len(peers), size):
            some = peers[begin : begin + size]
            seen[some] = (seen[some] & ~EXCUSED) * live[state.own.set_of[state.node_of[some]]]
    next_purge = state.nodes["purge"].copy()
    next_purge[due] = np.uint64(time + options.purge_interval)
    nodes = state.nodes.with_columns(purge=next_purge, bytes=used)
    columns = {
        "node": nodes["node"][at],
        "root": listed.roots[listed.root_of[queue]],
        "topic": listed.topics[listed.topic_of[queue]],
    }
    state = compact(replace(state, pool=pool, seen=seen, nodes=nodes))
    return state, StepOutput(purged=Frame(columns, len(at)))
