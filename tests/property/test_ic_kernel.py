"""Kernel and oracle agree on whole states, events and roots, round by round, however the network is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from causeway.protocols.contract import Tick
from tests.property.ic_harness import KernelRun, OracleRun, Scenario
from tests.property.ic_programs import SCALAR_CALLER
from tests.property.ic_strategies import scenarios
from tests.property.ic_views import Happened, kernel_happened, kernel_view, oracle_happened, oracle_view, with_failures


def quick(examples: int) -> Callable[[Any], Any]:
    """The same examples in every run, few enough to wait for."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def compare(scenario: Scenario) -> None:
    """Play a scenario in the oracle and in two cuts of the kernel; they agree after every round."""
    oracle = OracleRun(scenario)
    whole = KernelRun(scenario, apart=False)
    apart = KernelRun(scenario, apart=True, via_tables=True)
    for height in range(1, scenario.rounds + 1):
        oracle.round(height)
        for run in (whole, apart):
            run.round(Tick(height, height))
        expected, happened = oracle_view(oracle), with_failures(oracle, oracle_happened(oracle))
        assert_equal(kernel_view(whole), expected, height, "kernel and oracle")
        assert_same_events(kernel_happened(whole), happened, height)
        assert_equal(kernel_view(apart), expected, height, "cuts")
        assert_same_events(kernel_happened(apart), happened, height)
        assert whole.roots() == apart.roots(), f"roots at height {height}"


def assert_equal(found: dict[int, Any], expected: dict[int, Any], height: int, what: str) -> None:
    for chain, sections in expected.items():
        for section, content in sections.items():
            assert found[chain][section] == content, f"{what}: {section} of {chain} at height {height}"


def assert_same_events(found: Happened, expected: Happened, height: int) -> None:
    for chain in expected:
        missing, extra = expected[chain] - found[chain], found[chain] - expected[chain]
        assert (missing, extra) == ({}, {}), f"events of {chain} at height {height}: missing, extra"


@quick(70)
@given(scenarios())
def test_kernel_and_oracle_agree(scenario: Scenario) -> None:
    compare(scenario)


@quick(70)
@given(scenarios(moving=True, vsr="deployed", migrations="on"))
def test_they_agree_while_canisters_move(scenario: Scenario) -> None:
    compare(scenario)


@quick(50)
@given(scenarios(limits="deployed", vsr="deployed", reject_every=0, messages_per_canister=1))
def test_they_agree_under_pressure(scenario: Scenario) -> None:
    compare(scenario)


@quick(60)
@given(scenarios(faulty=True))
def test_they_agree_under_faults(scenario: Scenario) -> None:
    compare(scenario)


@quick(60)
@given(scenarios(moving=True, faulty=True))
def test_they_agree_under_faults_while_canisters_move(scenario: Scenario) -> None:
    compare(scenario)


@quick(40)
@given(scenarios(moving=True, vsr="deployed", migrations="on", limits="deployed", reject_every=0))
def test_they_agree_under_pressure_while_canisters_move(scenario: Scenario) -> None:
    compare(scenario)


@quick(40)
@given(scenarios(moving=True, vsr="accept_all", receiver_check="off", reject_every=0, loopback="stream"))
def test_they_agree_on_what_nobody_executes(scenario: Scenario) -> None:
    compare(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("faulty", [False, True])
def test_they_agree_for_long(moving: bool, faulty: bool) -> None:
    @quick(40)
    @given(scenarios(max_rounds=40, moving=moving, faulty=faulty))
    def run(scenario: Scenario) -> None:
        compare(scenario)

    run()


SCALAR = {"echo": "scalar_echo", "caller": SCALAR_CALLER}
"""A vectorised program -> its scalar form."""


@quick(30)
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
