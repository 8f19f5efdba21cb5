"""Parachains joining and leaving under HRMP (X-6, D-3): their channels, deposits and messages."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from causeway.core.vocabulary import Event, Kind
from causeway.protocols.relay_chain.options import IcmpOptions, ParaCall
from tests.support.icmp.icmp_hrmp_network import Hrmp

CHAINS = {"a": {1: "caller"}, "b": {2: "caller", 12: "echo"}, "c": {3: "caller", 13: "echo"}}


def paras(*rows: tuple[int, str, str]) -> list[dict[str, Any]]:
    return [{"tick": tick, "do": do, "chain": chain} for tick, do, chain in rows]


def until(net: Hrmp, tick: int) -> None:
    while net.tick < tick:
        net.step()


def all_calls_ended(net: Hrmp) -> bool:
    """Return whether every program call or its answer was answered, rejected or dropped."""
    made = net.count(Event.EXECUTED, Kind.INGRESS)
    answered = net.count(Event.EXECUTED, Kind.RESPONSE)
    return made == answered + net.count(Event.DROPPED)


def test_pending_messages_to_a_leaving_parachain_are_dropped_and_deposits_returned() -> None:
    leaves = paras((30, "deregister", "b"))
    net = Hrmp(CHAINS, halts=[("b", 26, 60)], session_blocks=4, max_message_size=256, para_calls=leaves)
    net.tell(1, 12)
    until(net, 26)
    assert net.count(Event.EXECUTED, Kind.RESPONSE) == 1
    net.tell(1, 12, 9, bytes(60))
    until(net, 30)
    assert len(net.table("contents")) == 2 and net.table("pages")
    net.settle()
    assert net.reasons() == {"DestinationDoesNotExist": 9}
    assert all_calls_ended(net)
    assert all(not net.table(name) for name in ("channels", "requests", "contents", "digests", "pages", "runs"))
    assert {row["held"] for row in net.table("sovereign")} == {0}
    net.tell(1, 12)
    net.settle()
    assert net.count(Event.REJECTED) == 1


def test_sent_messages_leave_with_a_parachain_and_unsent_ones_await_registration() -> None:
    comes = paras((30, "deregister", "b"), (60, "register", "b"), (61, "register", "b"))
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 600, "max_capacity": 1}
    net = Hrmp(CHAINS, halts=[("a", 23, 58)], session_blocks=4, para_calls=comes, **small)
    net.tell(1, 12, 9, bytes(60))
    until(net, 58)
    inside, waits = net.reasons()["ChannelClosed"], sum(row["count"] for row in net.table("pages"))
    assert inside > 0 and waits > 0
    until(net, 61)
    assert {row["para"]: row["watermark"] for row in net.table("paras")}[2] == 60
    net.settle()
    assert all_calls_ended(net)
    assert net.received()[2, 1] == sorted(set(net.received()[2, 1]))
    net.tell(1, 12)
    net.settle()
    # One call of "a" had not been sent when "b" left.
    assert all_calls_ended(net) and net.reasons() == {"ChannelClosed": inside, "DestinationDoesNotExist": 1}


def test_late_parachain_receives_nothing_earlier() -> None:
    net = Hrmp(CHAINS, session_blocks=3, para_calls=paras((20, "register", "b")))
    net.tell(1, 12)
    net.tell(2, 13)
    net.settle()
    assert net.count(Event.REJECTED) == 1 and net.count(Event.EXECUTED, Kind.RESPONSE) == 2
    net.tell(1, 12)
    net.settle()
    assert net.count(Event.REJECTED) == 1 and net.count(Event.EXECUTED, Kind.RESPONSE) == 3


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_random_networks_with_parachains_joining_and_leaving(seed: int) -> None:
    """Every call ends, and roots are independent of buckets.

    The oracle, the accounts and the counts are checked at every tick.
    """
    nets = []
    for cuts in (1, 3):
        random = Random(seed)
        gone = [(random.randrange(18, 30), "deregister", name) for name in "bc"]
        moves = [(random.randrange(18, 44), random.choice(("register", "deregister")), name) for name in "bcbc"]
        planned = paras(*gone, *moves, (48, "register", "b"), (48, "register", "c"))
        small: dict[str, Any] = {
            "max_message_size": 256,
            "max_total_size": 600,
            "max_capacity": 2,
            "max_messages_per_candidate": 1,
        }
        net = Hrmp(
            CHAINS,
            cuts,
            halts=[("c", 12, 18), ("relay", 30, 33), ("a", 36, 42)],
            session_blocks=3,
            pages_per_block=1,
            overflow="drop" if seed % 2 else "wait",
            oracle=cuts == 1,
            para_calls=planned,
            channel_calls=[
                {"tick": random.randrange(12, 40), "do": "close", "sender": x, "recipient": y}
                for x, y in ("ab", "ba", "cb")
            ],
            **small,
        )
        for _ in range(46):
            if random.random() < 0.7:
                count = random.randrange(1, 5)
                net.tell(
                    random.choice((1, 2, 3)), random.choice((12, 13)), count, random.randbytes(random.randrange(90))
                )
            net.step()
        net.settle()
        assert all_calls_ended(net)
        assert net.count(Event.DROPPED) > 0
        assert not net.table("runs") and not net.table("contents")
        for indices in net.received().values():
            assert indices == sorted(set(indices))
        nets.append(net)
    assert nets[0].headers == nets[1].headers


def test_censoring_applies_to_egress_queues_only() -> None:
    with pytest.raises(ValidationError) as error:
        IcmpOptions(channels="hrmp", para_calls=(ParaCall(tick=1, chain="a", do="block", other="b"),))
    assert '\'block\'; allowed with channels = "hrmp": "register", "deregister"' in str(error.value)
