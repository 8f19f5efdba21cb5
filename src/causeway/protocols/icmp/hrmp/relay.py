"""HRMP in a block of the relay chain (ICMP reference X-6): the session first, then what was accepted, then calls.

All receipts are checked against the state that ``new_session`` leaves; ``apply`` is for those that no check refused.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.protocols.icmp.channel_options import HrmpOptions
from causeway.protocols.icmp.hrmp.channels import Executed, execute_calls
from causeway.protocols.icmp.hrmp.checks import (
    MOST_CALL_BYTES,
    MOST_CALLS,
    Codes,
    check_outbound,
    check_parents,
    check_watermarks,
    data_lengths,
)
from causeway.protocols.icmp.hrmp.contents import consume, queue
from causeway.protocols.icmp.hrmp.errors import Acceptance
from causeway.protocols.tabled_state import TabledState


def check(receipts: Frame, sent: Frame, calls: Frame, state: TabledState, number: int, options: HrmpOptions) -> Codes:
    """Return the first error (``Acceptance``) of each receipt for the relay block ``number``: ``source`` (ascending),
    ``parent``, ``watermark``, ``relay_parent``, ``last`` (the watermark before)."""
    found = check_parents(receipts, state["paras"])
    watermarks = check_watermarks(receipts, state["digests"], number)
    # Which receipts bring too many calls, or too many bytes of them.
    at = lookup(receipts, calls, ("source",))
    mine = at >= 0
    counts = np.bincount(at[mine], minlength=len(receipts))
    sizes = np.bincount(at[mine], weights=data_lengths(calls)[mine], minlength=len(receipts))
    wrong = [counts > MOST_CALLS, (sizes > MOST_CALL_BYTES) & (counts > 1)]
    for later in (
        watermarks,
        check_outbound(receipts, sent, state["channels"], options),
        np.select(wrong, [Acceptance.TooManyCalls, Acceptance.CallsTooLarge], Acceptance.OK).astype(np.int64),
    ):
        found = np.where(found == Acceptance.OK, later, found)
    return found


def apply(
    state: TabledState, receipts: Frame, sent: Frame, calls: Frame, number: int, options: HrmpOptions
) -> Executed:
    """Return the state after the receipts (``source``, ``watermark``) of the relay block ``number``, with their
    messages and their calls; what other chains sent and asked for stays aside."""
    state = queue(consume(state, receipts), _of(receipts, sent), number)
    return execute_calls(state, _of(receipts, calls), number, options)


def _of(receipts: Frame, rows: Frame) -> Frame:
    return rows.filter(np.isin(rows["source"], receipts["source"]))
