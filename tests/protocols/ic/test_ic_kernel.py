"""Kernel and oracle agree on whole states, events and roots, round by round, however the network is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from causeway.protocols.contract import Tick
from tests.support.ic.ic_compare import assert_equal, assert_same_events, compare
from tests.support.ic.ic_features import FEATURES
from tests.support.ic.ic_harness import Call, Forgery, KernelRun, OracleRun, Scenario
from tests.support.ic.ic_programs import ACTOR, SCALAR_CALLER, accepting, ops
from tests.support.ic.ic_strategies import scenarios
from tests.support.ic.ic_views import kernel_happened, kernel_view
from tests.support.properties.tried import COUNTS
from tests.tiers import sized

COMPARISONS = 9
"""How many tests of this file, by the beginning of their names, compare kernel and oracle in every run."""


def quick(examples: int) -> Callable[[Any], Any]:
    """The same examples in every run, few enough to wait for."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@quick(sized(9, 100))
@given(scenarios())
def test_kernel_and_oracle_agree(scenario: Scenario) -> None:
    compare(scenario)


def accepts(scenario: Scenario) -> Scenario:
    """The same scenario, whose actors accept before they answer."""
    ingress = {
        at: [replace(call, payload=accepting(call.payload)) if call.method == "do" else call for call in calls]
        for at, calls in scenario.ingress.items()
    }
    return replace(scenario, ingress=ingress)


@quick(sized(9, 100))
@given(scenarios(moving=True, faulty=True))
def test_they_agree_where_programs_accept_before_they_answer(scenario: Scenario) -> None:
    compare(accepts(scenario))


@quick(sized(10, 110))
@given(scenarios(moving=True, vsr="deployed", migrations="on"))
def test_they_agree_while_canisters_move(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(9, 95))
@given(scenarios(limits="deployed", vsr="deployed", reject_every=0, messages_per_canister=1))
def test_they_agree_under_pressure(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(9, 100))
@given(scenarios(faulty=True))
def test_they_agree_under_faults(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(11, 120))
@given(scenarios(moving=True, faulty=True))
def test_they_agree_under_faults_while_canisters_move(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(8, 85))
@given(scenarios(moving=True, vsr="deployed", migrations="on", limits="deployed", reject_every=0))
def test_they_agree_under_pressure_while_canisters_move(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(6, 70))
@given(scenarios(moving=True, vsr="accept_all", receiver_check="off", reject_every=0, loopback="stream"))
def test_they_agree_on_what_nobody_executes(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(7, 80))
@given(scenarios(max_rounds=16, crowded=True, limits="none", reject_every=0))
def test_they_agree_where_many_senders_wait(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(6, 70))
@given(scenarios(changing=True, moving=True, faulty=True))
def test_they_agree_while_subnets_come_and_go(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(4, 200))
@given(scenarios(splitting=True, moving=True, faulty=True))
def test_they_agree_while_subnets_are_split(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(4, 200))
@given(scenarios(max_rounds=8, splitting=True, settling=True, loopback="stream"))
def test_they_agree_that_every_call_ends_once_where_subnets_are_split(scenario: Scenario) -> None:
    compare(scenario, settling=80)


@quick(sized(6, 70))
@given(scenarios(max_rounds=8, moving=True, faulty=True, settling=True))
def test_every_call_is_answered_once_the_network_is_at_rest(scenario: Scenario) -> None:
    compare(scenario, settling=80)


def test_the_stray_answer_to_a_forged_call_is_not_the_answer_to_the_call() -> None:
    """G1 without the receiver check: canister 1 moves before what answers the forgery in its name, and then makes
    a call of its own under that callback."""
    call = Call(1, 1, 5, "do", ops(("call", 2, "echo", b"", 0, None)))
    compare(
        Scenario(
            subnets=(0, 1),
            canisters={1: (0, ACTOR, 0), 2: (0, ACTOR, 0)},
            options={"receiver_check": "off"},
            rounds=7,
            ingress={3: [call]},
            moves=[(3, 1, 1)],
            forged=[Forgery(1, 0, 1, 2)],
        )
    )


@pytest.mark.parametrize("limits", ["none", "deployed"])
def test_a_subnet_whose_indices_are_used_up_stops_alone(limits: str) -> None:
    calls: dict[int, list[Call]] = {}
    for chain, canister, other, ticks in ((0, 1, 2, (1, 8, 9, 10, 12)), (2, 3, 1, range(2, 15, 2))):
        for tick in ticks:
            told = Call(chain, canister, 5, "do", ops(("call", other, "echo", b"", 1, None)))
            calls.setdefault(tick, []).append(told)
    scenario = Scenario(
        subnets=(0, 1, 2),
        canisters={1: (0, ACTOR, 100), 2: (1, ACTOR, 100), 3: (2, ACTOR, 100)},
        options={"vsr": "deployed", "limits": limits},
        rounds=16,
        ingress=calls,
        moves=[(14, 1, 2)],
        worn=[(7, 0, 1)],
        forged=[Forgery(13, 0, 1, 2, b"")],
    )
    oracle = OracleRun(scenario)
    stopped = []
    for height in range(1, scenario.rounds + 1):
        oracle.round(height)
        stopped += [(e.chain, e.height, e.cause) for e in oracle.events if e.event == "stopped"]
    assert stopped == [(0, 10, "IndexOverflow")]
    compare(scenario)


def test_a_removal_that_would_use_indices_up_stops_its_subnet_alone() -> None:
    """Nothing has ended there, so that the canister moves like any other when it is mapped again elsewhere."""
    calls: dict[int, list[Call]] = {
        tick: [Call(1, 2, 5, "do", ops(*[("call", 1, "hold", b"", 1, None)] * 2))] for tick in (1, 2, 3)
    }
    scenario = Scenario(
        subnets=(0, 1, 2),
        canisters={1: (0, ACTOR, 100), 2: (1, ACTOR, 100), 3: (2, ACTOR, 100)},
        options={"vsr": "deployed"},
        rounds=14,
        ingress=calls,
        moves=[(9, 1, None), (11, 3, None), (12, 1, 2)],
        worn=[(7, 0, 1)],
    )
    oracle = OracleRun(scenario)
    stopped = []
    for height in range(1, scenario.rounds + 1):
        oracle.round(height)
        stopped += [(e.chain, e.height, e.cause) for e in oracle.events if e.event == "stopped"]
    assert stopped == [(0, 9, "IndexOverflow")]
    compare(scenario)


def test_rejects_of_a_removal_wait_for_their_turn_where_the_subnet_is_halted() -> None:
    """Two canisters end while their subnet runs no round: it takes one reject a round later, in the order made."""
    first, second, caller = 1, 2, 3
    asked = ops(*[("call", callee, "hold", b"", 1, None) for callee in (second, first, second, first)])
    scenario = Scenario(
        subnets=(0, 1),
        canisters={first: (0, ACTOR, 100), second: (0, ACTOR, 100), caller: (0, ACTOR, 100), 4: (1, ACTOR, 100)},
        options={"messages_per_canister": 1},
        rounds=14,
        ingress={1: [Call(0, caller, 5, "do", asked)]},
        moves=[(7, second, None), (8, first, None)],
        halts=[(0, 6, 9)],
    )
    compare(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("faulty", [False, True])
def test_they_agree_for_long(moving: bool, faulty: bool) -> None:
    @quick(sized(5, 200))
    @given(scenarios(max_rounds=40, moving=moving, faulty=faulty))
    def run(scenario: Scenario) -> None:
        compare(scenario, parts=len(scenario.subnets))

    run()


SCALAR = {"echo": "scalar_echo", "caller": SCALAR_CALLER}
"""A vectorised program -> its scalar form."""


@quick(sized(9, 100))
@given(scenarios())
def test_both_forms_of_a_program_give_the_same(scenario: Scenario) -> None:
    def with_programs(names: dict[str, str]) -> Scenario:
        forms = {n: (host, names.get(p or "", p), balance) for n, (host, p, balance) in scenario.canisters.items()}
        # The two forms of echo differ in what they say to users.
        echoes = {number for number, (_, name, _) in forms.items() if name in ("echo", "scalar_echo")}
        ingress = {
            tick: [call for call in calls if call.receiver not in echoes] for tick, calls in scenario.ingress.items()
        }
        return replace(scenario, canisters=forms, ingress=ingress)

    vector = KernelRun(with_programs({form: name for name, form in SCALAR.items()}), apart=False)
    scalar = KernelRun(with_programs(SCALAR), apart=False)
    for height in range(1, scenario.rounds + 1):
        for run in (vector, scalar):
            run.round(Tick(height, height))
        found, expected = kernel_view(scalar), kernel_view(vector)
        for view in (found, expected):
            for sections in view.values():
                sections["programs"] = {canister: p for canister, p in sections["programs"].items() if p is not None}
        assert_equal(found, expected, height, "scalar and vector")
        assert_same_events(kernel_happened(scalar), kernel_happened(vector), height)


def test_every_feature_occurred_in_some_network(request: pytest.FixtureRequest) -> None:
    """The summary at the end of a run says how often. (Not of a run that left comparisons out.)"""
    comparisons = {item.name for item in request.session.items if item.name.startswith("test_they_agree")}
    if len(comparisons) < COMPARISONS:
        pytest.skip("only some comparisons ran")
    assert [feature for feature in FEATURES if not COUNTS["ic"][feature]] == []
