"""Nested and overlapping relay chain forks with elder leaves: kernel against oracle, tick by tick.

The guarantees are checked on every log.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.faults import FaultRule
from causeway.core.vocabulary import Event
from causeway.protocols.icmp.forks import LeafPlan
from tests.protocols.icmp.test_icmp_kernel import CHAINS, sound, talk
from tests.support.icmp.icmp_driven import Driven
from tests.tiers import sized


def fork(first: int, last: int, kept: int, *followers: int, leaves: int = 2, **more: Any) -> FaultRule:
    """Create a fork; ``followers``: the branch of each chain, in their order."""
    named = {str(chain): branch for chain, branch in enumerate(followers)}
    return FaultRule("fork", None, None, first, last, {"leaves": leaves, "kept": kept, "followers": named, **more})


def sample_forks(r: Random) -> list[FaultRule]:
    """Generate valid forks."""
    found: list[FaultRule] = []
    for _ in range(r.randrange(2, 7)):
        first, leaves = r.randrange(2, 16), r.randrange(2, 4)
        more: dict[str, Any] = {"elder": [r.randrange(leaves)]} if r.random() < 0.3 else {}
        more |= {"of": r.randrange(5)} if r.random() < 0.7 else {}
        follow = [r.randrange(leaves) for _ in CHAINS]
        one = fork(first, first + r.randrange(10), r.randrange(leaves), *follow, leaves=leaves, **more)
        try:
            LeafPlan([*found, one], lambda tick: tick)
        except InvalidInput:
            continue
        found.append(one)
    return found


def assert_complete(net: Driven) -> None:
    """Assert that every sent message was received once."""
    again = net.delivered()
    assert set(again.values()) <= {1}
    lanes = zip(*(net.state["queues"][name].tolist() for name in ("source", "destination", "next_index")), strict=True)
    assert set(again) == {(x, y, index) for x, y, end in lanes for index in range(end) if x != y}
    sound(net)


def _random(seed: int) -> Driven:
    r = Random(seed)
    calls = []
    for _ in range(r.randrange(3) if seed % 2 else 0):
        do = r.choice(("register", "deregister", "block", "unblock"))
        chain, other = r.sample(sorted(CHAINS), 2)
        calls.append({"tick": r.randrange(20), "chain": chain, "do": do} | ({"other": other} if "block" in do else {}))
    options = {"ingress_upper": r.choice(("exclusive", "inclusive")), "para_calls": calls}
    options |= {"watermark_rule": r.choice(("any_ancestor", "has_messages"))}
    faults = sample_forks(r)
    if seed % 3 == 0:
        first = r.randrange(2, 14)
        faults.append(FaultRule("halt", r.choice((4, 0, 1)), None, first, first + r.randrange(6)))
    try:
        net = Driven(CHAINS, options=options, faults=faults, seed=seed, cuts=seed % 3 + 1, forgetful=seed % 2 == 1)
    except InvalidInput:  # halts of the relay chain moved starts and ends
        return _random(seed + 1_000)
    talk(net, r, 22)
    net.step(24)
    sound(net)
    net.fates()
    if not calls:
        assert_complete(net)
    return net


def test_fork_of_a_fork_outlives_it() -> None:
    """Leaf 1 forks while it is one of two; it is retained with its branches, then its younger branch is."""
    net = Driven(CHAINS, faults=[fork(3, 9, 1, 0, 0, 1, 1), fork(6, 14, 1, 1, 0, 1, 0, of=1)], cuts=3)
    r, leaves = Random(7), []
    for _ in range(18):
        talk(net, r, 1)
        leaves.append(net.state["blocks"]["leaf"].tolist())
    assert leaves[2:7] == [[0], [0, 1], [0, 1], [0, 1], [0, 1, 2]]
    assert leaves[9:16] == [[0, 1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [1, 2], [0]]
    assert {chain for chain, _, _ in net.reverted} == {1, 2, 4}
    net.step(16)
    assert_complete(net)


def test_relay_chain_returns_to_an_elder_leaf() -> None:
    """Routed entries above the elder leaf are unrouted there, and its numbers repeat (hazard 25)."""
    net = Driven(CHAINS, faults=[fork(5, 14, 1, 0, 0, 0, 1, elder=[1])])
    r = Random(3)
    talk(net, r, 15)
    assert net.state["blocks"]["number"].tolist() == [15, 6]
    lost = set(net.delivered())
    talk(net, r, 1)
    assert net.state["blocks"]["number"].tolist() == [7]
    assert len(lost - set(net.delivered())) > 5, "little was taken back"
    net.step(16)
    assert_complete(net)


def test_elder_leaf_lists_entries_below_its_own_block() -> None:
    """Entries of its own block for d, its follower, are due when it continues; other leaves are far above."""
    net = Driven(CHAINS, faults=[fork(1, 9, 1, 0, 0, 0, 1, elder=[1])])
    net.call(10, 41)
    net.step(9)
    assert net.state["tips"]["number"].tolist() == [1, 0, 0, 0]
    net.step(8)
    assert_complete(net)


def test_elder_leaf_applies_calls_when_it_continues() -> None:
    """At leaf 1 b leaves and returns, at the elder leaf in one block; followers of leaf 1 know that b is gone."""
    calls = [{"tick": tick, "chain": "b", "do": do} for tick, do in ((7, "deregister"), (10, "register"))]
    net = Driven(CHAINS, options={"para_calls": calls}, faults=[fork(5, 14, 0, 1, 1, 1, 1, elder=[0])])
    net.step(9)
    net.call(10, 21)
    net.step(1)
    assert net.surviving(Event.REJECTED)["reason"].to_pylist() == ["DestinationDoesNotExist"]
    for _ in range(3):
        net.call(30, 41)
        net.call(40, 21)
        net.step()
    net.step(14)
    assert_complete(net)


def test_repeated_reversion_restores_branch_history() -> None:
    """All follow leaf 1 until it is lost, and then leaf 2, which forked from leaf 0 earlier."""
    net = Driven(CHAINS, faults=[fork(2, 6, 0, 1, 1, 1, 1), fork(4, 11, 0, 1, 1, 1, 1, of=0)])
    talk(net, Random(5), 16)
    assert {(first, last) for _, first, last in net.reverted} == {(4, 7), (9, 12)}
    net.step(16)
    assert_complete(net)


def test_retained_elder_leaf_branches_in_the_same_block() -> None:
    """Every branch has its own block, so that no leaf includes blocks built on another."""
    elder = [fork(5, 7, 2, 1, 1, 1, 1, leaves=3, elder=[2]), fork(8, 14, 2, 1, 1, 0, 2, leaves=3, elder=[0, 1])]
    net = Driven(CHAINS, faults=elder)
    talk(net, Random(4), 9)
    assert len({row.tobytes() for row in net.state["blocks"]["hash"]}) == 3
    talk(net, Random(5), 9)
    net.step(20)
    assert_complete(net)


def test_any_forks() -> None:
    for seed in (43, 52):
        _random(seed)


@pytest.mark.slow
def test_any_forks_of_many() -> None:
    for seed in range(100, sized(103, 106)):
        _random(seed)
