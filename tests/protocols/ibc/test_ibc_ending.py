"""The IBC kernel and its oracle agree where zones end their connections (X-5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.ibc.test_ibc_kernel import compare, quick
from tests.support.ibc.ibc_harness import Scenario
from tests.support.ibc.ibc_strategies import scenarios
from tests.tiers import sized


@st.composite
def ending_networks(draw: st.DrawFn, /, **chosen: Any) -> Scenario:
    """Generate a network with connections that end, mostly early to leave rejections for later."""
    scenario: Scenario = draw(scenarios(**chosen))
    links = scenario.options.get("connections")
    names = list(scenario.zones)
    pairs = [(a, b) for a in names for b in names if a != b] if links is None else []
    for one, other in links or ():
        pairs += [(one, other), (other, one)]
    ends = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3, unique=True)) if pairs else []
    ticks = scenario.ticks[:5]
    return replace(scenario, disconnects=tuple((*pair, draw(st.sampled_from(ticks))) for pair in ends))


@quick(sized(7, 75))
@given(ending_networks(order="ordered", faulty=True, forks=True))
def test_kernel_agrees_on_ordered_queues(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


@quick(sized(7, 75))
@given(ending_networks(order="unordered", faulty=True))
def test_kernel_agrees_on_unordered_queues(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(5, 60))
@given(ending_networks(order="ordered", timeouts="on", timeout_blocks=1, cleanup="on", faulty=True))
def test_kernel_agrees_when_packets_expire(scenario: Scenario) -> None:
    compare(scenario)


def test_double_disconnection_in_one_block_has_one_final_packet() -> None:
    zones: dict[str, dict[int, str | None]] = {"A": {0: None}, "B": {7: None}}
    compare(Scenario(zones, {"validators": 1}, disconnects=(("A", "B", 1), ("A", "B", 1)), ticks=tuple(range(5))))
