"""The outcome model: one table of states and events, in which order does not matter."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from causeway.ledger.outcomes import (
    EVENT_BITS,
    INPUT_OF,
    OUTCOME_OF,
    OUTCOMES,
    STATE_OF_BITS,
    TRANSITIONS,
    Input,
    Outcome,
    State,
    bit_of,
    call_outcomes,
    outcomes_of,
    state_of,
)
from causeway.ledger.schema import Event
from tests.spec.audit.outcomes import state_of as plain_state_of

DOCS = Path(__file__).resolve().parents[2] / "docs"

WORDS = {
    Input.SENT: ("sent", False),
    Input.RECEIVED: ("received", False),
    Input.EXECUTED: ("executed", False),
    Input.FAILED: ("failed", False),
    Input.ANSWERED: ("acknowledged", False),
    Input.ERRED: ("answered", True),
    Input.REJECTED: ("rejected", False),
    Input.TIMED_OUT: ("timed_out", False),
    Input.REFUNDED: ("refunded", False),
    Input.DROPPED: ("dropped", False),
}


def test_the_table_is_whole() -> None:
    assert set(TRANSITIONS) == set(State) == set(OUTCOME_OF)
    assert all(len(row) == len(Input) for row in TRANSITIONS.values())
    assert set(INPUT_OF) == set(Event) and set(OUTCOME_OF.values()) == set(Outcome)


@pytest.mark.parametrize("state", State)
def test_order_and_repetition_make_no_difference(state: State) -> None:
    for one, other in product(Input, Input):
        after = TRANSITIONS[TRANSITIONS[state][one]][other]
        assert after == TRANSITIONS[TRANSITIONS[state][other]][one], (one, other)
        assert TRANSITIONS[after][other] == after, (one, other)


def test_every_set_of_events_has_the_state_that_the_plain_rules_give() -> None:
    for bits in range(1 << len(Input)):
        inputs = {each for each in Input if bits >> each & 1}
        assert STATE_OF_BITS[bits] == state_of(inputs)
        assert State(STATE_OF_BITS[bits]).name.lower() == plain_state_of(WORDS[each] for each in inputs), inputs


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
    bits = np.bitwise_or.reduce([bit_of(event, None, "request") for event in events] or [0])
    assert OUTCOMES[outcomes_of(STATE_OF_BITS[[bits]])[0]] == outcome


def test_an_error_code_counts_on_requests_only() -> None:
    assert bit_of("acknowledged", 5, "request") == 1 << Input.ERRED
    assert bit_of("executed", 5, "request") == 1 << Input.FAILED
    assert bit_of("acknowledged", 5, "response") == bit_of("acknowledged", 0, "request") == 1 << Input.ANSWERED
    assert bit_of("received", 5, "request") == 1 << Input.RECEIVED
    assert EVENT_BITS.shape == (len(Event), 2)


def test_calls_wait_for_their_answers_and_are_lost_with_them() -> None:
    states = np.array([State.PENDING, State.EXECUTED, State.EXECUTED, State.EXECUTED, State.ANSWERED], np.int8)
    awaits = np.array([True, True, True, False, True])
    lost = np.array([False, False, True, False, True])
    found = [OUTCOMES[each] for each in call_outcomes(states, awaits, lost)]
    assert found == ["pending", "pending", "dropped", "delivered", "answered"]


def test_the_page_has_the_table() -> None:
    lines = (DOCS / "outcomes.md").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| state | sent"))
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin : begin + 2 + len(State)]]
    assert shown[0] == ["state", *(each.name.lower().replace("_", " ") for each in Input)]
    named = [[f"**{state.name.lower().replace('_', ' ')}**", *_cells(state)] for state in State]
    assert shown[2:] == named


def _cells(state: State) -> list[str]:
    return ["" if after is state else after.name.lower().replace("_", " ") for after in TRANSITIONS[state]]
