"""The propagation pool (ICMP reference 3.8): ``put`` and ``purge``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64, Rows, groups_of, stable_order
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import Output
from causeway.protocols.icmp.gossip.sending import PIECE, send_new
from causeway.protocols.icmp.gossip.state import EXCUSED, GossipState, compacted


def fitting(state: GossipState, at: Rows, sizes: U64, options: GossipOptions) -> Mask:
    """Return which of the bodies, in the order in which they came to nodes (rows), the pools have room for: of each
    node those before the first that no longer fits."""
    order = stable_order(at.astype(np.uint64))
    groups = groups_of(at[order])
    total = np.cumsum(sizes[order])
    before = total[groups.starts] - sizes[order][groups.starts]
    total = total - groups.spread(before) + state.nodes["bytes"][at[order]]
    found = np.empty(len(at), dtype=bool)
    found[order] = total <= np.uint64(options.max_pool_bytes)
    return found


def put(state: GossipState, at: Rows, queue: Rows, sizes: U64, options: GossipOptions) -> tuple[GossipState, Output]:
    """Put queues (numbers) with bodies of these sizes into the pools of nodes (rows), where they are not yet and for
    which there is room; each pair once. Send them to all peers for which they are allowed."""
    if len(at) == 0:
        return state, Output()
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
    return state, Output(queues=sent, got=Frame(columns, len(at)))


def purge(state: GossipState, time: int, options: GossipOptions) -> tuple[GossipState, Output]:
    """Purge the pools of the nodes whose interval is over at ``time`` (ms): topics without an entry in expectedQueues
    go (D-9), and with ``seen_until = purge`` what was seen of them; of the others peers may excuse themselves anew."""
    due = np.flatnonzero(state.nodes["purge"] <= np.uint64(time))
    if len(due) == 0:
        return state, Output()
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
    state = compacted(replace(state, pool=pool, seen=seen, nodes=nodes))
    return state, Output(purged=Frame(columns, len(at)))
