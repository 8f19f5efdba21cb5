"""Peers (ICMP reference 3.8): who is connected, and what their behaviour costs them.

What is said of what peers send, whatever it is: what its form costs (X-1), and the rows of verdicts.

Who was disconnected for what it sent is not connected again for a while; of each node so many are remembered.
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
"""A message of a queue; of one without messages, as if it had one (D-14)."""
BAD_PACKET = -300
MALFORMED = -500
UNIMPLIED = -100
"""Besides, for a queue whose topic no leaf of the peer implies (``mistrust_unimplied``)."""

Codes = npt.NDArray[np.int64]


def connect(state: GossipState, pairs: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Connect peers (``node``, ``peer``), in order: leaves_k is empty, and they are told the node's leaves.

    One that is connected already keeps what is known of it besides. Of more than ``max_peers`` the later ones are
    refused. With sketches each has a ``salt`` (32 bytes), which both ends know. Raises ``InvalidInput`` for a node that
    is not there.
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
    again, new = known >= 0, np.flatnonzero(known < 0)
    order = new[np.argsort(at[new], kind="stable")]
    rank = group_rows(at[order]).ranks()
    fits = rank + np.diff(state.peer_begins)[at[order]] < options.max_peers
    refused, taken = np.sort(order[~fits]), np.sort(order[fits])
    state = _with_peers(state, pairs.take(taken), known[again], pairs.filter(again))
    told = np.sort(np.concatenate([np.flatnonzero(again), taken]))
    count, heads = declared_heads(state, at[told])
    declared = pairs.take(told).with_columns(count=count, heads=heads).select(("node", "peer", "count", "heads"))
    gone = pairs.take(refused).with_columns(code=np.uint8(PeerVerdict.TooManyPeers))
    return state, StepOutput(heads=declared.filter(count > 0), disconnected=gone.select(("node", "peer", "code")))


def _with_peers(state: GossipState, pairs: Frame, again: Rows, anew: Frame) -> GossipState:
    """Return the state with further peers; those in the rows ``again`` connect ``anew`` and have declared nothing."""
    before = state.peers
    count = before["count"].copy()
    count[again] = 0
    if "interests" in before:
        interests = before["interests"].copy()
        interests[again] = NO_INTEREST
        before = before.with_columns(interests=interests)
        pairs = pairs.with_columns(interests=np.full((len(pairs), interests.shape[1]), NO_INTEREST))
    if "salt" in before:
        salt = before["salt"].copy()
        salt[again] = anew["salt"]
        before = before.with_columns(salt=salt)
    empty = np.zeros((len(pairs), MAX_CHAIN_HEADS, 32), dtype=np.uint8)
    added = pairs.with_columns(reputation=np.int64(0), impolite=np.int64(0), count=np.uint64(0), heads=empty)
    peers = concat([before.with_columns(count=count), added.select(before.names)])
    order = stable_order(peers["node"], peers["peer"])
    seen = np.concatenate([state.seen, np.zeros((len(pairs), state.seen.shape[1]), dtype=np.uint8)])
    return replace(state, peers=peers.take(order), seen=seen[order])


def disconnect(state: GossipState, pairs: Frame) -> GossipState:
    """Return the state without the peers ``pairs`` (``node``, ``peer``); all that was seen of them is forgotten."""
    rows = lookup_rows(state.peers, pairs, ("node", "peer"))
    gone = np.zeros(len(state.peers), dtype=bool)
    gone[rows[rows >= 0]] = True
    return state.drop_peers(gone)


@dataclass(frozen=True)
class ChargeResult:
    """The state after peers were charged, who is ``gone`` (peers' rows, all still in the state), for what (``code``),
    and which rows of the input came ``after`` that."""

    state: GossipState
    gone: Rows
    code: Codes
    after: Mask


def charge(state: GossipState, peers: Rows, codes: Codes, change: Codes, options: GossipOptions) -> ChargeResult:
    """Charge peers (rows; -1: nobody) for what they sent, in order: ``change`` is added to their reputation, which is
    never above ``most_reputation``, and impolite messages are counted. At ``impolite_limit`` and ``least_reputation`` a
    peer is gone."""
    order = stable_order((peers + 1).astype(np.uint64))
    order = order[np.count_nonzero(peers < 0) :]
    peer = peers[order]
    groups = group_rows(peer)
    reputation = state.peers["reputation"][peer] + _running(change[order], groups.starts, groups.counts)
    reputation -= _most(np.maximum(reputation - options.most_reputation, 0), groups.starts, groups.counts)
    rude = _running((codes[order] == PeerVerdict.Impolite).astype(np.int64), groups.starts, groups.counts)
    impolite = state.peers["impolite"][peer] + rude
    over = (reputation <= options.least_reputation) | (impolite >= options.impolite_limit)
    passed = _running(over.astype(np.int64), groups.starts, groups.counts)
    late = passed - over > 0
    last = over & ~late
    kept = {name: state.peers[name].copy() for name in ("reputation", "impolite")}
    if len(peer):
        counted = groups.starts + np.add.reduceat((~late).astype(np.int64), groups.starts) - 1
        kept["reputation"][peer[counted]] = reputation[counted]
        kept["impolite"][peer[counted]] = impolite[counted]
    after = np.zeros(len(peers), dtype=bool)
    after[order[late]] = True
    state = replace(state, peers=state.peers.with_columns(**kept))
    ended = codes[order[last]]
    return ChargeResult(state, peer[last], np.where(ended == PeerVerdict.OK, int(PeerVerdict.Unimplied), ended), after)


def _running(values: Codes, starts: Rows, counts: Rows) -> Codes:
    """Return the sum of the values up to each row, in each group alone."""
    total = np.cumsum(values)
    return np.asarray(total - np.repeat(total[starts] - values[starts], counts))


def _most(values: Codes, starts: Rows, counts: Rows) -> Codes:
    """Return the largest of the values (none below 0) up to each row, in each group alone."""
    if not values.any():
        return values
    step = np.repeat(np.arange(len(starts)), counts) * (values.max() + 1)
    return np.asarray(np.maximum.accumulate(values + step) - step)


def remove_peers(charged: ChargeResult) -> tuple[GossipState, Frame]:
    """Return the state without those who are gone, and them as rows of ``disconnected``."""
    gone = np.zeros(len(charged.state.peers), dtype=bool)
    gone[charged.gone] = True
    rows = charged.state.peers.take(charged.gone).select(("node", "peer"))
    return charged.state.drop_peers(gone), rows.with_columns(code=charged.code.astype(np.uint8))


_COSTS = {PeerVerdict.Malformed: MALFORMED, PeerVerdict.BadNeighborPacket: BAD_PACKET}


def form_costs(codes: Codes) -> Codes:
    """Return what verdicts cost that are about the form alone, 0 for others."""
    change = np.zeros(len(codes), dtype=np.int64)
    for verdict, cost in _COSTS.items():
        change[codes == verdict] = cost
    return change


def verdict_rows(rows: Frame, kind: np.uint8, codes: Codes, change: Codes) -> Frame:
    """Return the verdicts on rows of an input (``VERDICTS_SCHEMA``)."""
    told = rows.select(("node", "peer"))
    numbers = np.arange(len(rows), dtype=np.int64)
    return told.with_columns(kind=kind, row=numbers, code=codes.astype(np.uint8), change=change)


_REFUSED = (PeerVerdict.TooManyPeers, PeerVerdict.Banned)
"""Why a peer is not connected that has done nothing."""


def lift_bans(state: GossipState, pairs: Frame, time: int) -> tuple[GossipState, Mask]:
    """Return the state without those nodes' bans that are over at ``time`` (ms), and which of the peers that connect
    (``node``, ``peer``) are not banned."""
    if len(state.banned) == 0:
        return state, np.ones(len(pairs), dtype=bool)
    over = (state.banned["until"] <= np.uint64(time)) & np.isin(state.banned["node"], pairs["node"])
    banned = state.banned.filter(~over)
    return replace(state, banned=banned), lookup_rows(banned, pairs, ("node", "peer")) < 0


def ban_peers(state: GossipState, out: StepOutput, time: int, options: GossipOptions) -> GossipState:
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
    stays = np.sort(oldest[group_rows(rows["node"][oldest]).ranks() < options.max_banned])
    return replace(state, banned=rows.take(stays))
