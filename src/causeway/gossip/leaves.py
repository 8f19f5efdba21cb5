"""New leaves (ICMP reference 3.5): leaves, leafTopics and expectedQueues of nodes."""

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
    """Set new leaves of nodes and declare them to all their peers (3.5, 1 and 2).

    With ``propagate_on_leaf``, also send pooled queues that newly common blocks allow.

    Args:
        state: State of the nodes.
        leaves: All leaves of each node with a new block (``node``, ``hash``). The best MAX_CHAIN_HEADS are
            kept, by number, then by lower hash (hazard 29).
        blocks: At least the new ones of these: ``hash``, ``number``, ``ancestors`` (the nearest first, shape
            (n, a, 32), zero-padded).
        unrouted: Ingress of these blocks for all parachains (``listings.add_blocks``).
        options: Options of gossip.

    Raises:
        InvalidInput: A leaf's block or a node is unknown.
    """
    if len(leaves) == 0:
        return state, StepOutput()
    at = state.node_rows(leaves["node"], "leaves")
    state = _add_missing_blocks(state, leaves, blocks, unrouted, options)
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
    known_blocks = state.own.blocks[nodes]
    own_blocks = np.zeros_like(known_blocks)
    own_blocks[node[order], block[order]] = True
    # An ancestor's state is known only if it was a leaf, i.e. if its topics are kept.
    older = listed.path_blocks[leaf[nodes]].reshape(len(nodes), MAX_CHAIN_HEADS * listed.paths.shape[1])
    row = np.repeat(np.arange(len(nodes)), older.shape[1])
    stays = known_blocks[row, older.reshape(-1)]
    own_blocks[row[stays], older.reshape(-1)[stays]] = True
    own = state.own.blocks.copy()
    own[nodes] = own_blocks
    before, state = state, replace(state, leaf=leaf, own=OwnTopics(own, listed))
    # Declare the leaves to all peers.
    begins = state.peer_begins
    row, peer = expand_ranges(begins[nodes], begins[nodes + 1])
    count, heads = declared_heads(state, nodes)
    pairs = state.peers.take(peer).select(("node", "peer"))
    out = StepOutput(heads=pairs.with_columns(count=count[row], heads=heads[row]))
    if options.propagate_on_leaf == "off":
        return state, out
    _, peers = expand_ranges(state.peer_begins[nodes], state.peer_begins[nodes + 1])
    fresh = new_blocks(common_blocks(state, peers), common_blocks(before, peers), listed.nothing)
    state, sent = propagate(state, peers, fresh, options)
    return state, merge_outputs([out, sent])


def _add_missing_blocks(
    state: GossipState, leaves: Frame, blocks: Frame, unrouted: Frame, options: GossipOptions
) -> GossipState:
    """Add the blocks that ``leaves`` name."""
    hashes = merge_digests(leaves["hash"])
    missing = hashes[digest_positions(state.listed.blocks, hashes) < 0]
    if len(missing) == 0:
        return state
    _, first = np.unique(digest_column(blocks["hash"]), return_index=True)
    blocks = blocks.take(first)
    found = digest_positions(blocks["hash"], missing)
    if (found < 0).any():
        raise InvalidInput(f"leaves: block {missing[found < 0][0].tobytes().hex()} is not known; give it in blocks")
    if blocks["ancestors"].shape[1:] != (options.ancestors, 32):
        shape = blocks["ancestors"].shape[1:]
        raise InvalidInput(f"blocks: ancestors have the shape {shape} a block; allowed: ({options.ancestors}, 32)")
    return renumber(state, add_blocks(state.listed, blocks.take(found), unrouted, options))


def on_own_queues(state: GossipState, kept: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Add the nodes' own egress queues to their pools under each topic that expects the root.

    These are the known, not yet propagated queues of egress(B, p) (3.5, 3).

    Args:
        state: State of the nodes.
        kept: Rows of ``node``, ``root`` and ``size`` (bytes, u64).
        options: Options of gossip.
    """
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
