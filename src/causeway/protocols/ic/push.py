"""Pushes to input queues: whatever brings a message to a canister, all are numbered by the same few lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame, empty_frame
from causeway.model.ledger import NO_CHAIN, Via
from causeway.protocols.ic.state import State
from causeway.protocols.ic.step import ARRIVALS_SCHEMA
from causeway.protocols.messages import MESSAGE_COLUMNS

_NO_LANE = {
    "source": np.uint32(NO_CHAIN),
    "destination": np.uint32(NO_CHAIN),
    "substream": np.uint64(0),
    "index": np.uint64(0),
}


def push_messages(state: State, messages: Frame) -> tuple[State, Frame]:
    """Push messages to their input queues (m.src, m.dst) in row order; also return them with ``queue_index``."""
    index, queues = state.input_queues.number(messages)
    queues = queues.merge(messages.select(MESSAGE_COLUMNS).with_columns(index=index))
    return replace(state, input_queues=queues), messages.with_columns(queue_index=index)


def push_responses(state: State, responses: Frame, chains: np.ndarray, via: Via) -> tuple[State, Frame]:
    """Push the responses that routing made on ``chains``; also return them as arrivals (``ARRIVALS_SCHEMA``)."""
    if len(responses) == 0:
        return state, empty_frame(ARRIVALS_SCHEMA)
    state, pushed = push_messages(state, responses)
    arrivals = pushed.with_columns(chain=chains, via=np.uint8(via), **_NO_LANE)
    return state, arrivals.select(ARRIVALS_SCHEMA.names)


def push_misrouted(state: State, messages: Frame) -> tuple[State, Frame]:
    """Enqueue messages (with ``chain``) where nobody will execute them; also return them with ``queue_index``."""
    index, queues = state.misrouted.number(messages)
    queues = queues.merge(messages.select(["chain", *MESSAGE_COLUMNS]).with_columns(index=index))
    return replace(state, misrouted=queues), messages.with_columns(queue_index=index)
