"""On queues from peers (ICMP reference 3.7): what each is worth, and what goes into the pool.

Whether a root is expected is asked before anything is hashed: ``to_hash`` says of which queues the caller computes the
root, in bulk, from the bodies that it then keeps; ``on_queues`` judges all.
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
    """Queues that came to nodes, and what they are judged by: row by row.

    ``rows``: ``node``, ``peer``, ``topic``, ``root``, ``messages`` and ``size`` (u64: how many, and their bytes),
    ``malformed`` (what cannot be decoded), and for ``on_queues`` ``found``, the root of the body.
    """

    state: GossipState
    rows: Frame
    options: GossipOptions

    @cached_property
    def peer(self) -> Rows:
        """Return the row of who sent each queue, -1 where nobody is connected."""
        return self.state.peer_rows(self.rows)

    @cached_property
    def at(self) -> Rows:
        """Return the row of each node; of who is not connected, any."""
        return self.state.node_of[self.peer] if len(self.state.peers) else np.zeros(len(self.rows), dtype=np.int64)

    @cached_property
    def root(self) -> Rows:
        """Return the number of each root, -1 where it is not listed."""
        return digest_positions(self.state.listed.roots, self.rows["root"])

    @cached_property
    def topic(self) -> Rows:
        """Return the number of each topic, -1 where it is not listed."""
        return digest_positions(self.state.listed.topics, self.rows["topic"])

    @cached_property
    def queue(self) -> Rows:
        """Return the number of each queue, -1 where it is not listed."""
        return self.state.listed.queue_numbers(self.root, self.topic)

    @cached_property
    def well_formed(self) -> Mask:
        """Return what could be decoded, and is not longer than a queue may be."""
        short = self.rows["messages"] <= np.uint64(self.options.max_queue_messages)
        short &= self.rows["size"] <= np.uint64(self.options.max_queue_bytes)
        return np.asarray(short & ~self.rows["malformed"])

    @cached_property
    def expected(self) -> Mask:
        """Return what the nodes expect."""
        found = (self.peer >= 0) & (self.queue >= 0)
        found[found] = self.state.expects(self.at[found], self.queue[found])
        return found

    @cached_property
    def flags(self) -> Flags:
        """Return what had been seen of each queue with its peer before this call."""
        found = np.zeros(len(self.rows), dtype=np.uint8)
        known = (self.peer >= 0) & (self.queue >= 0)
        found[known] = self.state.seen[self.peer[known], self.queue[known]]
        return found

    @cached_property
    def fresh(self) -> Mask:
        """Return what may not come again: what it was before, and what an earlier row of this call makes so."""
        found = self.flags & FRESH > 0
        taken = self.flags > 0
        taken |= self.expected & self.matching
        noted = ~found & self.well_formed & taken
        asked = np.flatnonzero((self.peer >= 0) & (self.queue >= 0))
        peer, queue = (column[asked].astype(np.uint64) for column in (self.peer, self.queue))
        order = stable_order(peer, queue)
        groups = group_rows(peer[order], queue[order])
        if len(groups) == len(asked):
            return found
        earlier = noted[asked[order]].astype(np.int64)
        before = np.cumsum(earlier) - earlier
        before -= groups.spread(before[groups.starts])
        found[asked[order]] |= before > 0
        return found

    @cached_property
    def matching(self) -> Mask:
        """Return which bodies have the root that is said."""
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
"""Verdicts on queues that had not been seen (3.7, 2)."""


def needs_hashing(state: GossipState, arrivals: Frame, options: GossipOptions) -> Mask:
    """Return of which queues the root must be computed: the others are refused whatever their bodies are."""
    found = QueueArrivals(state, arrivals, options)
    return np.asarray(found.well_formed & found.expected & (found.flags == 0))


def on_queues(state: GossipState, arrivals: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Judge queues from peers, in order, and put the good ones into the pools (3.7).

    ``arrivals``: see ``Arrivals``; of rows that ``to_hash`` leaves out ``found`` is any. What is put goes out after all
    of the call was judged.
    """
    if len(arrivals) == 0:
        return state, StepOutput()
    found = QueueArrivals(state, arrivals, options)
    codes = first_refusals(CHECKS, found, len(arrivals), PeerVerdict.OK)
    # What each queue changes in the reputation of who sent it.
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
    good, again = np.flatnonzero(codes == PeerVerdict.OK), codes == PeerVerdict.Duplicate
    seen[found.peer[good], found.queue[good]] = RECEIVED | FRESH
    seen[found.peer[again], found.queue[again]] |= FRESH
    new = _new(found, good)
    new = new[fits_in_pool(state, found.at[new], arrivals["size"][new], options)]
    thanked = arrivals.take(good).select(("node", "peer", "topic", "root", "size"))
    state, gone = remove_peers(replace(charged, state=replace(charged.state, seen=seen)))
    state, out = put(state, found.at[new], found.queue[new], arrivals["size"][new], options)
    codes[good[~state.pool[found.at[good], found.queue[good]]]] = PeerVerdict.PoolFull
    verdicts = verdict_rows(arrivals, QUEUE, codes, change)
    return state, merge_outputs([out, StepOutput(verdicts=verdicts, disconnected=gone, beneficial=thanked)])


def _new(found: QueueArrivals, good: Rows) -> Rows:
    """Return of the ``good`` rows the first of each queue that a node's pool does not have yet, in order."""
    good = good[~found.state.pool[found.at[good], found.queue[good]]]
    order = good[stable_order(found.at[good].astype(np.uint64), found.queue[good].astype(np.uint64))]
    return np.sort(order[group_rows(found.at[order], found.queue[order]).starts])
