"""Topics of senders and recipients, to which nodes subscribe (ICMP reference 5.1, 3; ``topology = from_to``).

Each queue is on two topics, T1 = H(block || "from" || x) and T2 = H(block || "to" || y). A node expects what it
subscribes to, and sends a peer what that peer does; who keeps a queue has it on both. A subscription is a number: the
parachain's, plus ``TO`` for what goes to it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.model.joins import over
from causeway.model.order import U64, Rows, groups_of
from causeway.protocols.checks import Check, refusals
from causeway.protocols.icmp.errors import Verdict
from causeway.protocols.icmp.gossip.heads import Packets
from causeway.protocols.icmp.gossip.judging import costs, verdict_rows
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import SUBSCRIPTION, Output, joined
from causeway.protocols.icmp.gossip.peers import charge, leave
from causeway.protocols.icmp.gossip.reconcile import propagate
from causeway.protocols.icmp.gossip.sending import common_blocks
from causeway.protocols.icmp.gossip.state import NO_INTEREST, GossipState

CHECKS: tuple[Check[Verdict, Packets], ...] = (
    Check(Verdict.NotConnected, "X-2", lambda found: found.peer >= 0),
    Check(Verdict.Malformed, "3.10", lambda found: ~found.rows["malformed"]),
)


def subscribe(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Give nodes the subscriptions of ``rows`` (``node``, ``label``, u64), in place of those they had, and tell their
    peers. Raises ``InvalidInput`` for a node that is not there, and for more than ``max_subscriptions`` of one."""
    at = state.node_rows(rows["node"], "subscriptions")
    order = np.lexsort((rows["label"], at))
    order = order[groups_of(at[order], rows["label"][order]).starts]
    groups = groups_of(at[order])
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
    _, peers = over(state.peer_begins[nodes], state.peer_begins[nodes + 1])
    return state, told(state, peers)


def told(state: GossipState, peers: Rows) -> Output:
    """Return that peers (rows) are told what their nodes subscribe to."""
    interests = state.nodes["interests"][state.node_of[peers]]
    pairs = state.peers.take(peers).select(("node", "peer"))
    return Output(subscriptions=pairs.with_columns(labels=interests))


def on_subscriptions(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Take what peers subscribe to, of each the last, and send what it allows: ``node``, ``peer``, ``labels`` (u64,
    shape (n, max_subscriptions), ``NO_INTEREST`` behind the last), ``malformed``."""
    found = Packets(rows, state.peer_rows(rows))
    codes = refusals(CHECKS, found, len(rows), Verdict.OK)
    change = costs(codes)
    charged = charge(state, found.peer, codes, change, options)
    codes[charged.after], change[charged.after] = Verdict.NotConnected, 0
    good = np.flatnonzero((codes == Verdict.OK) & ~np.isin(found.peer, charged.gone))
    order = good[np.argsort(found.peer[good], kind="stable")]
    groups = groups_of(found.peer[order])
    last = order[groups.starts + groups.counts - 1]
    state, gone = leave(charged)
    peers = state.peer_rows(rows.take(last))
    interests: U64 = state.peers["interests"].copy()
    interests[peers] = rows["labels"][last]
    state = replace(state, peers=state.peers.with_columns(interests=interests))
    state, out = propagate(state, peers, common_blocks(state, peers), options)
    verdicts = verdict_rows(rows, SUBSCRIPTION, codes, change)
    return state, joined([out, Output(verdicts=verdicts, disconnected=gone)])
