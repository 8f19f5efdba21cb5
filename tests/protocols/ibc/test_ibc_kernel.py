"""The IBC kernel and its oracle agree on stores, states and rejections per block, in any partitioning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.spec import ibc
from tests.spec.ibc import guarantees
from tests.spec.ibc.clients import l1_l2_bounded
from tests.spec.ibc.queue import Queue
from tests.spec.ibc.record import record_of
from tests.spec.ibc.zone import is_expired_header, newest_trusted
from tests.support.ibc import ibc_tally
from tests.support.ibc.ibc_harness import Call, KernelRun, OracleRun, Scenario
from tests.support.ibc.ibc_programs import ACTOR, accepting, ops
from tests.support.ibc.ibc_record import KernelRecord
from tests.support.ibc.ibc_strategies import scenarios
from tests.tiers import sized

SEED = 7
"""Seed of the examples: with it, the calls of strangers have every outcome (``ibc_tally.MUST``) in few examples."""


def quick(examples: int) -> Callable[[Any], Any]:
    """Run equal examples in every run, whatever the test is called, without shrinking, which would take minutes."""
    phases = [Phase.explicit, Phase.generate]
    fixed = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), phases=phases)
    return lambda test: seed(SEED)(fixed(test))


def compare(scenario: Scenario, cuts: int = 1) -> None:
    """Play a scenario on kernel and oracle, and compare them after every block."""
    kernel = KernelRun(scenario, via_tables=cuts > 1, cuts=cuts)
    oracle = OracleRun(scenario, kernel.application(), kernel.certified)
    assert_equal(kernel.view(), oracle.view(), 0)
    record = KernelRecord(kernel, oracle)
    for height in range(1, len(scenario.ticks) + 1):
        kernel.play(height)
        oracle.play(height, kernel.application(), kernel.of_strangers)
        found = kernel.view()
        assert_equal(found, oracle.view(), height)
        assert_same_events(kernel, oracle, height)
        record.look(found)
        assert effective_relayers(record.log, height) == effective_relayers(oracle.net.log, height), (
            f"who brought it, at height {height}"
        )
        for engine in (record.record(), record_of(oracle.net)):
            assert wrong(guarantees.of_block(engine)) == [], f"at height {height}"
    for engine in (record.record(), record_of(oracle.net)):
        assert wrong(guarantees.of_history(engine)) == []
        if scenario.calm:
            since = len(scenario.ticks) - scenario.calm
            assert l1_l2_bounded(engine, since, healthy_lanes(scenario, oracle, since)) == []
    ibc_tally.count(scenario, oracle)


def effective_relayers(log: Sequence[ibc.Row], height: int) -> list[tuple[str, ...]]:
    """Return effective relayers at a height, without repetitions in ordered zones after a HandlerFault."""
    found = []
    for row in log:
        if isinstance(row, ibc.HeaderAdded | ibc.Received | ibc.Acked) and row.height == height:
            what = row.remote_height if isinstance(row, ibc.HeaderAdded) else row.index
            found.append((type(row).__name__, row.chain, row.remote, str(what), row.relayer))
    return sorted(found)


def healthy_lanes(scenario: Scenario, oracle: OracleRun, since: int) -> set[tuple[str, str]]:
    """Return lanes with two active clients that relayers can have emptied since then."""
    relay, zones = scenario.relay, oracle.net.zones
    pace = relay.get("max_packets", 0) or 10**6
    blocks = scenario.calm - relay.get("max_wait", 0) - 6 - 3 * ceil(scenario.options.get("delay_seconds", 0))

    def active(a: str, b: str) -> bool:
        connection = zones[a].connections[b]
        return not connection.frozen and not is_expired_header(zones[a], newest_trusted(connection))

    found = set()
    for a, zone in zones.items():
        for b in zone.connections:
            waiting = len(Queue(oracle.net.history[a, since], b, "send").indices())
            if active(a, b) and active(b, a) and 2 * waiting <= blocks * pace:
                found.add((a, b))
    return found


def wrong(violations: list[str]) -> list[str]:
    """Return violations beyond those a scenario allows a zone."""
    return [one for one in violations if "module forged" not in one]


def assert_equal(found: Any, expected: Any, height: int) -> None:
    assert found.keys() == expected.keys()
    for zone, sections in expected.items():
        for section, content in sections.items():
            assert found[zone][section] == content, f"{section} of {zone} at height {height}"


def assert_same_events(kernel: KernelRun, oracle: OracleRun, height: int) -> None:
    found, expected = kernel.happened(), oracle.happened()
    for what in ("rejected", "timed_out", "settled", "clients", "funds"):
        assert found[what] == expected[what], f"{what} at height {height}"
    missing, extra = expected["refused"] - found["refused"], found["refused"] - expected["refused"]
    assert (missing, extra) == (Counter(), Counter()), f"refusals at height {height}: missing {missing}, extra {extra}"
    assert found["counts"] == expected["counts"], f"counts at height {height}"
    assert found["outside"] == expected["outside"], f"calls of strangers at height {height}"


@quick(sized(8, 85))
@given(scenarios(order="ordered"))
def test_kernel_and_oracle_agree(scenario: Scenario) -> None:
    compare(scenario)


def with_accepting_actors(scenario: Scenario) -> Scenario:
    """Return the scenario with actors that accept before they answer."""
    ingress = {
        at: [replace(call, payload=accepting(call.payload)) if call.method == "do" else call for call in calls]
        for at, calls in scenario.ingress.items()
    }
    return replace(scenario, ingress=ingress)


@quick(sized(6, 60))
@given(scenarios(order="ordered", faulty=True))
def test_kernel_agrees_where_programs_accept_before_answering(scenario: Scenario) -> None:
    compare(with_accepting_actors(scenario))


@quick(sized(8, 75))
@given(scenarios(order="ordered", faulty=True, forks=True, strangers=True))
def test_kernel_agrees_under_faults(scenario: Scenario) -> None:
    compare(scenario, cuts=4)


@quick(sized(5, 55))
@given(scenarios(order="unordered", strangers=True))
def test_kernel_agrees_on_unordered_queues(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


@quick(sized(8, 65))
@given(scenarios(order="unordered", faulty=True, forks=True, strangers=True))
def test_kernel_agrees_on_unordered_queues_under_faults(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(8, 65))
@given(scenarios(order="ordered", timeouts="on", timeout_blocks=1, cleanup="on", faulty=True, strangers=True))
def test_kernel_agrees_when_packets_expire(scenario: Scenario) -> None:
    compare(scenario)


@quick(sized(6, 65))
@given(scenarios(order="unordered", timeouts="on", timeout_blocks=2, cleanup="on", faulty=True, strangers=True))
def test_kernel_agrees_when_packets_of_unordered_queues_expire(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


LATE = [1.0, 2.0, 2.5, 4.0]


@quick(sized(3, 40))
@given(
    scenarios(order="ordered", connections=None, cleanup="on", faulty=True, strangers=True, max_blocks=20, delays=LATE)
)
def test_kernel_agrees_with_delays(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


@quick(sized(4, 40))
@given(scenarios(order="unordered", connections=None, strangers=True, max_blocks=20, delays=LATE))
def test_kernel_agrees_with_delays_on_unordered_queues(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


@quick(sized(4, 45))
@given(scenarios(faulty=True, forks=True, strangers=True, calm=12))
def test_no_packet_waits_forever(scenario: Scenario) -> None:
    """L1, L2: honest relayers deliver everything deliverable within a few blocks."""
    compare(scenario)


@quick(sized(3, 30))
@given(scenarios(faulty=True, strangers=True))
def test_partitions_give_equal_results(scenario: Scenario) -> None:
    """Compare one call for all zones, two, and one per zone with states through the lake's tables."""
    runs = [KernelRun(scenario, cuts, via_tables=cuts > 1) for cuts in (1, 2, len(scenario.zones))]
    for height in range(1, len(scenario.ticks) + 1):
        for run in runs:
            run.play(height)
        whole, *others = ({name: frame.to_table(run.kernel.tables()[name].schema)
                           for name, frame in run.state.frames().items()} for run in runs)  # fmt: skip
        for tables in others:
            assert tables == whole, f"tables at height {height}"
        assert len({tuple(sorted(run.roots().items())) for run in runs}) == 1, f"roots at height {height}"


@pytest.mark.slow
@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("faulty", [False, True])
def test_kernel_agrees_in_long_runs(order: str, faulty: bool) -> None:
    @quick(sized(8, 200))
    @given(scenarios(max_blocks=40, faulty=faulty, forks=faulty, strangers=True, order=order))
    def run(scenario: Scenario) -> None:
        compare(scenario, cuts=1 + 3 * faulty)

    run()


def test_every_relayer_delivering_a_raising_reply_is_rejected() -> None:
    """Include a relayer that skips the first: each is rejected for its own attempts."""
    asked = ops(*(("call", 0, "hold", bytes(number), 0, "boom") for number in range(3)))
    scenario = Scenario(
        {"A": {0: ACTOR}, "B": {7: ACTOR}},
        {"order": "unordered", "acknowledgements": "synchronous", "relayers": ("r0", "r1", "r2"), "validators": 1},
        ingress={1: [Call("B", 7, 0, "do", asked)]},
        carriers=(("gap", "A", "B", 2, 9, "r2"),),
        ticks=tuple(range(5)),
    )
    compare(scenario)


def test_every_time_out_behind_a_raising_one_concerns_the_same_packet() -> None:
    """Two relayers deliver two each; the first succeeds, and the rollback of the second raises repeatedly."""
    asked = ops(("call", 7, "echo", b"x", 0, None), ("call", 7, "echo", b"y", 0, "boom"))
    scenario = Scenario(
        {"A": {0: ACTOR}, "B": {7: ACTOR}},
        {"timeouts": "on", "timeout_blocks": 2, "relayers": ("r0", "r1"), "validators": 1},
        ingress={1: [Call("A", 0, 0, "do", asked)]},
        carriers=(("drop", "A", "B", 0, 20, None),),
        ticks=tuple(range(9)),
    )
    compare(scenario)


def test_received_and_timed_out_packets_are_not_replayed() -> None:
    """Of two packets of one block, one is received and one times out. A replaying relayer finds neither."""
    asked = ops(("call", 0, "echo", b"x", 0, None), ("call", 0, "echo", b"y", 0, None))
    scenario = Scenario(
        {"A": {0: ACTOR}, "B": {7: ACTOR}},
        {
            "order": "unordered",
            "acknowledgements": "synchronous",
            "timeouts": "on",
            "timeout_blocks": 2,
            "relay": {"min_batch": 2, "max_packets": 1, "max_wait": 2},
            "validators": 1,
        },
        ingress={1: [Call("B", 7, 0, "do", asked)]},
        carriers=(("replay", "B", "A", 3, 9, None),),
        ticks=tuple(range(7)),
    )
    compare(scenario)


def test_packets_of_one_transaction_are_received_in_index_order() -> None:
    """The first has no program and the second is handled: the kernel's log lists the second first."""
    asked = ops(("call", 7, "take", b"x", 40, None), ("call", 1, "take", b"x", 7, None))
    scenario = Scenario(
        {"A": {0: ACTOR}, "B": {1: ACTOR, 7: None}},
        {"validators": 1},
        ingress={1: [Call("A", 0, 5, "do", asked)]},
        ticks=tuple(range(4)),
    )
    compare(scenario)


def test_guarantees_hold_in_kernel_logs() -> None:
    """Omissions and alterations in a log or state of the kernel are detected."""
    told = Call("A", 0, 5, "do", ops(("call", 1, "take", b"x", 40, None), ("call", 0, "take", b"x", 7, None)))
    scenario = Scenario({"A": {0: ACTOR}, "B": {1: ACTOR}}, {"validators": 1}, ingress={1: [told]})
    kernel = KernelRun(scenario)
    record = KernelRecord(kernel, OracleRun(scenario, kernel.application(), kernel.certified))
    for height in range(1, 4):
        kernel.play(height)
        record.look(kernel.view())
        assert guarantees.of_block(record.record()) == []
    assert guarantees.of_history(record.record()) == []
    names = Counter(type(row).__name__ for row in record.log)
    assert {name: names[name] for name in ("Sent", "Received", "Acked", "HeaderAdded")} == dict.fromkeys(
        ("Sent", "Received", "Acked"), 1
    ) | {"HeaderAdded": 2}
    for row in record.log:
        log = [one for one in record.log if one is not row]
        if not isinstance(row, ibc.Root):
            without = replace(record.record(), log=log)
            assert [*guarantees.of_history(without), *guarantees.of_block(without)] != [], row
    whole = record.record()
    assert guarantees.of_block(replace(whole, held=whole.held + 1)) != []
    assert guarantees.of_two(whole, whole) == []
    unread = [row for row in whole.log if not isinstance(row, ibc.Received)]
    queues = {**whole.stores, "A": {**whole.stores["A"], ibc.key("B", "send", ibc.HEAD): bytes(8)}}
    for other in (replace(whole, log=unread), replace(whole, stores=queues)):
        assert guarantees.of_two(whole, other) != [] and guarantees.of_two(other, whole) != []


def test_comparisons_cover_every_external_call_and_outcome(request: pytest.FixtureRequest) -> None:
    """The comparisons of a run cover every kind of external call with every possible outcome."""
    comparisons = {
        item.name for item in request.session.items if item.name.startswith(("test_kernel_agrees", "test_no_packet"))
    }
    if len(comparisons) < COMPARISONS:
        pytest.skip("only some comparisons ran")
    assert ibc_tally.missing() == []


COMPARISONS = 8
"""How many tests of this file, by the beginning of their names, play strangers in every run."""
