"""Reconciliation of pools with sketches (ICMP reference 5.1, 4).

Instead of pushing the queues that a declaration or a new leaf allows, a node sends a sketch of its pool
on the common blocks, regardless of sent and received flags. The receiver adds its own set, decodes the
difference and requests the missing queues. If decoding fails, it requests a sketch of twice the
capacity, and beyond the largest everything. Received queues are verified as usual.
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
"""Bits of a short id."""

FIRST_CAPACITY = 4
"""Capacity of the first sketch."""

CHECK = 1
"""Redundant sums of a sketch beyond its capacity.

Without one, a difference too large for capacity c decodes to a wrong set with probability 1 / c!, and
the missing queues are never requested; with one, the probability is 2^-32.
"""


_FIELD = Field(BITS)

_PIECE = 1 << 24
"""Maximum product of peers and queues processed at a time."""


@dataclass(frozen=True)
class SharedBlocks:
    """Pooled queues on the blocks in common with peers.

    Attributes:
        which: Position of the peer of each queue.
        ids: Short ids, ascending for each peer.
        queues: Numbers of the queues.
        sizes: Number of queues of each peer.
    """

    which: Rows
    ids: U64
    queues: Rows
    sizes: Rows

    @property
    def peer_body_ids(self) -> Frame:
        """Distinct rows of ``peer`` (position) and ``id``, ascending by both."""
        return Frame({"peer": self.which.astype(np.uint64), "id": self.ids}, len(self.ids))


def propagate(state: GossipState, peers: Rows, common: Rows, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Push the queues that ``common`` blocks allow, or send sketches with reconciliation.

    Args:
        state: State of the nodes.
        peers: Rows of the peers, ascending and distinct.
        common: Blocks of each peer.
        options: Options of gossip.
    """
    if options.reconciliation == "off":
        state, queues = send_pool(state, peers, common, options)
        return state, StepOutput(queues=queues)
    some = peers[(common != state.listed.nothing).any(axis=1)]
    return state, StepOutput(sketches=_build_sketches(state, some, np.full(len(some), FIRST_CAPACITY, np.uint64)))


def on_sketches(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Decode the last sketch of each peer; request missing queues, or a larger sketch.

    A node decodes the first ``max_step_sketches``; from other senders it requests everything. An invalid
    sketch, or one above ``max_sketch_capacity``, is charged as ``Malformed``.

    Args:
        state: State of the nodes.
        rows: Rows of ``node``, ``peer``, ``capacity`` (u64) and ``sketch`` (bytes).
        options: Options of gossip.
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
    state, disconnected = remove_peers(charged)
    peers = state.peer_rows(rows.take(last))
    rank = group_rows(state.node_of[peers]).ranks()
    late = rank >= options.max_step_sketches
    on_time = peers[~late]
    missing, sizes = _missing_ids(rows.take(last[~late]), _shared_queues(state, on_time, own=True))
    asks = state.peers.take(on_time.repeat(np.maximum(sizes, 0))).select(("node", "peer")).with_columns(id=missing)
    # Request twice the capacity after a failure, and everything for an undecoded sketch.
    wanted = np.where(late, np.uint64(options.max_sketch_capacity + 1), np.uint64(2) * capacity[last])
    failed = late.copy()
    failed[~late] = sizes < 0
    more = state.peers.take(peers[failed]).select(("node", "peer")).with_columns(capacity=wanted[failed])
    return state, StepOutput(
        verdicts=verdicts, disconnected=disconnected, asks=asks.select(ASKS_SCHEMA.names), more=more
    )


def on_larger_sketch_requests(
    state: GossipState, rows: Frame, options: GossipOptions
) -> tuple[GossipState, StepOutput]:
    """Send larger sketches to peers that failed to decode one.

    The last request of each peer counts. A peer that requests more than ``max_sketch_capacity``, or comes
    after a node's first ``max_step_sketches``, is sent all allowed queues.

    Args:
        state: State of the nodes.
        rows: Rows of ``node``, ``peer`` and ``capacity``.
        options: Options of gossip.
    """
    # The last request of each connected peer.
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
    sketches = _build_sketches(state, peers[~over], capacity[~over])
    return state, merge_outputs([StepOutput(queues=queues), StepOutput(sketches=sketches)])


def on_body_requests(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Send the pooled, allowed queues that peers request by short ids.

    Args:
        state: State of the nodes.
        rows: Rows of ``node``, ``peer`` and ``id`` (u64).
        options: Options of gossip.
    """
    peer = state.peer_rows(rows)
    rows, peer = rows.filter(peer >= 0), peer[peer >= 0]
    peers = distinct(peer)
    shared = _shared_queues(state, peers)
    requests = Frame({"peer": peers.searchsorted(peer).astype(np.uint64), "id": rows["id"]}, len(peer))
    positions = lookup_rows(shared.peer_body_ids, requests, ("peer", "id"))
    positions = distinct(positions[positions >= 0])
    which, queues = shared.which[positions], shared.queues[positions]
    order = np.lexsort((queues, which))
    which, queues = which[order], queues[order]
    common, topics = common_blocks(state, peers), state.listed.topic_of[queues]
    good = state.seen[peers[which], queues] == 0
    good &= is_implied(state.listed, common, which, topics, queues, options)
    state, sent = record_sent(state, [(peers[which[good]], queues[good])])
    return state, StepOutput(queues=sent)


def _shared_queues(state: GossipState, peers: Rows, own: bool = False) -> SharedBlocks:
    """Return pooled queues on topics of common blocks within the peers' subscriptions.

    With ``own``, the nodes' subscriptions apply instead, as in the peers' sketches.
    """
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
    # 0 is no element of the field. On a collision of ids the later queue counts.
    ids = np.ascontiguousarray(digests[:, : BITS // 8]).view("<u4").reshape(-1).astype(np.uint64)
    ids = np.maximum(ids, np.uint64(1))
    order = stable_order(which.astype(np.uint64), ids)
    groups = group_rows(which[order], ids[order])
    order = order[groups.starts + groups.counts - 1]
    return SharedBlocks(which[order], ids[order], queues[order], np.bincount(which[order], minlength=len(peers)))


def _build_sketches(state: GossipState, peers: Rows, capacity: U64) -> Frame:
    if len(peers) == 0:
        return empty_frame(SKETCHES_SCHEMA)
    shared, counts = _shared_queues(state, peers), capacity.astype(np.int64) + CHECK
    content, ends = pack_sketches(_FIELD, power_sums(_FIELD, shared.ids, shared.sizes, counts), counts)
    pairs = state.peers.take(peers).select(("node", "peer"))
    return pairs.with_columns(capacity=capacity, sketch=column_from_buffers(content, ends))


def _missing_ids(rows: Frame, own: SharedBlocks) -> tuple[U64, Rows]:
    """Return the short ids in each sketch that are not own ones, ascending, and their numbers.

    The number is negative if the difference is too large.
    """
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
