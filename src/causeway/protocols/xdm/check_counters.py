"""Counters of checks a chain, since genesis, for run summaries.

No root commits to them, and no chain reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import View
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm.calls.prepare import AcceptedMessages
from causeway.protocols.xdm.consensus.receipts import FRAUD_PROVED, RECEIPT_PRUNED
from causeway.protocols.xdm.errors import MessengerError
from causeway.protocols.xdm.events import ChainEvent
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import COUNTED_SCHEMA
from causeway.protocols.xdm.validate import DeliveredEnvelopes, JudgedEnvelopes, leaf_roots


class CheckCounters(IntEnum):
    """Kind of a check.

    ``RANGE`` and ``RECEIPT`` count proofs of leaves and receipts, once for envelopes that share them. ``REQUEST`` and
    ``RESPONSE`` count storage proofs. ``REFUSED`` counts envelopes by error, ``EARLY`` stored early messages, ``AGAIN``
    resubmitted messages. ``UNANSWERED`` counts requests with a failed call, which never get a response (hazard 20).
    ``FRAUD`` counts fraud proofs, ``PRUNED`` their pruned receipts.
    """

    RANGE = 0
    RECEIPT = 1
    REQUEST = 2
    RESPONSE = 3
    REFUSED = 4
    EARLY = 5
    AGAIN = 6
    UNANSWERED = 7
    FRAUD = 8
    PRUNED = 9


_EVENT_COUNTERS = {
    MessengerError.FailedToNoteTransferIn.name: CheckCounters.UNANSWERED,
    FRAUD_PROVED: CheckCounters.FRAUD,
    RECEIPT_PRUNED: CheckCounters.PRUNED,
}
"""Counters by event name."""


def count_delivered(
    state: State,
    before: Frame,
    delivered: DeliveredEnvelopes,
    found: JudgedEnvelopes,
    now: AcceptedMessages,
    view: View,
) -> State:
    """Count the checks of delivered envelopes, refusals and early messages.

    A root is old if a later block of the consensus chain, or of the source, is known.

    Args:
        state: State with the counters.
        before: Early messages before the block (``EARLY_SCHEMA``).
        delivered: Delivered envelopes.
        found: Envelopes with their proved content.
        now: Accepted and refused messages.
        view: Tables that chains published at the previous height.
    """
    rows, bases, blocks = found.rows, delivered.bases, view.tables["blocks"]
    parts = []
    if len(bases) and len(blocks):
        newest = blocks["number"][-1]
        parts.append(_counts(bases["destination"], CheckCounters.RANGE, bases["block"] != newest))
        with_receipt = pc.binary_length(bases["domain_proof"]).to_numpy(zero_copy_only=False) > 0
        old = (leaf_roots(bases) != blocks["state_root"][-1]).any(axis=1)
        parts.append(_counts(bases["destination"][with_receipt], CheckCounters.RECEIPT, old[with_receipt]))
    if len(rows):
        headers = view.headers.take(np.argsort(view.headers["height"], kind="stable"))
        newest = dict(zip(headers["chain"].tolist(), headers["root"], strict=True))
        old = np.ones(len(rows), dtype=bool)
        for chain in np.unique(rows["source"]).tolist():
            if chain in newest:
                from_chain = rows["source"] == chain
                old[from_chain] = (found.roots[from_chain] != newest[chain]).any(axis=1)
        for counter, chosen in (
            (CheckCounters.REQUEST, ~found.is_response),
            (CheckCounters.RESPONSE, found.is_response),
        ):
            parts.append(_counts(rows["destination"][chosen], counter, old[chosen]))
    for refused, codes in now.refused:
        not_old = repeat_value(np.bool_(False), len(refused))
        parts.append(_counts(refused["destination"], CheckCounters.REFUSED, not_old, codes))
    if len(now.early):
        added = now.early.filter(lookup_rows(before, now.early, ("destination", "source", "substream", "index")) < 0)
        parts.append(_counts(added["destination"], CheckCounters.EARLY, repeat_value(np.bool_(False), len(added))))
    return _add_counts(state, parts)


def count_notices(state: State, notices: Sequence[ChainEvent]) -> State:
    """Count events of checks."""
    parts = []
    for event_name, counted in _EVENT_COUNTERS.items():
        chains = np.array([each.chain for each in notices if each.what == event_name], dtype=np.uint32)
        parts.append(_counts(chains, counted, repeat_value(np.bool_(False), len(chains))))
    return _add_counts(state, parts)


def count_proven(state: State, relaying: Frame, envelopes: Frame) -> State:
    """Count the resubmitted messages of ``envelopes``, by the relay state (``RELAYING_SCHEMA``)."""
    if not (len(relaying) and len(envelopes)):
        return state
    known = lookup_rows(relaying, envelopes, LANE)
    resubmitted = (known >= 0) & (envelopes["index"] < relaying["proved"][known])
    chains = envelopes["source"][resubmitted]
    return _add_counts(state, [_counts(chains, CheckCounters.AGAIN, repeat_value(np.bool_(False), len(chains)))])


def _counts(
    chain: npt.NDArray[np.uint32],
    counter: CheckCounters,
    old: npt.NDArray[np.bool_],
    error: npt.NDArray[np.int64] | None = None,
) -> Frame:
    """Return a row (``COUNTED_SCHEMA``) a check, before summation."""
    count = len(chain)
    return Frame(
        {
            "chain": chain,
            "what": repeat_value(np.uint8(counter), count),
            "error": repeat_value(np.uint16(0), count) if error is None else error.astype(np.uint16),
            "count": repeat_value(np.uint64(1), count),
            "old": old.astype(np.uint64),
        },
        count,
    )


def _add_counts(state: State, parts: Sequence[Frame]) -> State:
    rows = concat([state["counted"], *parts])
    if len(rows) == len(state["counted"]):
        return state
    packed = rows["chain"].astype(np.uint64) << np.uint64(24) | rows["what"].astype(np.uint64) << np.uint64(16)
    _, first, group = np.unique(packed | rows["error"], return_index=True, return_inverse=True)
    sums = {name: np.zeros(len(first), dtype=np.uint64) for name in ("count", "old")}
    for name, column in sums.items():
        np.add.at(column, group, rows[name])
    return state.with_tables(counted=rows.take(first).with_columns(**sums).select(COUNTED_SCHEMA.names))
