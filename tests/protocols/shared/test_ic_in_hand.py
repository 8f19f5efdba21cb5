"""Pending requests: a multiset of those that canisters took and have not answered (IC reference G5, L2)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame, empty_frame
from causeway.core.vocabulary import Kind
from causeway.protocols.ic.open_calls import IN_HAND_SCHEMA, update_inflight
from causeway.protocols.shared.execution import Execution
from causeway.protocols.shared.messages import blank_messages
from tests.support.ic.ic_network import ACTOR, Network
from tests.tiers import sized

Ref = tuple[int, int, int, int, int]
"""(respondent, originator, callback, amount, deadline)."""

few = st.integers(0, 1)
refs = st.tuples(few, few, few, st.sampled_from([0, 5, 2**70]), st.sampled_from([0, 0, 7]))


def requests(rows: list[Ref]) -> Frame:
    return messages(rows, Kind.REQUEST, "receiver", "sender")


def messages(rows: list[Ref], kind: Kind, respondent: str, originator: str) -> Frame:
    numbers = [np.array([row[place] for row in rows], dtype=np.uint64) for place in range(3)]
    high, low = (np.array([row[3] >> shift & 2**64 - 1 for row in rows], dtype=np.uint64) for shift in (64, 0))
    deadline = np.array([row[4] for row in rows], dtype=np.uint32)
    ends = {respondent: numbers[0], originator: numbers[1], "callback": numbers[2]}
    return blank_messages(len(rows), kind=int(kind), amount_high=high, amount_low=low, deadline=deadline, **ends)


def execution_rows(inputs: Frame, answers: list[tuple[int, Ref, bool]]) -> Execution:
    """Return (current input row, answered request, whether that is another)."""
    rows = [ref for _, ref, _ in answers]
    produced = messages(rows, Kind.RESPONSE, "sender", "receiver")
    nothing = np.zeros(len(rows), dtype=np.uint64)
    asked = Frame(
        {
            "late": np.array([late for _, _, late in answers], dtype=np.uint8),
            "asked_high": produced["amount_high"],
            "asked_low": produced["amount_low"],
        },
        len(rows),
    )
    origins = np.array([row for row, _, _ in answers], dtype=np.int64)
    frame = Frame({"row": np.empty(0, np.int64), "text": pa.array([], pa.string())}, 0)
    # Refunds say nothing about attached amounts.
    produced = produced.with_columns(amount_high=nothing, amount_low=nothing)
    return Execution(produced, origins, frame, frame, {}, frame, asked)


@settings(max_examples=sized(68, 750), deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.lists(refs, max_size=5), st.lists(st.integers(0, 30), max_size=5)), max_size=5))
def test_pending_requests_form_a_multiset(rounds: list[tuple[list[Ref], list[int]]]) -> None:
    in_hand, model = empty_frame(IN_HAND_SCHEMA), Counter[Ref]()
    for taken, choices in rounds:
        inputs = requests(taken)
        answers: list[tuple[int, Ref, bool]] = []
        at_once = {choice for choice in choices if choice < len(taken)}
        answers = [(row, taken[row], False) for row in sorted(at_once)]
        model.update(ref for row, ref in enumerate(taken) if row not in at_once)
        for choice in choices:
            left = sorted(model.elements())
            if taken and left and choice >= len(taken):
                ref = left[choice % len(left)]
                model[ref] -= 1
                answers.append((0, ref, True))
        after = update_inflight(in_hand, inputs, execution_rows(inputs, answers))
        assert len(taken) > len(at_once) or len(answers) > len(at_once) or after is in_hand
        in_hand = after
        found = [
            ((respondent, originator, callback, (high << 64) + low, deadline), count)
            for respondent, originator, callback, high, low, deadline, count in zip(
                *(in_hand[name].tolist() for name in IN_HAND_SCHEMA.names), strict=True
            )
        ]
        assert found == sorted((ref, count) for ref, count in model.items() if count)


def test_late_answering_program_holds_the_request_until_then() -> None:
    net = Network({1: (0, ACTOR), 2: (1, ACTOR)})
    net.call(1, 2, "hold", cycles=9)
    net.call(1, 2, "echo", cycles=4)
    net.rounds(2)
    table = net.state.in_hand
    assert [table[name].tolist() for name in table.names] == [[2], [1], [0], [0], [9], [0], [1]]
    net.call(1, 2, "early", cycles=7)
    net.rounds(3)
    assert len(net.state.in_hand) == 0, "what it held is answered with the one that came later"
