"""The registry at each tick: hosts, traces, added and removed canisters (IC reference 2.7, X-12)."""

from __future__ import annotations

import numpy as np
import pytest

from causeway.protocols.contract import NO_HOST
from causeway.protocols.ic.registry import Registry, registry_at
from tests.support.ic.ic_harness import Scenario, topology

HUGE = 2**63 + 5
"""A canister number that is looked up by bisection, like all others of its network."""

Moves = list[tuple[int, int, int | None]]


def registry_at_tick(tick: int, moves: Moves, *, huge: bool = False) -> Registry:
    """Build a registry with canister 1 on subnet 0, 2 on subnet 1, 3 nowhere; 256 is second by id bytes."""
    canisters = {1: (0, "echo", 0), 2: (1, "echo", 0), 3: (None, "echo", 0), **({HUGE: (1, "echo", 0)} if huge else {})}
    return registry_at(topology(Scenario((0, 1, 256), canisters, moves=sorted(moves, key=lambda move: move[0]))), tick)


def hosts(registry: Registry, *canisters: int) -> list[int]:
    found: list[int] = registry.host_of(np.array(canisters, dtype=np.uint64)).tolist()
    return found


def trace(registry: Registry, canister: int) -> list[int]:
    mine = registry.trace_canisters == np.uint64(canister)
    found: list[int] = registry.trace_hosts[mine].tolist()
    return found


@pytest.mark.parametrize("huge", [False, True])
def test_hosts_are_positions_by_id_bytes(huge: bool) -> None:
    registry = registry_at_tick(0, [], huge=huge)
    assert registry.subnets.tolist() == [0, 256, 1]
    assert hosts(registry, 1, 2, 3, 4, 2**64 - 1) == [0, 2, NO_HOST, NO_HOST, NO_HOST]
    assert hosts(registry, HUGE) == [2 if huge else NO_HOST]
    assert (registry.version, trace(registry, 1)) == (1, [])


def test_version_applies_from_its_tick_on() -> None:
    moves: Moves = [(5, 1, 1), (7, 1, 256)]
    assert [hosts(registry_at_tick(tick, moves), 1) for tick in (4, 5, 6, 7, 99)] == [[0], [2], [2], [1], [1]]
    assert [registry_at_tick(tick, moves).version for tick in (4, 5, 6, 7)] == [1, 2, 2, 3]
    assert [trace(registry_at_tick(tick, moves), 1) for tick in (4, 5, 7)] == [[], [0, 2], [0, 2, 1]]


@pytest.mark.parametrize("huge", [False, True])
def test_hosting_starts_at_the_last_move(huge: bool) -> None:
    mover = HUGE if huge else 2
    moves: Moves = [(5, mover, 0), (6, 1, 0), (7, mover, 1), (8, 3, 1)]
    asked = np.array([1, mover, 3, 4, 2**64 - 1], dtype=np.uint64)
    since = {tick: registry_at_tick(tick, moves, huge=huge).hosted_since(asked).tolist() for tick in (4, 5, 7, 9)}
    assert since == {4: [0] * 5, 5: [0, 5, 0, 0, 0], 7: [0, 7, 0, 0, 0], 9: [0, 7, 8, 0, 0]}


def test_moves_of_a_tick_are_one_version() -> None:
    registry = registry_at_tick(5, [(5, 1, 1), (5, 2, 0), (5, 1, 256)])
    assert (hosts(registry, 1, 2), registry.version) == ([1, 0], 2)
    assert trace(registry, 1) == [0, 1], "no round saw it on subnet 1"


def test_move_to_the_current_host_changes_nothing() -> None:
    registry = registry_at_tick(9, [(5, 1, 0), (6, 3, None)])
    assert (trace(registry, 1), trace(registry, 3), registry.newcomers.tolist()) == ([], [], [])


def test_added_canister_is_new_until_it_ends() -> None:
    moves: Moves = [(5, 3, 1), (6, 3, 0), (8, 3, None), (9, 3, 1)]
    assert [registry_at_tick(tick, moves).newcomers.tolist() for tick in (4, 5, 6, 8, 9)] == [[], [3], [3], [], []]
    gone_first: Moves = [(5, 1, None), (6, 1, 1)]
    assert registry_at_tick(6, gone_first).newcomers.tolist() == [], "it was there before"


def test_last_host_of_a_removed_canister() -> None:
    registry = registry_at_tick(9, [(5, 1, 1), (6, 1, None), (7, 2, None)])
    asked = np.array([1, 2, 3], dtype=np.uint64)
    assert registry.host_of(asked).tolist() == [NO_HOST] * 3
    assert registry.last_hosts(asked).tolist() == [2, 2, NO_HOST]
    assert hosts(registry, 1) == [NO_HOST], "asking changes nothing"


def test_positions_on_a_trace() -> None:
    registry = registry_at_tick(9, [(5, 1, 1), (6, 1, 0), (7, 2, 256)])
    ones = np.array([1, 1, 1, 2, 3], dtype=np.uint64)
    chains = np.array([0, 2, 1, 2, 0])
    first, last = registry.position_on_trace(ones, chains), registry.position_on_trace(ones, chains, last=True)
    assert (first >= 0).tolist() == [True, True, False, True, False]
    assert last[0] - first[0] == 2, "it came back"
    assert last[1] == first[1]
