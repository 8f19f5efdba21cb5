"""On new leaves (ICMP reference 3.5): leaves, leafTopics and expectedQueues of nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.model.joins import over
from causeway.model.order import Rows, groups_of
from causeway.proofs.substrate.gossip import MAX_CHAIN_HEADS
from causeway.protocols.icmp.gossip.listed import with_blocks
from causeway.protocols.icmp.gossip.numbers import places, texts, united
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import Output, joined
from causeway.protocols.icmp.gossip.pool import fitting, put, put_again
from causeway.protocols.icmp.gossip.state import GossipState, Own, heads_of, renumbered


def on_leaves(
    state: GossipState, leaves: Frame, blocks: Frame, unrouted: Frame, options: GossipOptions
) -> tuple[GossipState, Output]:
    """Give nodes new leaves, and send these to all their peers (3.5, 1 and 2).

    ``leaves``: all leaves of each node whose leaves changed (``node``, ``hash``); the best MAX_CHAIN_HEADS are kept, by
    number, then by the lower hash (hazard 29). ``blocks``: of these at least the ones that are new (``hash``,
    ``number``, ``ancestors``: the last a, the nearest first, shape (n, a, 32), zeros for none). ``unrouted``: ingress
    of these for all parachains (``listed.with_blocks``). Raises ``InvalidInput`` for a leaf that is in neither, and for
    a node that is not there.
    """
    if len(leaves) == 0:
        return state, Output()
    at = state.node_rows(leaves["node"], "leaves")
    state = _with_blocks(state, leaves, blocks, unrouted, options)
    listed = state.listed
    nodes, node = np.unique(at, return_inverse=True)
    block = places(listed.blocks, leaves["hash"])
    order = np.lexsort((block, -listed.heights[block].astype(np.int64), node))
    order = order[groups_of(node[order], block[order]).starts]
    rank = groups_of(node[order]).ranks()
    order, rank = order[rank < MAX_CHAIN_HEADS], rank[rank < MAX_CHAIN_HEADS]
    leaf = state.leaf.copy()
    leaf[nodes] = listed.nothing
    leaf[at[order], rank] = block[order]
    before = state.own.blocks[nodes]
    mine = np.zeros_like(before)
    mine[node[order], block[order]] = True
    # Of ancestors the state is known only if they were leaves: those that were kept until now.
    older = listed.ancestor_of[leaf[nodes]].reshape(len(nodes), -1)
    row = np.repeat(np.arange(len(nodes)), older.shape[1])
    kept = before[row, older.reshape(-1)]
    mine[row[kept], older.reshape(-1)[kept]] = True
    own = state.own.blocks.copy()
    own[nodes] = mine
    changed = nodes[(leaf[nodes] != state.leaf[nodes]).any(axis=1)]
    state = replace(state, leaf=leaf, own=Own(own, listed))
    state, again = put_again(state, nodes)
    return state, joined([_declarations(state, changed), again])


def _with_blocks(
    state: GossipState, leaves: Frame, blocks: Frame, unrouted: Frame, options: GossipOptions
) -> GossipState:
    """Return the state that knows the blocks that ``leaves`` name."""
    named = united(leaves["hash"])
    wanted = named[places(state.listed.blocks, named) < 0]
    if len(wanted) == 0:
        return state
    _, first = np.unique(texts(blocks["hash"]), return_index=True)
    blocks = blocks.take(first)
    found = places(blocks["hash"], wanted)
    if (found < 0).any():
        raise InvalidInput(f"leaves: block {wanted[found < 0][0].tobytes().hex()} is not known; give it in blocks")
    if blocks["ancestors"].shape[1:] != (options.ancestors, 32):
        shape = blocks["ancestors"].shape[1:]
        raise InvalidInput(f"blocks: ancestors have the shape {shape} a block; allowed: ({options.ancestors}, 32)")
    return renumbered(state, with_blocks(state.listed, blocks.take(found), unrouted, options))


def _declarations(state: GossipState, nodes: Rows) -> Output:
    """Return the leaves of nodes (rows) as packets to all of their peers."""
    begins = state.peer_begins
    row, peer = over(begins[nodes], begins[nodes + 1])
    count, heads = heads_of(state, nodes)
    told = state.peers.take(peer).select(("node", "peer"))
    return Output(heads=told.with_columns(count=count[row], heads=heads[row]))


def on_kept(state: GossipState, kept: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Put queues that nodes keep of their own (``node``, ``root``, ``size`` in bytes, u64) into their pools, those that
    are expected and not there yet (3.5, 3: what of egress(B, p) is known and not propagated)."""
    if len(kept) == 0:
        return state, Output()
    at = state.node_rows(kept["node"], "kept")
    listed = state.listed
    root = places(listed.roots, kept["root"])
    rows = np.flatnonzero(root >= 0)
    row, queue = over(listed.begins[root[rows]], listed.begins[root[rows] + 1])
    row = rows[row]
    expected = state.own.expects(at[row], queue)
    wanted = np.zeros(len(kept), dtype=bool)
    wanted[row[expected & ~state.pool[at[row], queue]]] = True
    wanted = np.flatnonzero(wanted)
    order = wanted[np.lexsort((root[wanted], at[wanted]))]
    first = np.sort(order[groups_of(at[order], root[order]).starts])
    first = first[fitting(state, at[first], kept["size"][first], options)]
    return put(state, at[first], root[first], kept["size"][first])
