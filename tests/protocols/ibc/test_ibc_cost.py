"""Cost of an IBC block in rows and hashes: independent of history and receipts.

Updated stores equal those built from the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.hashing import columns, functions

from causeway.config.faults import FaultRule, Faults
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.ingress_call import encode_calls
from causeway.protocols.contract import Tick
from causeway.protocols.ibc import leaves
from causeway.protocols.ibc.state import State, StoreCache
from causeway.protocols.shared import digests
from tests import counting
from tests.support.ibc.ibc_network import Network, Placed

SPOKES = 3
EACH = 16
"""Calls to each spoke in a block."""

HISTORY = 8
"""Blocks of the shorter history."""

OBSERVED = 4
"""Blocks that are counted."""


def hub(faults: Faults | None = None, **options: Any) -> Network:
    """Zone whose program calls the others equally in every block; receipts are never collected."""
    zones: dict[str, Placed] = {"hub": {0: "caller"}}
    zones |= {f"spoke{number}": {10 + number: "echo"} for number in range(SPOKES)}
    return Network(zones, options={"trusted_headers": 4, **options}, faults=faults)


def play(net: Network, blocks: int, spokes: Sequence[int] = range(SPOKES)) -> None:
    """Let users make the hub's program call those of ``spokes``, block by block."""
    receivers = np.repeat(np.array([10 + spoke for spoke in spokes], dtype=np.uint64), EACH)
    bodies = pa.array([b"x"] * len(receivers), pa.binary())
    payloads = encode_calls(receivers, 0, 0, "echo", bodies)
    count = len(receivers)
    for _ in range(blocks):
        columns = [[0] * count, [0] * count, [9] * count, ["call"] * count, payloads]
        net.tell_all(pa.table(columns, schema=INGRESS_SCHEMA))
        net.block()


@contextmanager
def count_work() -> Iterator[Counter[str]]:
    """Count hashes, hashed bytes, and rows and leaf buffers that frames gather and join."""
    one_by_one = patch.object(columns, "engine_for", lambda function, count: None)
    with one_by_one, counting.counted((functions, digests), (leaves.QueueLeaves, "of", "rows")) as found:
        yield found


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_tenfold_history_costs_no_more_per_block(order: str) -> None:
    net = hub(order=order)
    costs = []
    for history in (HISTORY, 10 * HISTORY):
        play(net, history - net.height)
        with count_work() as found:
            play(net, OBSERVED)
        costs.append(found)
    short, long = costs
    held = len(net.states[0].leaves)
    assert held > 10 * HISTORY * EACH * SPOKES / 2, "receipts stay"
    assert min(short.values()) > 0
    # A tree of ten times the leaves has four more levels, and so many hashes in each path of a spoke.
    paths = 4 * OBSERVED * (1 + SPOKES)
    assert long["hashes"] <= short["hashes"] + 4 * paths
    assert long["bytes"] <= short["bytes"] + 65 * 4 * paths
    # Leaves are copied when they have doubled in number, which is rare.
    assert long["rows"] <= short["rows"] * 1.05


def test_blocks_beside_a_halted_zone_cost_no_more() -> None:
    net = hub(Faults.of(FaultRule("halt", SPOKES, first=3)))  # the last spoke
    costs = []
    for history in (HISTORY, 10 * HISTORY):
        play(net, history - net.height, range(SPOKES - 1))
        with count_work() as found:
            play(net, OBSERVED, range(SPOKES - 1))
        costs.append(found)
    short, long = costs
    assert long["hashes"] <= short["hashes"] + 16 * OBSERVED * SPOKES
    assert long["rows"] <= short["rows"] * 1.05


def test_cached_stores_equal_rebuilt_ones_with_halted_zones() -> None:
    faults = Faults.of(FaultRule("halt", SPOKES, first=3, last=5), FaultRule("halt", 0, first=5, last=6))
    kept, dropped = hub(faults), hub(faults)
    for _ in range(HISTORY):
        dropped.states = [replace(state, kept=StoreCache()) for state in dropped.states]
        for net in (kept, dropped):
            play(net, 1)
        assert kept.roots() == dropped.roots()
        assert roots(kept, kept.kernel.state(kept.states[0].frames())) == list(kept.roots().values())


def test_updated_stores_equal_rebuilt_ones() -> None:
    kept, dropped = hub(cleanup="on"), hub(cleanup="on")
    for _ in range(HISTORY):
        dropped.states = [replace(state, kept=StoreCache()) for state in dropped.states]
        tables = dropped.kernel.state(dropped.states[0].frames())
        assert roots(kept, tables) == roots(kept, kept.states[0]) == list(kept.roots().values())
        for net in (kept, dropped):
            play(net, 1)
        assert kept.roots() == dropped.roots()


def roots(net: Network, state: State) -> list[bytes]:
    """Return the roots of a state with or without stores."""
    (chains,) = net.groups
    return [
        bytes(root)
        for root in net.kernel.roots(state, chains, Tick(net.height, net.height), net.kernel.committed(state))["root"]
    ]


def test_state_can_be_continued_twice() -> None:
    """The first continuation takes over the state's trees; the second one rebuilds them."""
    net = hub()
    play(net, HISTORY)
    net.settle()
    again = copy(net)
    again.outbox, again._ingress = deepcopy(net.outbox), []
    play(net, 3, [0])
    assert roots(again, again.states[0]) == list(again.roots().values())
    play(again, 3, [1])
    alone = hub()
    play(alone, HISTORY)
    alone.settle()
    play(alone, 3, [1])
    assert again.roots() == alone.roots() != net.roots()
