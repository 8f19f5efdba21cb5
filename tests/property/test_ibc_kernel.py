"""The IBC kernel and its oracle agree on whole stores, states and refusals after every block, however it is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.ibc_harness import KernelRun, OracleRun, Scenario
from tests.property.ibc_strategies import scenarios


def quick(examples: int) -> Callable[[Any], Any]:
    """The same examples in every run, few enough to wait for."""
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def compare(scenario: Scenario, cuts: int = 1) -> None:
    """Play a scenario in the kernel and in the oracle; they agree after every block."""
    kernel = KernelRun(scenario, via_tables=cuts > 1, cuts=cuts)
    oracle = OracleRun(scenario, kernel.application())
    assert_equal(kernel.view(), oracle.view(), 0)
    for height in range(1, len(scenario.ticks) + 1):
        kernel.play(height)
        oracle.play(height, kernel.application())
        assert_equal(kernel.view(), oracle.view(), height)
        assert_same_events(kernel, oracle, height)


def assert_equal(found: Any, expected: Any, height: int) -> None:
    assert found.keys() == expected.keys()
    for zone, sections in expected.items():
        for section, content in sections.items():
            assert found[zone][section] == content, f"{section} of {zone} at height {height}"


def assert_same_events(kernel: KernelRun, oracle: OracleRun, height: int) -> None:
    found, expected = kernel.happened(), oracle.happened()
    for what in ("rejected", "timed_out", "settled"):
        assert found[what] == expected[what], f"{what} at height {height}"
    # Where a reply's handler raises, later relayers come to the same packet again in the oracle, in a bulk they do not.
    faulty = {row[0] for row in expected["refused"] if row[4] == "HandlerFault"}
    for one in (found, expected):
        faults = {row for row in one["refused"] if row[4] == "HandlerFault"}
        one["faults"] = faults
        one["refused"] = Counter({row: count for row, count in one["refused"].items() if row[0] not in faulty})
        one["counts"] = {zone: counts for zone, counts in one["counts"].items() if zone not in faulty}
    assert found["faults"] == expected["faults"], f"faults at height {height}"
    missing, extra = expected["refused"] - found["refused"], found["refused"] - expected["refused"]
    assert (missing, extra) == (Counter(), Counter()), f"refusals at height {height}: missing {missing}, extra {extra}"
    assert found["counts"] == expected["counts"], f"counts at height {height}"


@quick(25)
@given(scenarios(order="ordered"))
def test_kernel_and_oracle_agree(scenario: Scenario) -> None:
    compare(scenario)


@quick(20)
@given(scenarios(order="ordered", faulty=True, forks=True))
def test_they_agree_under_faults(scenario: Scenario) -> None:
    compare(scenario, cuts=4)


@quick(15)
@given(scenarios(order="unordered"))
def test_they_agree_on_unordered_queues(scenario: Scenario) -> None:
    compare(scenario, cuts=2)


@quick(15)
@given(scenarios(order="unordered", faulty=True, forks=True))
def test_they_agree_on_unordered_queues_under_faults(scenario: Scenario) -> None:
    compare(scenario)


@quick(15)
@given(scenarios(order="ordered", timeouts="on", timeout_blocks=1, cleanup="on", faulty=True))
def test_they_agree_when_packets_expire(scenario: Scenario) -> None:
    compare(scenario)


@quick(6)
@given(scenarios(faulty=True))
def test_cuts_give_the_same(scenario: Scenario) -> None:
    """One call for all zones, two, and one a zone, whose states go through the lake's tables: one network."""
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
def test_they_agree_for_long(order: str, faulty: bool) -> None:
    @quick(60)
    @given(scenarios(max_blocks=40, faulty=faulty, forks=faulty, order=order))
    def run(scenario: Scenario) -> None:
        compare(scenario, cuts=1 + 3 * faulty)

    run()
