"""Open calls: one enqueued response for each call, whoever responds (IC reference X-2, G4, G9)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame
from causeway.protocols.ic.open_calls import OPEN_CALLS_SCHEMA, OpenCalls
from causeway.protocols.shared.execution import ACCOUNTS_SCHEMA, credit_accounts
from tests.tiers import sized

WORD = 2**64


def messages(rows: list[tuple[int, int, int, int]], *, response: bool) -> Frame:
    """Return (originator, callback, respondent, deadline) as requests or as responses."""
    columns = [np.array([row[place] for row in rows], dtype=np.uint64) for place in range(4)]
    ends = ("receiver", "sender") if response else ("sender", "receiver")
    found: dict[str, Any] = {ends[0]: columns[0], "callback": columns[1], ends[1]: columns[2]}
    return Frame({**found, "deadline": columns[3].astype(np.uint32)}, len(rows))


def call_rows(calls: OpenCalls) -> list[tuple[int, ...]]:
    return list(zip(*(calls.rows[name].tolist() for name in OPEN_CALLS_SCHEMA.names), strict=True))


small = st.integers(0, 3)
BASES = (0, 2**40, 2**64 - 20000)
"""Callbacks of a canister begin here: the last make open calls lie far apart."""


@settings(max_examples=sized(90, 1000), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(small, st.integers(1, 400), small, st.sampled_from([0, 0, 9])), max_size=6),
            st.lists(st.tuples(small, st.integers(0, 12), small, st.sampled_from([0, 0, 9])), max_size=8),
        ),
        max_size=6,
    )
)
def test_calls_open_and_close_like_a_dictionary(rounds: list[tuple[list[Any], list[Any]]]) -> None:
    calls, model = (
        OpenCalls(
            Frame(
                {n: np.empty(0, np.uint64) for n in OPEN_CALLS_SCHEMA.names[:3]} | {"deadline": np.empty(0, np.uint32)},
                0,
            )
        ),
        {},
    )
    made: dict[int, list[int]] = {}
    for opened, answered in rounds:
        requests = []
        for originator, step, respondent, deadline in opened:
            mine = made.setdefault(originator, [BASES[originator % 3]])
            mine.append(mine[-1] + step)
            requests.append((originator, mine[-1], respondent, deadline))
            model[originator, mine[-1]] = (respondent, deadline)
        calls = calls.opened_by(messages(requests, response=False))
        responses = [
            (originator, ([*made.get(originator, []), *[1] * 13])[place], *rest)
            for originator, place, *rest in answered
        ]
        matching, calls = calls.close_answered(messages(responses, response=True))
        for (originator, callback, *named), matched in zip(responses, matching.tolist(), strict=True):
            open_ = model.get((originator, callback)) == tuple(named)
            assert matched == open_
            if open_:
                del model[originator, callback]
        assert call_rows(calls) == [(*key, *model[key]) for key in sorted(model)]


def test_round_without_answers_reuses_the_table() -> None:
    calls = OpenCalls(Frame({n: np.empty(0, np.uint64) for n in OPEN_CALLS_SCHEMA.names}, 0))
    calls = calls.opened_by(messages([(1, 0, 2, 0)], response=False))
    for responses in ([], [(1, 7, 2, 0)], [(1, 0, 3, 0)], [(4, 0, 2, 0)]):
        matching, after = calls.close_answered(messages(responses, response=True))
        assert not matching.any() and after.rows is calls.rows
    assert calls.without(np.zeros(1, dtype=bool)).rows is calls.rows


@settings(max_examples=sized(45, 500), deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 2**129), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, WORD - 1, WORD, 2**128 - 1])), max_size=9),
)
def test_refunds_are_added_exactly(balances: list[int], refunds: list[tuple[int, int]]) -> None:
    refunds = [(row % len(balances), amount) for row, amount in refunds]
    words = {"balance_over": 2 * 64, "balance_high": 64, "balance_low": 0}
    columns = {name: np.array([b >> shift & WORD - 1 for b in balances], np.uint64) for name, shift in words.items()}
    numbers = np.arange(len(balances), dtype=np.uint64)
    accounts = Frame({"program": numbers, "next_callback": numbers, **columns}).select(ACCOUNTS_SCHEMA.names)
    amounts = [np.array([amount >> shift & WORD - 1 for _, amount in refunds], np.uint64) for shift in (64, 0)]
    after = credit_accounts(accounts, np.array([row for row, _ in refunds], dtype=np.int64), *amounts)
    found = [sum(int(after[name][row]) << shift for name, shift in words.items()) for row in range(len(balances))]
    assert found == [b + sum(amount for row, amount in refunds if row == at) for at, b in enumerate(balances)]
