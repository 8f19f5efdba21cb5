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
from causeway.protocols.icmp.gossip.state import EXCUSED, FRESH, GossipState, Heads, declared


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
    state = _forgiven(charged.state, found.peer[order], groups.starts, packets.take(order), options)
    state, gone = leave(replace(charged, state=state))
    pairs = packets.take(last)
    # Take the declarations of peers (rows, each once).
    peers = state.peer_rows(pairs)
    columns = {name: state.peers[name].copy() for name in ("count", "heads")}
    earlier, count = columns["heads"][peers], columns["count"][peers]
    heads = _cut(pairs)
    for name, values in (("count", pairs["count"]), ("heads", heads)):
        columns[name][peers] = values
    state = replace(state, peers=state.peers.with_columns(**columns))
    common = common_blocks(state, peers, declared(state, heads, pairs["count"]))
    if options.heads_diff == "new_only":
        before = common_blocks(state, peers, declared(state, earlier, count))
        common = new_blocks(common, before, state.listed.nothing)
    state, out = propagate(state, peers, common, options)
    verdicts = verdict_rows(packets, PACKET, codes, change)
    return state, joined([out, Output(verdicts=verdicts, disconnected=gone)])


def _forgiven(state: GossipState, peers: Rows, starts: Rows, packets: Frame, options: GossipOptions) -> GossipState:
    """Let come again what came from ``peers`` (rows, of each packet, together) that declare others than before: whoever
    purges has other leaves, and says so before. Each declaration counts, also where a later one is like the first; each
    queue may come again once between two purges of this node, for peers purge no more often."""
    if options.seen_until != "purge" or len(peers) == 0:
        return state
    heads, count = _cut(packets), packets["count"]
    earlier, counted = np.roll(heads, 1, axis=0), np.roll(count, 1)
    earlier[starts], counted[starts] = state.peers["heads"][peers[starts]], state.peers["count"][peers[starts]]
    others = np.unique(peers[(counted != count) | (earlier != heads).any(axis=(1, 2))])
    seen = state.seen.copy()
    rows = seen[others]
    allowed = (rows & FRESH > 0) & (rows & EXCUSED == 0)
    seen[others] = np.where(allowed, (rows & ~FRESH) | EXCUSED, rows)
    return replace(state, seen=seen)


def _cut(packets: Frame) -> Heads:
    """Return the heads that are declared, zeros behind the last."""
    heads: Heads = packets["heads"].copy()
    heads[np.arange(MAX_CHAIN_HEADS) >= packets["count"][:, None].astype(np.int64)] = 0
    return heads
