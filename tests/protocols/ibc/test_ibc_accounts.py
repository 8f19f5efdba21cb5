"""Relayers with accounts, users relaying their own packets, and sponsored relayers: kernel against oracle.

Every generated network is also checked against the guarantees after every block. Among them: on every zone, accounts
and collected fees equal the deposits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.ibc.test_ibc_kernel import compare, quick
from tests.spec.ibc.accounts import Balance, funds_conserved
from tests.support.ibc import ibc_tally
from tests.support.ibc.ibc_harness import Scenario
from tests.support.ibc.ibc_strategies import scenarios
from tests.tiers import sized


@st.composite
def economies(draw: st.DrawFn, /, **fixed: Any) -> Scenario:
    """Generate a network of relayers with small accounts and shares."""
    faulty = draw(st.sampled_from([False, False, True]))
    scenario = draw(scenarios(max_blocks=20, faulty=faulty, forks=faulty, strangers=faulty, **fixed))
    names = scenario.relayers
    relay = dict(scenario.relay)
    relay["accounts"] = {
        "balance": draw(st.sampled_from([0, 119, 300, 300, 1000])),
        "balances": draw(st.dictionaries(st.sampled_from(names), st.sampled_from([0, 100, 260, 5000]), max_size=2)),
        "reward": draw(st.sampled_from([0, 0, 15, 60])),
        "reward_every": draw(st.sampled_from([1, 3])),
    }
    programs = sorted(number for here in scenario.zones.values() for number in here)
    roles = {name: draw(st.sampled_from(["any", "user", "sponsored"])) for name in names}
    own = st.lists(st.sampled_from([f"p{number}" for number in programs]), min_size=1, unique=True)
    sponsored = st.fixed_dictionaries(
        {
            "min_age": st.sampled_from([1, 2, 4]),
            "budget": st.sampled_from([0, 130, 400]),
            "every": st.sampled_from([2, 3]),
        }
    )
    relay["users"] = {name: draw(own) for name in names if roles[name] == "user"}
    relay["sponsored"] = {name: draw(sponsored) for name in names if roles[name] == "sponsored"}
    options = {**scenario.options, "relay": relay}
    if relay["users"] or relay["sponsored"]:
        relay |= {"coordination": "none", "max_packets": 0}
        options.pop("delay_seconds", None)
    deposit = st.tuples(
        st.sampled_from(list(scenario.zones)), st.sampled_from(names), st.sampled_from(scenario.ticks),
        st.sampled_from([20, 120, 500, 500]),
    )  # fmt: skip
    return replace(scenario, options=options, deposits=tuple(draw(st.lists(deposit, max_size=6))))


@quick(sized(3, 100))
@given(economies(order="ordered"))
def test_kernel_agrees_with_paying_relayers(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


@quick(sized(3, 100))
@given(economies(order="unordered"))
def test_kernel_agrees_with_paying_relayers_on_unordered_queues(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


def test_kernel_agrees_with_stopped_and_resumed_relayers(request: pytest.FixtureRequest) -> None:
    """The networks of this run covered stops and resumptions."""
    played = {
        item.name for item in request.session.items if item.name.startswith("test_kernel_agrees_with_paying_relayers")
    }
    if len(played) < 2:
        pytest.skip("only some comparisons ran")
    happened = Counter({name: ibc_tally.HAPPENED[name] for name in ("OutOfFunds", "Funded", "Received", "Acked")})
    assert all(happened.values()), happened


@pytest.mark.parametrize("change", [{"balance": 61}, {"deposited": 101}, {"fees": 39}, {"earned": 1}])
def test_surplus_unit_is_detected(change: dict[str, Any]) -> None:
    account = Balance("A", "r0", 60, 100, fees=40)
    assert funds_conserved([account, Balance("A", "", 40)]) == []
    assert funds_conserved([replace(account, **change), Balance("A", "", 40)]) != []
    assert funds_conserved([account, Balance("A", "", 39)]) != []
