"""Collator view of the pool, and requests for missing queues (ICMP reference 3.9, 3; G2)."""

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


def is_in_pool(state: GossipState, queries: Frame) -> Mask:
    """Return a mask of the queues that are in the nodes' pools (3.9, 1).

    Args:
        state: State of the nodes.
        queries: Rows of ``node``, ``topic`` and ``root``.

    Raises:
        InvalidInput: A node is unknown.
    """
    listed = state.listed
    at = state.node_rows(queries["node"], "asked")
    queue = listed.queue_numbers(
        digest_positions(listed.roots, queries["root"]), digest_positions(listed.topics, queries["topic"])
    )
    found = queue >= 0
    found[found] = state.pool[at[found], queue[found]]
    return found


def complete_prefix(state: GossipState, wanted: Frame) -> Mask:
    """Return a mask of the queues in each longest complete prefix of blocks (3.9, 2).

    The prefix of a node and parachain ends before the first block with a missing queue.

    Args:
        state: State of the nodes.
        wanted: Ingress(B, p) in any order: ``node``, ``para`` (u32), ``number`` (u64, of the relay block,
            below 2**32), ``topic``, ``root``.
    """
    present = is_in_pool(state, wanted)
    order = stable_order(wanted["node"], wanted["para"], wanted["number"])
    rows = wanted.select(("node", "para", "number")).take(order)
    runs = group_rows(rows["node"], rows["para"])
    last = np.iinfo(np.uint64).max
    stop = np.where(present[order], last, rows["number"])
    first = np.minimum.reduceat(stop, runs.starts) if len(runs) else stop
    found = np.empty(len(wanted), dtype=bool)
    found[order] = rows["number"] < runs.spread(first)
    return found


def fallback_requests(state: GossipState, wanted: Frame, waited: U64, options: GossipOptions) -> Mask:
    """Return a mask of the queues of ingress(B, p) to request from the sending chain's validators.

    Args:
        state: State of the nodes.
        wanted: Rows of ``node``, ``topic`` and ``root``.
        waited: Time in ms since each queue is wanted.
        options: Options of gossip.
    """
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
    """Process answers to fallback requests: verify them like gossiped queues, but charge no peer.

    Good bodies enter the pool and are sent to peers.

    Args:
        state: State of the nodes.
        answers: Rows of ``node``, ``peer`` (the sender; need not be connected), ``topic``, ``root``,
            ``messages``, ``size`` (u64) and ``found``, the root of the body.
        options: Options of gossip.

    Raises:
        InvalidInput: A node is unknown.
    """
    at, listed = state.node_rows(answers["node"], "answers"), state.listed
    queue = listed.queue_numbers(
        digest_positions(listed.roots, answers["root"]), digest_positions(listed.topics, answers["topic"])
    )
    expected = queue >= 0
    expected[expected] = state.expects(at[expected], queue[expected])
    codes = first_refusals(CHECKS, _Answers(answers, expected, options), len(answers), PeerVerdict.OK)
    good = np.flatnonzero(codes == PeerVerdict.OK)
    # Keep the first answer for each node and queue.
    rows = good[~state.pool[at[good], queue[good]]]
    order = rows[stable_order(at[rows].astype(np.uint64), queue[rows].astype(np.uint64))]
    new = np.sort(order[group_rows(at[order], queue[order]).starts])
    new = new[fits_in_pool(state, at[new], answers["size"][new], options)]
    state, out = put(state, at[new], queue[new], answers["size"][new], options)
    codes[good[~state.pool[at[good], queue[good]]]] = PeerVerdict.PoolFull
    verdicts = verdict_rows(answers, ANSWER, codes, np.zeros(len(answers), dtype=np.int64))
    return state, merge_outputs([out, StepOutput(verdicts=verdicts)])
