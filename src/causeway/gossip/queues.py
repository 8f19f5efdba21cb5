"""Queues from peers (ICMP reference 3.7): verdicts, costs, and additions to the pool.

The expectation check precedes hashing: ``needs_hashing`` selects the queues whose roots the caller
computes in bulk from their bodies; ``on_queues`` verifies all queues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from causeway_proofs.order import Rows, group_rows, stable_order

from causeway.core.frame import Frame
from causeway.gossip.listings import Mask, digest_positions
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import (
    BENEFICIAL,
    MISMATCH,
    UNEXPECTED,
    UNIMPLIED,
    charge,
    form_costs,
    remove_peers,
    verdict_rows,
)
from causeway.gossip.pool import common_blocks, fits_in_pool, is_implied, put
from causeway.gossip.state import FRESH, RECEIVED, Flags, GossipState
from causeway.gossip.step_io import QUEUE, StepOutput, merge_outputs
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.checks import Check, first_refusals
from causeway.protocols.shared.digests import rows_equal


@dataclass(frozen=True)
class QueueArrivals:
    """Arrived queues with the columns that decide their verdicts.

    Attributes:
        state: State of the nodes.
        rows: ``node``, ``peer``, ``topic``, ``root``, ``messages`` and ``size`` (u64; count and bytes),
            ``malformed`` (undecodable), and for ``on_queues`` also ``found``, the root of the body.
        options: Options of gossip.
    """

    state: GossipState
    rows: Frame
    options: GossipOptions

    @cached_property
    def peer(self) -> Rows:
        """Row of each sender, -1 if it is not connected."""
        return self.state.peer_rows(self.rows)

    @cached_property
    def at(self) -> Rows:
        """Row of each node; arbitrary if the sender is not connected."""
        return self.state.node_of[self.peer] if len(self.state.peers) else np.zeros(len(self.rows), dtype=np.int64)

    @cached_property
    def root(self) -> Rows:
        """Number of each root, -1 if it is not listed."""
        return digest_positions(self.state.listed.roots, self.rows["root"])

    @cached_property
    def topic(self) -> Rows:
        """Number of each topic, -1 if it is not listed."""
        return digest_positions(self.state.listed.topics, self.rows["topic"])

    @cached_property
    def queue(self) -> Rows:
        """Number of each queue, -1 if it is not listed."""
        return self.state.listed.queue_numbers(self.root, self.topic)

    @cached_property
    def well_formed(self) -> Mask:
        """Mask of the decodable queues within the limits."""
        short = self.rows["messages"] <= np.uint64(self.options.max_queue_messages)
        short &= self.rows["size"] <= np.uint64(self.options.max_queue_bytes)
        return np.asarray(short & ~self.rows["malformed"])

    @cached_property
    def expected(self) -> Mask:
        """Mask of the queues that the nodes expect."""
        found = (self.peer >= 0) & (self.queue >= 0)
        found[found] = self.state.expects(self.at[found], self.queue[found])
        return found

    @cached_property
    def flags(self) -> Flags:
        """Flags of each queue with its peer before this call."""
        found = np.zeros(len(self.rows), dtype=np.uint8)
        known = (self.peer >= 0) & (self.queue >= 0)
        found[known] = self.state.seen[self.peer[known], self.queue[known]]
        return found

    @cached_property
    def fresh(self) -> Mask:
        """Mask of queues that must not arrive again, by earlier calls or earlier rows."""
        found = self.flags & FRESH > 0
        accepted = self.flags > 0
        accepted |= self.expected & self.matching
        noted = ~found & self.well_formed & accepted
        known = np.flatnonzero((self.peer >= 0) & (self.queue >= 0))
        peer, queue = (column[known].astype(np.uint64) for column in (self.peer, self.queue))
        order = stable_order(peer, queue)
        groups = group_rows(peer[order], queue[order])
        if len(groups) == len(known):
            return found
        earlier = noted[known[order]].astype(np.int64)
        before = np.cumsum(earlier) - earlier
        before -= groups.spread(before[groups.starts])
        found[known[order]] |= before > 0
        return found

    @cached_property
    def matching(self) -> Mask:
        """Mask of the bodies with the declared root."""
        return rows_equal(self.rows["found"], self.rows["root"])


CHECKS: tuple[Check[PeerVerdict, QueueArrivals], ...] = (
    Check(PeerVerdict.NotConnected, "X-2", lambda found: found.peer >= 0),
    Check(PeerVerdict.Malformed, "3.10", lambda found: found.well_formed),
    Check(PeerVerdict.Impolite, "3.7, 1", lambda found: ~found.fresh),
    Check(PeerVerdict.Duplicate, "6, 13", lambda found: found.flags == 0),
    Check(PeerVerdict.UnexpectedQueue, "3.7, 2", lambda found: found.expected),
    Check(PeerVerdict.RootMismatch, "3.7, 2", lambda found: found.matching),
)

_JUDGED = (PeerVerdict.OK, PeerVerdict.UnexpectedQueue, PeerVerdict.RootMismatch)
"""Verdicts on unseen queues (3.7, 2)."""


def needs_hashing(state: GossipState, arrivals: Frame, options: GossipOptions) -> Mask:
    """Return a mask of the queues whose root must be computed.

    The others are refused without it.

    Args:
        state: State of the nodes.
        arrivals: Rows of ``QueueArrivals`` without ``found``.
        options: Options of gossip.
    """
    found = QueueArrivals(state, arrivals, options)
    return np.asarray(found.well_formed & found.expected & (found.flags == 0))


def on_queues(state: GossipState, arrivals: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Verify queues from peers in order, and add the good ones to the pools (3.7).

    Sending starts after all queues of the call are verified.

    Args:
        state: State of the nodes.
        arrivals: Rows of ``QueueArrivals``; ``found`` is arbitrary for rows outside ``needs_hashing``.
        options: Options of gossip.
    """
    if len(arrivals) == 0:
        return state, StepOutput()
    found = QueueArrivals(state, arrivals, options)
    codes = first_refusals(CHECKS, found, len(arrivals), PeerVerdict.OK)
    # Change of the sender's reputation by each queue.
    change = form_costs(codes)
    change[codes == PeerVerdict.OK] = BENEFICIAL
    change[codes == PeerVerdict.UnexpectedQueue] = UNEXPECTED
    wrong = codes == PeerVerdict.RootMismatch
    change[wrong] = MISMATCH * np.maximum(found.rows["messages"][wrong].astype(np.int64), 1)
    if found.options.mistrust_unimplied == "on":
        rows = np.flatnonzero(np.isin(codes, _JUDGED))
        peers, which = np.unique(found.peer[rows], return_inverse=True)
        common, listed = common_blocks(found.state, peers), found.state.listed
        known = is_implied(listed, common, which, found.topic[rows], found.queue[rows], found.options)
        change[rows[~known]] += UNIMPLIED
    charged = charge(state, found.peer, codes, change, options)
    codes[charged.after], change[charged.after] = PeerVerdict.NotConnected, 0
    seen = state.seen.copy()
    good, duplicate = np.flatnonzero(codes == PeerVerdict.OK), codes == PeerVerdict.Duplicate
    seen[found.peer[good], found.queue[good]] = RECEIVED | FRESH
    seen[found.peer[duplicate], found.queue[duplicate]] |= FRESH
    new = _first_new(found, good)
    new = new[fits_in_pool(state, found.at[new], arrivals["size"][new], options)]
    beneficial = arrivals.take(good).select(("node", "peer", "topic", "root", "size"))
    state, disconnected = remove_peers(replace(charged, state=replace(charged.state, seen=seen)))
    state, out = put(state, found.at[new], found.queue[new], arrivals["size"][new], options)
    codes[good[~state.pool[found.at[good], found.queue[good]]]] = PeerVerdict.PoolFull
    verdicts = verdict_rows(arrivals, QUEUE, codes, change)
    return state, merge_outputs([out, StepOutput(verdicts=verdicts, disconnected=disconnected, beneficial=beneficial)])


def _first_new(found: QueueArrivals, good: Rows) -> Rows:
    """Return the first of the ``good`` rows for each queue that is not pooled yet, in order."""
    good = good[~found.state.pool[found.at[good], found.queue[good]]]
    order = good[stable_order(found.at[good].astype(np.uint64), found.queue[good].astype(np.uint64))]
    return np.sort(order[group_rows(found.at[order], found.queue[order]).starts])
