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
from causeway.protocols.xdm.validate import DeliveredEnvelopes, JudgedEnvelopes


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
    counts: list[_Counts] = []
    if len(bases) and len(blocks):
        destination, newest = bases["destination"], blocks["number"][-1]
        counts.append((destination, CheckCounters.RANGE, bases["block"] != newest, None))
        with_receipt = pc.binary_length(bases["domain_proof"]).to_numpy(zero_copy_only=False) > 0
        old = (found.leaf_roots != blocks["state_root"][-1]).any(axis=1)
        counts.append((destination[with_receipt], CheckCounters.RECEIPT, old[with_receipt], None))
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
            counts.append((rows["destination"][chosen], counter, old[chosen], None))
    counts += [(refused["destination"], CheckCounters.REFUSED, None, codes) for refused, codes in now.refused]
    if len(now.early):
        added = now.early.filter(lookup_rows(before, now.early, ("destination", "source", "substream", "index")) < 0)
        counts.append((added["destination"], CheckCounters.EARLY, None, None))
    return _add_counts(state, counts)


def count_notices(state: State, notices: Sequence[ChainEvent]) -> State:
    """Count events of checks."""
    chains: dict[CheckCounters, list[int]] = {}
    for notice in notices:
        if notice.what in _EVENT_COUNTERS:
            chains.setdefault(_EVENT_COUNTERS[notice.what], []).append(notice.chain)
    counts: list[_Counts] = [(np.array(own, dtype=np.uint32), name, None, None) for name, own in chains.items()]
    return _add_counts(state, counts)


def count_proven(state: State, envelopes: Frame) -> State:
    """Count the resubmitted messages of ``envelopes``, by the relay state before (``RELAYING_SCHEMA``)."""
    relaying = state["relaying"]
    if not (len(relaying) and len(envelopes)):
        return state
    known = lookup_rows(relaying, envelopes, LANE)
    resubmitted = (known >= 0) & (envelopes["index"] < relaying["proved"][known])
    return _add_counts(state, [(envelopes["source"][resubmitted], CheckCounters.AGAIN, None, None)])


_Counts = tuple[npt.NDArray[np.uint32], CheckCounters, npt.NDArray[np.bool_] | None, npt.NDArray[np.int64] | None]
"""Chain of each check, its kind, whether its root is old, and its refusal."""


def _add_counts(state: State, counts: Sequence[_Counts]) -> State:
    if not any(len(chain) for chain, *_ in counts):
        return state
    parts = [state["counted"]]
    for chain, counter, old, error in counts:
        count = len(chain)
        columns = {
            "chain": chain,
            "what": repeat_value(np.uint8(counter), count),
            "error": repeat_value(np.uint16(0), count) if error is None else error.astype(np.uint16),
            "count": repeat_value(np.uint64(1), count),
            "old": repeat_value(np.uint64(0), count) if old is None else old.astype(np.uint64),
        }
        parts.append(Frame(columns, count))
    rows = concat(parts)
    packed = rows["chain"].astype(np.uint64) << np.uint64(24) | rows["what"].astype(np.uint64) << np.uint64(16)
    _, first, group = np.unique(packed | rows["error"], return_index=True, return_inverse=True)
    sums = {name: np.zeros(len(first), dtype=np.uint64) for name in ("count", "old")}
    for name, column in sums.items():
        np.add.at(column, group, rows[name])
    return state.with_tables(counted=rows.take(first).with_columns(**sums).select(COUNTED_SCHEMA.names))
