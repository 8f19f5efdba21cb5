"""Certified substreams per destination and per source.

The tests compare the oracle's trees, deliveries of flat streams, the order of each mode, and rejections of single
substreams.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import Tick
from tests.protocols.ic.test_ic_agreement import PARTS
from tests.spec import ic
from tests.spec.ic.guarantees import g6_substream_order
from tests.support.ic.ic_compare import compare
from tests.support.ic.ic_harness import Call, KernelRun, OracleRun, Scenario
from tests.support.ic.ic_programs import ACTOR, ops
from tests.support.ic.ic_strategies import scenarios
from tests.tiers import sized

FLAT, PER_DESTINATION, PER_SOURCE = MODES = ("flat", "per_destination", "per_source")
REST = 80
"""Rounds in which a network comes to rest."""


def few_examples(examples: int) -> Callable[[Any], Any]:
    """Run equal examples in every run."""
    checks = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, derandomize=True)


def with_mode(scenario: Scenario, mode: str, **options: Any) -> Scenario:
    return replace(scenario, options={**scenario.options, "substreams": mode, "certification": "bls", **options})


@pytest.mark.parametrize("mode", [PER_DESTINATION, PER_SOURCE])
@few_examples(sized(2, 100))
@given(st.data())
def test_certified_substreams_equal_the_oracle(mode: str, data: st.DataObject) -> None:
    splitting = data.draw(st.booleans())
    drawn = scenarios(max_rounds=7, moving=True, faulty=True, splitting=splitting, migrations="on", vsr="deployed")
    compare(with_mode(data.draw(drawn), mode), roots=True)


# ---- deliveries of every mode


@few_examples(sized(2, 200))
@given(scenarios(max_rounds=8, settling=True, limits="none", reject_every=0))
def test_all_modes_deliver_equal_messages(scenario: Scenario) -> None:
    """Each mode agrees with the oracle, preserves its order, and gives equal deliveries."""
    delivered = []
    for mode in MODES:
        played = with_mode(scenario, mode)
        compare(played, settling=REST, roots=True)
        delivered.append(deliveries(played))
    assert delivered[0] == delivered[1] == delivered[2]


def events_of(scenario: Scenario) -> list[ic.Event]:
    """Return the oracle's events until the network is at rest."""
    oracle, events = OracleRun(scenario), list[ic.Event]()
    for height in range(1, scenario.rounds + REST + 1):
        oracle.round(height)
        events += oracle.events
        if height > scenario.rounds and not oracle.events:
            break
    return events


def deliveries(scenario: Scenario) -> Counter[tuple[Any, ...]]:
    """Return the counted messages by receiver."""
    found = [e for e in events_of(scenario) if e.event == "received" and e.kind != "control"]
    return Counter((e.chain, e.kind, e.message, e.sender, e.receiver, e.cycles, e.code) for e in found)


# ---- the order of a mode

HOMES = {10: 1, 11: 1, 20: 2, 21: 2}
SUBNETS = (1, 2)


def network(*told: dict[int, bytes], **changed: Any) -> Scenario:
    """Create two subnets with two canisters each; ``told``: ingress for each by round."""
    canisters = {number: (host, ACTOR, 2**80) for number, host in HOMES.items()}
    ingress = {
        tick: [Call(HOMES[canister], canister, 9, "do", payload) for canister, payload in calls.items()]
        for tick, calls in enumerate(told, start=1)
    }
    return Scenario(SUBNETS, canisters, ingress=ingress, rounds=4, **changed)


def calls_to(*receivers: int) -> bytes:
    return ops(*(("call", receiver, "echo", bytes([at]), 1, None) for at, receiver in enumerate(receivers)))


def test_each_mode_preserves_exactly_its_order() -> None:
    """A block takes one message per lane. Later messages overtake it in lanes of their own."""
    told = {10: calls_to(20, 20, 20)}, {10: calls_to(21), 11: calls_to(20)}
    limits = {"limits": "deployed", "limit": {"slice_messages": 1}}
    for mode in MODES:
        scenario = with_mode(network(*told), mode, **limits)
        compare(scenario, settling=REST)
        events = events_of(scenario)
        for other in MODES:
            kept = not g6_substream_order(events, ic.Options(substreams=other))  # type: ignore[arg-type]
            assert kept == (other == mode or mode == FLAT), f"{mode} and the order of {other}"


# ---- a slice of one substream


def rejected_and_included(scenario: Scenario) -> tuple[dict[int, set[tuple[int, str]]], dict[int, set[int]]]:
    """Return, by height, substreams of slices from subnet 1 that subnet 2 rejected with reason, or included."""
    run = KernelRun(scenario, apart=False)
    refused: dict[int, set[tuple[int, str]]] = {}
    included: dict[int, set[int]] = {}
    source = run.numbers.index(1)
    for height in range(1, scenario.rounds + 1):
        run.round(Tick(height, height))
        for events in run.events:
            rows = events.filter((events["kind"] == Kind.CONTROL) & (events["events"] == Event.REJECTED))
            told = zip(rows["substream"].tolist(), rows["reason"].to_pylist(), strict=True)
            refused.setdefault(height, set()).update(told)
        for slices in run.accepted:
            mine = slices.filter((slices["source"] == source) & (slices["destination"] != source))
            included.setdefault(height, set()).update(mine["substream"].tolist())
    return refused, included


@pytest.mark.parametrize(("mode", "lanes"), [(PER_DESTINATION, {20, 21}), (PER_SOURCE, {10, 11})])
def test_altered_slice_of_one_substream_is_rejected_alone(mode: str, lanes: set[int]) -> None:
    told = {10: calls_to(20, 21, 20), 11: calls_to(21, 20, 21)}
    causes = {
        "payload": "RootHashMismatch",
        "sibling": "RootHashMismatch",
        "signature": "Signature",
        "destination": "InvalidDestination",
        "height": "RootHashMismatch",
        "header": "RootHashMismatch",
    }
    assert set(causes) == set(PARTS)
    for substream, (part, cause) in itertools.product(sorted(lanes), causes.items()):
        altered = ("alter", 1, 2, 2, 2, {"part": part, "substream": substream})
        scenario = with_mode(network(told, carriers=[altered]), mode)
        refused, included = rejected_and_included(scenario)
        ((lane, why),) = refused[2]
        assert lane == substream and cause in why, part
        assert included[2] == lanes - {substream}, "the others of that block are taken"
        assert substream in included[3], "it comes with the next block"
    compare(scenario, settling=REST)
    assert deliveries(scenario) == deliveries(with_mode(network(told), mode))
