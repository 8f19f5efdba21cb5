"""The root that a subnet certifies equals that of the oracle's tree at every height."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.ic.ic_compare import compare
from tests.support.ic.ic_harness import Call, Scenario
from tests.support.ic.ic_programs import ACTOR, ops
from tests.support.ic.ic_strategies import scenarios
from tests.tiers import sized


def ingress_calls(chain: int, canister: int, *calls: tuple[int, str]) -> Call:
    return Call(chain, canister, 9, "do", ops(*[("call", other, method, b"x", 7, None) for other, method in calls]))


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({"certification_version": "V25", "full_hash_every": 2}, [(4, 2, 256)]),
        ({"certification_version": "V23", "certification": "threshold", "certification_delay": 1}, [(4, 2, 256)]),
        ({"certification_version": "V19", "blocks_ahead": 1}, []),
    ],
)
def test_roots_of_calls_rejects_loopback_and_a_move_from_a_halted_subnet(
    options: dict[str, Any], moves: list[tuple[int, int, int]]
) -> None:
    calls = {
        tick: [
            ingress_calls(0, 1, (2, "take"), (4, "echo"), (3, "refuse"), (77, "echo")),
            ingress_calls(256, 3, (1, "hold")),
        ]
        for tick in (1, 2, 4)
    }
    scenario = Scenario(
        subnets=(0, 1, 256),
        canisters={1: (0, ACTOR, 1000), 2: (1, ACTOR, 1000), 3: (256, ACTOR, 100), 4: (0, ACTOR, 5)},
        options={"certification": "bls", "vsr": "deployed", "reject_every": 3, **options},
        rounds=8,
        ingress=calls,
        halts=[(1, 3, 5)],
        moves=moves,
    )
    compare(scenario, roots=True)


@settings(max_examples=sized(3, 25), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios(max_rounds=6, certification="bls"))
def test_roots_of_any_network(scenario: Scenario) -> None:
    compare(scenario, roots=True)


@settings(max_examples=sized(1, 25), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(scenarios(max_rounds=6, splitting=True, substreams="flat", certification="bls"))
def test_roots_of_a_network_with_split_subnets(scenario: Scenario) -> None:
    compare(scenario, roots=True)
