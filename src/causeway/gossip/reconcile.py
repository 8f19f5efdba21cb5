"""Reconciliation of pools with sketches (ICMP reference 5.1, 4).

Where a declaration or a new leaf would push what it allows, a sketch goes out of what the pool has on common blocks, of
whatever was sent or received: the peer has that, too. Who receives a sketch adds its own set, decodes the difference
and asks for what it lacks; if that fails, it asks for a sketch of twice the capacity, and beyond the largest for
everything. What comes is judged as any queue is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import HashFunction, digest_rows
from causeway_proofs.order import U64, Rows, distinct, group_rows, stable_order
from causeway_proofs.sketches.galois import Field
from causeway_proofs.sketches.pin_sketch import decode_sketches, pack_sketches, power_sums, unpack_sketches
from causeway_proofs.substrate.byte_columns import column_data, column_from_buffers, column_offsets

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import lookup_rows
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import charge, form_costs, remove_peers, verdict_rows
from causeway.gossip.pool import common_blocks, is_implied, record_sent, send_pool
from causeway.gossip.state import GossipState
from causeway.gossip.step_io import ASKS_SCHEMA, SKETCH, SKETCHES_SCHEMA, StepOutput, merge_outputs
from causeway.protocols.relay_chain.errors import PeerVerdict

BITS = 32
"""Of a short id."""

FIRST_CAPACITY = 4
"""Of the sketch that goes out first."""

CHECK = 1
"""Sums of a sketch beyond its capacity. Without them a difference that is too large for a capacity c decodes to another
set with a chance of 1 in c!, and what the peer lacks is never asked for; with one, of 1 in 2^32."""


_FIELD = Field(BITS)

_PIECE = 1 << 24
"""Peers times queues that are looked at in one go."""


@dataclass(frozen=True)
class SharedBlocks:
    """What pools have on the blocks that are common with peers: ``which`` peer's (a place among those asked for), the
    short ids, ascending for each, and their queues. ``sizes``: how many of each peer."""

    which: Rows
    ids: U64
    queues: Rows
    sizes: Rows

    @property
    def peer_body_ids(self) -> Frame:
        """Return ``peer`` (a place) and ``id``, ascending by both, no pair twice."""
        return Frame({"peer": self.which.astype(np.uint64), "id": self.ids}, len(self.ids))


def propagate(state: GossipState, peers: Rows, common: Rows, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Tell peers (rows, ascending, each once) what some of the ``common`` blocks of theirs allow: push it
    (``send_pool``), or send a sketch to who has such a block at all."""
    if options.reconciliation == "off":
        state, queues = send_pool(state, peers, common, options)
        return state, StepOutput(queues=queues)
    some = peers[(common != state.listed.nothing).any(axis=1)]
    return state, StepOutput(sketches=_sketches(state, some, np.full(len(some), FIRST_CAPACITY, np.uint64)))


def on_sketches(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Take sketches of peers, of each the last: ``node``, ``peer``, ``capacity`` (u64), ``sketch`` (bytes).

    Ask for what is lacking, or for a larger sketch. Of a node the first ``max_step_sketches`` are decoded; who sent the
    others is asked for everything. What is no sketch of up to ``max_sketch_capacity`` costs what is ``Malformed``.
    """
    if len(rows) == 0:
        return state, StepOutput()
    peer = state.peer_rows(rows)
    capacity, data = rows["capacity"], rows["sketch"].cast(pa.large_binary())
    length = np.diff(column_offsets(data))
    fits = (capacity >= 1) & (capacity <= np.uint64(options.max_sketch_capacity))
    fits &= length == BITS // 8 * (np.where(fits, capacity, 0).astype(np.int64) + CHECK)
    codes = np.where(peer < 0, PeerVerdict.NotConnected, np.where(fits, PeerVerdict.OK, PeerVerdict.Malformed)).astype(
        np.int64
    )
    charged = charge(state, peer, codes, form_costs(codes), options)
    codes[charged.after] = PeerVerdict.NotConnected
    verdicts = verdict_rows(rows, SKETCH, codes, form_costs(codes))
    good = np.flatnonzero((codes == PeerVerdict.OK) & ~np.isin(peer, charged.gone))
    order = good[np.argsort(peer[good], kind="stable")]
    groups = group_rows(peer[order])
    last = order[groups.starts + groups.counts - 1]
    state, gone = remove_peers(charged)
    peers = state.peer_rows(rows.take(last))
    rank = group_rows(state.node_of[peers]).ranks()
    late = rank >= options.max_step_sketches
    on_time = peers[~late]
    lacking, sizes = _lacking(rows.take(last[~late]), _shared(state, on_time, own=True))
    asks = state.peers.take(on_time.repeat(np.maximum(sizes, 0))).select(("node", "peer")).with_columns(id=lacking)
    # Who was not decoded is asked for twice the capacity, whose sketch was not looked at for everything.
    wanted = np.where(late, np.uint64(options.max_sketch_capacity + 1), np.uint64(2) * capacity[last])
    failed = late.copy()
    failed[~late] = sizes < 0
    more = state.peers.take(peers[failed]).select(("node", "peer")).with_columns(capacity=wanted[failed])
    return state, StepOutput(verdicts=verdicts, disconnected=gone, asks=asks.select(ASKS_SCHEMA.names), more=more)


def on_larger_sketch_requests(
    state: GossipState, rows: Frame, options: GossipOptions
) -> tuple[GossipState, StepOutput]:
    """Send larger sketches to peers that could not decode one (``node``, ``peer``, ``capacity``), of each for the last
    time that it asked; to who asks for more than ``max_sketch_capacity``, all that is allowed, and to who comes after
    the first ``max_step_sketches`` of a node."""
    # The peers (rows, ascending, each once) that sent something, and which row of each was the last.
    peer = state.peer_rows(rows)
    good = np.flatnonzero(peer >= 0)
    order = good[np.argsort(peer[good], kind="stable")]
    groups = group_rows(peer[order])
    last = order[groups.starts + groups.counts - 1]
    peers = peer[last]
    capacity = np.maximum(rows["capacity"][last], np.uint64(1))
    over = capacity > np.uint64(options.max_sketch_capacity)
    small = np.flatnonzero(~over)
    over[small] = group_rows(state.node_of[peers[small]]).ranks() >= options.max_step_sketches
    pushed = peers[over]
    state, queues = send_pool(state, pushed, common_blocks(state, pushed), options)
    sketches = _sketches(state, peers[~over], capacity[~over])
    return state, merge_outputs([StepOutput(queues=queues), StepOutput(sketches=sketches)])


def on_body_requests(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Send peers what they ask for by short ids (``node``, ``peer``, ``id``, u64), of what is there and allowed."""
    peer = state.peer_rows(rows)
    rows, peer = rows.filter(peer >= 0), peer[peer >= 0]
    peers = distinct(peer)
    shared = _shared(state, peers)
    asked = Frame({"peer": peers.searchsorted(peer).astype(np.uint64), "id": rows["id"]}, len(peer))
    named = lookup_rows(shared.peer_body_ids, asked, ("peer", "id"))
    named = distinct(named[named >= 0])
    which, queues = shared.which[named], shared.queues[named]
    order = np.lexsort((queues, which))
    which, queues = which[order], queues[order]
    common, topics = common_blocks(state, peers), state.listed.topic_of[queues]
    good = state.seen[peers[which], queues] == 0
    good &= is_implied(state.listed, common, which, topics, queues, options)
    state, sent = record_sent(state, [(peers[which[good]], queues[good])])
    return state, StepOutput(queues=sent)


def _shared(state: GossipState, peers: Rows, own: bool = False) -> SharedBlocks:
    """Return what nodes share with peers (rows): what their pools have on topics of common blocks, of what the peers
    subscribe to; ``own``: of what the nodes themselves subscribe to, as the peers' sketches have it."""
    listed = state.listed
    found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
    piece = max(1, _PIECE // max(1, len(listed.topic_of)))
    for first in range(0, len(peers), piece):
        some = peers[first : first + piece]
        topics = np.zeros((len(some), len(listed.topics)), dtype=bool)
        for blocks in common_blocks(state, some).T:
            topics |= listed.leaf_topics[blocks]
        place, queues = np.nonzero(state.pool[state.node_of[some]] & topics[:, listed.topic_of])
        found.append((place + first, queues))
    which, queues = (np.concatenate(column) for column in zip(*found, strict=True))
    wanted = state.subscribes(state.node_of[peers[which]], queues) if own else state.wants(peers[which], queues)
    which, queues = which[wanted], queues[wanted]
    parts = (listed.topics[listed.topic_of[queues]], listed.roots[listed.root_of[queues]])
    digests = digest_rows(HashFunction.BLAKE2B_256, np.concatenate([state.peers["salt"][peers[which]], *parts], axis=1))
    # 0 is no element. Of two queues with one id the later counts.
    ids = np.ascontiguousarray(digests[:, : BITS // 8]).view("<u4").reshape(-1).astype(np.uint64)
    ids = np.maximum(ids, np.uint64(1))
    order = stable_order(which.astype(np.uint64), ids)
    groups = group_rows(which[order], ids[order])
    order = order[groups.starts + groups.counts - 1]
    return SharedBlocks(which[order], ids[order], queues[order], np.bincount(which[order], minlength=len(peers)))


def _sketches(state: GossipState, peers: Rows, capacity: U64) -> Frame:
    if len(peers) == 0:
        return empty_frame(SKETCHES_SCHEMA)
    shared, counts = _shared(state, peers), capacity.astype(np.int64) + CHECK
    content, ends = pack_sketches(_FIELD, power_sums(_FIELD, shared.ids, shared.sizes, counts), counts)
    pairs = state.peers.take(peers).select(("node", "peer"))
    return pairs.with_columns(capacity=capacity, sketch=column_from_buffers(content, ends))


def _lacking(rows: Frame, own: SharedBlocks) -> tuple[U64, Rows]:
    """Return the short ids, ascending, that are in each sketch and not among one's own, and how many each has; below 0
    where the difference is too large."""
    if len(rows) == 0:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    capacity, data = rows["capacity"].astype(np.int64), rows["sketch"].cast(pa.large_binary())
    counts = capacity + CHECK
    sums = unpack_sketches(_FIELD, column_data(data), column_offsets(data), counts)
    sums ^= power_sums(_FIELD, own.ids, own.sizes, counts)
    found, ids = decode_sketches(_FIELD, sums, counts, capacity)
    which = np.arange(len(found)).repeat(np.maximum(found, 0)).astype(np.uint64)
    new = lookup_rows(own.peer_body_ids, Frame({"peer": which, "id": ids}, len(ids)), ("peer", "id")) < 0
    sizes = np.bincount(which[new].astype(np.int64), minlength=len(found))
    return ids[new], np.where(found < 0, found, sizes)
