"""The outcome model: one table of states and events, independent of event order."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from causeway.ledger.outcomes import (
    EVENT_BITS,
    EVENT_INPUTS,
    OUTCOMES,
    STATE_OUTCOMES,
    STATES_BY_EVENT_BITS,
    TRANSITIONS,
    MessageState,
    Outcome,
    OutcomeInput,
    call_outcomes,
    event_bit,
    fold_events,
    message_outcomes,
)
from causeway.ledger.schema import LedgerEvent
from tests.spec.audit.outcomes import state_of as plain_state_of

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"

WORDS = {
    OutcomeInput.SENT: ("sent", False),
    OutcomeInput.RECEIVED: ("received", False),
    OutcomeInput.EXECUTED: ("executed", False),
    OutcomeInput.FAILED: ("failed", False),
    OutcomeInput.ANSWERED: ("acknowledged", False),
    OutcomeInput.ERRED: ("answered", True),
    OutcomeInput.REJECTED: ("rejected", False),
    OutcomeInput.TIMED_OUT: ("timed_out", False),
    OutcomeInput.REFUNDED: ("refunded", False),
    OutcomeInput.DROPPED: ("dropped", False),
}


def test_outcome_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(MessageState) == set(STATE_OUTCOMES)
    assert all(len(row) == len(OutcomeInput) for row in TRANSITIONS.values())
    assert set(EVENT_INPUTS) == set(LedgerEvent) and set(STATE_OUTCOMES.values()) == set(Outcome)


@pytest.mark.parametrize("state", MessageState)
def test_event_order_and_repetition_make_no_difference(state: MessageState) -> None:
    for one, other in product(OutcomeInput, OutcomeInput):
        after = TRANSITIONS[TRANSITIONS[state][one]][other]
        assert after == TRANSITIONS[TRANSITIONS[state][other]][one], (one, other)
        assert TRANSITIONS[after][other] == after, (one, other)


def test_every_event_set_has_the_state_of_the_plain_rules() -> None:
    for bits in range(1 << len(OutcomeInput)):
        inputs = {each for each in OutcomeInput if bits >> each & 1}
        assert STATES_BY_EVENT_BITS[bits] == fold_events(inputs)
        assert MessageState(STATES_BY_EVENT_BITS[bits]).name.lower() == plain_state_of(
            WORDS[each] for each in inputs
        ), inputs


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((), "unknown"),
        (("sent",), "pending"),
        (("sent", "received"), "delivered"),
        (("sent", "received", "executed"), "delivered"),
        (("sent", "received", "failed"), "failed"),
        (("sent", "received", "acknowledged"), "answered"),
        (("sent", "rejected"), "rejected"),
        (("sent", "rejected", "timed_out"), "timed_out"),
        (("sent", "timed_out", "refunded"), "timed_out"),
        (("sent", "refunded"), "refunded"),
        (("sent", "dropped"), "dropped"),
        (("sent", "dropped", "timed_out"), "timed_out"),
        (("sent", "received", "dropped"), "dropped"),
        (("sent", "acknowledged", "timed_out"), "contradicted"),
        (("sent", "received", "timed_out"), "contradicted"),
        (("sent", "collected", "final", "redundant"), "pending"),
    ],
)
def test_outcomes_of_messages(events: tuple[str, ...], outcome: str) -> None:
    bits = np.bitwise_or.reduce([event_bit(event, None, "request") for event in events] or [0])
    assert OUTCOMES[message_outcomes(STATES_BY_EVENT_BITS[[bits]])[0]] == outcome


def test_error_code_counts_on_requests_only() -> None:
    assert event_bit("acknowledged", 5, "request") == 1 << OutcomeInput.ERRED
    assert event_bit("executed", 5, "request") == 1 << OutcomeInput.FAILED
    assert (
        event_bit("acknowledged", 5, "response")
        == event_bit("acknowledged", 0, "request")
        == 1 << OutcomeInput.ANSWERED
    )
    assert event_bit("received", 5, "request") == 1 << OutcomeInput.RECEIVED
    assert EVENT_BITS.shape == (len(LedgerEvent), 2)


def test_calls_wait_for_their_answers_and_are_lost_with_them() -> None:
    states = np.array(
        [
            MessageState.PENDING,
            MessageState.EXECUTED,
            MessageState.EXECUTED,
            MessageState.EXECUTED,
            MessageState.ANSWERED,
        ],
        np.int8,
    )
    awaits = np.array([True, True, True, False, True])
    lost = np.array([False, False, True, False, True])
    found = [OUTCOMES[each] for each in call_outcomes(states, awaits, lost)]
    assert found == ["pending", "pending", "dropped", "delivered", "answered"]


def test_page_has_the_table() -> None:
    lines = (DOCS / "outcomes.md").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| state | sent"))
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin : begin + 2 + len(MessageState)]
    ]
    assert shown[0] == ["state", *(each.name.lower().replace("_", " ") for each in OutcomeInput)]
    named = [[f"**{state.name.lower().replace('_', ' ')}**", *_cells(state)] for state in MessageState]
    assert shown[2:] == named


def _cells(state: MessageState) -> list[str]:
    return ["" if after is state else after.name.lower().replace("_", " ") for after in TRANSITIONS[state]]
