"""Chain-heads declarations of peers (ICMP reference 3.6) and topic subscriptions (5.1, 3).

With ``topology = from_to`` each queue has two topics, T1 = H(block || "from" || x) and
T2 = H(block || "to" || y). A node expects the topics it subscribes to, and sends a peer the topics of
that peer's subscriptions; a keeper of a queue has it on both. A subscription is a number: the
parachain's, plus ``TO`` for its incoming queues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, Rows, group_rows
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS

from causeway.core.frame import Frame
from causeway.core.joins import expand_ranges
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import charge, form_costs, remove_peers, verdict_rows
from causeway.gossip.pool import common_blocks, new_blocks
from causeway.gossip.reconcile import propagate
from causeway.gossip.state import EXCUSED, FRESH, NO_INTEREST, GossipState, Heads, find_declared_heads
from causeway.gossip.step_io import PACKET, SUBSCRIPTION, StepOutput, merge_outputs
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.checks import Check, first_refusals


@dataclass(frozen=True)
class NeighborPackets:
    """Neighbour packets and the rows of their senders, -1 for unconnected ones."""

    rows: Frame
    peer: Rows


HEAD_CHECKS: tuple[Check[PeerVerdict, NeighborPackets], ...] = (
    Check(PeerVerdict.NotConnected, "X-2", lambda found: found.peer >= 0),
    Check(PeerVerdict.Malformed, "3.10", lambda found: ~found.rows["malformed"]),
    Check(PeerVerdict.BadNeighborPacket, "3.6, 1", lambda found: found.rows["count"] <= MAX_CHAIN_HEADS),
)


def on_heads(state: GossipState, packets: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Process declarations of peers in order, and send the queues that each last one allows.

    Args:
        state: State of the nodes.
        packets: Rows of ``node``, ``peer``, ``count`` (u64, number of declared heads), ``heads`` (shape (n,
            MAX_CHAIN_HEADS, 32), zero-padded) and ``malformed``. Heads beyond the shape are never stored.
        options: Options of gossip.
    """
    if len(packets) == 0:
        return state, StepOutput()
    found = NeighborPackets(packets, state.peer_rows(packets))
    codes = first_refusals(HEAD_CHECKS, found, len(packets), PeerVerdict.OK)
    change = form_costs(codes)
    charged = charge(state, found.peer, codes, change, options)
    codes[charged.after], change[charged.after] = PeerVerdict.NotConnected, 0
    good = np.flatnonzero(codes == PeerVerdict.OK)
    order = good[np.argsort(found.peer[good], kind="stable")]
    groups = group_rows(found.peer[order])
    # The last declaration of a peer replaces the earlier ones.
    last = order[groups.starts + groups.counts - 1]
    last = last[~np.isin(found.peer[last], charged.gone)]
    state = _reset_fresh_flags(charged.state, found.peer[order], groups.starts, packets.take(order), options)
    state, disconnected = remove_peers(replace(charged, state=state))
    pairs = packets.take(last)
    peers = state.peer_rows(pairs)
    columns = {name: state.peers[name].copy() for name in ("count", "heads")}
    earlier, count = columns["heads"][peers], columns["count"][peers]
    heads = _padded_heads(pairs)
    for name, values in (("count", pairs["count"]), ("heads", heads)):
        columns[name][peers] = values
    state = replace(state, peers=state.peers.with_columns(**columns))
    common = common_blocks(state, peers, find_declared_heads(state, heads, pairs["count"]))
    if options.heads_diff == "new_only":
        before = common_blocks(state, peers, find_declared_heads(state, earlier, count))
        common = new_blocks(common, before, state.listed.nothing)
    state, out = propagate(state, peers, common, options)
    verdicts = verdict_rows(packets, PACKET, codes, change)
    return state, merge_outputs([out, StepOutput(verdicts=verdicts, disconnected=disconnected)])


def _reset_fresh_flags(
    state: GossipState, peers: Rows, starts: Rows, packets: Frame, options: GossipOptions
) -> GossipState:
    """Allow peers that declare new heads to resend queues.

    A peer that purges has other leaves and declares them before. Every change counts, also one that a
    later declaration reverts. A queue may return once between two purges of this node, since peers purge
    no more often.

    Args:
        state: State of the nodes.
        peers: Row of each packet's sender, grouped.
        starts: Start of each sender's packets.
        packets: The packets.
        options: Options of gossip.
    """
    if options.seen_until != "purge" or len(peers) == 0:
        return state
    heads, count = _padded_heads(packets), packets["count"]
    previous_heads, previous_count = np.roll(heads, 1, axis=0), np.roll(count, 1)
    previous_heads[starts], previous_count[starts] = (
        state.peers["heads"][peers[starts]],
        state.peers["count"][peers[starts]],
    )
    changed = np.unique(peers[(previous_count != count) | (previous_heads != heads).any(axis=(1, 2))])
    seen = state.seen.copy()
    rows = seen[changed]
    allowed = (rows & FRESH > 0) & (rows & EXCUSED == 0)
    seen[changed] = np.where(allowed, (rows & ~FRESH) | EXCUSED, rows)
    return replace(state, seen=seen)


def _padded_heads(packets: Frame) -> Heads:
    """Return the declared heads, zero-padded."""
    heads: Heads = packets["heads"].copy()
    heads[np.arange(MAX_CHAIN_HEADS) >= packets["count"][:, None].astype(np.int64)] = 0
    return heads


SUBSCRIPTION_CHECKS: tuple[Check[PeerVerdict, NeighborPackets], ...] = (
    Check(PeerVerdict.NotConnected, "X-2", lambda found: found.peer >= 0),
    Check(PeerVerdict.Malformed, "3.10", lambda found: ~found.rows["malformed"]),
)


def subscribe(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Replace the subscriptions of nodes and announce them to their peers.

    Args:
        state: State of the nodes.
        rows: Rows of ``node`` and ``label`` (u64).
        options: Options of gossip.

    Raises:
        InvalidInput: A node is unknown, or has more than ``max_subscriptions``.
    """
    at = state.node_rows(rows["node"], "subscriptions")
    order = np.lexsort((rows["label"], at))
    order = order[group_rows(at[order], rows["label"][order]).starts]
    groups = group_rows(at[order])
    if len(groups) and groups.counts.max() > options.max_subscriptions:
        node = rows["node"][order[groups.starts[groups.counts.argmax()]]]
        raise InvalidInput(
            f"subscriptions: node {node} has {groups.counts.max()}; allowed: up to {options.max_subscriptions}"
        )
    nodes = at[order[groups.starts]]
    interests = state.nodes["interests"].copy()
    interests[nodes] = NO_INTEREST
    interests[at[order], groups.ranks()] = rows["label"][order]
    state = replace(state, nodes=state.nodes.with_columns(interests=interests))
    _, peers = expand_ranges(state.peer_begins[nodes], state.peer_begins[nodes + 1])
    return state, announce_subscriptions(state, peers)


def announce_subscriptions(state: GossipState, peers: Rows) -> StepOutput:
    """Build announcements of the nodes' subscriptions to peers (rows)."""
    interests = state.nodes["interests"][state.node_of[peers]]
    pairs = state.peers.take(peers).select(("node", "peer"))
    return StepOutput(subscriptions=pairs.with_columns(labels=interests))


def on_subscriptions(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Process subscriptions of peers, the last of each, and send the queues that they allow.

    Args:
        state: State of the nodes.
        rows: Rows of ``node``, ``peer``, ``labels`` (u64, shape (n, max_subscriptions), padded with
            ``NO_INTEREST``) and ``malformed``.
        options: Options of gossip.
    """
    found = NeighborPackets(rows, state.peer_rows(rows))
    codes = first_refusals(SUBSCRIPTION_CHECKS, found, len(rows), PeerVerdict.OK)
    change = form_costs(codes)
    charged = charge(state, found.peer, codes, change, options)
    codes[charged.after], change[charged.after] = PeerVerdict.NotConnected, 0
    good = np.flatnonzero((codes == PeerVerdict.OK) & ~np.isin(found.peer, charged.gone))
    order = good[np.argsort(found.peer[good], kind="stable")]
    groups = group_rows(found.peer[order])
    last = order[groups.starts + groups.counts - 1]
    state, disconnected = remove_peers(charged)
    peers = state.peer_rows(rows.take(last))
    interests: U64 = state.peers["interests"].copy()
    interests[peers] = rows["labels"][last]
    state = replace(state, peers=state.peers.with_columns(interests=interests))
    state, out = propagate(state, peers, common_blocks(state, peers), options)
    verdicts = verdict_rows(rows, SUBSCRIPTION, codes, change)
    return state, merge_outputs([out, StepOutput(verdicts=verdicts, disconnected=disconnected)])
