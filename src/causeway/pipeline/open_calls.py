"""How many calls a round begins and ends, so that whoever watches a run knows how many are open, whatever was before.

The counts are parts of ``RoundResult.work``, and so of every manifest, as sums since the beginning. A call begins when
its request is sent, and ends when its response comes back or one of its two messages is dropped; ``calls`` says it
exactly, from all rows. What forks took back is not subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from causeway.model.frame import Frame
from causeway.model.ledger import REVERTED, Event, Kind
from causeway.protocols.messages import FORGED

BEGUN, ENDED = "calls_begun", "calls_ended"
"""What the counts are called."""

_OUTBOUND = {"kind", "sent_tick", "queue_index"}
_EVENTS = {"kind", "events"}


def calls_of_round(outbound: Frame, logs: Mapping[str, Frame], tick: int) -> dict[str, int]:
    """Return how many calls the round of a tick began and ended, by what it logged; what is 0 is left out."""
    begun = ended = 0
    if len(outbound) and set(outbound.names) >= _OUTBOUND:
        sent = (outbound["kind"] == Kind.REQUEST) & (outbound["sent_tick"] == tick)
        begun += int(np.count_nonzero(sent & (outbound["queue_index"] < FORGED)))
    events = logs.get("events")
    if events is not None and len(events) and set(events.names) >= _EVENTS:
        kinds, what = events["kind"], events["events"]
        request, response = kinds == Kind.REQUEST, kinds == Kind.RESPONSE
        begun += int(np.count_nonzero(request & ((what & int(Event.SENT)) > 0)))
        ended += int(np.count_nonzero(response & ((what & int(Event.RECEIVED)) > 0)))
        ended += int(np.count_nonzero((request | response) & ((what & int(Event.DROPPED)) > 0)))
    return {name: count for name, count in ((BEGUN, begun), (ENDED, ended)) if count}


def open_calls(work: Mapping[str, int], totals: Mapping[str, int]) -> int | None:
    """Return how many calls are open after a commit; None where that is not known: forks took something back, or the
    run began under a Causeway that did not count them. ``work``, ``totals``: of its manifest."""
    if totals.get(REVERTED) or (totals.get("outbound") and BEGUN not in work):
        return None
    return max(work.get(BEGUN, 0) - work.get(ENDED, 0), 0)


__all__ = ["BEGUN", "ENDED", "calls_of_round", "open_calls"]
