"""What is asked of those who keep a queue where gossip does not bring it (ICMP reference 3.9, 3).

What a collator or validator finds in its pool of what a parachain may consume (ICMP reference 3.9; G2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.core.frame import Frame
from causeway.gossip.listings import Mask, digest_positions
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import verdict_rows
from causeway.gossip.pool import fits_in_pool, put
from causeway.gossip.state import GossipState
from causeway.gossip.step_io import ANSWER, StepOutput, merge_outputs
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.checks import Check, first_refusals
from causeway.protocols.shared.digests import rows_equal


def is_in_pool(state: GossipState, asked: Frame) -> Mask:
    """Return which queues are in the pools of nodes, asked for by ``node``, ``topic`` and ``root`` (3.9, 1). Raises
    ``InvalidInput`` for a node that is not there."""
    listed = state.listed
    at = state.node_rows(asked["node"], "asked")
    queue = listed.queue_numbers(
        digest_positions(listed.roots, asked["root"]), digest_positions(listed.topics, asked["topic"])
    )
    found = queue >= 0
    found[found] = state.pool[at[found], queue[found]]
    return found


def complete_prefix(state: GossipState, wanted: Frame) -> Mask:
    """Return which queues are in the longest run of blocks of which the node has all (3.9, 2).

    ``wanted``: ingress(B, p) as nodes ask for it, in any order: ``node``, ``para`` (u32), ``number`` (u64, of the relay
    block, below 2**32), ``topic``, ``root``. Each node's run for a parachain ends before the first block of which a
    queue is missing.
    """
    there = is_in_pool(state, wanted)
    order = stable_order(wanted["node"], wanted["para"], wanted["number"])
    rows = wanted.select(("node", "para", "number")).take(order)
    runs = group_rows(rows["node"], rows["para"])
    last = np.iinfo(np.uint64).max
    stop = np.where(there[order], last, rows["number"])
    first = np.minimum.reduceat(stop, runs.starts) if len(runs) else stop
    found = np.empty(len(wanted), dtype=bool)
    found[order] = rows["number"] < runs.spread(first)
    return found


def fallback_requests(state: GossipState, wanted: Frame, waited: U64, options: GossipOptions) -> Mask:
    """Return for which queues of ingress(B, p) nodes ask validators of the sending chain: those that are missing, and
    have been waited for (ms) long enough. ``wanted``: ``node``, ``topic``, ``root``."""
    if options.fallback_request == "off":
        return np.zeros(len(wanted), dtype=bool)
    return ~is_in_pool(state, wanted) & (waited >= np.uint64(options.fallback_after))


@dataclass(frozen=True)
class _Answers:
    rows: Frame
    expected: Mask
    options: GossipOptions


CHECKS: tuple[Check[PeerVerdict, _Answers], ...] = (
    Check(
        PeerVerdict.Malformed,
        "3.10",
        lambda found: (
            (found.rows["messages"] <= np.uint64(found.options.max_queue_messages))
            & (found.rows["size"] <= np.uint64(found.options.max_queue_bytes))
        ),
    ),
    Check(PeerVerdict.UnexpectedQueue, "3.7, 2", lambda found: found.expected),
    Check(PeerVerdict.RootMismatch, "3.7, 2", lambda found: rows_equal(found.rows["found"], found.rows["root"])),
)


def on_answers(state: GossipState, answers: Frame, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Judge what those who keep queues answered, as if it had been gossiped, but at nobody's cost; what is good goes
    into the pool, and out to peers.

    ``answers``: ``node``, ``peer`` (who answered; need not be connected), ``topic``, ``root``, ``messages``, ``size``
    (u64), ``found``, the root of the body. Raises ``InvalidInput`` for a node that is not there.
    """
    at, listed = state.node_rows(answers["node"], "answers"), state.listed
    queue = listed.queue_numbers(
        digest_positions(listed.roots, answers["root"]), digest_positions(listed.topics, answers["topic"])
    )
    expected = queue >= 0
    expected[expected] = state.expects(at[expected], queue[expected])
    codes = first_refusals(CHECKS, _Answers(answers, expected, options), len(answers), PeerVerdict.OK)
    good = np.flatnonzero(codes == PeerVerdict.OK)
    # Of each node and queue the first of the rows, in order.
    rows = good[~state.pool[at[good], queue[good]]]
    order = rows[stable_order(at[rows].astype(np.uint64), queue[rows].astype(np.uint64))]
    new = np.sort(order[group_rows(at[order], queue[order]).starts])
    new = new[fits_in_pool(state, at[new], answers["size"][new], options)]
    state, out = put(state, at[new], queue[new], answers["size"][new], options)
    codes[good[~state.pool[at[good], queue[good]]]] = PeerVerdict.PoolFull
    verdicts = verdict_rows(answers, ANSWER, codes, np.zeros(len(answers), dtype=np.int64))
    return state, merge_outputs([out, StepOutput(verdicts=verdicts)])
