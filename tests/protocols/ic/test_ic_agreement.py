"""Certifying subnets against the oracle: states, events and payloads under any carriers and block makers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import Tick
from causeway.protocols.ic.fault_kinds import ALTERED, FOREIGN, OVERSIZED, REORDER, STALE
from causeway.protocols.ic.streams.check_slice import INVALID_PAYLOAD
from causeway.protocols.shared.interference import GAP, REPLAY
from tests.support.ic.ic_compare import compare
from tests.support.ic.ic_harness import Call, KernelRun, Scenario
from tests.support.ic.ic_programs import ACTOR, ops
from tests.support.ic.ic_strategies import scenarios

MAKERS = (GAP, REPLAY, REORDER, FOREIGN, OVERSIZED, STALE, ALTERED)
PARTS = ("payload", "sibling", "signature", "destination", "height", "header")


def few_examples(examples: int) -> Callable[[Any], Any]:
    """Run equal examples in every run; each signature check costs a millisecond."""
    checks = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, derandomize=True)


@st.composite
def certified_scenarios(draw: st.DrawFn, /, **options: Any) -> Scenario:
    """Generate certified streams with malicious block makers and carriers that alter slices."""
    scenario: Scenario = draw(scenarios(**options))
    ticks = st.integers(1, scenario.rounds)
    subnets = st.sampled_from(scenario.subnets)
    limited = scenario.options.get("limits", "none") != "none"
    does = st.sampled_from([name for name in MAKERS if limited or name != OVERSIZED])
    makers = draw(st.lists(st.tuples(does, subnets, ticks), max_size=4))
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


@few_examples(8)
@given(certified_scenarios())
def test_certified_subnets_and_the_oracle_agree(scenario: Scenario) -> None:
    compare(scenario)


@few_examples(6)
@given(certified_scenarios(), st.integers(400, 3000))
def test_limited_payloads_equal_the_oracle(scenario: Scenario, payload_bytes: int) -> None:
    compare(replace(scenario, options={**scenario.options, "payload_bytes": payload_bytes}))


@few_examples(6)
@given(certified_scenarios(), st.integers(1, 3), st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 0, 700, 1500]))
def test_blocks_may_precede_execution_and_certificates_may_lag(
    scenario: Scenario, ahead: int, delay: int, payload_bytes: int
) -> None:
    more = {"blocks_ahead": ahead, "certification_delay": delay, "payload_bytes": payload_bytes}
    compare(replace(scenario, options={**scenario.options, **more}))


# ---- a busy network, one fault at a time

SUBNETS = (1, 2, 260)
ROUNDS = 9


def busy_scenario(**changed: Any) -> Scenario:
    """Create calls between all subnets in all first ticks, so that streams are never empty."""
    canisters = {number: (host, ACTOR, 2**80) for number, host in ((10, 1), (20, 2), (30, 260))}
    homes = {10: 1, 20: 2, 30: 260}

    def calls(tick: int) -> list[Call]:
        told = {
            caller: ops(*(("call", to, "echo", bytes([tick]) * (60 + 7 * to), 1, None) for to in homes if to != caller))
            for caller in homes
        }
        return [Call(homes[caller], caller, 9, "do", told[caller]) for caller in homes for _ in range(5)]

    options = {"certification": "bls", **changed.pop("options", {})}
    ingress = {tick: calls(tick) for tick in range(1, ROUNDS - 2)}
    return Scenario(SUBNETS, canisters, options=options, rounds=ROUNDS, ingress=ingress, **changed)


def rejections_by_tick(scenario: Scenario) -> dict[int, set[str]]:
    """Return the reasons of rejections at each tick, played by the kernel alone."""
    run, found = KernelRun(scenario, apart=False), dict[int, set[str]]()
    for height in range(1, scenario.rounds + 1):
        run.round(Tick(height, height))
        for events in run.events:
            control = (events["kind"] == Kind.CONTROL) & (events["events"] == Event.REJECTED)
            if control.any():
                found.setdefault(height, set()).update(events.filter(control)["reason"].to_pylist())
    return found


LIMITED = {"payload_bytes": 2500, "blocks_ahead": 2}
LATE = {"certification_delay": 1}


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (LATE, {GAP: "UnexpectedMessages", REPLAY: "UnexpectedMessages", STALE: "UnexpectedMessages"}),
        (
            LIMITED,
            {
                REORDER: "InvalidStream(RootHashMismatch)",
                FOREIGN: "InvalidStream(InvalidDestination)",
                ALTERED: "InvalidStream(RootHashMismatch)",
                OVERSIZED: "PayloadTooLarge",
            },
        ),
    ],
)
def test_proposals_of_malicious_block_makers_are_rejected_whole(options: dict[str, Any], wrong: dict[str, str]) -> None:
    makers = [(does, 2, tick, tick) for tick, does in enumerate(wrong, start=4)]
    scenario = busy_scenario(options=options, makers=makers)
    compare(scenario, settling=60)
    expected = {tick: {f"{INVALID_PAYLOAD}({wrong[does]})"} for does, _, tick, _ in makers}
    assert rejections_by_tick(scenario) == expected


def test_block_maker_exceeding_slice_limits_is_rejected() -> None:
    limits = {"limits": "deployed", "limit": {"slice_messages": 2}}
    refused = rejections_by_tick(busy_scenario(options=limits, makers=[(OVERSIZED, 2, 4, 5)]))
    assert refused == {tick: {f"{INVALID_PAYLOAD}(SliceAboveMessageLimit)"} for tick in (4, 5)}


@pytest.mark.parametrize("options", [LATE, pytest.param(LIMITED, marks=pytest.mark.slow)])
def test_slices_altered_by_carriers_are_rejected_and_arrive_later(options: dict[str, Any]) -> None:
    causes = {
        "payload": "RootHashMismatch",
        "sibling": "RootHashMismatch",
        "signature": "InvalidSignature",
        "destination": "InvalidDestination",
        "height": "RootHashMismatch",
        "header": "RootHashMismatch",
    }
    carriers = [("alter", 1, 2, tick, tick, {"part": part}) for tick, part in enumerate(causes, start=3)]
    scenario = busy_scenario(options=options, carriers=carriers)
    compare(scenario, settling=60)
    # Signature bits are part of its form too.
    refused = {
        tick: {reason.replace("Malformed", "Invalid") for reason in found}
        for tick, found in rejections_by_tick(scenario).items()
    }
    assert refused == {tick: {f"InvalidStream({cause})"} for tick, cause in enumerate(causes.values(), start=3)}
