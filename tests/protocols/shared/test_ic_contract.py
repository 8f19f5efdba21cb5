"""Kernel properties that the pipeline relies on: reused tables, splits and merges of states, pickling."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.protocols.ic.kernel import IcKernel
from causeway.protocols.ic.state import State
from causeway.protocols.shared.option_values import MAX_TICK_NS
from causeway.protocols.shared.state_tables import merge_states, restore_state, select_chains
from tests.protocols.shared.test_ic_commitment import busy
from tests.support.ic.ic_harness import Scenario, kernel_of, topology
from tests.support.ic.ic_network import ACTOR, Network


def tables(kernel: IcKernel, state: State) -> dict[str, pa.Table]:
    return {name: frame.to_table(kernel.tables()[name].schema) for name, frame in state.frames().items()}


def test_quiet_round_reuses_every_table() -> None:
    net = Network({1: (0, ACTOR), 2: (1, "caller"), 3: (1, "echo")})
    net.call(1, 3)
    net.rounds(6)
    before = net.state.frames()
    assert net.run.kernel.idle(net.state)
    net.rounds(1)
    after = net.state.frames()
    assert [name for name in before if before[name] is not after[name]] == []


def test_round_reuses_unchanged_tables() -> None:
    net = Network({1: (0, ACTOR), 2: (1, "caller"), 3: (1, "echo")})
    net.rounds(1)
    before = net.state.frames()
    net.call(1, 3)
    net.rounds(1)
    after = net.state.frames()
    same = {name for name in before if before[name] is after[name]}
    assert {"input_queues", "input_counters", "rejects", "misrouted", "program_caller"} <= same
    assert not {"lanes", "runs", "output_counters"} & same


def test_network_is_idle_exactly_without_pending_work() -> None:
    net = Network({1: (0, ACTOR), 2: (1, "echo")})
    assert net.run.kernel.idle(net.state)
    net.call(1, 2)
    idle = []
    for _ in range(5):
        net.rounds(1)
        idle.append(net.run.kernel.idle(net.state))
    assert idle == [False, False, False, True, True], "call, answer, its collection, then nothing"


@pytest.mark.parametrize("groups", [[[0], [1], [2]], [[0, 1, 2]], [[0, 2], [1]], [[1, 2], [0]]], ids=str)
def test_states_split_and_merge(groups: list[list[int]]) -> None:
    net = busy()
    kernel, state = net.run.kernel, net.state
    parts = [select_chains(kernel, state, np.array(group, dtype=np.uint32), net.height) for group in groups]
    whole = tables(kernel, state)
    assert tables(kernel, merge_states(kernel, parts)) == whole
    rows = {name: sum(tables(kernel, one)[name].num_rows for one in parts) for name in whole}
    assert rows == {name: table.num_rows for name, table in whole.items()}


def test_state_equals_its_tables() -> None:
    net = busy()
    kernel, state = net.run.kernel, net.state
    written = tables(kernel, state)
    assert tables(kernel, restore_state(kernel, written)) == written
    few = {name: table for name, table in written.items() if table.num_rows}
    assert tables(kernel, restore_state(kernel, few)) == written, "what is empty need not be written"


def test_kernel_is_picklable() -> None:
    scenario = Scenario((0, 1), {1: (0, ACTOR, 5), 2: (1, "echo", 0)}, moves=[(2, 1, 1)], seed=7)
    kernel = kernel_of(scenario)
    chains = np.array([0, 1], dtype=np.uint32)
    there = pickle.loads(pickle.dumps(kernel))
    roots = [each.genesis(chains).headers["root"] for each in (kernel, there)]
    assert (roots[0] == roots[1]).all()


def test_positions_are_in_the_order_of_id_bytes() -> None:
    kernel = kernel_of(Scenario((1, 256, 0, 257), {1: (0, "echo", 0)}))
    assert list(kernel.chains()) == ["s0", "s256", "s1", "s257"]


@pytest.mark.parametrize("tick_ns", [0, -1, MAX_TICK_NS + 1])
def test_tick_without_duration_is_rejected(tick_ns: int) -> None:
    scenario = Scenario((0,), {1: (0, "echo", 0)})
    with pytest.raises(InvalidInput, match="seconds_per_tick"):
        IcKernel(topology(scenario), kernel_of(scenario).programs, tick_ns=tick_ns)
