"""What the programs of a block answered: which packet each answer is the receipt of (IBC reference 3.3, 3.4)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame
from causeway.model.ledger import Event
from causeway.model.order import Rows, groups_of, stable_order
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.execution import HANDLER_FAILED
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.envelope import ANSWER_BYTES
from causeway.protocols.ibc.inputs import Code
from causeway.protocols.ibc.state import RECEIPT, answering
from causeway.protocols.limits import MAX_DATA_BYTES
from causeway.protocols.messages import LANE, payload_lengths

NO_SLOT = -1
TOO_LONG = f"an answer to another lake has at most {MAX_DATA_BYTES - ANSWER_BYTES} bytes".encode()
SLOT_GONE = "SlotNotOpen"
"""Why an answer is dropped: a cleanup has passed the index of its receipt."""


def answers_by_slot(responses: Frame, waiting: Frame, context: Context, log: EventLog) -> tuple[Frame, Frame]:
    """Return responses to packets with the lane and index of their receipts, and the slots still unanswered.

    ``waiting``: slots (``SLOTS_SCHEMA``) of all packets that programs have or had before them; ``sender`` called
    ``receiver``. An answer whose slot is gone, because a cleanup passed it, is dropped with an event.
    """
    asked, given = len(waiting), len(responses)
    own = (responses["receiver"], responses["sender"], responses["callback"])
    theirs = (waiting["sender"], waiting["receiver"], waiting["callback"])
    if given == 0 or (
        asked == given and all(np.array_equal(one, other) for one, other in zip(own, theirs, strict=True))
    ):
        slot: Rows = np.arange(given)
    else:
        keys = [np.concatenate([other, one]) for one, other in zip(own, theirs, strict=True)]
        order = stable_order(*keys)
        groups = groups_of(*(key[order] for key in keys))
        is_slot = order < asked
        # In a group the slots come first: its k-th answer is to its k-th slot.
        slots_in = np.add.reduceat(is_slot.astype(np.int64), groups.starts)
        answer = np.flatnonzero(~is_slot)
        late = groups.ranks()[answer] >= 2 * groups.spread(slots_in)[answer]
        slot = np.full(given, NO_SLOT, dtype=np.int64)
        slot[order[answer] - asked] = np.where(late, NO_SLOT, order[answer - groups.spread(slots_in)[answer]])
        nowhere = slot == NO_SLOT
        if nowhere.any():
            _log_nowhere(responses.filter(nowhere), context, log)
            responses, slot = responses.filter(~nowhere), slot[~nowhere]
    taken = waiting.select(["source", "destination", "index"]).take(slot)
    open_still = np.ones(asked, dtype=bool)
    open_still[slot] = False
    lanes = answering(taken, RECEIPT)
    receipts = responses.with_columns(**{name: lanes[name] for name in LANE}, index=taken["index"])
    return receipts, waiting.filter(open_still)


def carried_whole(receipts: Frame, context: Context) -> Frame:
    """Return receipts with those that are too long to be carried to another lake in a form that says so.

    Their packets have been handled: the caller is told with code 3, and what comes back to it stays as it is.
    """
    if not context.zones.topology.external:
        return receipts
    long = payload_lengths(receipts).astype(np.int64) + ANSWER_BYTES > MAX_DATA_BYTES
    long &= ~np.isin(receipts["destination"], context.zones.own)
    if not long.any():
        return receipts
    payload = pc.if_else(pa.array(long), pa.scalar(TOO_LONG, pa.binary()), receipts["payload"])
    code = np.where(long, np.uint8(Code.HANDLER_FAILED), receipts["code"])
    return receipts.with_columns(payload=payload, code=code)


def _log_nowhere(responses: Frame, context: Context, log: EventLog) -> None:
    chain = context.zones.host_of(responses["sender"]).view(np.uint32)
    log.add(event_rows(responses, Event.DROPPED, chain=chain, code=responses["code"], reason=SLOT_GONE))


def receipt_codes(codes: np.ndarray) -> np.ndarray:
    """Return the codes that receipts carry for the codes with which programs answer."""
    table = np.maximum(np.arange(256), Code.REJECTED)
    table[[0, HANDLER_FAILED]] = Code.SUCCESS, Code.HANDLER_FAILED
    table[4] = Code.REJECTED
    found: np.ndarray = table.astype(np.uint8)[codes]
    return found
