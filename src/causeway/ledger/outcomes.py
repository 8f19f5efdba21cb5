"""The outcome model: what became of a message and of a call, by one table of states and events.

A message is a small state machine over the events that the ledger has of it. Events of two chains have no common order,
so the table is built such that the order in which they are applied makes no difference, and neither does a repetition:
the state is a function of the set of events. Every face of the product (the audit, figures, reports, the explorer, the
summary of a run) reads it.

Strategy: an audit keeps, of each message, one bit an event (``EVENT_BITS``); the state of every set of bits is looked
up in an array (``STATE_OF_BITS``) that is folded from ``TRANSITIONS`` once.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from causeway.ledger.schema import LedgerEvent, LedgerKind


class OutcomeInput(IntEnum):
    """What changes the state of a message: its events, as the table has them.

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
    """The state of a message.

    ``UNKNOWN``: no event of it counts; ``PENDING``: it was sent; ``DELIVERED``: it arrived; ``EXECUTED``, ``FAILED``:
    it was executed, with success or failure; ``ANSWERED``: its answer is known; ``REFUSED``: rejected on arrival;
    ``REJECTED``: answered with an error; ``RETURNED``: refunded, and nothing says that it arrived; ``REFUNDED``: it
    arrived and was refunded; ``TIMED_OUT``; ``DROPPED``: lost on the way; ``DISCARDED``: lost after it arrived;
    ``CONTRADICTED``: its two chains report different ends.
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
"""The state after an event, by the state before it (rows) and the event (columns, in the order of ``Input``)."""


class Outcome(StrEnum):
    """What became of a message, or of a call, in the words that every face uses.

    A call is a request and its response: it is ``PENDING`` until its answer is known, where its lane promises one.
    ``DROPPED``: it, or its response, is lost. ``CONTRADICTED``: the two chains report different ends. ``UNKNOWN``:
    nothing says that it was sent.
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
"""The outcomes, in the order in which they are shown; their codes in columns."""

UNSUCCESSFUL = (
    *(Outcome.REJECTED, Outcome.REFUNDED, Outcome.TIMED_OUT, Outcome.FAILED, Outcome.DROPPED),
    Outcome.CONTRADICTED,
)
"""Outcomes of messages that did not succeed."""

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
"""The outcome of a message by its state; that of a call as ``call_outcomes`` says."""

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
"""What each event of the ledger is to the table; None: it changes no state. A reverted event is none."""

OUTCOME_ERRORS: dict[LedgerEvent, OutcomeInput] = {
    LedgerEvent.EXECUTED: OutcomeInput.FAILED,
    LedgerEvent.ANSWERED: OutcomeInput.ERRED,
    LedgerEvent.ACKNOWLEDGED: OutcomeInput.ERRED,
}
"""What the same is with a code other than 0."""


def fold_events(inputs: frozenset[OutcomeInput] | set[OutcomeInput]) -> MessageState:
    """Fold a set of events into a state."""
    state = MessageState.UNKNOWN
    for each in sorted(inputs):
        state = TRANSITIONS[state][each]
    return state


NEXT_STATES = np.array([[int(after) for after in TRANSITIONS[state]] for state in MessageState], np.int8)
"""``TRANSITIONS`` as an array: (state, event) -> state."""


def _state_of_bits() -> npt.NDArray[np.int8]:
    states = np.zeros(1 << len(OutcomeInput), np.int8)
    for each in OutcomeInput:
        # A set whose highest event is this one follows from the set without it.
        states[1 << each : 1 << (each + 1)] = NEXT_STATES[states[: 1 << each], each]
    return states


STATES_BY_EVENT_BITS = _state_of_bits()
"""The state of each set of events: bit ``1 << Input`` stands for an event."""

ARRIVED = 1 << OutcomeInput.RECEIVED | 1 << OutcomeInput.EXECUTED | 1 << OutcomeInput.FAILED
"""Events with which a message is known to have arrived, as bits."""

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
"""The bit of each event (rows, in the order of ``Event``), without and with an error code (columns)."""


def event_bit(event: str, code: int | None, kind: str) -> int:
    """Return the bit of one event of a message. An error code counts on requests: that of a response is its content."""
    return int(EVENT_BITS[EVENTS.index(event), int(bool(code) and kind == LedgerKind.REQUEST)])


EVENTS = [event.value for event in LedgerEvent]

_OUTCOME_OF_STATE = np.array([OUTCOMES.index(STATE_OUTCOMES[state]) for state in MessageState], np.int8)
_AWAITING = np.array([state in (MessageState.DELIVERED, MessageState.EXECUTED) for state in MessageState])
_OPEN = np.array(
    [state in (MessageState.PENDING, MessageState.DELIVERED, MessageState.EXECUTED) for state in MessageState]
)


def message_outcomes(states: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return the outcomes of messages (codes of ``OUTCOMES``) by their states."""
    return _OUTCOME_OF_STATE[states]


def call_outcomes(
    states: npt.NDArray[np.int8], awaits: npt.NDArray[np.bool_], lost: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int8]:
    """Return the outcomes of calls (codes of ``OUTCOMES``).

    Args:
        states: of the requests, with what is known of their responses.
        awaits: whether a request that arrived is pending until it is answered: its lane promises answers.
        lost: whether its response was dropped.
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
