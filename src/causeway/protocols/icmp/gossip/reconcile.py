"""Reconciliation of pools with sketches (ICMP reference 5.1, 4).

Where a declaration or a new leaf would push what it allows, a sketch goes out of what the pool has on common blocks, of
whatever was sent or received: the peer has that, too. Who receives a sketch adds its own set, decodes the difference
and asks for what it lacks; if that fails, it asks for a sketch of twice the capacity, and beyond the largest for
everything. What comes is judged as any queue is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.order import U64, Rows, groups_of
from causeway.proofs.errors import OverLimit
from causeway.proofs.hashing import HashFunction, digest_rows
from causeway.proofs.sketches import Minisketch, NotDecodable
from causeway.protocols.icmp.errors import Verdict
from causeway.protocols.icmp.gossip.judging import costs, verdict_rows
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import ASKS_SCHEMA, SKETCH, SKETCHES_SCHEMA, Output, joined
from causeway.protocols.icmp.gossip.peers import charge, leave
from causeway.protocols.icmp.gossip.sending import common_blocks, implied, send_pool, sent_pairs
from causeway.protocols.icmp.gossip.state import GossipState

BITS = 32
"""Of a short id."""

FIRST_CAPACITY = 4
"""Of the sketch that goes out first."""

CHECK = 1
"""Sums of a sketch beyond its capacity. Without them a difference that is too large for a capacity c decodes to another
set with a chance of 1 in c!, and what the peer lacks is never asked for; with one, of 1 in 2^32."""


@dataclass(frozen=True)
class Shared:
    """What a node's pool has on the blocks that are common with a peer: short ids, ascending, and their queues."""

    ids: U64
    queues: Rows


def propagate(state: GossipState, peers: Rows, common: Rows, options: GossipOptions) -> tuple[GossipState, Output]:
    """Tell peers (rows, ascending, each once) what some of the ``common`` blocks of theirs allow: push it
    (``send_pool``), or send a sketch to who has such a block at all."""
    if options.reconciliation == "off":
        state, queues = send_pool(state, peers, common, options)
        return state, Output(queues=queues)
    some = peers[(common != state.listed.nothing).any(axis=1)]
    return state, Output(sketches=_sketches(state, some, np.full(len(some), FIRST_CAPACITY, np.uint64)))


def on_sketches(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Take sketches of peers, of each the last: ``node``, ``peer``, ``capacity`` (u64), ``sketch`` (bytes).

    Ask for what is lacking, or for a larger sketch. Of a node the first ``max_step_sketches`` are decoded; who sent the
    others is asked for everything. What is no sketch of up to ``max_sketch_capacity`` costs what is ``Malformed``.
    """
    if len(rows) == 0:
        return state, Output()
    peer = state.peer_rows(rows)
    capacity, data = rows["capacity"], rows["sketch"].cast(pa.large_binary())
    length = np.diff(np.frombuffer(data.buffers()[1], dtype=np.int64, count=len(rows) + 1 + data.offset)[data.offset :])
    fits = (capacity >= 1) & (capacity <= np.uint64(options.max_sketch_capacity))
    fits &= length == BITS // 8 * (np.where(fits, capacity, 0).astype(np.int64) + CHECK)
    codes = np.where(peer < 0, Verdict.NotConnected, np.where(fits, Verdict.OK, Verdict.Malformed)).astype(np.int64)
    charged = charge(state, peer, codes, costs(codes), options)
    codes[charged.after] = Verdict.NotConnected
    verdicts = verdict_rows(rows, SKETCH, codes, costs(codes))
    good = np.flatnonzero((codes == Verdict.OK) & ~np.isin(peer, charged.gone))
    order = good[np.argsort(peer[good], kind="stable")]
    groups = groups_of(peer[order])
    last = order[groups.starts + groups.counts - 1]
    state, gone = leave(charged)
    asks, more = [empty_frame(ASKS_SCHEMA)], []
    peers = state.peer_rows(rows.take(last))
    rank = groups_of(state.node_of[peers]).ranks()
    for row, at, number in zip(last.tolist(), peers.tolist(), rank.tolist(), strict=True):
        size = int(capacity[row])
        if number >= options.max_step_sketches:
            more.append((at, options.max_sketch_capacity + 1))
            continue
        lacking = _lacking(data[row].as_py(), size, _shared(state, at, own=True))
        if lacking is None:
            more.append((at, 2 * size))
        elif len(lacking):
            pair = state.peers.take(np.full(len(lacking), at)).select(("node", "peer"))
            asks.append(pair.with_columns(id=lacking))
    rows_of = np.array([at for at, _ in more], dtype=np.int64)
    wanted = state.peers.take(rows_of).select(("node", "peer"))
    larger = wanted.with_columns(capacity=np.array([size for _, size in more], dtype=np.uint64))
    return state, Output(verdicts=verdicts, disconnected=gone, asks=concat(asks), more=larger)


def on_more(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Send larger sketches to peers that could not decode one (``node``, ``peer``, ``capacity``), of each for the last
    time that it asked; to who asks for more than ``max_sketch_capacity``, all that is allowed."""
    peers, last = _last(state, rows)
    capacity = np.maximum(rows["capacity"][last], np.uint64(1))
    over = capacity > np.uint64(options.max_sketch_capacity)
    pushed = peers[over]
    state, queues = send_pool(state, pushed, common_blocks(state, pushed), options)
    sketches = _sketches(state, peers[~over], capacity[~over])
    return state, joined([Output(queues=queues), Output(sketches=sketches)])


def on_asks(state: GossipState, rows: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Send peers what they ask for by short ids (``node``, ``peer``, ``id``, u64), of what is there and allowed."""
    peer = state.peer_rows(rows)
    found = []
    for at in np.unique(peer[peer >= 0]).tolist():
        shared = _shared(state, at)
        queues = np.sort(shared.queues[np.isin(shared.ids, rows["id"][peer == at])])
        which = np.zeros(len(queues), dtype=np.int64)
        topics, common = state.listed.topic_of[queues], common_blocks(state, np.array([at]))
        queues = queues[(state.seen[at, queues] == 0) & implied(state.listed, common, which, topics, queues, options)]
        found.append((np.full(len(queues), at), queues))
    state, sent = sent_pairs(state, found)
    return state, Output(queues=sent)


def _last(state: GossipState, rows: Frame) -> tuple[Rows, Rows]:
    """Return the peers (rows, ascending, each once) that sent something, and which row of each was the last."""
    peer = state.peer_rows(rows)
    good = np.flatnonzero(peer >= 0)
    order = good[np.argsort(peer[good], kind="stable")]
    groups = groups_of(peer[order])
    last = order[groups.starts + groups.counts - 1]
    return peer[last], last


def _shared(state: GossipState, peer: int, own: bool = False) -> Shared:
    """Return what a node shares with a peer (row): what its pool has on topics of their common blocks, of what the
    peer subscribes to; ``own``: of what the node itself subscribes to, as the peer's sketch has it."""
    some = np.array([peer])
    listed = state.listed
    topics = np.zeros(len(listed.topics), dtype=bool)
    for block in common_blocks(state, some)[0]:
        topics |= listed.leaf_topics[block]
    queues = np.flatnonzero(state.pool[state.node_of[peer]] & topics[listed.topic_of])
    node = np.full(len(queues), state.node_of[peer])
    queues = queues[state.subscribes(node, queues) if own else state.wants(np.full(len(queues), peer), queues)]
    parts = (listed.topics[listed.topic_of[queues]], listed.roots[listed.root_of[queues]])
    salt = np.broadcast_to(state.peers["salt"][peer], (len(queues), 32))
    digests = digest_rows(HashFunction.BLAKE2B_256, np.concatenate([salt, *parts], axis=1))
    ids = np.ascontiguousarray(digests[:, : BITS // 8]).view("<u4").reshape(-1).astype(np.uint64)
    # 0 is no element. Of two queues with one id the later counts.
    ids, place = np.unique(np.maximum(ids, np.uint64(1))[::-1], return_index=True)
    return Shared(ids, queues[::-1][place])


def _sketches(state: GossipState, peers: Rows, capacity: U64) -> Frame:
    data = []
    for peer, size in zip(peers.tolist(), capacity.tolist(), strict=True):
        sketch = Minisketch(BITS, size + CHECK)
        sketch.add_all(_shared(state, peer).ids)
        data.append(sketch.serialize())
    if not data:
        return empty_frame(SKETCHES_SCHEMA)
    pairs = state.peers.take(peers).select(("node", "peer"))
    return pairs.with_columns(capacity=capacity, sketch=pa.array(data, pa.large_binary()))


def _lacking(data: bytes, capacity: int, own: Shared) -> npt.NDArray[np.uint64] | None:
    """Return the short ids, ascending, that are in the sketch and not one's own; None: the difference is too large."""
    sketch = Minisketch.deserialize(BITS, capacity + CHECK, data)
    mine = Minisketch(BITS, capacity + CHECK)
    mine.add_all(own.ids)
    sketch.merge(mine)
    try:
        found = np.array(sketch.decode(capacity), dtype=np.uint64)
    except (NotDecodable, OverLimit):
        return None
    return found[~np.isin(found, own.ids)]
