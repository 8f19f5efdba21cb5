"""Forks with partitioned chains: a network is equal after every tick, in any number of buckets."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from causeway.core.vocabulary import REVERTED
from causeway.protocols.contract import earliest
from causeway.protocols.xdm.relay.proofs import ABANDONED
from tests.support.xdm.properties.xdm_mixed import KINDS, mixed, play
from tests.support.xdm.xdm_network import Network
from tests.tiers import sized

QUICK, LONG = (14, 40), (40, 120)
"""In how many blocks users call, and how many rounds are played at most."""

CASES = [
    *(pytest.param(seed, QUICK, id=f"{seed}") for seed in (2, 21)),
    *(pytest.param(seed, (20, 105), marks=pytest.mark.slow, id=f"{seed}") for seed in range(100, sized(101, 103))),
    pytest.param(5166, (24, 110), marks=pytest.mark.slow, id="5166"),  # a and b give up while c waits
    *[pytest.param(200, LONG, marks=pytest.mark.slow, id="200-long")][: sized(0, 1)],
]


@pytest.mark.parametrize(("seed", "length"), CASES)
def test_forked_network_is_equal_under_any_partitioning(seed: int, length: tuple[int, int]) -> None:
    blocks, rounds = length
    keywords, calls = mixed(seed, blocks)
    chains = len(keywords["chains"])
    nets = {"whole": Network(**keywords), "each chain": Network(**keywords, cuts=chains)}
    if seed % 3 == 0:
        nets["some together"] = Network(**keywords, cuts=random.Random(seed).choice([2, 3]))
    if seed % 5 == 0:
        nets["forgetful"] = Network(**keywords, forgetful=True)
    assert play(nets, calls, blocks, rounds) > blocks
    assert length != QUICK or len(nets["whole"].logs[REVERTED])


def test_mix_contains_all_fault_kinds() -> None:
    kinds = Counter(fault[0] for seed in range(50) for fault in mixed(seed, 20)[0]["faults"])
    assert kinds.keys() == {*KINDS, "reorg"}


CHAINS: dict[str, dict[int, Any]] = {
    "consensus": {},
    "a": {11: "caller", 12: "echo"},
    "b": {21: "caller", 22: "echo"},
    "c": {31: "caller", 32: "echo"},
}


@pytest.mark.parametrize("cuts", [1, 2, 3, 4])
def test_channels_given_up_by_some_chains_wake_no_others(cuts: int) -> None:
    """a and b open a channel to each other at once and give up; c waits for one it opens much later."""
    ends = [("a", "b", 0), ("b", "a", 0), ("c", "a", 300)]
    planned = [{"tick": tick, "chain": one, "foreign": other} for one, other, tick in ends]
    net = Network(CHAINS, cuts=cuts, options={"channels": "initiate", "channel_calls": planned})
    net.call(31, 12)
    net.block()
    ticks, abandoned = [], []
    while net.tick < 300:
        net.sleep(earliest(*(result.wake for result in net.results)) or 0)
        ticks.append(net.tick)
        abandoned += [net.tick] if ABANDONED in net.events(last=True)["reason"].to_pylist() else []
    assert ticks[-2:] == [*abandoned, 300]


@pytest.mark.parametrize("tick", [12, 14])
def test_message_dropped_at_a_fork_is_lost_whatever_others_receive(tick: int) -> None:
    """The message to b is dropped in the tick of the fork; the one to c arrives in the next block."""
    lost: tuple[Any, ...] = ("drop", "a", "b", 0, tick, {})
    fork: tuple[Any, ...] = ("reorg", None, None, tick, tick, {"depth": 2})
    options = {"archiving_depth": 5, "challenge_period": 3}
    nets = {cuts: Network(CHAINS, balance=10**6, cuts=cuts, options=options, faults=[lost, fork]) for cuts in (1, 4)}
    calls = {block: [(11, receiver, b"x", 0, "call") for receiver in (22, 32)] for block in range(tick + 2)}
    play(nets, calls, tick + 2, tick + 2)
    assert nets[1].logs[REVERTED] and not len(nets[1].state["late_nodes"])
