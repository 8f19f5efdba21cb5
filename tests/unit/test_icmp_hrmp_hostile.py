"""What goes wrong between the ends of HRMP channels (X-6): each of it leaves the network alive, and every call ends."""

from __future__ import annotations

from typing import Any

import pytest

from causeway.model.errors import InvalidInput
from causeway.model.ledger import Event, Kind
from tests.unit.icmp_hrmp_network import Hrmp

CHAINS = {"a": {1: "caller"}, "b": {2: "echo"}}


def with_a_resume(halts: list[tuple[str, int, int]], closes: int | None) -> tuple[Hrmp, int]:
    """A network in which "b" suspends "a" and resumes it; and the tick after which the signal is in the channel."""
    calls = [] if closes is None else [{"tick": closes, "do": "close", "sender": "b", "recipient": "a"}]
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 25_600, "pages_per_block": 1}
    net = Hrmp(CHAINS, halts=[("b", 11, 21), *halts], session_blocks=2, channel_calls=calls, **small)
    net.tell(1, 2)
    found = 0
    while net.tick < 70:
        if 10 <= net.tick < 26:
            net.tell(1, 2, 3, bytes(60))
        net.step()
        found = found or net.tick * any(row["data"] == b"\x02\x01" for row in net.table("contents"))
    return net, found


def test_a_sender_whose_resumption_went_with_a_closed_channel_goes_on() -> None:
    _, tick = with_a_resume([], None)
    net, _ = with_a_resume([("a", tick, tick + 14)], tick)
    assert net.reasons()["ChannelClosed"] > 0
    net.settle()
    made = net.count(Event.EXECUTED, Kind.INGRESS)
    assert made == 49 == net.count(Event.EXECUTED, Kind.RESPONSE) + net.count(Event.DROPPED)
    assert not net.table("pages")


REFUSED = {
    "parent": "ParentMismatch",
    "ahead": "AheadRelayParent",
    "watermark_back": "AdvancementRule",
    "no_messages": "LandsOnBlockWithNoMessages",
    "many": "MoreMessagesThanPermitted",
    "unsorted": "NotSorted",
    "unknown": "NoSuchChannel",
    "oversized": "MaxMessageSizeExceeded",
    "total_size": "TotalSizeExceeded",
    "capacity": "CapacityExceeded",
    "calls": "TooManyCalls",
    "call_bytes": "CallsTooLarge",
    "partial": "HeadMismatch",
    "skipped": "HeadMismatch",
    "sender": "HeadMismatch",
    "body": "HeadMismatch",
}


def with_malicious(*faults: str) -> Hrmp:
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 520, "max_capacity": 2}
    chains = {"a": {1: "caller"}, "b": {2: "echo", 3: "caller"}, "c": {4: "echo"}}
    malicious = [(name, what) for what in faults for name in chains]
    net = Hrmp(chains, 2, [("c", 12, 22)], oracle=False, malicious=malicious, session_blocks=3, **small)
    for tick in range(24):
        if tick % 3 == 0:
            net.tell(1, 2, 2, bytes(60))
            net.tell(1, 4, 2, bytes(60))
            net.tell(3, 4, 1)
        net.step()
    net.settle()
    return net


def test_each_malicious_candidate_is_refused_by_its_name_and_changes_nothing() -> None:
    honest, hostile = with_malicious(), with_malicious(*REFUSED)
    assert honest.reasons() == {}
    assert hostile.headers == honest.headers and hostile.tick == honest.tick
    counts = hostile.reasons()
    assert set(counts) == set(REFUSED.values())
    # Of those that can always be made there is one for each block; what is consumed can be falsified in four ways.
    made = sum(map(len, (roots for chain, roots in honest.headers.items() if chain))) - 3
    always = {name for what, name in REFUSED.items() if what in ("parent", "ahead", "many", "unknown", "calls")}
    assert {name: counts[name] for name in always} == dict.fromkeys(always, made)
    assert counts["HeadMismatch"] % 4 == 0


@pytest.mark.parametrize(("what", "error"), [("body", "HeadMismatch"), ("capacity", "CapacityExceeded")])
def test_a_malicious_candidate_is_refused_for_what_is_wrong_with_it(what: str, error: str) -> None:
    assert set(with_malicious(what).reasons()) == {error}


@pytest.mark.parametrize(
    ("malicious", "said"),
    [
        (("a", "root"), 'what = "root": it does nothing with channels = "hrmp"'),
        (("relay", "many"), "it is the relay chain"),
    ],
)
def test_candidates_that_do_nothing_are_refused(malicious: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Hrmp(CHAINS, malicious=[malicious])
    assert said in str(error.value)
