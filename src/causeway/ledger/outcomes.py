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

from causeway.ledger.schema import Event, Kind


class Input(IntEnum):
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


class State(IntEnum):
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


_U, _P, _D, _E, _F, _A, _REF, _REJ, _RET, _RFD, _T, _DR, _DIS, _X = State

TRANSITIONS: dict[State, tuple[State, ...]] = {
    # sent, received, executed, failed, answered, erred, rejected, timed out, refunded, dropped
    State.UNKNOWN: (_P, _D, _E, _F, _A, _REJ, _REF, _T, _RET, _DR),
    State.PENDING: (_P, _D, _E, _F, _A, _REJ, _REF, _T, _RET, _DR),
    State.DELIVERED: (_D, _D, _E, _F, _A, _REJ, _REJ, _X, _RFD, _DIS),
    State.EXECUTED: (_E, _E, _E, _F, _A, _REJ, _REJ, _X, _RFD, _E),
    State.FAILED: (_F, _F, _F, _F, _REJ, _REJ, _REJ, _X, _RFD, _F),
    State.ANSWERED: (_A, _A, _A, _REJ, _A, _REJ, _REJ, _X, _RFD, _A),
    State.REFUSED: (_REF, _REJ, _REJ, _REJ, _REJ, _REJ, _REF, _T, _RET, _REF),
    State.REJECTED: (_REJ, _REJ, _REJ, _REJ, _REJ, _REJ, _REJ, _X, _RFD, _REJ),
    State.RETURNED: (_RET, _RFD, _RFD, _RFD, _RFD, _RFD, _RET, _T, _RET, _RET),
    State.REFUNDED: (_RFD, _RFD, _RFD, _RFD, _RFD, _RFD, _RFD, _X, _RFD, _RFD),
    State.TIMED_OUT: (_T, _X, _X, _X, _X, _X, _T, _T, _T, _T),
    State.DROPPED: (_DR, _DIS, _E, _F, _A, _REJ, _REF, _T, _RET, _DR),
    State.DISCARDED: (_DIS, _DIS, _E, _F, _A, _REJ, _REJ, _X, _RFD, _DIS),
    State.CONTRADICTED: (_X,) * len(Input),
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

OUTCOME_OF: dict[State, Outcome] = {
    State.UNKNOWN: Outcome.UNKNOWN,
    State.PENDING: Outcome.PENDING,
    State.DELIVERED: Outcome.DELIVERED,
    State.EXECUTED: Outcome.DELIVERED,
    State.FAILED: Outcome.FAILED,
    State.ANSWERED: Outcome.ANSWERED,
    State.REFUSED: Outcome.REJECTED,
    State.REJECTED: Outcome.REJECTED,
    State.RETURNED: Outcome.REFUNDED,
    State.REFUNDED: Outcome.REFUNDED,
    State.TIMED_OUT: Outcome.TIMED_OUT,
    State.DROPPED: Outcome.DROPPED,
    State.DISCARDED: Outcome.DROPPED,
    State.CONTRADICTED: Outcome.CONTRADICTED,
}
"""The outcome of a message by its state; that of a call as ``call_outcomes`` says."""

INPUT_OF: dict[Event, Input | None] = {
    Event.SENT: Input.SENT,
    Event.COMMITTED: Input.SENT,
    Event.RELAYED: Input.SENT,
    Event.RECEIVED: Input.RECEIVED,
    Event.EXECUTED: Input.EXECUTED,
    Event.ANSWERED: Input.ANSWERED,
    Event.ACKNOWLEDGED: Input.ANSWERED,
    Event.REJECTED: Input.REJECTED,
    Event.TIMED_OUT: Input.TIMED_OUT,
    Event.DROPPED: Input.DROPPED,
    Event.COLLECTED: None,
    Event.FINAL: None,
    Event.REVERTED: None,
    Event.OBSERVED: None,
    Event.FAILED: Input.FAILED,
    Event.REFUNDED: Input.REFUNDED,
    Event.REDUNDANT: None,
    Event.UPGRADED: None,
}
"""What each event of the ledger is to the table; None: it changes no state. A reverted event is none."""

ERROR_OF: dict[Event, Input] = {
    Event.EXECUTED: Input.FAILED,
    Event.ANSWERED: Input.ERRED,
    Event.ACKNOWLEDGED: Input.ERRED,
}
"""What the same is with a code other than 0."""


def state_of(inputs: frozenset[Input] | set[Input]) -> State:
    """Fold a set of events into a state."""
    state = State.UNKNOWN
    for each in sorted(inputs):
        state = TRANSITIONS[state][each]
    return state


AFTER = np.array([[int(after) for after in TRANSITIONS[state]] for state in State], np.int8)
"""``TRANSITIONS`` as an array: (state, event) -> state."""


def _state_of_bits() -> npt.NDArray[np.int8]:
    states = np.zeros(1 << len(Input), np.int8)
    for each in Input:
        # A set whose highest event is this one follows from the set without it.
        states[1 << each : 1 << (each + 1)] = AFTER[states[: 1 << each], each]
    return states


STATE_OF_BITS = _state_of_bits()
"""The state of each set of events: bit ``1 << Input`` stands for an event."""

ARRIVED = 1 << Input.RECEIVED | 1 << Input.EXECUTED | 1 << Input.FAILED
"""Events with which a message is known to have arrived, as bits."""

EVENT_BITS = np.array(
    [
        [0 if each is None else 1 << each for each in (INPUT_OF[event], ERROR_OF.get(event, INPUT_OF[event]))]
        for event in Event
    ],
    np.int32,
)
"""The bit of each event (rows, in the order of ``Event``), without and with an error code (columns)."""


def bit_of(event: str, code: int | None, kind: str) -> int:
    """Return the bit of one event of a message. An error code counts on requests: that of a response is its content."""
    return int(EVENT_BITS[EVENTS.index(event), int(bool(code) and kind == Kind.REQUEST)])


EVENTS = [event.value for event in Event]

_OUTCOME_OF_STATE = np.array([OUTCOMES.index(OUTCOME_OF[state]) for state in State], np.int8)
_AWAITING = np.array([state in (State.DELIVERED, State.EXECUTED) for state in State])
_OPEN = np.array([state in (State.PENDING, State.DELIVERED, State.EXECUTED) for state in State])


def outcomes_of(states: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
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
    "AFTER", "ARRIVED", "ERROR_OF", "EVENT_BITS", "INPUT_OF", "OUTCOMES", "OUTCOME_OF", "STATE_OF_BITS", "TRANSITIONS",
    "UNSUCCESSFUL", "Input", "Outcome", "State", "bit_of", "call_outcomes", "outcomes_of", "state_of",
]  # fmt: skip
