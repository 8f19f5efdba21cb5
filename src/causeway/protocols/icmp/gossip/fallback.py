"""What is asked of those who keep a queue where gossip does not bring it (ICMP reference 3.9, 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64, groups_of, stable_order
from causeway.protocols.checks import Check, refusals
from causeway.protocols.digests import same
from causeway.protocols.icmp.errors import Verdict
from causeway.protocols.icmp.gossip.collecting import held
from causeway.protocols.icmp.gossip.judging import verdict_rows
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.numbers import places
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.output import ANSWER, Output, joined
from causeway.protocols.icmp.gossip.pool import fitting, put
from causeway.protocols.icmp.gossip.state import GossipState


def requested(state: GossipState, wanted: Frame, waited: U64, options: GossipOptions) -> Mask:
    """Return for which queues of ingress(B, p) nodes ask validators of the sending chain: those that are missing, and
    have been waited for (ms) long enough. ``wanted``: ``node``, ``topic``, ``root``."""
    if options.fallback_request == "off":
        return np.zeros(len(wanted), dtype=bool)
    return ~held(state, wanted) & (waited >= np.uint64(options.fallback_after))


@dataclass(frozen=True)
class _Answers:
    rows: Frame
    expected: Mask
    options: GossipOptions


CHECKS: tuple[Check[Verdict, _Answers], ...] = (
    Check(
        Verdict.Malformed,
        "3.10",
        lambda found: (
            (found.rows["messages"] <= np.uint64(found.options.max_queue_messages))
            & (found.rows["size"] <= np.uint64(found.options.max_queue_bytes))
        ),
    ),
    Check(Verdict.UnexpectedQueue, "3.7, 2", lambda found: found.expected),
    Check(Verdict.RootMismatch, "3.7, 2", lambda found: same(found.rows["found"], found.rows["root"])),
)


def on_answers(state: GossipState, answers: Frame, options: GossipOptions) -> tuple[GossipState, Output]:
    """Judge what those who keep queues answered, as if it had been gossiped, but at nobody's cost; what is good goes
    into the pool, and out to peers.

    ``answers``: ``node``, ``peer`` (who answered; need not be connected), ``topic``, ``root``, ``messages``, ``size``
    (u64), ``found``, the root of the body. Raises ``InvalidInput`` for a node that is not there.
    """
    at, listed = state.node_rows(answers["node"], "answers"), state.listed
    queue = listed.queue_numbers(places(listed.roots, answers["root"]), places(listed.topics, answers["topic"]))
    expected = queue >= 0
    expected[expected] = state.expects(at[expected], queue[expected])
    codes = refusals(CHECKS, _Answers(answers, expected, options), len(answers), Verdict.OK)
    good = np.flatnonzero(codes == Verdict.OK)
    # Of each node and queue the first of the rows, in order.
    rows = good[~state.pool[at[good], queue[good]]]
    order = rows[stable_order(at[rows].astype(np.uint64), queue[rows].astype(np.uint64))]
    new = np.sort(order[groups_of(at[order], queue[order]).starts])
    new = new[fitting(state, at[new], answers["size"][new], options)]
    state, out = put(state, at[new], queue[new], answers["size"][new], options)
    codes[good[~state.pool[at[good], queue[good]]]] = Verdict.PoolFull
    verdicts = verdict_rows(answers, ANSWER, codes, np.zeros(len(answers), dtype=np.int64))
    return state, joined([out, Output(verdicts=verdicts)])
