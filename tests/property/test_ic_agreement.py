"""Subnets that certify agree with the oracle on states, events and payloads, whatever carriers and block makers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.protocols.ic.fault_kinds import ALTERED, FOREIGN, OVERSIZED, REORDER, STALE
from causeway.protocols.interference import GAP, REPLAY
from tests.property.ic_harness import Scenario
from tests.property.ic_strategies import scenarios
from tests.property.test_ic_kernel import compare

MAKERS = (GAP, REPLAY, REORDER, FOREIGN, OVERSIZED, STALE, ALTERED)
PARTS = ("payload", "sibling", "signature", "destination", "height", "header")


def few(examples: int) -> Callable[[Any], Any]:
    """The same examples in every run; each signature that is checked costs a millisecond."""
    checks = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, derandomize=True)


@st.composite
def certified(draw: st.DrawFn, /, **options: Any) -> Scenario:
    """A scenario of flat streams, which are certified, with malicious block makers and carriers that alter slices."""
    scenario: Scenario = draw(scenarios(substreams="flat", **options))
    ticks = st.integers(1, scenario.rounds)
    subnets = st.sampled_from(scenario.subnets)
    makers = draw(st.lists(st.tuples(st.sampled_from(MAKERS), subnets, ticks), max_size=4))
    altering = draw(st.lists(st.tuples(st.sampled_from(PARTS), subnets, subnets, ticks), max_size=3))
    return replace(
        scenario,
        options={**scenario.options, "certification": "bls"},
        makers=[(does, chain, tick, tick + 2) for does, chain, tick in makers],
        carriers=[
            *scenario.carriers,
            *(("alter", source, taker, tick, tick, {"part": part}) for part, source, taker, tick in altering),
        ],
    )


@few(15)
@given(certified())
def test_certified_subnets_and_the_oracle_agree(scenario: Scenario) -> None:
    compare(scenario)


@few(10)
@given(certified(), st.integers(400, 3000))
def test_limited_payloads_are_those_of_the_oracle(scenario: Scenario, payload_bytes: int) -> None:
    compare(replace(scenario, options={**scenario.options, "payload_bytes": payload_bytes}))
