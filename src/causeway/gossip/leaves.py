"""On new leaves (ICMP reference 3.5): leaves, leafTopics and expectedQueues of nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import group_rows
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS

from causeway.core.frame import Frame
from causeway.core.joins import expand_ranges
from causeway.gossip.listings import add_blocks, digest_column, digest_positions, merge_digests
from causeway.gossip.options import GossipOptions
from causeway.gossip.pool import common_blocks, fits_in_pool, new_blocks, put
from causeway.gossip.reconcile import propagate
from causeway.gossip.state import GossipState, OwnTopics, declared_heads, renumber
from causeway.gossip.step_io import StepOutput, merge_outputs


def on_leaves(
    state: GossipState, leaves: Frame, blocks: Frame, unrouted: Frame, options: GossipOptions
) -> tuple[GossipState, StepOutput]:
    """Give nodes new leaves, and send these to all their peers (3.5, 1 and 2); with ``propagate_on_leaf`` also what of
    the pool a block allows that is in common with a peer since then.

    ``leaves``: all leaves of each node that has a new block (``node``, ``hash``); the best MAX_CHAIN_HEADS are kept, by
    number, then by the lower hash (hazard 29). ``blocks``: of these at least the ones that are new (``hash``,
    ``number``, ``ancestors``: the last a, the nearest first, shape (n, a, 32), zeros for none). ``unrouted``: ingress
    of these for all parachains (``listed.with_blocks``). Raises ``InvalidInput`` for a leaf that is in neither, and for
    a node that is not there.
    """
    if len(leaves) == 0:
        return state, StepOutput()
    at = state.node_rows(leaves["node"], "leaves")
    state = _with_blocks(state, leaves, blocks, unrouted, options)
    listed = state.listed
    nodes, node = np.unique(at, return_inverse=True)
    block = digest_positions(listed.blocks, leaves["hash"])
    order = np.lexsort((block, -listed.heights[block].astype(np.int64), node))
    order = order[group_rows(node[order], block[order]).starts]
    rank = group_rows(node[order]).ranks()
    order, rank = order[rank < MAX_CHAIN_HEADS], rank[rank < MAX_CHAIN_HEADS]
    leaf = state.leaf.copy()
    leaf[nodes] = listed.nothing
    leaf[at[order], rank] = block[order]
    kept = state.own.blocks[nodes]
    mine = np.zeros_like(kept)
    mine[node[order], block[order]] = True
    # Of ancestors the state is known only if they were leaves: those that were kept until now.
    older = listed.path_blocks[leaf[nodes]].reshape(len(nodes), MAX_CHAIN_HEADS * listed.paths.shape[1])
    row = np.repeat(np.arange(len(nodes)), older.shape[1])
    stays = kept[row, older.reshape(-1)]
    mine[row[stays], older.reshape(-1)[stays]] = True
    own = state.own.blocks.copy()
    own[nodes] = mine
    before, state = state, replace(state, leaf=leaf, own=OwnTopics(own, listed))
    # The leaves of nodes (rows) as packets to all of their peers.
    begins = state.peer_begins
    row, peer = expand_ranges(begins[nodes], begins[nodes + 1])
    count, heads = declared_heads(state, nodes)
    told = state.peers.take(peer).select(("node", "peer"))
    out = StepOutput(heads=told.with_columns(count=count[row], heads=heads[row]))
    if options.propagate_on_leaf == "off":
        return state, out
    _, peers = expand_ranges(state.peer_begins[nodes], state.peer_begins[nodes + 1])
    fresh = new_blocks(common_blocks(state, peers), common_blocks(before, peers), listed.nothing)
    state, sent = propagate(state, peers, fresh, options)
    return state, merge_outputs([out, sent])


def _with_blocks(
    state: GossipState, leaves: Frame, blocks: Frame, unrouted: Frame, options: GossipOptions
) -> GossipState:
    """Return the state that knows the blocks that ``leaves`` name."""
    named = merge_digests(leaves["hash"])
    wanted = named[digest_positions(state.listed.blocks, named) < 0]
    if len(wanted) == 0:
        return state
    _, first = np.unique(digest_column(blocks["hash"]), return_index=True)
    blocks = blocks.take(first)
    found = digest_positions(blocks["hash"], wanted)
    if (found < 0).any():
        raise InvalidInput(f"leaves: block {wanted[found < 0][0].tobytes().hex()} is not known; give it in blocks")
    if blocks["ancestors"].shape[1:] != (options.ancestors, 32):
        shape = blocks["ancestors"].shape[1:]
        raise InvalidInput(f"blocks: ancestors have the shape {shape} a block; allowed: ({options.ancestors}, 32)")
    return renumber(state, add_blocks(state.listed, blocks.take(found), unrouted, options))


def on_own_queues(state: GossipState, kept: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Put queues that nodes keep of their own (``node``, ``root``, ``size`` in bytes, u64) into their pools, under each
    topic that expects the root and does not have it yet (3.5, 3: what of egress(B, p) is known and not propagated)."""
    if len(kept) == 0:
        return state, StepOutput()
    at = state.node_rows(kept["node"], "kept")
    listed = state.listed
    root = digest_positions(listed.roots, kept["root"])
    rows = np.flatnonzero(root >= 0)
    queues, begins = listed.queues_by_root
    row, place = expand_ranges(begins[root[rows]], begins[root[rows] + 1])
    row, queue = rows[row], queues[place]
    wanted = np.flatnonzero(state.own.expects(at[row], queue) & ~state.pool[at[row], queue])
    order = wanted[np.lexsort((queue[wanted], at[row[wanted]]))]
    first = np.sort(order[group_rows(at[row[order]], queue[order]).starts])
    row, queue = row[first], queue[first]
    fits = fits_in_pool(state, at[row], kept["size"][row], options)
    return put(state, at[row[fits]], queue[fits], kept["size"][row[fits]], options)
