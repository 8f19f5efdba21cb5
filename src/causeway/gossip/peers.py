"""Peers (ICMP reference 3.8): connections, reputation, bans.

Verdict rows and the costs of malformed packets (X-1) are shared by all kinds of input. A peer that is
disconnected for misbehaviour is banned for a while; each node remembers a bounded number of bans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import Rows, group_rows, stable_order
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.gossip.listings import Mask
from causeway.gossip.options import GossipOptions
from causeway.gossip.state import NO_INTEREST, GossipState, declared_heads
from causeway.gossip.step_io import StepOutput
from causeway.protocols.relay_chain.errors import PeerVerdict

BENEFICIAL = 50
UNEXPECTED = -100
MISMATCH = -150
"""Cost a message of a queue; a queue without messages costs as much as one message (D-14)."""
BAD_PACKET = -300
MALFORMED = -500
UNIMPLIED = -100
"""Additional cost of a queue whose topic no leaf of the peer implies (``mistrust_unimplied``)."""

Codes = npt.NDArray[np.int64]


def connect(state: GossipState, pairs: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Connect peers in order: leaves_k is empty, and each is sent the node's leaves.

    A peer that is already connected keeps its other state. Peers beyond ``max_peers`` are refused.

    Args:
        state: State of the nodes.
        pairs: Rows of ``node`` and ``peer``; with sketches also ``salt`` (32 bytes), shared by both ends.
        options: Options of gossip.

    Raises:
        InvalidInput: A node is unknown, or the salt is missing.
    """
    if len(pairs) == 0:
        return state, StepOutput()
    if "salt" in state.peers and "salt" not in pairs:
        raise InvalidInput("connect: reconciliation = minisketch needs the column salt")
    at = state.node_rows(pairs["node"], "connect")
    order = stable_order(pairs["node"], pairs["peer"])
    first = np.sort(order[group_rows(pairs["node"][order], pairs["peer"][order]).starts])
    pairs, at = pairs.take(first), at[first]
    known = state.peer_rows(pairs)
    reconnecting, new = known >= 0, np.flatnonzero(known < 0)
    order = new[np.argsort(at[new], kind="stable")]
    rank = group_rows(at[order]).ranks()
    fits = rank + np.diff(state.peer_begins)[at[order]] < options.max_peers
    refused, accepted = np.sort(order[~fits]), np.sort(order[fits])
    state = _add_peers(state, pairs.take(accepted), known[reconnecting], pairs.filter(reconnecting))
    declared_to = np.sort(np.concatenate([np.flatnonzero(reconnecting), accepted]))
    count, heads = declared_heads(state, at[declared_to])
    declared = pairs.take(declared_to).with_columns(count=count, heads=heads).select(("node", "peer", "count", "heads"))
    disconnected = pairs.take(refused).with_columns(code=np.uint8(PeerVerdict.TooManyPeers))
    return state, StepOutput(
        heads=declared.filter(count > 0), disconnected=disconnected.select(("node", "peer", "code"))
    )


def _add_peers(state: GossipState, pairs: Frame, reconnecting: Rows, reconnections: Frame) -> GossipState:
    """Add peers, and reset the declarations of reconnecting ones (rows, and their input)."""
    before = state.peers
    count = before["count"].copy()
    count[reconnecting] = 0
    if "interests" in before:
        interests = before["interests"].copy()
        interests[reconnecting] = NO_INTEREST
        before = before.with_columns(interests=interests)
        pairs = pairs.with_columns(interests=np.full((len(pairs), interests.shape[1]), NO_INTEREST))
    if "salt" in before:
        salt = before["salt"].copy()
        salt[reconnecting] = reconnections["salt"]
        before = before.with_columns(salt=salt)
    empty = np.zeros((len(pairs), MAX_CHAIN_HEADS, 32), dtype=np.uint8)
    added = pairs.with_columns(reputation=np.int64(0), impolite=np.int64(0), count=np.uint64(0), heads=empty)
    peers = concat([before.with_columns(count=count), added.select(before.names)])
    order = stable_order(peers["node"], peers["peer"])
    seen = np.concatenate([state.seen, np.zeros((len(pairs), state.seen.shape[1]), dtype=np.uint8)])
    return replace(state, peers=peers.take(order), seen=seen[order])


def disconnect(state: GossipState, pairs: Frame) -> GossipState:
    """Remove peers (``node``, ``peer``) and their flags."""
    rows = lookup_rows(state.peers, pairs, ("node", "peer"))
    disconnected = np.zeros(len(state.peers), dtype=bool)
    disconnected[rows[rows >= 0]] = True
    return state.drop_peers(disconnected)


@dataclass(frozen=True)
class ChargeResult:
    """State after charging peers.

    Attributes:
        state: State of the nodes; disconnected peers are still in it.
        gone: Rows of the peers to disconnect.
        code: Verdict that caused each disconnection.
        after: Mask of the input rows that came after their sender's disconnection.
    """

    state: GossipState
    gone: Rows
    code: Codes
    after: Mask


def charge(state: GossipState, peers: Rows, codes: Codes, change: Codes, options: GossipOptions) -> ChargeResult:
    """Charge peers for their input in order.

    ``change`` adds to a peer's reputation, bounded by ``most_reputation``; impolite messages are counted.
    A peer at ``impolite_limit`` or ``least_reputation`` is disconnected.

    Args:
        state: State of the nodes.
        peers: Row of each input's sender, -1 for none.
        codes: Verdict of each input.
        change: Change of reputation by each input.
        options: Options of gossip.
    """
    order = stable_order((peers + 1).astype(np.uint64))
    order = order[np.count_nonzero(peers < 0) :]
    peer = peers[order]
    groups = group_rows(peer)
    reputation = state.peers["reputation"][peer] + _running_sum(change[order], groups.starts, groups.counts)
    reputation -= _running_max(np.maximum(reputation - options.most_reputation, 0), groups.starts, groups.counts)
    rude = _running_sum((codes[order] == PeerVerdict.Impolite).astype(np.int64), groups.starts, groups.counts)
    impolite = state.peers["impolite"][peer] + rude
    over = (reputation <= options.least_reputation) | (impolite >= options.impolite_limit)
    exceeded_count = _running_sum(over.astype(np.int64), groups.starts, groups.counts)
    late = exceeded_count - over > 0
    last = over & ~late
    columns = {name: state.peers[name].copy() for name in ("reputation", "impolite")}
    if len(peer):
        last_counted = groups.starts + np.add.reduceat((~late).astype(np.int64), groups.starts) - 1
        columns["reputation"][peer[last_counted]] = reputation[last_counted]
        columns["impolite"][peer[last_counted]] = impolite[last_counted]
    after = np.zeros(len(peers), dtype=bool)
    after[order[late]] = True
    state = replace(state, peers=state.peers.with_columns(**columns))
    final_codes = codes[order[last]]
    return ChargeResult(
        state, peer[last], np.where(final_codes == PeerVerdict.OK, int(PeerVerdict.Unimplied), final_codes), after
    )


def _running_sum(values: Codes, starts: Rows, counts: Rows) -> Codes:
    """Return the running sum of the values within each group."""
    total = np.cumsum(values)
    return np.asarray(total - np.repeat(total[starts] - values[starts], counts))


def _running_max(values: Codes, starts: Rows, counts: Rows) -> Codes:
    """Return the running maximum of the non-negative values within each group."""
    if not values.any():
        return values
    step = np.repeat(np.arange(len(starts)), counts) * (values.max() + 1)
    return np.asarray(np.maximum.accumulate(values + step) - step)


def remove_peers(charged: ChargeResult) -> tuple[GossipState, Frame]:
    """Remove the disconnected peers; also return them as rows of ``disconnected``."""
    disconnected = np.zeros(len(charged.state.peers), dtype=bool)
    disconnected[charged.gone] = True
    rows = charged.state.peers.take(charged.gone).select(("node", "peer"))
    return charged.state.drop_peers(disconnected), rows.with_columns(code=charged.code.astype(np.uint8))


_COSTS = {PeerVerdict.Malformed: MALFORMED, PeerVerdict.BadNeighborPacket: BAD_PACKET}


def form_costs(codes: Codes) -> Codes:
    """Return the costs of verdicts on the form of a packet, 0 for other verdicts."""
    change = np.zeros(len(codes), dtype=np.int64)
    for verdict, cost in _COSTS.items():
        change[codes == verdict] = cost
    return change


def verdict_rows(rows: Frame, kind: np.uint8, codes: Codes, change: Codes) -> Frame:
    """Build the verdicts on rows of an input (``VERDICTS_SCHEMA``)."""
    pairs = rows.select(("node", "peer"))
    numbers = np.arange(len(rows), dtype=np.int64)
    return pairs.with_columns(kind=kind, row=numbers, code=codes.astype(np.uint8), change=change)


_REFUSED = (PeerVerdict.TooManyPeers, PeerVerdict.Banned)
"""Reasons for refusing a peer without its fault."""


def lift_bans(state: GossipState, pairs: Frame, time: int) -> tuple[GossipState, Mask]:
    """Remove bans that expired, and return a mask of the connecting peers that are not banned.

    Args:
        state: State of the nodes.
        pairs: Connecting peers (``node``, ``peer``).
        time: Time in ms.
    """
    if len(state.banned) == 0:
        return state, np.ones(len(pairs), dtype=bool)
    over = (state.banned["until"] <= np.uint64(time)) & np.isin(state.banned["node"], pairs["node"])
    banned = state.banned.filter(~over)
    return replace(state, banned=banned), lookup_rows(banned, pairs, ("node", "peer")) < 0


def ban_peers(state: GossipState, out: StepOutput, time: int, options: GossipOptions) -> GossipState:
    """Ban peers that ``out`` disconnects for misbehaviour.

    If a node has more than ``max_banned``, those with the latest end remain, then the lower number.

    Args:
        state: State of the nodes.
        out: Output of the step.
        time: Time in ms.
        options: Options of gossip.
    """
    misbehaving = out.disconnected.filter(~np.isin(out.disconnected["code"], _REFUSED))
    if len(misbehaving) == 0 or options.ban_time == 0:
        return state
    rows = misbehaving.select(("node", "peer")).with_columns(until=np.uint64(time + options.ban_time))
    # A connected peer is not banned (``lift_bans``), so rows are distinct.
    rows = concat([state.banned, rows])
    rows = rows.take(stable_order(rows["node"], rows["peer"]))
    oldest = np.lexsort((rows["peer"], np.uint64(2**63) - rows["until"], rows["node"]))
    stays = np.sort(oldest[group_rows(rows["node"][oldest]).ranks() < options.max_banned])
    return replace(state, banned=rows.take(stays))
