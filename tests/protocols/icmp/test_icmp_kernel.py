"""The kernel against the oracle, tick by tick: forks, changing parachains and late bodies.

The guarantees are checked on every log.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from causeway.config.faults import FaultRule
from causeway.protocols.icmp.faults import JUDGED
from tests.spec.icmp.guarantees import RUNTIME_CHECKS
from tests.spec.icmp.history import Record
from tests.support.icmp.icmp_driven import Driven
from tests.tiers import sized

CHAINS = {name: {10 * n: "caller", 10 * n + 1: "echo"} for n, name in enumerate(("a", "b", "c", "d"), 1)}


def sound(net: Driven) -> None:
    """Check G1 to G6 and G9 for all consumed queues."""
    record = Record(net.oracle.log, net.oracle.options)
    assert [finding for check in RUNTIME_CHECKS for finding in check(record) if finding.status == "violated"] == []


def fork(first: int, last: int, kept: int, **followers: int) -> FaultRule:
    named = {str(list(CHAINS).index(name)): leaf for name, leaf in followers.items()}
    leaves = max([1, kept, *followers.values()]) + 1
    return FaultRule("fork", None, None, first, last, {"leaves": leaves, "kept": kept, "followers": named})


def talk(net: Driven, r: Random, ticks: int) -> None:
    """Let users tell callers to call an echo elsewhere, in every tick."""
    for _ in range(ticks):
        for _ in range(r.randrange(4)):
            x, y = r.sample(range(1, 5), 2)
            net.call(10 * x, 10 * y + 1, bytes([r.randrange(256)]))
        net.step()


def test_message_delivered_on_a_lost_fork_is_delivered_again_once() -> None:
    """Two leaves route differently for 20 blocks: a and b follow the lost one, c and d the other."""
    net = Driven(CHAINS, faults=[fork(5, 24, 1, a=0, b=0, c=1, d=1)])
    r = Random(1)
    talk(net, r, 25)
    assert len(net.state["blocks"]) == 2
    lost = {key for key in net.delivered() if key[1] in (1, 2)}
    talk(net, r, 1)
    assert len(net.state["blocks"]) == 1
    assert sorted({chain for chain, _, _ in net.reverted}) == [1, 2]
    after = net.delivered()
    assert {key for key in lost if key not in after}, "nothing was delivered on the lost fork alone"
    talk(net, r, 4)
    net.step(12)
    again = net.delivered()
    assert set(again.values()) == {1}
    lanes = zip(*(net.state["queues"][name].tolist() for name in ("source", "destination", "next_index")), strict=True)
    assert set(again) == {(x, y, index) for x, y, end in lanes for index in range(end) if x != y}
    sound(net)


@pytest.mark.parametrize("cuts", [1, 3])
def test_five_leaves(cuts: int) -> None:
    """No leaf sees data of another, and partitioning does not matter."""
    net = Driven(CHAINS, faults=[fork(3, 8, 2, a=0, b=1, c=2, d=4), fork(12, 15, 0, a=1, b=0)], cuts=cuts, seed=3)
    talk(net, Random(2), 18)
    net.step(8)
    assert set(net.delivered().values()) == {1}
    sound(net)


def test_long_queue_roots_follow_the_definition() -> None:
    """Hazards 22 and 23: more messages than one-byte keys, and bodies around the width of a digest."""
    net = Driven(CHAINS)
    for size in (*range(28, 36), 0, 1, 64, 5_000, *[7] * 60):
        net.call(10, 21, bytes(size))
    net.step(8)
    assert net.delivered() == {(1, 2, i): 1 for i in range(72)} | {(2, 1, i): 1 for i in range(72)}
    sound(net)


def options_of(r: Random) -> dict[str, Any]:
    calls = []
    for _ in range(r.randrange(5)):
        do = r.choice(("register", "deregister", "block", "unblock"))
        chain, other = r.sample(sorted(CHAINS), 2)
        calls.append({"tick": r.randrange(20), "chain": chain, "do": do} | ({"other": other} if "block" in do else {}))
    ingress = {
        "ingress_upper": r.choice(("exclusive", "inclusive")),
        "watermark_rule": r.choice(("any_ancestor", "has_messages")),
        "allow_empty_prefix": r.choice(("on", "off")),
        "watermark_mode": "now_minus_1" if r.random() < 0.1 else "per_candidate",
    }
    bodies, loss, request = r.choice(("ideal", "drawn")), r.choice((0.0, 0.3)), r.choice(("off", "on"))
    drawn = {"body_loss": loss, "fallback_request": request, "body_ticks": r.choice((0.0, 3.0))}
    drawn = drawn if bodies == "drawn" else {}
    return {**ingress, "bodies": bodies, **drawn, "para_calls": calls}


def faults_of(r: Random, options: Mapping[str, Any]) -> list[FaultRule]:
    found = []
    if options["bodies"] == "drawn":
        first = r.randrange(14)
        found.append(FaultRule("drop", r.choice((None, 0, 1)), r.choice((None, 2)), first, first + r.randrange(8)))
    if options["watermark_mode"] == "per_candidate" and r.random() < 0.5:
        first = r.randrange(14)
        wrong = {"what": r.choice(JUDGED)}
        found.append(FaultRule("candidate", r.randrange(4), None, first, first + r.randrange(6), wrong))
    if r.random() < 0.7:
        first = r.randrange(2, 8)
        followers = {name: r.randrange(3) for name in CHAINS}
        found.append(fork(first, first + r.randrange(8), r.randrange(max(followers.values()) + 1), **followers))
    if r.random() < 0.4:
        chain = r.choice((None, 0, 1, 2))
        first = r.randrange(2, 14)
        halted = 4 if chain is None else chain
        found.append(FaultRule("halt", halted, None, first, first + r.randrange(6)))
    return found


def _random(seed: int, cuts: int = 1, forgetful: bool = False) -> Driven:
    r = Random(seed)
    options = options_of(r)
    net = Driven(CHAINS, options=options, faults=faults_of(r, options), seed=seed, cuts=cuts, forgetful=forgetful)
    talk(net, r, 20)
    net.step(6)
    if options["watermark_mode"] == "per_candidate":
        sound(net)
    net.fates()
    assert set(net.delivered().values()) <= {1}
    return net


def test_any_network() -> None:
    for seed in (1, 4, 13, 33):
        _random(seed)


@pytest.mark.slow
def test_any_network_of_many() -> None:
    for seed in range(100, sized(110, 130)):
        _random(seed, cuts=seed % 3 + 1, forgetful=seed % 2 == 1)
