"""Subnets joining and leaving the registry during a run (IC reference 2.7, hazards 36 and 37)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.topology import Membership, NodeChange
from causeway.core.frame import Frame, concat
from causeway.protocols.contract import Tick
from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.ic.registry import NNS, SYSTEM, registry_at
from tests.support.ic.ic_compare import compare
from tests.support.ic.ic_harness import Call, KernelRun, Scenario, topology
from tests.support.ic.ic_programs import ACTOR, ops

HOME, OTHER, THIRD = 0, 1, 2


def call(chain: int, canister: int, *receivers: int) -> Call:
    return Call(chain, canister, 5, "do", ops(*(("call", other, "echo", b"x", 1, None) for other in receivers)))


def network(spans: Mapping[int, tuple[int, int | None]], rounds: int = 14, **rest: Any) -> Scenario:
    """Create a network in which canisters 1, 2, 3 on three subnets call each other up to tick 8."""
    everybody = [call(HOME, 1, 2, 3), call(OTHER, 2, 1, 1, 3), call(THIRD, 3, 1, 2)]
    return Scenario(
        subnets=(HOME, OTHER, THIRD),
        canisters={1: (HOME, ACTOR, 1_000), 2: (OTHER, ACTOR, 1_000), 3: (THIRD, ACTOR, 1_000)},
        rounds=rounds,
        spans=spans,
        ingress=dict.fromkeys(range(1, 9), everybody),
        **rest,
    )


def rejection_reasons(events: Frame, kind: int) -> Counter[str]:
    """Return the reasons in events of a kind (``Kind``)."""
    reasons = events["reason"].to_pylist()
    return Counter(reason for of, reason in zip(events["kind"].tolist(), reasons, strict=True) if reason and of == kind)


def play_scenario(scenario: Scenario, *, apart: bool = False) -> tuple[KernelRun, dict[int, Frame]]:
    run = KernelRun(scenario, apart=apart, via_tables=apart)
    events = {}
    for tick in range(1, scenario.rounds + 1):
        run.round(Tick(tick, tick))
        events[tick] = concat(run.events)
    return run, events


INGRESS, CONTROL = 0, 4
BLS = {"certification": "bls"}
COMES, GOES = {OTHER: (4, None)}, {THIRD: (0, 7)}


@pytest.mark.parametrize("spans", [COMES, GOES, COMES | GOES, {OTHER: (3, 3), THIRD: (2, 6)}])
def test_kernel_and_oracle_agree_on_membership(spans: Mapping[int, tuple[int, int | None]]) -> None:
    compare(network(spans))


def test_joining_subnet_starts_at_its_own_genesis() -> None:
    run = KernelRun(network(COMES, 5, options=BLS), apart=False)
    always = KernelRun(network({}, 1, options=BLS), apart=False)
    numbers = []
    for tick in range(1, 6):
        run.round(Tick(tick, tick))
        numbers.append(run.headers["number"].tolist())
        if tick == 4:
            head = run.state.heads
            genesis = always.headers["root"][OTHER].tobytes()
            assert head["previous"][OTHER].as_py() == genesis, "its height 0 has the first states of its programs"
            assert head["time"].tolist()[OTHER] == 4 * 10**9
    assert numbers == [[1, 0, 1], [2, 0, 2], [3, 0, 3], [4, 1, 4], [5, 2, 5]]


def test_subnet_is_unreachable_before_it_joins() -> None:
    run, events = play_scenario(network(COMES, 6))
    assert [rejection_reasons(events[tick], INGRESS)["UnknownSubnet"] for tick in range(1, 7)] == [1, 1, 1, 0, 0, 0]
    assert [rejection_reasons(events[tick], 1)["NON_EXISTENT_CANISTER"] for tick in range(1, 7)] == [2, 2, 2, 0, 0, 0]
    lanes = run.state.streams.counters
    assert OTHER in lanes["destination"], "from then on it is called"


def test_36_first_slice_of_a_new_subnet_starts_at_the_base() -> None:
    gap = [("gap", OTHER, HOME, 5, 5)]
    run, events = play_scenario(network(COMES, carriers=gap))
    assert rejection_reasons(events[5], CONTROL) == {"UnexpectedMessages": 1}
    assert not any(rejection_reasons(events[tick], CONTROL) for tick in events if tick != 5)
    lanes = run.state.streams.counters
    assert (lanes["begin"] == lanes["next_index"]).all(), "what was refused came later, and all was answered"


def test_37_in_flight_slices_of_a_leaving_subnet_are_rejected() -> None:
    whole, events = play_scenario(network(GOES, 10, options=BLS))
    parts, _ = play_scenario(network(GOES, 10, options=BLS), apart=True)
    assert whole.roots() == parts.roots()
    assert [rejection_reasons(events[tick], CONTROL)["UnknownSubnet"] for tick in range(1, 11)] == [0] * 7 + [2] + [
        0
    ] * 2
    assert rejection_reasons(events[8], INGRESS) == {"UnknownSubnet": 1}
    assert whole.headers["number"].tolist() == [10, 10, 8], "the end of its canisters is its last height"
    lanes = whole.state.streams.counters
    kept = lanes.filter((lanes["source"] == THIRD) | (lanes["destination"] == THIRD))
    assert set(zip(kept["source"].tolist(), kept["destination"].tolist(), strict=True)) >= {
        (THIRD, HOME),
        (HOME, THIRD),
    }


def test_37_offers_of_a_removed_subnet_are_rejected_from_any_carrier() -> None:
    run, events = play_scenario(network(GOES, carriers=[("replay", THIRD, HOME, 10, 11)]))
    found = {tick: rejection_reasons(events[tick], CONTROL)["UnknownSubnet"] for tick in range(9, 13)}
    assert found == {9: 0, 10: 1, 11: 1, 12: 0}
    lanes = run.state.streams.counters
    between = lanes.filter((lanes["source"] != THIRD) & (lanes["destination"] != THIRD))
    assert (between["begin"] == between["next_index"]).all(), "the others' messages all arrived"


# ---- system subnets


@pytest.mark.parametrize(
    ("roles", "taken"),
    [({}, 4), ({OTHER: "system"}, 2), ({OTHER: "nns"}, 2), ({OTHER: "system", HOME: "system"}, 4), ({HOME: "nns"}, 4)],
)
def test_system_subnet_limits_messages_per_slice(roles: dict[int, str], taken: int) -> None:
    options = {"limits": "deployed", "limit": {"system_slice_messages": 2}}
    calls = {1: [call(HOME, 1, *[2] * 4)]}
    scenario = replace(network({}, 5, options=options, roles=roles), ingress=calls)
    compare(scenario)
    _, events = play_scenario(scenario)
    received = events[2].filter((events[2]["chain"] == OTHER) & (events[2]["kind"] == 1))
    assert len(received) == taken


@pytest.mark.parametrize(("roles", "held"), [({}, 4), ({OTHER: "system"}, 3), ({HOME: "nns"}, 4)])
def test_stream_to_a_system_subnet_fills_early(roles: dict[int, str], held: int) -> None:
    options = {"limits": "deployed", "limit": {"system_stream_messages": 3}}
    scenario = replace(network({}, 5, options=options, roles=roles), ingress={1: [call(HOME, 1, *[2] * 4)]})
    compare(scenario)
    run, _ = play_scenario(replace(scenario, rounds=1))
    lanes = run.state.streams.counters
    assert (lanes["next_index"] - lanes["begin"]).max() == held


# ---- batches


@pytest.mark.parametrize(("does", "numbers"), [("again", [(5, 6), (6, 7)]), ("ahead", [(6, 5), (7, 6)])])
@pytest.mark.parametrize("certification", ["off", "bls"])
def test_31_out_of_sequence_batch_is_ignored(does: str, numbers: Any, certification: str) -> None:
    """It reaches only a subnet whose own height is one less than the network's."""
    options = {"certification": certification}
    late = {OTHER: (2, None)}
    run, events = play_scenario(
        network(late, 7, options=options, carriers=[("batch", None, OTHER, 6, 7, {"does": does})])
    )
    honest, _ = play_scenario(network(late, 7, options=options))
    assert run.roots() == honest.roots(), "the state is as it was"
    found = {tick: events[tick].filter(events[tick]["kind"] == CONTROL) for tick in events}
    assert [len(found[tick]) for tick in range(1, 8)] == [0] * 5 + [1, 1]
    less = 1 if certification == "bls" else 0
    for tick, (actual, expected) in zip((6, 7), numbers, strict=True):
        rows = found[tick]
        assert (rows["reason"].to_pylist(), rows["chain"].tolist()) == (["Ignored"], [OTHER])
        assert (rows["index"][0] + less - 1, rows["queue_index"][0] + less - 1) == (actual, expected)


# ---- nodes


def test_replaced_nodes_sign_with_the_same_key() -> None:
    """All first nodes of a subnet sign false shares from tick 3 on; nodes added at tick 2 replace them."""
    joined = [NodeChange(2, OTHER, add=4, remove=(0, 1, 2, 3))]
    false = ("node", OTHER, None, 3, 4, {"does": "false_share", "nodes": [0, 1, 2, 3]})
    threshold = {"certification": "threshold"}
    changed, _ = play_scenario(network({}, 4, options=threshold, nodes=joined, carriers=[false]))
    whole, _ = play_scenario(network({}, 4, options=BLS))
    stuck, _ = play_scenario(network({}, 4, options=threshold, carriers=[false]))
    assert changed.roots() == whole.roots()
    assert changed.headers["certification"].equals(whole.headers["certification"])
    assert stuck.state.heads["certified"].tolist() == [4, 2, 4], "without them nobody signs for it"


# ---- invalid networks


def kernel(membership: Membership, roles: dict[int, str]) -> IcKernel:
    made = KernelRun(network({}), apart=False).kernel
    return IcKernel(
        type(made.topology)(made.topology.chains, made.topology.programs, roles=roles, membership=membership),
        made.programs,
        made.options,
    )


def test_invalid_networks_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="nodes of s1: node 9 is not there at tick 3; there are 0, 1, 2, 3"):
        kernel(Membership({}, {}, (NodeChange(3, 1, 0, (9,)),)), {})
    with pytest.raises(InvalidInput, match='chains: s0, s2 have role = "nns"; allowed: one'):
        kernel(Membership(), {0: NNS, 1: SYSTEM, 2: NNS})


def test_roles_are_known_by_position() -> None:
    found = topology(network({}))
    registry = registry_at(type(found)(found.chains, found.programs, roles={1: SYSTEM, 2: NNS}), 0)
    assert (registry.system.tolist(), registry.nns.tolist()) == ([False, True, True], [False, False, True])
    assert registry.has(np.array([0, 2, 3, 2**32 - 1], dtype=np.uint32)).tolist() == [True, True, False, False]
