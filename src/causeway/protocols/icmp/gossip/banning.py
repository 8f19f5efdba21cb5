"""Who was disconnected for what it sent is not connected again for a while; of each node so many are remembered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import groups_of, stable_order
from causeway.protocols.icmp.errors import Verdict
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import Output
from causeway.protocols.icmp.gossip.state import GossipState

_REFUSED = (Verdict.TooManyPeers, Verdict.Banned)
"""Why a peer is not connected that has done nothing."""


def unbanned(state: GossipState, pairs: Frame, time: int) -> tuple[GossipState, Mask]:
    """Return the state without those nodes' bans that are over at ``time`` (ms), and which of the peers that connect
    (``node``, ``peer``) are not banned."""
    if len(state.banned) == 0:
        return state, np.ones(len(pairs), dtype=bool)
    over = (state.banned["until"] <= np.uint64(time)) & np.isin(state.banned["node"], pairs["node"])
    banned = state.banned.filter(~over)
    return replace(state, banned=banned), lookup(banned, pairs, ("node", "peer")) < 0


def banned(state: GossipState, out: Output, time: int, options: GossipOptions) -> GossipState:
    """Return the state that bans those whom ``out`` disconnects for what they sent. Of more than ``max_banned`` of a
    node those stay whose bans last longest, of equal ones those with the lower number."""
    gone = out.disconnected.filter(~np.isin(out.disconnected["code"], _REFUSED))
    if len(gone) == 0 or options.ban_time == 0:
        return state
    rows = gone.select(("node", "peer")).with_columns(until=np.uint64(time + options.ban_time))
    # Who connects again is banned no longer (``unbanned``): none is there twice.
    rows = concat([state.banned, rows])
    rows = rows.take(stable_order(rows["node"], rows["peer"]))
    oldest = np.lexsort((rows["peer"], np.uint64(2**63) - rows["until"], rows["node"]))
    stays = np.sort(oldest[groups_of(rows["node"][oldest]).ranks() < options.max_banned])
    return replace(state, banned=rows.take(stays))
