"""Relays change only latency and fees (G9), on the IBC kernel.

One network is played with honest relayers, and with lying, late or absent ones and strangers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.ibc.test_ibc_kernel import quick, wrong
from tests.spec import ibc
from tests.spec.ibc import guarantees
from tests.spec.ibc.record import Record
from tests.support.ibc.ibc_harness import Call, KernelRun, OracleRun, Scenario
from tests.support.ibc.ibc_programs import ACTOR, ops
from tests.support.ibc.ibc_record import KernelRecord
from tests.support.ibc.ibc_strategies import PAYLOADS, scenarios

AT_ONCE = ["echo", "take", "refuse", "raise"]
"""Methods whose answer does not depend on what came before."""


@st.composite
def disturbed_networks(draw: st.DrawFn, order: str) -> Scenario:
    """Generate a network with all calls in the first block, immediate answers, and ending relay faults."""
    scenario: Scenario = draw(
        scenarios(max_blocks=9, calm=24, faulty=True, strangers=True, order=order, timeouts="off", types={})
    )
    options = {name: value for name, value in scenario.options.items() if name != "unbonding_seconds"}
    options["connections"] = None
    home = {number: zone for zone, here in scenario.zones.items() for number in here}
    actors = [(zone, number) for zone, here in scenario.zones.items() for number in here if here[number] == ACTOR]

    def asked(zone: str) -> st.SearchStrategy[Any]:
        others = st.sampled_from([number for number, its in home.items() if its != zone])
        said = st.sampled_from(AT_ONCE), st.sampled_from(PAYLOADS), st.sampled_from([0, 1, 40]), st.none()
        return st.lists(st.tuples(st.just("call"), others, *said), min_size=3, max_size=6)

    told = [Call(zone, number, 5, "do", ops(*draw(asked(zone)))) for zone, number in actors]
    ticks = scenario.ticks[: -scenario.calm]
    spans = st.tuples(st.sampled_from(ticks), st.sampled_from(ticks)).map(sorted)
    kinds = st.sampled_from(["gap", "tamper", "stale", "foreign", "replay"])
    who = st.sampled_from([None, *scenario.relayers])
    lies = st.tuples(kinds, spans, who).map(lambda row: (row[0], None, None, *row[1], row[2]))
    carriers: tuple[Any, ...] = (*scenario.carriers, *draw(st.lists(lies, min_size=1, max_size=3)))
    return replace(scenario, options=options, ingress={1: told}, carriers=carriers, forged=(), halts=())


def play_to_rest(scenario: Scenario) -> Record:
    """Return the effects of the kernel at rest."""
    kernel = KernelRun(scenario)
    record = KernelRecord(kernel, OracleRun(scenario, kernel.application(), kernel.certified))
    for height in range(1, len(scenario.ticks) + 1):
        kernel.play(height)
        record.look(kernel.view())
    assert all(kernel.kernel.idle(state) for state in kernel.states)
    found = record.record()
    assert wrong([*guarantees.of_history(found), *guarantees.of_block(found)]) == []
    return found


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_relay_modes_change_only_latency(order: str) -> None:
    taken: Counter[bool] = Counter()

    @quick(8)
    @given(disturbed_networks(order))
    def run(scenario: Scenario) -> None:
        calm, stormy = play_to_rest(replace(scenario, carriers=(), outside={})), play_to_rest(scenario)
        assert guarantees.of_two(calm, stormy) == []
        rows = (row for row in stormy.log if isinstance(row, ibc.Received))
        taken.update(row.relayer.startswith("user") for row in rows)

    run()
    assert min(taken[True], taken[False]) > 0, "both strangers and relayers brought something"
