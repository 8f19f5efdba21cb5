"""On chain-heads declarations of peers (ICMP reference 3.6)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import Rows, groups_of
from causeway.proofs.substrate.gossip import MAX_CHAIN_HEADS
from causeway.protocols.checks import Check, refusals
from causeway.protocols.icmp.errors import Verdict
from causeway.protocols.icmp.gossip.judging import costs, verdict_rows
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import PACKET, Output, joined
from causeway.protocols.icmp.gossip.peers import charge, leave
from causeway.protocols.icmp.gossip.reconcile import propagate
from causeway.protocols.icmp.gossip.sending import common_blocks, new_blocks
from causeway.protocols.icmp.gossip.state import FRESH, GossipState, declared


@dataclass(frozen=True)
class Packets:
    """Neighbour packets, and the rows of those who sent them, -1 where these are not connected."""

    rows: Frame
    peer: Rows


CHECKS: tuple[Check[Verdict, Packets], ...] = (
    Check(Verdict.NotConnected, "X-2", lambda found: found.peer >= 0),
    Check(Verdict.Malformed, "3.10", lambda found: ~found.rows["malformed"]),
    Check(Verdict.BadNeighborPacket, "3.6, 1", lambda found: found.rows["count"] <= MAX_CHAIN_HEADS),
)


def on_heads(state: GossipState, packets: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Take declarations of peers, in order, and send what their last one allows.

    ``packets``: ``node``, ``peer``, ``count`` (u64, how many heads are declared), ``heads`` (shape (n,
    MAX_CHAIN_HEADS, 32), zeros behind the last), ``malformed`` (what cannot be decoded). What a packet declares beyond
    the shape is never held.
    """
    if len(packets) == 0:
        return state, Output()
    found = Packets(packets, state.peer_rows(packets))
    codes = refusals(CHECKS, found, len(packets), Verdict.OK)
    change = costs(codes)
    charged = charge(state, found.peer, codes, change, options)
    codes[charged.after], change[charged.after] = Verdict.NotConnected, 0
    good = np.flatnonzero(codes == Verdict.OK)
    order = good[np.argsort(found.peer[good], kind="stable")]
    groups = groups_of(found.peer[order])
    # The last declaration of each peer is the latest list it sent.
    last = order[groups.starts + groups.counts - 1]
    last = last[~np.isin(found.peer[last], charged.gone)]
    pairs = packets.take(last)
    state, gone = leave(charged)
    peers = state.peer_rows(pairs)
    state, out = _declared(state, peers, pairs, options)
    verdicts = verdict_rows(packets, PACKET, codes, change)
    return state, joined([out, Output(verdicts=verdicts, disconnected=gone)])


def _declared(state: GossipState, peers: Rows, packets: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Take the declarations of peers (rows, each once)."""
    columns = {name: state.peers[name].copy() for name in ("count", "heads")}
    earlier, count = columns["heads"][peers], columns["count"][peers]
    heads = packets["heads"].copy()
    heads[np.arange(MAX_CHAIN_HEADS) >= packets["count"][:, None].astype(np.int64)] = 0
    for name, values in (("count", packets["count"]), ("heads", heads)):
        columns[name][peers] = values
    state = replace(state, peers=state.peers.with_columns(**columns))
    if options.seen_until == "purge":
        # Whoever purges has other leaves, and says so before: then what it sent may come again.
        others = peers[(count != packets["count"]) | (earlier != heads).any(axis=(1, 2))]
        seen = state.seen.copy()
        seen[others] &= ~FRESH
        state = replace(state, seen=seen)
    common = common_blocks(state, peers, declared(state, heads, packets["count"]))
    if options.heads_diff == "new_only":
        before = common_blocks(state, peers, declared(state, earlier, count))
        common = new_blocks(common, before, state.listed.nothing)
    return propagate(state, peers, common, options)
