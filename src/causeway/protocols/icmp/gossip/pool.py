"""The propagation pool (ICMP reference 3.8): ``put`` and ``purge``.

A body is what its root says, under whichever topic it came: it is put under every topic that expects its root, so that
a queue that two blocks issue alike is there for both, though it is sent once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import over
from causeway.model.order import U64, Rows, groups_of
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import Output
from causeway.protocols.icmp.gossip.sending import PIECE, send_new
from causeway.protocols.icmp.gossip.state import GossipState, compacted


def fitting(state: GossipState, at: Rows, sizes: U64, options: GossipOptions) -> Mask:
    """Return which of the bodies, in the order in which they came to nodes (rows), the pools have room for: of each
    node those before the first that no longer fits."""
    order = np.argsort(at, kind="stable")
    groups = groups_of(at[order])
    total = np.cumsum(sizes[order])
    before = total[groups.starts] - sizes[order][groups.starts]
    total = total - groups.spread(before) + state.nodes["bytes"][at[order]]
    found = np.empty(len(at), dtype=bool)
    found[order] = total <= np.uint64(options.max_pool_bytes)
    return found


def put(state: GossipState, at: Rows, root: Rows, sizes: U64) -> tuple[GossipState, Output]:
    """Put bodies by root (number) into the pools of nodes (rows), where they are not yet and for which there is room;
    each pair once. Send them to all peers for which they are allowed."""
    if len(at) == 0:
        return state, Output()
    order = np.lexsort((root, at))
    at, root, sizes = at[order], root[order], sizes[order]
    listed = state.listed
    row, queue = over(listed.begins[root], listed.begins[root + 1])
    wanted = state.own.expects(at[row], queue)
    row, queue = row[wanted], queue[wanted]
    pool = state.pool.copy()
    pool[at[row], queue] = True
    used = state.nodes["bytes"].copy()
    np.add.at(used, at, sizes)
    known = state.sizes.copy()
    known[root] = sizes
    state = replace(state, sizes=known, pool=pool, nodes=state.nodes.with_columns(bytes=used))
    state, sent = send_new(state, at[row], queue)
    got = Frame({"node": state.nodes["node"][at], "root": listed.roots[root]}, len(at))
    return state, Output(queues=sent, got=got)


def put_again(state: GossipState, nodes: Rows) -> tuple[GossipState, Output]:
    """Put what the pools of nodes (rows) have under one topic under those that expect its root since now, too."""
    listed = state.listed
    if len(listed.shared) == 0:
        return state, Output()
    groups = groups_of(listed.root_of[listed.shared])
    pools = state.pool[nodes][:, listed.shared]
    there = np.maximum.reduceat(pools, groups.starts, axis=1).repeat(groups.counts, axis=1)
    row, column = (there & ~pools & state.own.expected[state.own.set_of[nodes]][:, listed.shared]).nonzero()
    if len(row) == 0:
        return state, Output()
    pool = state.pool.copy()
    pool[nodes[row], listed.shared[column]] = True
    state, sent = send_new(replace(state, pool=pool), nodes[row], listed.shared[column])
    return state, Output(queues=sent)


def purge(state: GossipState, time: int, options: GossipOptions) -> tuple[GossipState, Output]:
    """Purge the pools of the nodes whose interval is over at ``time`` (ms): topics without an entry in expectedQueues
    go (D-9), and what was seen of roots that are neither expected nor in the pool any more."""
    due = np.flatnonzero(state.nodes["purge"] <= np.uint64(time))
    if len(due) == 0:
        return state, Output()
    listed = state.listed
    pool, seen, used = state.pool.copy(), state.seen.copy(), state.nodes["bytes"].copy()
    gone: list[tuple[Rows, Rows]] = []
    size = max(1, PIECE // max(1, len(listed.root_of)))
    for begin in range(0, len(due), size):
        piece = due[begin : begin + size]
        stays = pool[piece] & state.own.live[state.own.set_of[piece]][:, listed.topic_of]
        row, queue = (pool[piece] & ~stays).nonzero()
        gone.append((piece[row], queue))
        pool[piece] = stays
        used[piece] = _by_root(stays, listed.root_of, len(listed.roots)).astype(np.uint64) @ state.sizes
        known = _by_root(stays | state.own.expected[state.own.set_of[piece]], listed.root_of, len(listed.roots))
        of_piece = np.full(len(state.nodes), -1, dtype=np.int64)
        of_piece[piece] = np.arange(len(piece))
        peers = np.flatnonzero(of_piece[state.node_of] >= 0)
        step = max(1, PIECE // max(1, len(listed.roots)))
        for start in range(0, len(peers), step):
            some = peers[start : start + step]
            seen[some] *= known[of_piece[state.node_of[some]]]
    at, queue = (np.concatenate(parts) for parts in zip(*gone, strict=True))
    following = state.nodes["purge"].copy()
    following[due] = np.uint64(time + options.purge_interval)
    nodes = state.nodes.with_columns(purge=following, bytes=used)
    purged = {
        "node": nodes["node"][at],
        "root": listed.roots[listed.root_of[queue]],
        "topic": listed.topics[listed.topic_of[queue]],
    }
    state = compacted(replace(state, pool=pool, seen=seen, nodes=nodes))
    return state, Output(purged=Frame(purged, len(at)))


def _by_root(queues: Mask, root_of: Rows, roots: int) -> Mask:
    """Return which roots have one of the ``queues`` of each row, shape (n, roots)."""
    found = np.zeros((len(queues), roots), dtype=bool)
    if len(root_of):
        groups = groups_of(root_of)
        found[:, root_of[groups.starts]] = np.maximum.reduceat(queues, groups.starts, axis=1)
    return found
