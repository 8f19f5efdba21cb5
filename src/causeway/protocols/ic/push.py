"""Pushes to input queues: whatever brings a message to a canister, all are numbered by the same few lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, empty_frame
from causeway.model.ledger import NO_CHAIN, Event, Via
from causeway.model.order import positions_in
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.execution import credited
from causeway.protocols.ic.state import State
from causeway.protocols.ic.step import ARRIVALS_SCHEMA
from causeway.protocols.ic.vsr import LostCause, lost_causes
from causeway.protocols.messages import MESSAGE_COLUMNS

U8 = npt.NDArray[np.uint8]

_NO_LANE = {
    "source": np.uint32(NO_CHAIN),
    "destination": np.uint32(NO_CHAIN),
    "substream": np.uint64(0),
    "index": np.uint64(0),
}


def match_responses(state: State, responses: Frame) -> tuple[State, U8]:
    """Return the state in which the calls that the ``responses`` answer are closed, and a ``LostCause`` for each that
    answers none; 0 = it is to be enqueued (X-2 push_input).

    Of a best-effort response that comes too late the refund is the originator's.
    """
    matching, calls = state.open_calls.answered_by(responses)
    cause = np.zeros(len(responses), dtype=np.uint8)
    state = replace(state, open_calls=calls) if len(responses) else state
    if matching.all():
        return state, cause
    cause[~matching] = LostCause.NonMatchingResponse
    late = np.flatnonzero(~matching & (responses["deadline"] > 0))
    rows = positions_in(state.accounts["program"], responses["receiver"][late])
    late, rows = late[rows >= 0], rows[rows >= 0]
    made = responses["callback"][late] < state.accounts["next_callback"][rows]
    late, rows = late[made], rows[made]
    if len(late):
        cause[late] = LostCause.late_response
        refunds = responses.select(["amount_high", "amount_low"]).take(late)
        state = replace(state, accounts=credited(state.accounts, rows, refunds["amount_high"], refunds["amount_low"]))
    return state, cause


def push_messages(state: State, messages: Frame) -> tuple[State, Frame]:
    """Push messages to their input queues (m.src, m.dst) in row order; also return them with ``queue_index``."""
    index, queues = state.input_queues.number(messages)
    queues = queues.merge(messages.select(MESSAGE_COLUMNS).with_columns(index=index))
    return replace(state, input_queues=queues), messages.with_columns(queue_index=index)


def push_responses(state: State, responses: Frame, chains: np.ndarray, via: Via, log: EventLog) -> tuple[State, Frame]:
    """Push the responses that routing made on ``chains``; also return them as arrivals (``ARRIVALS_SCHEMA``).

    One that answers no open call is dropped.
    """
    if len(responses) == 0:
        return state, empty_frame(ARRIVALS_SCHEMA)
    state, cause = match_responses(state, responses)
    if cause.any():
        dropped = np.flatnonzero(cause)
        at = {"chain": chains[dropped], "via": via, "reason": lost_causes(cause[dropped])}
        log.add(event_rows(responses.take(dropped), Event.DROPPED, **at))
        responses, chains = responses.filter(cause == 0), chains[cause == 0]
    state, pushed = push_messages(state, responses)
    arrivals = pushed.with_columns(chain=chains, via=np.uint8(via), **_NO_LANE)
    return state, arrivals.select(ARRIVALS_SCHEMA.names)
