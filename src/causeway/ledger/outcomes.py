"""The outcome model: outcomes of messages and calls, by one table of states and events.

A message is a small state machine over its ledger events. Events of two chains have no common order, so the table is
independent of order and repetition: the state is a function of the set of events. The audit, figures, reports, the
explorer and run summaries all use it.

Strategy: a check keeps one bit an event of each message (``EVENT_BITS``). ``STATES_BY_EVENT_BITS``, folded from
``TRANSITIONS`` once, has the state of every set of bits.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from causeway.ledger.schema import LedgerEvent, LedgerKind


class OutcomeInput(IntEnum):
    """Inputs of the state machine.

    ``ERRED``: an answer, or an acknowledgement, with a code other than 0.
    """

    SENT = 0
    RECEIVED = 1
    EXECUTED = 2
    FAILED = 3
    ANSWERED = 4
    ERRED = 5
    REJECTED = 6
    TIMED_OUT = 7
    REFUNDED = 8
    DROPPED = 9


class MessageState(IntEnum):
    """State of a message.

    ``UNKNOWN``: no relevant event; ``PENDING``: sent; ``DELIVERED``: arrived; ``EXECUTED``, ``FAILED``: executed with
    success or failure; ``ANSWERED``: the answer is known; ``REFUSED``: rejected on arrival; ``REJECTED``: answered with
    an error; ``RETURNED``: refunded without a known arrival; ``REFUNDED``: arrived and refunded; ``TIMED_OUT``;
    ``DROPPED``: lost on the way; ``DISCARDED``: lost after arrival; ``CONTRADICTED``: the two chains report different
    ends.
    """

    UNKNOWN = 0
    PENDING = 1
    DELIVERED = 2
    EXECUTED = 3
    FAILED = 4
    ANSWERED = 5
    REFUSED = 6
    REJECTED = 7
    RETURNED = 8
    REFUNDED = 9
    TIMED_OUT = 10
    DROPPED = 11
    DISCARDED = 12
    CONTRADICTED = 13


_U, _P, _D, _E, _F, _A, _REF, _REJ, _RET, _RFD, _T, _DR, _DIS, _X = MessageState

TRANSITIONS: dict[MessageState, tuple[MessageState, ...]] = {
    # sent, received, executed, failed, answered, erred, rejected, timed out, refunded, dropped
    MessageState.UNKNOWN: (_P, _D, _E, _F, _A, _REJ, _REF, _T, _RET, _DR),
    MessageState.PENDING: (_P, _D, _E, _F, _A, _REJ, _REF, _T, _RET, _DR),
    MessageState.DELIVERED: (_D, _D, _E, _F, _A, _REJ, _REJ, _X, _RFD, _DIS),
    MessageState.EXECUTED: (_E, _E, _E, _F, _A, _REJ, _REJ, _X, _RFD, _E),
    MessageState.FAILED: (_F, _F, _F, _F, _REJ, _REJ, _REJ, _X, _RFD, _F),
    MessageState.ANSWERED: (_A, _A, _A, _REJ, _A, _REJ, _REJ, _X, _RFD, _A),
    MessageState.REFUSED: (_REF, _REJ, _REJ, _REJ, _REJ, _REJ, _REF, _T, _RET, _REF),
    MessageState.REJECTED: (_REJ, _REJ, _REJ, _REJ, _REJ, _REJ, _REJ, _X, _RFD, _REJ),
    MessageState.RETURNED: (_RET, _RFD, _RFD, _RFD, _RFD, _RFD, _RET, _T, _RET, _RET),
    MessageState.REFUNDED: (_RFD, _RFD, _RFD, _RFD, _RFD, _RFD, _RFD, _X, _RFD, _RFD),
    MessageState.TIMED_OUT: (_T, _X, _X, _X, _X, _X, _T, _T, _T, _T),
    MessageState.DROPPED: (_DR, _DIS, _E, _F, _A, _REJ, _REF, _T, _RET, _DR),
    MessageState.DISCARDED: (_DIS, _DIS, _E, _F, _A, _REJ, _REJ, _X, _RFD, _DIS),
    MessageState.CONTRADICTED: (_X,) * len(OutcomeInput),
}
"""Next state by state (rows) and event (columns, in the order of ``OutcomeInput``)."""


class Outcome(StrEnum):
    """Outcome of a message or a call.

    A call is a request and its response; it is ``PENDING`` until its answer if its lane guarantees one. ``DROPPED``:
    the message or its response is lost. ``CONTRADICTED``: the two chains report different ends. ``UNKNOWN``: no known
    sending.
    """

    ANSWERED = "answered"
    REJECTED = "rejected"
    FAILED = "failed"
    REFUNDED = "refunded"
    TIMED_OUT = "timed_out"
    DROPPED = "dropped"
    CONTRADICTED = "contradicted"
    DELIVERED = "delivered"
    PENDING = "pending"
    UNKNOWN = "unknown"


OUTCOMES = tuple(Outcome)
"""The outcomes in display order; codes in columns are positions in it."""

UNSUCCESSFUL = (
    *(Outcome.REJECTED, Outcome.REFUNDED, Outcome.TIMED_OUT, Outcome.FAILED, Outcome.DROPPED),
    Outcome.CONTRADICTED,
)
"""Outcomes of unsuccessful messages."""

STATE_OUTCOMES: dict[MessageState, Outcome] = {
    MessageState.UNKNOWN: Outcome.UNKNOWN,
    MessageState.PENDING: Outcome.PENDING,
    MessageState.DELIVERED: Outcome.DELIVERED,
    MessageState.EXECUTED: Outcome.DELIVERED,
    MessageState.FAILED: Outcome.FAILED,
    MessageState.ANSWERED: Outcome.ANSWERED,
    MessageState.REFUSED: Outcome.REJECTED,
    MessageState.REJECTED: Outcome.REJECTED,
    MessageState.RETURNED: Outcome.REFUNDED,
    MessageState.REFUNDED: Outcome.REFUNDED,
    MessageState.TIMED_OUT: Outcome.TIMED_OUT,
    MessageState.DROPPED: Outcome.DROPPED,
    MessageState.DISCARDED: Outcome.DROPPED,
    MessageState.CONTRADICTED: Outcome.CONTRADICTED,
}
"""Outcome of a message by state; calls: see ``call_outcomes``."""

EVENT_INPUTS: dict[LedgerEvent, OutcomeInput | None] = {
    LedgerEvent.SENT: OutcomeInput.SENT,
    LedgerEvent.COMMITTED: OutcomeInput.SENT,
    LedgerEvent.RELAYED: OutcomeInput.SENT,
    LedgerEvent.RECEIVED: OutcomeInput.RECEIVED,
    LedgerEvent.EXECUTED: OutcomeInput.EXECUTED,
    LedgerEvent.ANSWERED: OutcomeInput.ANSWERED,
    LedgerEvent.ACKNOWLEDGED: OutcomeInput.ANSWERED,
    LedgerEvent.REJECTED: OutcomeInput.REJECTED,
    LedgerEvent.TIMED_OUT: OutcomeInput.TIMED_OUT,
    LedgerEvent.DROPPED: OutcomeInput.DROPPED,
    LedgerEvent.COLLECTED: None,
    LedgerEvent.FINAL: None,
    LedgerEvent.REVERTED: None,
    LedgerEvent.OBSERVED: None,
    LedgerEvent.FAILED: OutcomeInput.FAILED,
    LedgerEvent.REFUNDED: OutcomeInput.REFUNDED,
    LedgerEvent.REDUNDANT: None,
    LedgerEvent.UPGRADED: None,
}
"""Input of each ledger event; None: no effect. Reverted events have none."""

OUTCOME_ERRORS: dict[LedgerEvent, OutcomeInput] = {
    LedgerEvent.EXECUTED: OutcomeInput.FAILED,
    LedgerEvent.ANSWERED: OutcomeInput.ERRED,
    LedgerEvent.ACKNOWLEDGED: OutcomeInput.ERRED,
}
"""Input of ledger events with a code other than 0."""


def fold_events(inputs: frozenset[OutcomeInput] | set[OutcomeInput]) -> MessageState:
    """Fold a set of events into a state.

    Args:
        inputs: Events of a message; their order does not matter.

    Returns:
        The state of the message.
    """
    state = MessageState.UNKNOWN
    for each in sorted(inputs):
        state = TRANSITIONS[state][each]
    return state


NEXT_STATES = np.array([[int(after) for after in TRANSITIONS[state]] for state in MessageState], np.int8)
"""``TRANSITIONS`` as an array: (state, event) -> state."""


def _state_of_bits() -> npt.NDArray[np.int8]:
    states = np.zeros(1 << len(OutcomeInput), np.int8)
    for each in OutcomeInput:
        # A set with this event as its highest follows from the set without it.
        states[1 << each : 1 << (each + 1)] = NEXT_STATES[states[: 1 << each], each]
    return states


STATES_BY_EVENT_BITS = _state_of_bits()
"""State of each set of events; bit ``1 << OutcomeInput`` is an event."""

ARRIVED = 1 << OutcomeInput.RECEIVED | 1 << OutcomeInput.EXECUTED | 1 << OutcomeInput.FAILED
"""Event bits that prove an arrival."""

EVENT_BITS = np.array(
    [
        [
            0 if each is None else 1 << each
            for each in (EVENT_INPUTS[event], OUTCOME_ERRORS.get(event, EVENT_INPUTS[event]))
        ]
        for event in LedgerEvent
    ],
    np.int32,
)
"""Bit of each event (rows, in the order of ``LedgerEvent``), without and with an error code (columns)."""


def event_bit(event: str, code: int | None, kind: str) -> int:
    """Return the bit of a message's event.

    An error code counts for requests only; the code of a response is its content.

    Args:
        event: Name of the event.
        code: Code of the event, or None.
        kind: Kind of the message.
    """
    return int(EVENT_BITS[EVENTS.index(event), int(bool(code) and kind == LedgerKind.REQUEST)])


EVENTS = [event.value for event in LedgerEvent]

_OUTCOME_OF_STATE = np.array([OUTCOMES.index(STATE_OUTCOMES[state]) for state in MessageState], np.int8)
_AWAITING = np.array([state in (MessageState.DELIVERED, MessageState.EXECUTED) for state in MessageState])
_OPEN = np.array(
    [state in (MessageState.PENDING, MessageState.DELIVERED, MessageState.EXECUTED) for state in MessageState]
)


def message_outcomes(states: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return the outcomes of messages (codes of ``OUTCOMES``) by state.

    Args:
        states: ``MessageState`` of each message, int8.

    Returns:
        Positions in ``OUTCOMES``, int8.
    """
    return _OUTCOME_OF_STATE[states]


def call_outcomes(
    states: npt.NDArray[np.int8], awaits: npt.NDArray[np.bool_], lost: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int8]:
    """Return the outcomes of calls (codes of ``OUTCOMES``).

    Args:
        states: State of each request, including its response, int8.
        awaits: Mask of requests that are pending until an answer: their lane guarantees one.
        lost: Mask of requests with a dropped response.

    Returns:
        Codes, int8.
    """
    found = _OUTCOME_OF_STATE[states]
    found = np.where(awaits & _AWAITING[states], np.int8(OUTCOMES.index(Outcome.PENDING)), found)
    return np.where(lost & _OPEN[states], np.int8(OUTCOMES.index(Outcome.DROPPED)), found)


__all__ = [
    "ARRIVED",
    "EVENT_BITS",
    "EVENT_INPUTS",
    "NEXT_STATES",
    "OUTCOMES",
    "OUTCOME_ERRORS",
    "STATES_BY_EVENT_BITS",
    "STATE_OUTCOMES",
    "TRANSITIONS",
    "UNSUCCESSFUL",
    "MessageState",
    "Outcome",
    "OutcomeInput",
    "call_outcomes",
    "event_bit",
    "fold_events",
    "message_outcomes",
]  # fmt: skip
