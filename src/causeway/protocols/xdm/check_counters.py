"""What was checked on each chain, and what came of it: counts since genesis, for whoever sums up a run.

No root depends on them, and nothing that a chain does.
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
    """What is counted.

    Proofs: of a leaf in the mountain range (``RANGE``) and of a receipt under it (``RECEIPT``), once for all envelopes
    that have them in common; of a request, of a response in storage. ``REFUSED``: envelopes, by error; ``EARLY``:
    messages that were kept until their turn; ``AGAIN``: messages that operators of the chain proved once more;
    ``UNANSWERED``: requests whose call failed, so that nobody answers them (hazard 20); ``FRAUD``: proofs of fraud;
    ``PRUNED``: receipts that went with them.
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


_TOLD = {
    MessengerError.FailedToNoteTransferIn.name: CheckCounters.UNANSWERED,
    FRAUD_PROVED: CheckCounters.FRAUD,
    RECEIPT_PRUNED: CheckCounters.PRUNED,
}
"""Notices that are counted."""


def count_delivered(
    state: State, before: Frame, brought: DeliveredEnvelopes, found: JudgedEnvelopes, now: AcceptedMessages, view: View
) -> State:
    """Return the state with what a block's chains checked of what was ``brought``, and what they refused and kept.

    ``before``: what was kept before (``EARLY_SCHEMA``). A root is old that is not the one of the newest block that the
    chain knows: of the consensus chain, or of the source.
    """
    rows, bases, blocks = found.rows, brought.bases, view.tables["blocks"]
    parts = []
    if len(bases) and len(blocks):
        newest = blocks["number"][-1]
        parts.append(_counts(bases["destination"], CheckCounters.RANGE, bases["block"] != newest))
        with_receipt = pc.binary_length(bases["domain_proof"]).to_numpy(zero_copy_only=False) > 0
        old = (leaf_roots(bases) != blocks["state_root"][-1]).any(axis=1)
        parts.append(_counts(bases["destination"][with_receipt], CheckCounters.RECEIPT, old[with_receipt]))
    if len(rows):
        # Which messages were proved under a root that is not their source's newest.
        headers = view.headers.take(np.argsort(view.headers["height"], kind="stable"))
        newest = dict(zip(headers["chain"].tolist(), headers["root"], strict=True))
        old = np.ones(len(rows), dtype=bool)
        for chain in np.unique(rows["source"]).tolist():
            if chain in newest:
                mine = rows["source"] == chain
                old[mine] = (found.roots[mine] != newest[chain]).any(axis=1)
        for what, some in ((CheckCounters.REQUEST, ~found.is_response), (CheckCounters.RESPONSE, found.is_response)):
            parts.append(_counts(rows["destination"][some], what, old[some]))
    for refused, codes in now.refused:
        never = repeat_value(np.bool_(False), len(refused))
        parts.append(_counts(refused["destination"], CheckCounters.REFUSED, never, codes))
    if len(now.early):
        kept = now.early.filter(lookup_rows(before, now.early, ("destination", "source", "substream", "index")) < 0)
        parts.append(_counts(kept["destination"], CheckCounters.EARLY, repeat_value(np.bool_(False), len(kept))))
    return _with(state, parts)


def count_notices(state: State, notices: Sequence[ChainEvent]) -> State:
    """Return the state with the notices that are counted."""
    parts = []
    for what, counted in _TOLD.items():
        chains = np.array([each.chain for each in notices if each.what == what], dtype=np.uint32)
        parts.append(_counts(chains, counted, repeat_value(np.bool_(False), len(chains))))
    return _with(state, parts)


def count_proven(state: State, relaying: Frame, envelopes: Frame) -> State:
    """Return the state with the messages of ``envelopes`` that were proved before, as operators remember
    (``RELAYING_SCHEMA``)."""
    if not (len(relaying) and len(envelopes)):
        return state
    known = lookup_rows(relaying, envelopes, LANE)
    again = (known >= 0) & (envelopes["index"] < relaying["proved"][known])
    chains = envelopes["source"][again]
    return _with(state, [_counts(chains, CheckCounters.AGAIN, repeat_value(np.bool_(False), len(chains)))])


def _counts(
    chain: npt.NDArray[np.uint32],
    what: CheckCounters,
    old: npt.NDArray[np.bool_],
    error: npt.NDArray[np.int64] | None = None,
) -> Frame:
    """Return one row (``COUNTED_SCHEMA``) each, not yet added up."""
    count = len(chain)
    return Frame(
        {
            "chain": chain,
            "what": repeat_value(np.uint8(what), count),
            "error": repeat_value(np.uint16(0), count) if error is None else error.astype(np.uint16),
            "count": repeat_value(np.uint64(1), count),
            "old": old.astype(np.uint64),
        },
        count,
    )


def _with(state: State, parts: Sequence[Frame]) -> State:
    rows = concat([state["counted"], *parts])
    if len(rows) == len(state["counted"]):
        return state
    packed = rows["chain"].astype(np.uint64) << np.uint64(24) | rows["what"].astype(np.uint64) << np.uint64(16)
    _, first, which = np.unique(packed | rows["error"], return_index=True, return_inverse=True)
    sums = {name: np.zeros(len(first), dtype=np.uint64) for name in ("count", "old")}
    for name, column in sums.items():
        np.add.at(column, which, rows[name])
    return state.with_tables(counted=rows.take(first).with_columns(**sums).select(COUNTED_SCHEMA.names))
